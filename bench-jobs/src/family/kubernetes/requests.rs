//! Asks the API server what it says of the requests of the measured phase: its `/metrics` at both ends, and by how much its
//! histograms grew in between. Pure but for [`Requests`].
//!
//! Whoever may not read `/metrics`, or reads those of several API servers in turns, has no such figures; that is told and costs
//! the trial nothing else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use kube::Client;
use storebench_crds::api_requests::{AnsweredBy, ApiRequests, RequestBucket, RequestHistogram};
use storebench_crds::job::JobLine;
use storebench_crds::workload::kubernetes::KubernetesOperation;
use tokio::runtime::Runtime;

use super::connection;
use crate::failure::short_line;
use crate::load::Onlooker;
use crate::measure::exposition::{Sample, samples};

/// An API server that does not hand over its metrics within this is not asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A longer answer is refused: an API server of a small cluster says 2 to 4 MB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

const OF_API_SERVER: &str = "apiserver_request_duration_seconds";
const OF_STORE: &str = "etcd_request_duration_seconds";
/// Tells one process from another.
const STARTED: &str = "process_start_time_seconds";
/// Requests that end when their client leaves.
const ENDLESS: [&str; 3] = ["WATCH", "WATCHLIST", "CONNECT"];

/// The resources whose requests belong to a workload: what it changes itself, and what Kubernetes changes because of that.
fn resources(operation: KubernetesOperation) -> &'static [&'static str] {
    match operation {
        KubernetesOperation::CreateNamespaces => &["namespaces"],
        KubernetesOperation::CreateConfigMaps | KubernetesOperation::ListAndWatch | KubernetesOperation::MixedChurn => {
            &["configmaps"]
        }
        KubernetesOperation::DeployAndScale | KubernetesOperation::RollingUpdate => {
            &["deployments", "replicasets", "pods"]
        }
        KubernetesOperation::DeleteNamespaces => &["namespaces", "configmaps"],
        KubernetesOperation::CreateJobs => &["jobs", "pods"],
        KubernetesOperation::CustomResourceChurn => &["churns"],
        KubernetesOperation::NodeHeartbeats => &["leases"],
    }
}

/// Who looks at an API server's metrics before the measured phase and after it.
pub struct Requests {
    workload: String,
    operation: KubernetesOperation,
    runtime: Runtime,
    /// Or why there is none.
    client: Result<Client, String>,
    before: RefCell<Result<Histograms, String>>,
}

impl Requests {
    /// Connects. Only the system itself can fail here; who cannot be reached is told of at the end.
    pub fn of(workload: &str, operation: KubernetesOperation, kubeconfig: &str) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(connection::connect(kubeconfig, ANSWER_TIMEOUT));
        let client = client.map_err(|failure| failure.text().to_owned());
        let before = RefCell::new(Err("they were not asked for".into()));
        Ok(Self { workload: workload.into(), operation, runtime, client, before })
    }

    fn look(&self) -> Result<Histograms, String> {
        let text = self.metrics()?;
        Histograms::read(&text, resources(self.operation))
    }

    fn metrics(&self) -> Result<String, String> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let request = http::Request::get("/metrics").body(Vec::new()).map_err(|error| error.to_string())?;
        let answer = async { tokio::time::timeout(ANSWER_TIMEOUT, client.request_text(request)).await };
        let text = match self.runtime.block_on(answer) {
            Ok(answer) => answer.map_err(|error| connection::failure("GET", "/metrics", &error).text().to_owned())?,
            Err(_) => return Err(format!("GET /metrics: no answer within {ANSWER_TIMEOUT:?}")),
        };
        match text.len() {
            0..=ANSWER_BYTES_MAX => Ok(text),
            bytes => Err(format!("GET /metrics: {bytes} bytes are more than {ANSWER_BYTES_MAX}")),
        }
    }
}

impl Onlooker for Requests {
    fn before(&self) {
        *self.before.borrow_mut() = self.look();
    }

    fn after(&self) -> Option<JobLine> {
        let before = self.before.replace(Err("they were not asked for".into()));
        let grown = before.and_then(|before| self.look()?.since(&before));
        let requests = match grown {
            Ok(kinds) => ApiRequests { kinds, problem: None },
            Err(problem) => ApiRequests { kinds: Vec::new(), problem: Some(short_line(&problem)) },
        };
        Some(JobLine::ApiRequests { workload: self.workload.clone(), requests })
    }
}

