//! Calls, counted by method and by how they ended, for `grpc_server_*` in `/metrics`; and those that took long, logged as etcd does:
//! `logUnaryRequestStats` in `server/etcdserver/api/v3rpc/interceptor.go`.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prost::Message;
use service_kit::grpc::{Code, Status};
use service_kit::metrics::{Times, counter};

use super::Method;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::request_op::Request as Operation;

/// Upper bounds of `grpc_server_handling_seconds`, as in Go, microseconds.
const BOUNDS_MICROS: &[u64] =
    &[5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000];

/// A client that has waited for as long as it wanted to may be heard so much before it has here: it began earlier.
const EARLY: Duration = Duration::from_millis(10);

/// Before every message stand so many bytes, which are not the message's.
const FRAME_HEAD_BYTES: usize = 5;

/// Calls of all threads.
#[derive(Debug, Default)]
pub struct Calls(Mutex<Vec<Arc<ThreadCalls>>>);

/// Calls of one thread: nobody else writes here.
#[derive(Debug)]
pub struct ThreadCalls {
    methods: Box<[OfMethod]>,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    slow_after: Duration,
}

#[derive(Debug, Default)]
struct OfMethod {
    started: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    /// By [`Code`].
    handled: [AtomicU64; 17],
    /// With `--metrics=extensive`.
    times: Option<Times>,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Calls {
    /// Where another thread counts. Whoever waits for longer than `slow_after` for an answer to a unary call is logged.
    pub fn of_thread(&self, is_extensive: bool, slow_after: Duration) -> Arc<ThreadCalls> {
        let of_method = || OfMethod { times: is_extensive.then(|| Times::new(BOUNDS_MICROS)), ..OfMethod::default() };
        let calls = Arc::new(ThreadCalls {
            methods: Method::ALL.iter().map(|_| of_method()).collect(),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            slow_after,
        });
        self.threads().push(Arc::clone(&calls));
        calls
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Arc<ThreadCalls>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was counted.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let threads = self.threads();
        let sum = |of: &dyn Fn(&ThreadCalls) -> &AtomicU64| -> u64 {
            threads.iter().map(|thread| of(thread).load(Ordering::Relaxed)).sum()
        };
        let bytes: [(&str, &str, u64); 2] = [
            (
                "etcd_network_client_grpc_received_bytes",
                "The total number of bytes received from grpc clients",
                sum(&|thread| &thread.received_bytes),
            ),
            (
                "etcd_network_client_grpc_sent_bytes",
                "The total number of bytes sent to grpc clients",
                sum(&|thread| &thread.sent_bytes),
            ),
        ];
        for (name, help, value) in bytes {
            counter(encoder, name, help, value)?;
        }
        type Field = fn(&OfMethod) -> &AtomicU64;
        let fields: [(&str, &str, Field); 3] = [
            ("grpc_server_started", "Total number of RPCs started on the server", |of| &of.started),
            ("grpc_server_msg_received", "Total number of RPC stream messages received on the server", |of| {
                &of.received
            }),
            ("grpc_server_msg_sent", "Total number of gRPC stream messages sent by the server", |of| &of.sent),
        ];
        for (name, help, field) in fields {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (number, (path, method)) in Method::ALL.iter().enumerate() {
                let value = sum(&|thread| field(&thread.methods[number]));
                ConstCounter::new(value).encode(metric.encode_family(&labels(path, *method))?)?;
            }
        }
        let help = "Total number of RPCs completed on the server, regardless of success or failure";
        let mut metric = encoder.encode_descriptor("grpc_server_handled", help, None, MetricType::Counter)?;
        for (number, (path, method)) in Method::ALL.iter().enumerate() {
            for code in 0..17 {
                let value = sum(&|thread| &thread.methods[number].handled[code]);
                let [kind, service, name] = labels(path, *method);
                let code = ("grpc_code", code_name(Code::of(code as u8)));
                ConstCounter::new(value).encode(metric.encode_family(&[code, name, service, kind])?)?;
            }
        }
        if threads.iter().all(|thread| thread.methods.iter().all(|of| of.times.is_none())) {
            return Ok(());
        }
        let help =
            "Histogram of response latency (seconds) of gRPC that had been application-level handled by the server";
        let mut metric =
            encoder.encode_descriptor("grpc_server_handling_seconds", help, None, MetricType::Histogram)?;
        for (number, (path, method)) in Method::ALL.iter().enumerate() {
            let all = Times::new(BOUNDS_MICROS);
            threads
                .iter()
                .filter_map(|thread| thread.methods[number].times.as_ref())
                .for_each(|times| all.merge(times));
            all.encode_into(&mut metric.encode_family(&labels(path, *method))?)?;
        }
        Ok(())
    }
}

fn labels(path: &'static str, method: Method) -> [(&'static str, &'static str); 3] {
    let (service, name) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    [("grpc_type", method.kind()), ("grpc_service", service), ("grpc_method", name)]
}

/// As Go writes it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Canceled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

impl ThreadCalls {
    /// A call begins. Dropped before it has ended, it was given up: the client has gone, or has waited for as long as it wanted to.
    pub fn begin(self: &Arc<Self>, method: Method) -> Call {
        let call = Call { calls: Arc::clone(self), method, started: Instant::now(), timeout: None, has_ended: false };
        add(&call.of_method().started, 1);
        call
    }

