//! What may be said: verdicts, gates, causes, and above all comparisons, in words.
//!
//! Promises: an arm is called better or worse only if the whole interval of its ratio lies on one side of 1 and the two
//! may be ranked, and, where the baseline was measured twice, only if it is farther from it than that is from itself; "no difference larger than"
//! names a bound that holds for the whole interval.

use storebench_crds::Metric;
use storebench_crds::status::{Comparison, GateOutcome, Verdict};

use super::Report;
use super::lookup;
use super::table::Tone;
use super::units;
use crate::judgement::{NOTHING_JUDGED, Standing, in_order};
use crate::record::{ArmRecord, Driver, FailureCause};

/// A verdict in words, with a sign of one column for those who do not see colours.
pub(super) fn verdict(verdict: Verdict) -> (&'static str, &'static str, Tone) {
    match verdict {
        Verdict::Passed => ("✓", "Passed", Tone::Good),
        Verdict::Regressed => ("✗", "Regressed", Tone::Bad),
        Verdict::Inconclusive => ("?", "Inconclusive", Tone::Warning),
        Verdict::Invalid => ("!", "Invalid", Tone::Bad),
        Verdict::NoBaseline => ("○", "Nothing to compare", Tone::Plain),
    }
}

/// A run's verdict in words, with its sign. One that passed without anything that could have failed it is no good news, and says so.
pub(super) fn headline(report: &Report) -> (&'static str, String, Tone) {
    let judgement = &report.judgement;
    let (sign, word, tone) = verdict(judgement.verdict);
    match judgement.verdict == Verdict::Passed && judgement.message.starts_with(NOTHING_JUDGED) {
        true => ("○", format!("{word} (no gates)"), Tone::Plain),
        false => (sign, word.to_owned(), tone),
    }
}

/// What a verdict means for whoever reads it for the first time.
pub(super) fn verdict_meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "No gate was missed.",
        Verdict::Regressed => "At least one gate was missed, beyond noise.",
        Verdict::Inconclusive => "The trials cannot tell whether the gates are met.",
        Verdict::Invalid => "The measurement cannot be trusted. Do not quote a number of this run.",
        Verdict::NoBaseline => "There was nothing to compare with, or nothing was asked of the comparison.",
    }
}

/// A gate's outcome in words, with its sign.
pub(super) fn gate_outcome(outcome: GateOutcome) -> (&'static str, &'static str, Tone) {
    match outcome {
        GateOutcome::Met => ("✓", "met", Tone::Good),
        GateOutcome::Missed => ("✗", "missed", Tone::Bad),
        GateOutcome::Undecided => ("?", "undecided", Tone::Warning),
        GateOutcome::NotJudged => ("–", "not judged", Tone::Dim),
    }
}

/// Whose doing a failure was.
pub(super) fn failure_cause(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::WrongAnswer => "wrong answer",
        FailureCause::StoreFailed => "store failed",
        FailureCause::OutOfReach => "out of reach",
        FailureCause::Disturbed => "disturbed",
        FailureCause::Platform => "platform failed",
    }
}

/// What realised the run, and whether what it loads was there already.
pub(super) fn driver(driver: Driver, arms: &[ArmRecord]) -> &'static str {
    let external = arms.iter().filter(|arm| arm.is_external()).count();
    match (driver, external) {
        (Driver::Embedded, 0) => "embedded, processes on loopback",
        (Driver::Kubernetes, 0) => "Kubernetes, pods",
        (Driver::Embedded, all) if all == arms.len() => "loaded from this machine, stores that were there already",
        (Driver::Kubernetes, all) if all == arms.len() => "loaded by pods, stores that were there already",
        (Driver::Embedded, _) => "embedded, processes on loopback beside stores that were there already",
        (Driver::Kubernetes, _) => "Kubernetes, pods beside stores that were there already",
    }
}

/// What a comparison says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The ratio with its interval, as `1.42× (1.35–1.49)`.
    pub(super) ratio: String,
    /// What may be concluded, as `faster`, `no difference larger than 3 %`, `undecided`, `not ranked`.
    pub(super) conclusion: String,
    /// The two in the fewest words.
    pub(super) sentence: String,
    /// Whether it is good news.
    pub(super) tone: Tone,
}

/// Puts a comparison into words.
pub(super) fn finding(report: &Report, comparison: &Comparison) -> Finding {
    let Comparison { ratio_basis_points, low_basis_points, high_basis_points, .. } = *comparison;
    let ratio = [ratio_basis_points, low_basis_points, high_basis_points];
    of_ratio(comparison.metric, ratio, lookup::standing(report, comparison))
}

