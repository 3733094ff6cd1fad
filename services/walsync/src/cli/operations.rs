//! `/metrics`, `/livez` and `/readyz` of a replicator at work, and what [`super::control`] adds, on a thread of their own.

use std::sync::Arc;

use super::control::{Control, Patterns};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use service_kit::listen::Group;
use service_kit::metrics::{Process, counter, gauge, histogram};
use service_kit::operations::Operations;
use service_kit::probes::Readiness;
use service_kit::server::{Bound, Options};
use service_kit::url::Url;
use std::sync::atomic::Ordering;
use std::time::Duration;
use walsync::config::{ConfigError, Either};
use walsync::replicator::risk::BOUNDS_MICROS;
use walsync::replicator::{DrillReport, Observer, Phase, Status};

/// Databases that are told by name: those at risk for longest.
const NAMED_MAX: usize = 10;
/// Databases are counted whose oldest commit has waited for longer than so many seconds.
const AT_RISK_SECONDS: [u64; 7] = [0, 1, 2, 5, 10, 60, 300];
/// What `/readyz` waits for.
const WATCHING: &str = "watching";
const STOPPING: &str = "stopping";

/// Where a replicator serves and is asked, which is HTTP without TLS.
pub fn address(text: &str) -> Result<Url, String> {
    text.parse::<Url>().ok().filter(|url| !url.is_unix && !url.is_tls).ok_or_else(|| {
        format!(
            "expected http://HOST:PORT, found {text:?}: `status` and `sync` ask over HTTP without TLS; let it be an address of this machine, such as http://127.0.0.1:9091"
        )
    })
}

/// The same as a configuration says it, if it does.
pub fn address_of(config: &Either) -> Result<Option<Url>, ConfigError> {
    let (field, text) = match config {
        Either::Walsync(config) => ("listen", &config.listen),
        Either::Litestream(config) => ("addr", &config.listen),
    };
    let problem = |problem| ConfigError::Value { field: field.into(), problem };
    text.as_deref().map(address).transpose().map_err(problem)
}

/// Sockets that nobody serves yet.
pub struct Listening(Bound);

impl Listening {
    /// Binds, so that a bad address is found before anything is touched.
    pub fn bind(url: &Url) -> anyhow::Result<Listening> {
        let urls = std::slice::from_ref(url);
        Ok(Listening(Bound::bind(&[Group { urls, grpc: false, http: true }])?))
    }

    /// Serves until the process ends.
    pub fn serve(self, observer: Observer, patterns: Patterns) -> anyhow::Result<Readiness> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Replication(observer.clone())));
        registry.register_collector(Box::new(Process));
        let readiness = Readiness::default();
        readiness.wait_for(WATCHING, "databases are not looked for yet");
        let operations = Operations { registry: Arc::new(registry), readiness: readiness.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let options = Options { threads: 1, ..Options::default() };
        let control = Control::new(operations, observer, patterns);
        let mut server = self.0.start(options, move |_| control.clone())?;
        std::thread::Builder::new().name("operations".into()).spawn(move || {
            if let Err(error) = runtime.block_on(server.accept()) {
                tracing::error!(%error, "metrics and probes are not served any more");
            }
        })?;
        Ok(readiness)
    }
}

/// Says that databases are looked for.
pub fn is_watching(readiness: &Readiness) {
    readiness.is_there(WATCHING);
}

/// Says that the end was asked for: nobody is to rely on what is replicated from now on.
pub fn is_stopping(readiness: &Readiness) {
    readiness.wait_for(STOPPING, "it was told to stop, and sends what is committed");
}

/// For how long the oldest commit of each database has waited that the store has not: how many for longer than some bounds, and those who
/// have waited longest by name.
fn at_risk(encoder: &mut DescriptorEncoder<'_>, status: &[Status]) -> Result<(), std::fmt::Error> {
    let mut waiting: Vec<&Status> = status.iter().filter(|one| !one.at_risk.is_zero()).collect();
    waiting.sort_by_key(|one| std::cmp::Reverse(one.at_risk));
    let help = "Databases with a commit that the store has not, and that was seen longer ago than so many seconds";
    let mut counts = encoder.encode_descriptor("walsync_databases_at_risk", help, None, MetricType::Gauge)?;
    for seconds in AT_RISK_SECONDS {
        let count = waiting.iter().filter(|one| one.at_risk > Duration::from_secs(seconds)).count();
        let label = seconds.to_string();
        ConstGauge::<i64>::new(count as i64).encode(counts.encode_family(&[("longer_than_seconds", &*label)])?)?;
    }
    let help =
        "How long the oldest commit that the store has not has been known, of the databases where that is longest";
    let mut named = encoder.encode_descriptor("walsync_at_risk_seconds", help, None, MetricType::Gauge)?;
    for one in waiting.iter().take(NAMED_MAX) {
        let path = one.path.to_string_lossy();
        ConstGauge::<f64>::new(one.at_risk.as_secs_f64()).encode(named.encode_family(&[("database", &*path)])?)?;
    }
    Ok(())
}