/// Who answered what of what.
type Kind = (AnsweredBy, String, String);

/// Requests so far, of one kind: by bucket's upper bound in nanoseconds, those up to it; `u64::MAX` has no bound.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cumulative {
    up_to: BTreeMap<u64, f64>,
    sum_seconds: f64,
}

/// What an API server has answered so far.
#[derive(Clone, Debug, PartialEq)]
struct Histograms {
    /// When its process began, seconds since 1970.
    started_seconds: f64,
    kinds: BTreeMap<Kind, Cumulative>,
}

impl Histograms {
    /// Reads metrics, of requests for these resources.
    fn read(text: &str, resources: &[&str]) -> Result<Self, String> {
        let is_of = |name: &str, metric: &str| {
            name.strip_prefix(metric).is_some_and(|part| part == "_bucket" || part == "_sum")
        };
        let is_wanted = |name: &str| name == STARTED || is_of(name, OF_API_SERVER) || is_of(name, OF_STORE);
        let mut found = Self { started_seconds: 0.0, kinds: BTreeMap::new() };
        for sample in samples(text, is_wanted).map_err(|error| format!("GET /metrics: {error}"))? {
            if sample.name == STARTED {
                found.started_seconds = sample.value;
                continue;
            }
            let Some(kind) = kind(&sample).filter(|(.., of)| is_one_of(of, resources)) else { continue };
            let cumulative = found.kinds.entry(kind).or_default();
            if sample.name.ends_with("_sum") {
                cumulative.sum_seconds += sample.value;
            } else {
                let up_to = sample.label("le").parse().map_err(|_| "GET /metrics: a bucket has no bound")?;
                // Versions, scopes and dry runs of one kind are added up.
                *cumulative.up_to.entry(nanos(up_to)).or_default() += sample.value;
            }
        }
        if found.started_seconds == 0.0 {
            return Err(format!("GET /metrics: there is no {STARTED}"));
        }
        Ok(found)
    }

    /// What was answered since then.
    fn since(&self, before: &Self) -> Result<Vec<RequestHistogram>, String> {
        if self.started_seconds != before.started_seconds {
            return Err("GET /metrics was answered by two API servers, or by one that was restarted meanwhile".into());
        }
        let nothing = Cumulative::default();
        let grown = self.kinds.iter().map(|(kind, now)| {
            let earlier = before.kinds.get(kind).unwrap_or(&nothing);
            let (answered_by, verb, resource) = kind.clone();
            let sum_nanos = nanos((now.sum_seconds - earlier.sum_seconds).max(0.0));
            RequestHistogram { answered_by, verb, resource, sum_nanos, buckets: buckets(now, earlier) }
        });
        Ok(grown.filter(|histogram| !histogram.buckets.is_empty()).collect())
    }
}

/// The kind that a sample is of; `None` where it has no end.
fn kind(sample: &Sample<'_>) -> Option<Kind> {
    if sample.name.starts_with(OF_STORE) {
        return Some((AnsweredBy::Store, sample.label("operation").into(), sample.label("resource").into()));
    }
    let verb = sample.label("verb");
    let resource = match sample.label("subresource") {
        "" => sample.label("resource").to_owned(),
        subresource => format!("{}/{subresource}", sample.label("resource")),
    };
    (!ENDLESS.contains(&verb)).then(|| (AnsweredBy::ApiServer, verb.into(), resource))
}

/// Whether `pods/binding` is of `pods`.
fn is_one_of(resource: &str, resources: &[&str]) -> bool {
    resources.contains(&resource.split('/').next().unwrap_or_default())
}