/// Puts a ratio into words: itself with the ends of its interval, basis points, and what may be concluded from it.
pub(super) fn of_ratio(metric: Metric, ratio: [u64; 3], standing: Standing) -> Finding {
    let [middle, low, high] = in_order(ratio);
    let ratio = units::ratio(middle, low, high);
    let (larger, smaller) = metric.direction.words();
    let news = |is_good| if is_good { Tone::Good } else { Tone::Bad };
    let larger_is_better = metric.direction.more_is_better();
    let (conclusion, tone) = match standing {
        Standing::NotRanked => ("not ranked", Tone::Warning),
        Standing::NoiseFloor => ("the baseline against itself", Tone::Plain),
        Standing::WithinFloor => ("within the noise floor", Tone::Plain),
        Standing::Higher => (larger, news(larger_is_better)),
        Standing::Lower => (smaller, news(!larger_is_better)),
        Standing::Undecided => ("undecided", Tone::Dim),
        Standing::Tie(bound) => {
            let sentence = format!("no difference larger than {}", units::percent_bound(bound));
            return Finding { ratio, conclusion: sentence.clone(), sentence, tone: Tone::Plain };
        }
    };
    Finding { sentence: format!("{ratio} {conclusion}"), ratio, conclusion: conclusion.to_owned(), tone }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use proptest::prelude::*;
    use storebench_crds::status::{NOISE_FLOOR, NoiseFloor};

    fn said(metric: Metric, ratio: u64, low: u64, high: u64) -> Finding {
        let report = fixture::two_arms();
        let mut comparison = report.judgement.comparisons[0].clone();
        comparison.metric = metric;
        (comparison.ratio_basis_points, comparison.low_basis_points, comparison.high_basis_points) = (ratio, low, high);
        finding(&report, &comparison)
    }

    #[test]
    fn comparisons_in_words() {
        let throughput = |ratio, low, high| said(Metric::THROUGHPUT, ratio, low, high);
        assert_eq!(throughput(14_200, 13_500, 14_900).sentence, "1.42× (1.35–1.49) faster");
        assert_eq!(throughput(8_100, 7_900, 8_300).sentence, "0.81× (0.79–0.83) slower");
        assert_eq!(throughput(10_050, 9_800, 10_290).sentence, "no difference larger than 3 %");
        assert_eq!(throughput(10_400, 8_500, 12_700).sentence, "1.04× (0.85–1.27) undecided");
        let latency = said(Metric::LATENCY_P99, 7_100, 6_600, 7_700);
        assert_eq!((latency.sentence.as_str(), latency.tone), ("0.71× (0.66–0.77) lower", Tone::Good));
        let latency = said(Metric::LATENCY_P99, 14_100, 13_600, 14_700);
        assert_eq!((latency.sentence.as_str(), latency.tone), ("1.41× (1.36–1.47) higher", Tone::Bad));
    }

    #[test]
    fn a_reason_not_to_rank_is_stronger_than_any_number() {
        let mut report = fixture::two_arms();
        let mut comparison = report.judgement.comparisons[0].clone();
        comparison.not_ranked = Some("unequal durability".into());
        assert_eq!(finding(&report, &comparison).conclusion, "not ranked");
        comparison.not_ranked = None;
        assert_eq!(finding(&report, &comparison).conclusion, "faster");
        report.judgement.verdict = Verdict::Invalid;
        assert_eq!(finding(&report, &comparison).conclusion, "not ranked");
    }

    #[test]
    fn a_difference_that_the_baseline_has_from_itself_is_neither_better_nor_worse() {
        let mut report = fixture::two_arms();
        let mut compared = report.judgement.comparisons[0].clone();
        (compared.ratio_basis_points, compared.low_basis_points, compared.high_basis_points) = (10_500, 10_300, 10_700);
        let floor =
            |low, high| Some(NoiseFloor { ratio_basis_points: 9_800, low_basis_points: low, high_basis_points: high });
        assert_eq!(finding(&report, &compared).sentence, "1.05× (1.03–1.07) faster");
        compared.noise_floor = floor(9_450, 10_100);
        let within = finding(&report, &compared);
        assert_eq!((within.sentence.as_str(), within.tone), ("1.05× (1.03–1.07) within the noise floor", Tone::Plain));
        compared.noise_floor = floor(9_700, 10_100);
        assert_eq!(finding(&report, &compared).conclusion, "faster", "its other end counts as far as it reaches");
        // The floor itself is no arm that could win.
        (compared.arm, compared.noise_floor) = (NOISE_FLOOR.into(), None);
        assert_eq!(finding(&report, &compared).conclusion, "the baseline against itself");
        report.judgement.verdict = Verdict::Invalid;
        assert_eq!(finding(&report, &compared).conclusion, "not ranked");
    }

    proptest! {
        #[test]
        fn an_interval_that_contains_parity_names_no_winner(low in 0u64..=10_000, high in 10_000u64..1_000_000, share in 0u64..=100) {
            let ratio = low + (high - low) * share / 100;
            for metric in [Metric::THROUGHPUT, Metric::LATENCY_P99, Metric::CPU] {
                let finding = said(metric, ratio, low, high);
                prop_assert!(
                    finding.conclusion == "undecided" || finding.conclusion.starts_with("no difference larger than"),
                    "{finding:?}"
                );
                prop_assert!(!matches!(finding.tone, Tone::Good | Tone::Bad));
            }
        }

        #[test]
        fn no_numbers_cause_a_panic(ratio in any::<u64>(), low in any::<u64>(), high in any::<u64>()) {
            said(Metric::named("MemoryPeakBytes").unwrap(), ratio, low, high);
        }
    }
}
