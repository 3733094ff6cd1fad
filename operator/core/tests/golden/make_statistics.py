"""Writes statistics.json: what NumPy and SciPy say the statistics of `storebench_core::statistics` should be.

Run by hand when a data set or a formula is added; the JSON is checked in and tests need no Python:

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install numpy==2.3.3 scipy==1.16.2
    /tmp/golden/bin/python make_statistics.py

Written from the definitions, sharing no code and no trick with the Rust side: Walsh averages by brute force, the
bootstrap by scipy.stats.bootstrap, power by the noncentral t distribution, and the Hodges-Lehmann estimate a second
time as the shift at which Wilcoxon's signed-rank statistic meets its expectation.
"""

import json
import math
import pathlib

import numpy as np
from scipy import integrate, optimize, stats

CONFIDENCE = 0.95
RESAMPLES = 100_000
# Resamples that the Rust side draws in the golden test. Its quantiles carry Monte Carlo error of their own.
RESAMPLES_RUST = 100_000


def hodges_lehmann(values, axis=-1):
    values = np.moveaxis(np.asarray(values), axis, -1)
    first, second = np.triu_indices(values.shape[-1])
    return np.median((values[..., first] + values[..., second]) / 2, axis=-1)


def hodges_lehmann_by_wilcoxon(values):
    """The middle of the shifts at which W+ crosses n(n+1)/4, found by bisection on scipy.stats.wilcoxon."""
    expected = len(values) * (len(values) + 1) / 4

    def above(shift):
        return stats.wilcoxon(values - shift, alternative="greater", zero_method="zsplit").statistic - expected

    def crossing(keep_going):
        low, high = values.min() - 1, values.max() + 1
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if keep_going(above(middle)) else (low, middle)
        return (low + high) / 2

    return (crossing(lambda excess: excess > 0) + crossing(lambda excess: excess >= 0)) / 2


def expanded_tail(trials, confidence):
    quantile = stats.t.ppf(0.5 + confidence / 2, trials - 1)
    return float(stats.norm.cdf(-math.sqrt(trials / (trials - 1)) * quantile))


def bootstrap(values, confidence, seed):
    """The ends, each with the bracket in which another correct bootstrap falls.

    The rank of a true quantile p among B draws has standard deviation sqrt(p (1 - p) B). Two bootstraps, SciPy's and
    Rust's, differ in rank by the root of the sum of squares; five of those is the bracket.
    """
    tail = expanded_tail(len(values), confidence)
    result = stats.bootstrap(
        (values,),
        hodges_lehmann,
        vectorized=True,
        method="percentile",
        confidence_level=1 - 2 * tail,
        n_resamples=RESAMPLES,
        batch=5000,
        rng=np.random.default_rng(seed),
    )
    error = 5 * math.sqrt(tail * (1 - tail) * (1 / RESAMPLES + 1 / RESAMPLES_RUST))
    around = np.clip([tail - error, tail + error], 0, 1)
    distribution = result.bootstrap_distribution
    return {
        "low": result.confidence_interval.low,
        "high": result.confidence_interval.high,
        "low_bracket": np.quantile(distribution, around).tolist(),
        "high_bracket": np.quantile(distribution, (1 - around)[::-1]).tolist(),
    }


def power(noncentrality, trials, alpha):
    critical = stats.t.ppf(1 - alpha / 2, trials - 1)
    above = stats.nct.sf(critical, trials - 1, noncentrality)
    # SciPy's nct.cdf answers NaN for some points of the far tail, so the small other half is integrated.
    root = math.sqrt(trials - 1)

    def below(spread):
        rejected = stats.norm.cdf(-critical * spread - noncentrality)
        return rejected * stats.chi.pdf(spread * root, trials - 1) * root

    return above + sum(integrate.quad(below, low, high)[0] for low, high in ((0, 1), (1, np.inf)))


def minimum_detectable_effect(deviation, trials, alpha, wanted):
    noncentrality = optimize.brentq(
        lambda value: power(value, trials, alpha) - wanted, 1e-9, 300, xtol=1e-13, rtol=1e-13
    )
    return deviation * noncentrality / math.sqrt(trials)


def data_sets():
    random = np.random.default_rng(20260101)
    noises = {
        "normal": lambda trials: random.standard_normal(trials),
        "heavy-tailed": lambda trials: random.standard_t(3, trials),
    }
    for trials in (3, 5, 8, 10, 20, 30):
        for name, noise in noises.items():
            drift = np.linspace(1.0, 1.3, trials)
            baseline = 4000 * drift * np.exp(0.02 * random.standard_normal(trials))
            candidate = 4400 * drift * np.exp(0.03 * noise(trials))
            yield f"{name}, {trials} trials", candidate.round(3), baseline.round(3)
    # Latencies in whole microseconds: ties.
    yield "ties, 10 trials", np.array([200, 201, 200, 200, 203, 200, 201, 201, 200, 260.0]), np.full(10, 200.0)


def golden_data_set(index, name, candidate, baseline):
    values = np.log(candidate) - np.log(baseline)
    student = stats.t.interval(CONFIDENCE, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    return {
        "name": name,
        "candidate": candidate.tolist(),
        "baseline": baseline.tolist(),
        "log_ratios": values.tolist(),
        "standard_deviation": float(values.std(ddof=1)),
        "hodges_lehmann": float(hodges_lehmann(values)),
        "hodges_lehmann_by_wilcoxon": float(hodges_lehmann_by_wilcoxon(values)),
        "student": [float(end) for end in student],
        "bootstrap": bootstrap(values, CONFIDENCE, index),
    }


def trials_needed(deviation, target, confidence):
    trials = 3
    while stats.t.ppf(0.5 + confidence / 2, trials - 1) * deviation / math.sqrt(trials) > target:
        trials += 1
    return trials


def main():
    golden = {
        "scipy": "1.16.2",
        "numpy": "2.3.3",
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES_RUST,
        "data_sets": [golden_data_set(index, *data) for index, data in enumerate(data_sets())],
        "expanded_tails": [
            {"trials": trials, "confidence": confidence, "tail": expanded_tail(trials, confidence)}
            for trials in (3, 4, 5, 8, 10, 20, 30, 100, 1000)
            for confidence in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
        ],
        "minimum_detectable_effects": [
            {
                "trials": trials,
                "alpha": alpha,
                "power": wanted,
                "effect": minimum_detectable_effect(0.05, trials, alpha, wanted),
            }
            for trials in (3, 5, 8, 10, 20, 30, 100)
            for alpha in (0.1, 0.05, 0.01, 0.001)
            for wanted in (0.5, 0.8, 0.9, 0.99)
        ],
        "trials_needed": [
            {
                "deviation": deviation,
                "target": target,
                "confidence": confidence,
                "trials": trials_needed(deviation, target, confidence),
            }
            for deviation, target in ((0.05, 0.02), (0.01, 0.02), (0.03, 0.01), (0.2, 0.03))
            for confidence in (0.9, 0.95, 0.99)
        ],
    }
    path = pathlib.Path(__file__).with_name("statistics.json")
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