/// Bounds are given in seconds with few digits, so that the same bound is always the same number.
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn buckets(now: &Cumulative, earlier: &Cumulative) -> Vec<RequestBucket> {
    let mut buckets = Vec::new();
    let (mut above_nanos, mut below) = (0, 0.0);
    for (&up_to_nanos, so_far) in &now.up_to {
        let grown = so_far - earlier.up_to.get(&up_to_nanos).unwrap_or(&0.0);
        let count = (grown - below).max(0.0).round() as u64;
        if count > 0 {
            let up_to_nanos = (up_to_nanos != u64::MAX).then_some(up_to_nanos);
            buckets.push(RequestBucket { above_nanos, up_to_nanos, count });
        }
        (above_nanos, below) = (up_to_nanos, grown);
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LABELS: &str =
        r#"component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",version="v1""#;

    /// Metrics of an API server that answered so many creations of ConfigMaps within 5 ms, so many more slower.
    fn metrics(started: u32, fast: u32, slow: u32) -> String {
        let series = |subresource: &str, verb: &str| {
            let labels = format!("{LABELS},subresource=\"{subresource}\",verb=\"{verb}\"");
            let all = fast + slow;
            format!(
                "{OF_API_SERVER}_bucket{{{labels},le=\"0.005\"}} {fast}\n{OF_API_SERVER}_bucket{{{labels},le=\"0.025\"}} {fast}\n\
                 {OF_API_SERVER}_bucket{{{labels},le=\"+Inf\"}} {all}\n{OF_API_SERVER}_sum{{{labels}}} {}\n{OF_API_SERVER}_count{{{labels}}} {all}\n",
                f64::from(all) * 0.002
            )
        };
        format!(
            "# TYPE {STARTED} gauge\n{STARTED} {started}\n{}{}{}{OF_STORE}_bucket{{operation=\"create\",group=\"\",resource=\"configmaps\",le=\"+Inf\"}} {fast}\n\
             {OF_STORE}_bucket{{operation=\"create\",group=\"\",resource=\"events\",le=\"+Inf\"}} 7\n",
            series("", "POST"),
            series("status", "PATCH"),
            series("", "WATCH")
        )
    }

    fn grown(before: &str, after: &str) -> Result<Vec<RequestHistogram>, String> {
        let read = |text| Histograms::read(text, resources(KubernetesOperation::CreateConfigMaps));
        read(after)?.since(&read(before)?)
    }

    #[test]
    fn what_grew_is_told_by_kind_without_watches_and_what_is_none_of_the_workloads() {
        let found = grown(&metrics(9, 100, 1), &metrics(9, 110, 4)).unwrap();
        let kinds: Vec<_> =
            found.iter().map(|one| (one.answered_by, one.verb.as_str(), one.resource.as_str())).collect();
        let expected = [
            (AnsweredBy::ApiServer, "PATCH", "configmaps/status"),
            (AnsweredBy::ApiServer, "POST", "configmaps"),
            (AnsweredBy::Store, "create", "configmaps"),
        ];
        assert_eq!(kinds, expected);
        assert_eq!((found[1].requests(), found[1].sum_nanos), (13, 26_000_000));
        let fast = RequestBucket { above_nanos: 0, up_to_nanos: Some(5_000_000), count: 10 };
        let slow = RequestBucket { above_nanos: 25_000_000, up_to_nanos: None, count: 3 };
        assert_eq!(found[1].buckets, [fast, slow]);
        assert!(found.iter().all(RequestHistogram::is_write));
    }

    #[test]
    fn two_api_servers_in_turns_are_not_taken_for_one() {
        let problem = grown(&metrics(9, 100, 1), &metrics(10, 110, 4)).unwrap_err();
        assert!(problem.contains("answered by two API servers"), "{problem}");
        assert!(grown("nothing 1\n", &metrics(9, 1, 1)).unwrap_err().contains("there is no process_start"));
    }

    proptest! {
        /// Against a model that counts each request by itself.
        #[test]
        fn buckets_hold_what_was_added(before in prop::collection::vec(1u32..40, 0..30), added in prop::collection::vec(1u32..40, 0..30)) {
            let cumulative = |millis: &[u32]| Cumulative {
                up_to: [5u64, 25, 30].map(|bound| (bound * 1_000_000, millis.iter().filter(|one| u64::from(**one) <= bound).count() as f64))
                    .into_iter().chain([(u64::MAX, millis.len() as f64)]).collect(),
                sum_seconds: 0.0,
            };
            let all: Vec<u32> = before.iter().chain(&added).copied().collect();
            let found = buckets(&cumulative(&all), &cumulative(&before));
            prop_assert_eq!(found.iter().map(|bucket| bucket.count).sum::<u64>(), added.len() as u64);
            for bucket in found {
                let within = |one: &&u32| {
                    let nanos = u64::from(**one) * 1_000_000;
                    nanos > bucket.above_nanos && bucket.up_to_nanos.is_none_or(|bound| nanos <= bound)
                };
                prop_assert_eq!(bucket.count, added.iter().filter(within).count() as u64);
            }
        }
    }
}
