//! What API servers said of their requests, over all counted trials: histograms are added, percentiles interpolated from the
//! sum.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use storebench_crds::api_requests::{AnsweredBy, RequestBucket, RequestHistogram};
use storebench_crds::status::{ApiServerLatency, RequestLatency};

use super::summary::measurements;
use super::{Valid, available};
use crate::record::WorkloadMeasurement;

/// Latency of requests of one kind that one workload made or caused on one arm.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestResult {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// Who answered.
    pub answered_by: AnsweredBy,
    /// What was asked, such as `POST`, or of the store `create`.
    pub verb: String,
    /// Of what, such as `configmaps`.
    pub resource: String,
    /// Whether it changed something.
    pub is_write: bool,
    /// How long it took.
    pub latency: RequestLatency,
}

/// Every kind of request, of each workload and arm: the API server's own before those to the store, writes before reads, the
/// most frequent first.
pub(super) fn results(valid: &Valid) -> Vec<RequestResult> {
    let mut results = Vec::new();
    for workload in &valid.record.spec.workloads {
        for arm in available(valid.record) {
            let mut kinds: BTreeMap<(AnsweredBy, &str, &str), Vec<&RequestHistogram>> = BTreeMap::new();
            for one in histograms(&measurements(valid, arm, &workload.name)) {
                kinds.entry((one.answered_by, &one.verb, &one.resource)).or_default().push(one);
            }
            results.extend(kinds.into_iter().filter_map(|((answered_by, verb, resource), all)| {
                Some(RequestResult {
                    workload: workload.name.clone(),
                    arm: arm.into(),
                    answered_by,
                    verb: verb.into(),
                    resource: resource.into(),
                    is_write: all.iter().any(|one| one.is_write()),
                    latency: latency(all.into_iter())?,
                })
            }));
        }
    }
    // Stable: workloads and arms stay as they are.
    let position = |name: &str| valid.record.spec.workloads.iter().position(|workload| workload.name == name);
    results
        .sort_by_key(|one| (position(&one.workload), one.answered_by, !one.is_write, u64::MAX - one.latency.requests));
    results
}

/// All kinds of one workload and arm together. `None`: the API server said nothing, or there is none.
pub(super) fn summary(measurements: &[&WorkloadMeasurement]) -> Option<ApiServerLatency> {
    let of = |answered_by, is_write| {
        latency(histograms(measurements).filter(|one| one.answered_by == answered_by && one.is_write() == is_write))
    };
    let summary = ApiServerLatency {
        writes: of(AnsweredBy::ApiServer, true),
        reads: of(AnsweredBy::ApiServer, false),
        store_writes: of(AnsweredBy::Store, true),
        store_reads: of(AnsweredBy::Store, false),
    };
    (summary != ApiServerLatency::default()).then_some(summary)
}

fn histograms<'a>(measurements: &[&'a WorkloadMeasurement]) -> impl Iterator<Item = &'a RequestHistogram> {
    measurements.iter().filter_map(|one| one.api_requests.as_ref()).flat_map(|requests| &requests.kinds)
}

/// Mean and percentiles of several histograms together. `None` of nothing.
fn latency<'a>(histograms: impl Iterator<Item = &'a RequestHistogram>) -> Option<RequestLatency> {
    let (mut sum_nanos, mut buckets) = (0u64, BTreeMap::<(u64, u64), u64>::new());
    for histogram in histograms {
        sum_nanos = sum_nanos.saturating_add(histogram.sum_nanos);
        for RequestBucket { above_nanos, up_to_nanos, count } in &histogram.buckets {
            *buckets.entry((*above_nanos, up_to_nanos.unwrap_or(u64::MAX))).or_default() += count;
        }
    }
    let requests: u64 = buckets.values().sum();
    (requests > 0).then(|| RequestLatency {
        requests,
        mean_nanos: sum_nanos / requests,
        p50_nanos: quantile(&buckets, requests, 0.5),
        p99_nanos: quantile(&buckets, requests, 0.99),
    })
}

/// The bucket in which the quantile lies, and its place there as if the bucket were evenly filled, as Prometheus'
/// `histogram_quantile` has it. Of a bucket without an end, its beginning.
fn quantile(buckets: &BTreeMap<(u64, u64), u64>, requests: u64, quantile: f64) -> u64 {
    let rank = quantile * requests as f64;
    let mut below = 0.0;
    for (&(above_nanos, up_to_nanos), &count) in buckets {
        let count = count as f64;
        if below + count >= rank {
            let share = ((rank - below) / count).clamp(0.0, 1.0);
            let width_nanos = if up_to_nanos == u64::MAX { 0 } else { up_to_nanos.saturating_sub(above_nanos) };
            return above_nanos + (width_nanos as f64 * share) as u64;
        }
        below += count;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECOND: u64 = 1_000_000;

    fn histogram(verb: &str, counts: &[(u64, Option<u64>, u64)]) -> RequestHistogram {
        let bucket = |&(above, up_to, count): &(u64, Option<u64>, u64)| RequestBucket {
            above_nanos: above * MILLISECOND,
            up_to_nanos: up_to.map(|up_to| up_to * MILLISECOND),
            count,
        };
        RequestHistogram {
            answered_by: AnsweredBy::ApiServer,
            verb: verb.into(),
            resource: "configmaps".into(),
            sum_nanos: 300 * MILLISECOND,
            buckets: counts.iter().map(bucket).collect(),
        }
    }

    #[test]
    fn trials_are_added_up_and_percentiles_lie_within_their_bucket() {
        let trials = [histogram("POST", &[(0, Some(5), 90)]), histogram("POST", &[(0, Some(5), 6), (5, Some(25), 4)])];
        let found = latency(trials.iter()).unwrap();
        assert_eq!((found.requests, found.mean_nanos), (100, 6 * MILLISECOND));
        // The 50th of 96 in 5 ms; the 99th is the third of four between 5 and 25 ms.
        assert_eq!((found.p50_nanos, found.p99_nanos), (2_604_166, 20 * MILLISECOND));
        assert_eq!(latency([].into_iter()), None);
    }

    #[test]
    fn of_a_bucket_without_an_end_nothing_is_made_up() {
        let found = latency([histogram("POST", &[(60_000, None, 3)])].iter()).unwrap();
        assert_eq!((found.p50_nanos, found.p99_nanos), (60_000 * MILLISECOND, 60_000 * MILLISECOND));
    }

    proptest! {
        #[test]
        fn a_percentile_is_never_farther_off_than_its_bucket_is_wide(mut micros in prop::collection::vec(1u64..60_000, 1..200)) {
            let bounds = [0u64, 5_000, 25_000, 50_000, 100_000];
            let counts: Vec<_> = bounds.windows(2).map(|pair| {
                let count = micros.iter().filter(|one| **one > pair[0] && **one <= pair[1]).count() as u64;
                (pair[0] / 1_000, Some(pair[1] / 1_000), count)
            }).filter(|(.., count)| *count > 0).collect();
            let found = latency([histogram("POST", &counts)].iter()).unwrap();
            micros.sort_unstable();
            for (quantile, nanos) in [(0.5, found.p50_nanos), (0.99, found.p99_nanos)] {
                let rank = (quantile * micros.len() as f64).ceil() as usize;
                let exact = micros[rank.max(1) - 1];
                let upper = bounds.iter().find(|bound| **bound >= exact).unwrap();
                let lower = bounds.iter().rev().find(|bound| **bound < exact).unwrap();
                prop_assert!(nanos >= lower * 1_000 && nanos <= upper * 1_000, "{nanos} of {exact} µs");
            }
        }
    }
}