    /// A request came.
    pub fn received(&self, method: Method, bytes: usize) {
        add(&self.methods[method.number()].received, 1);
        add(&self.received_bytes, bytes as u64);
    }

    /// An answer goes, or several in one piece, which count as one.
    pub fn sent(&self, method: Method, frame_bytes: usize) {
        add(&self.methods[method.number()].sent, 1);
        add(&self.sent_bytes, frame_bytes.saturating_sub(FRAME_HEAD_BYTES) as u64);
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Call {
    calls: Arc<ThreadCalls>,
    method: Method,
    started: Instant,
    /// How long the client waits, if it says so.
    timeout: Option<Duration>,
    has_ended: bool,
}

impl Call {
    /// Of a call that is not answered at once: the client waits for so long.
    pub fn waiting(self, timeout: Option<Duration>) -> Self {
        let mut call = self;
        call.timeout = timeout;
        call
    }

    fn of_method(&self) -> &OfMethod {
        &self.calls.methods[self.method.number()]
    }

    fn count(&self, code: Code) -> Duration {
        let took = self.started.elapsed();
        add(&self.of_method().handled[code as usize], 1);
        if let Some(times) = &self.of_method().times {
            times.record(took);
        }
        took
    }

    /// A stream has ended.
    pub fn ended(mut self, result: &Result<(), Status>) {
        self.has_ended = true;
        self.count(result.as_ref().map_or_else(|status| status.code, |()| Code::Ok));
    }

    /// A unary call was answered.
    pub fn answered(mut self, answer: &Result<Bytes, Status>, request: &Bytes, remote: &str) {
        self.has_ended = true;
        let took = self.count(answer.as_ref().map_or_else(|status| status.code, |_| Code::Ok));
        if let Ok(answer) = answer {
            self.calls.sent(self.method, answer.len());
        }
        if took > self.calls.slow_after {
            log_slow(self.method, took, request, answer.as_ref().ok(), remote);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.has_ended {
            let is_late = self.timeout.is_some_and(|timeout| self.started.elapsed() + EARLY >= timeout);
            self.count(if is_late { Code::DeadlineExceeded } else { Code::Canceled });
        }
    }
}

/// In etcd's words; what is put is not told.
fn log_slow(method: Method, took: Duration, request: &Bytes, answer: Option<&Bytes>, remote: &str) {
    let message = answer.map(|answer| answer.slice(FRAME_HEAD_BYTES.min(answer.len())..));
    let path = Method::ALL[method.number()].0;
    let Stats { request_count, response_count, content } = Stats::of(method, request, message.as_ref());
    let is_known = request_count >= 0;
    let size = |bytes: Option<&Bytes>| if is_known { bytes.map_or(0, |bytes| bytes.len() as i64) } else { -1 };
    let started = SystemTime::now().checked_sub(took).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    tracing::warn!(
        "start time" = started.unwrap_or_default().as_secs_f64(),
        "time spent" = ?took,
        remote,
        "response type" = path,
        "request count" = request_count,
        "request size" = size(Some(request)),
        "response count" = response_count,
        "response size" = size(message.as_ref()),
        "request content" = content,
        "request stats"
    );
}

/// What is told of a request and its answer; -1: nothing.
struct Stats {
    request_count: i64,
    response_count: i64,
    content: String,
}

impl Stats {
    fn of(method: Method, request: &Bytes, answer: Option<&Bytes>) -> Self {
        let found = match method {
            Method::Range => pb::RangeRequest::decode(request.clone()).ok().map(|request| {
                let count = answer.and_then(|answer| pb::RangeResponse::decode(answer.clone()).ok());
                (0, count.map_or(0, |answer| answer.count), describe_range(&request))
            }),
            Method::Put => pb::PutRequest::decode(request.clone()).ok().map(|put| (1, 0, describe_put(&put))),
            Method::DeleteRange => pb::DeleteRangeRequest::decode(request.clone()).ok().map(|delete| {
                let answer = answer.and_then(|answer| pb::DeleteRangeResponse::decode(answer.clone()).ok());
                (0, answer.map_or(0, |answer| answer.deleted), describe_keys(&delete.key, &delete.range_end))
            }),
            Method::Txn => pb::TxnRequest::decode(request.clone()).ok().map(|txn| {
                let answer = answer.and_then(|answer| pb::TxnResponse::decode(answer.clone()).ok());
                let branch = if answer.is_some_and(|answer| answer.succeeded) { &txn.success } else { &txn.failure };
                (branch.len() as i64, 0, describe_txn(&txn))
            }),
            _ => None,
        };
        let (request_count, response_count, content) = found.unwrap_or((-1, -1, String::new()));
        Self { request_count, response_count, content }
    }
}

fn describe_keys(key: &[u8], range_end: &[u8]) -> String {
    let mut out = format!("key:\"{}\" ", key.escape_ascii());
    if !range_end.is_empty() {
        // A string takes everything.
        let _ = write!(out, "range_end:\"{}\" ", range_end.escape_ascii());
    }
    out
}

fn describe_range(range: &pb::RangeRequest) -> String {
    let mut out = describe_keys(&range.key, &range.range_end);
    for (name, value) in [("limit", range.limit), ("revision", range.revision)] {
        if value != 0 {
            let _ = write!(out, "{name}:{value} ");
        }
    }
    for (name, is_set) in
        [("serializable", range.serializable), ("keys_only", range.keys_only), ("count_only", range.count_only)]
    {
        if is_set {
            let _ = write!(out, "{name}:true ");
        }
    }
    out
}

fn describe_put(put: &pb::PutRequest) -> String {
    let mut out = describe_keys(&put.key, &[]);
    let _ = write!(out, "value_size:{} ", put.value.len());
    if put.lease != 0 {
        let _ = write!(out, "lease:{} ", put.lease);
    }
    out
}

fn describe_txn(txn: &pb::TxnRequest) -> String {
    let operations = |operations: &[pb::RequestOp]| {
        let describe = |operation: &pb::RequestOp| match &operation.request {
            Some(Operation::RequestRange(range)) => format!("request_range:<{}> ", describe_range(range)),
            Some(Operation::RequestPut(put)) => format!("request_put:<{}> ", describe_put(put)),
            Some(Operation::RequestDeleteRange(delete)) => {
                format!("request_delete_range:<{}> ", describe_keys(&delete.key, &delete.range_end))
            }
            Some(Operation::RequestTxn(nested)) => format!("request_txn:<{}> ", describe_txn(nested)),
            None => String::new(),
        };
        operations.iter().map(describe).collect::<String>()
    };
    let compare = txn.compare.iter().map(|compare| describe_keys(&compare.key, &compare.range_end)).collect::<String>();
    format!("compare:<{compare}> success:<{}> failure:<{}>", operations(&txn.success), operations(&txn.failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_their_numbers() {
        for (number, (path, method)) in Method::ALL.iter().enumerate() {
            assert_eq!((method.number(), Method::of(path)), (number, Some(*method)));
            assert_eq!(method.is_stream(), method.kind() != "unary", "{path}");
        }
    }

    #[test]
    fn a_call_that_nobody_waits_for_any_longer_was_canceled() {
        let calls = Calls::default();
        let thread = calls.of_thread(true, Duration::MAX);
        thread.begin(Method::Put).answered(&Ok(Bytes::from_static(&[0; 9])), &Bytes::new(), "");
        drop(thread.begin(Method::Put));
        let of_put = &thread.methods[Method::Put.number()];
        let handled = |code: Code| of_put.handled[code as usize].load(Ordering::Relaxed);
        assert_eq!((handled(Code::Ok), handled(Code::Canceled)), (1, 1));
        drop(thread.begin(Method::Put).waiting(Some(Duration::ZERO)));
        assert_eq!((handled(Code::DeadlineExceeded), handled(Code::Canceled)), (1, 1));
        assert_eq!(of_put.started.load(Ordering::Relaxed), 3);
        assert_eq!(thread.sent_bytes.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn what_is_put_is_not_told() {
        let put = pb::PutRequest { key: "k".into(), value: "secret".into(), lease: 7, ..Default::default() };
        let success = vec![pb::RequestOp { request: Some(Operation::RequestPut(put)) }];
        let txn = pb::TxnRequest { success, ..Default::default() };
        let stats = Stats::of(Method::Txn, &txn.encode_to_vec().into(), None);
        assert_eq!(stats.content, "compare:<> success:<request_put:<key:\"k\" value_size:6 lease:7 > > failure:<>");
    }
}