/// What came of drills, and the databases by name whose last one failed, some of them.
fn drills(encoder: &mut DescriptorEncoder<'_>, report: &DrillReport) -> Result<(), std::fmt::Error> {
    let help = "Databases that were restored for a trial and proved";
    counter(encoder, "walsync_restore_drills", help, report.succeeded)?;
    let help = "Databases that were restored for a trial in vain";
    counter(encoder, "walsync_restore_drill_failures", help, report.failed)?;
    let help =
        "Trials that were not run, for there was no room, or the store was away: nothing is known of the replica";
    counter(encoder, "walsync_restore_drills_not_run", help, report.not_run)?;
    for (name, help, millis) in [
        (
            "walsync_restore_drill_last_success_timestamp_seconds",
            "Unix time of the last success",
            report.last_success_millis,
        ),
        (
            "walsync_restore_drill_last_failure_timestamp_seconds",
            "Unix time of the last failure",
            report.last_failure_millis,
        ),
    ] {
        let help = format!("{help} of a restore for a trial; 0: none since the start");
        let time = ConstGauge::<f64>::new(millis.unwrap_or(0) as f64 / 1000.0);
        time.encode(encoder.encode_descriptor(name, &help, None, MetricType::Gauge)?)?;
    }
    let help = "Databases whose last restore for a trial was in vain";
    gauge(encoder, "walsync_restore_drill_failing_databases", help, report.failing.len() as i64)?;
    let help = "Of these some by name";
    let mut named = encoder.encode_descriptor("walsync_restore_drill_failing", help, None, MetricType::Gauge)?;
    for path in report.failing.keys().take(NAMED_MAX) {
        let path = path.to_string_lossy();
        ConstGauge::<i64>::new(1).encode(named.encode_family(&[("database", &*path)])?)?;
    }
    Ok(())
}

/// What the replicator counts. A label for each of thousands of databases would cost more than it says.
struct Replication(Observer);

impl std::fmt::Debug for Replication {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Replication")
    }
}

impl Collector for Replication {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let totals = self.0.totals();
        for (name, help, total) in [
            ("walsync_objects", "Objects written", &totals.objects),
            ("walsync_merged_files", "Files of merged levels written", &totals.merged),
            ("walsync_removed_files", "Files removed that no kept point needed", &totals.removed),
            ("walsync_object_bytes", "Bytes of objects written", &totals.bytes),
            (
                "walsync_store_failures",
                "Requests to the object store that failed and are tried again",
                &totals.failures,
            ),
            ("walsync_whole_databases", "Databases sent whole, the first time included", &totals.anchors),
            (
                "walsync_compared_databases",
                "Databases compared with their replica, of which the pages that differed were sent",
                &totals.compared,
            ),
            (
                "walsync_without_room",
                "Files that found no room in the staging folder, and are tried again",
                &totals.without_room,
            ),
            ("walsync_yields", "Check points of others that were let pass", &totals.yields),
            (
                "walsync_frames_let_go",
                "Times that frames were let go of that the store had not, for a WAL that grew beyond wal-bytes-max or a check point",
                &totals.let_go,
            ),
        ] {
            counter(&mut encoder, name, help, total.load(Ordering::Relaxed))?;
        }
        let status = self.0.status();
        let durable_after = &totals.durable_after;
        let help = "From when a commit was seen to when the store has it, of the oldest commit in each object";
        let counts = durable_after.counts();
        histogram(
            &mut encoder,
            "walsync_durable_after_seconds",
            help,
            (&BOUNDS_MICROS, &counts),
            durable_after.sum_nanos(),
        )?;
        at_risk(&mut encoder, &status)?;
        let help = "Requests to the object store, each try and each part of an object counted; none of a folder";
        let mut requests = encoder.encode_descriptor("walsync_store_requests", help, None, MetricType::Counter)?;
        for (kind, count) in walsync::store::http::requests() {
            ConstCounter::<u64>::new(count).encode(requests.encode_family(&[("kind", kind)])?)?;
        }
        let help = "How long a database waits with what it commits now, because of uploads-a-month-max";
        let wait = ConstGauge::<f64>::new(self.0.upload_wait().as_secs_f64());
        wait.encode(encoder.encode_descriptor("walsync_upload_wait_seconds", help, None, MetricType::Gauge)?)?;
        let help = "Databases whose snapshot is due and cannot be taken; what is committed is sent all the same";
        let late = status.iter().filter(|one| one.snapshot_late.is_some()).count();
        gauge(&mut encoder, "walsync_snapshots_late", help, late as i64)?;
        let help = "Databases of which frames are let go of that the store has not; they are found by comparing";
        let let_go = status.iter().filter(|one| one.let_go.is_some()).count();
        gauge(&mut encoder, "walsync_databases_let_go", help, let_go as i64)?;
        if let Some(report) = self.0.drills() {
            drills(&mut encoder, &report)?;
        }
        let help = "Databases by what becomes of them";
        let mut databases = encoder.encode_descriptor("walsync_databases", help, None, MetricType::Gauge)?;
        for phase in Phase::KINDS {
            let count = status.iter().filter(|one| one.phase.kind() == phase).count();
            ConstGauge::<i64>::new(count as i64).encode(databases.encode_family(&[("phase", phase)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_nobody_could_ask_is_refused_in_either_configuration() {
        let said = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let address = address_of(&Either::read(file.path()).unwrap());
            address.map(|url| url.map(|url| url.to_string())).map_err(|error| error.to_string())
        };
        let walsync = |listen: &str| said(&format!("store: file:///backup\ndatabases: []\n{listen}"));
        assert_eq!(walsync(""), Ok(None));
        assert_eq!(walsync("listen: http://127.0.0.1:9091"), Ok(Some("http://127.0.0.1:9091".into())));
        for url in ["https://127.0.0.1:9091", "unix:///run/walsync.sock", "127.0.0.1:9091", "':9091'", "9091"] {
            let refused = walsync(&format!("listen: {url}")).unwrap_err();
            assert!(refused.starts_with("listen: expected http://HOST:PORT, found"), "{refused}");
            assert!(refused.ends_with("such as http://127.0.0.1:9091"), "{refused}");
        }
        assert_eq!(said("dbs: []\naddr: ':9090'"), Ok(Some("http://0.0.0.0:9090".into())));
    }
}
