//! An HTTP client as object stores want it: a time limit for each step, no redirects, answers of every status as answers, and for `https`
//! the certificates of the caller or of the system. And what all stores share: what an endpoint is, and what is asked of an answer: its rate,
//! the bytes that were meant, and what its status says of a failure.

use crate::StoreError;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Certificates where distributions keep them.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Connections that are kept for later, as many as anybody uses at once: each has buffers, and one to begin with costs handshakes.
const IDLE_CONNECTIONS: usize = 8;

/// Tries of what would have to be begun anew, or would be left behind: keys or a token on loan, a part of an object, and the removal of what is
/// not wanted.
pub(crate) const TRIES: u32 = 3;
/// What stores and lenders are told of who asks.
pub(crate) const NAME: &str = "object-store-client";

/// A client with a pool of connections of its own, which calls itself `name`. Where it is to speak `https` it trusts `certificates` (a file in PEM), or else those that
/// `SSL_CERT_FILE` names, or else the system's. `timeout` is for connecting, for the head of an answer, and for each read of its body.
///
/// # Errors
/// [`StoreError::Permanent`]: there are no certificates to trust.
pub fn agent(
    name: &'static str,
    https: bool,
    timeout: Duration,
    certificates: Option<&Path>,
) -> Result<ureq::Agent, StoreError> {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(IDLE_CONNECTIONS)
        .max_idle_connections_per_host(IDLE_CONNECTIONS)
        .user_agent(name)
        .timeout_connect(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .timeout_per_read(Some(timeout));
    if https {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = ureq::tls::TlsConfig::builder()
            .root_certs(trust(certificates)?)
            .unversioned_rustls_crypto_provider(provider);
        config = config.tls_config(tls.build());
    }
    Ok(config.build().into())
}

fn trust(certificates: Option<&Path>) -> Result<ureq::tls::RootCerts, StoreError> {
    let environment = std::env::var_os("SSL_CERT_FILE").map(Into::into);
    let system = || SYSTEM_CERTIFICATES.iter().map(PathBuf::from).find(|path| path.exists());
    let path = certificates.map(Path::to_owned).or(environment).or_else(system);
    let path = path.ok_or_else(|| StoreError::Permanent("no certificates to trust: set SSL_CERT_FILE".into()))?;
    let text = std::fs::read(&path).map_err(|error| StoreError::Permanent(format!("{}: {error}", path.display())))?;
    let certificates = ureq::tls::parse_pem(&text).filter_map(|item| match item {
        Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    Ok(ureq::tls::RootCerts::new_with_certs(&certificates.collect::<Vec<_>>()))
}

/// Kinds of requests, as stores ask money for them.
const KINDS: [&str; 6] = ["PUT", "POST", "LIST", "GET", "HEAD", "DELETE"];
static SENT: [AtomicU64; KINDS.len()] = [const { AtomicU64::new(0) }; KINDS.len()];

/// How many requests this process has sent to stores behind networks, each try and each part of an object counted, by kind: the method, or LIST.
pub fn requests() -> [(&'static str, u64); KINDS.len()] {
    std::array::from_fn(|kind| (KINDS[kind], SENT[kind].load(Ordering::Relaxed)))
}

/// Of what kind a request is: in the words of all stores, whose keys begin with `prefix` is a listing.
fn kind(method: &str, query: &str) -> Option<usize> {
    let is_listing = method == "GET" && query.split('&').any(|word| word.starts_with("prefix="));
    let name = if is_listing { "LIST" } else { method };
    KINDS.iter().position(|kind| *kind == name)
}

pub(crate) type Answer = ureq::http::Response<ureq::Body>;

/// One request, whole.
pub(crate) struct Request {
    pub(crate) method: &'static str,
    /// Without its query, which may hold a secret: errors name it.
    pub(crate) place: String,
    /// Encoded.
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    /// Bytes that the server has to move before it answers.
    pub(crate) work_bytes: u64,
}

/// A client, and how long it waits for a store.
pub(crate) struct Client {
    agent: ureq::Agent,
    timeout: Duration,
}

impl Client {
    /// See [`agent`]: a body may take `timeout` and a second for each 64 KiB, there and back.
    pub(crate) fn new(https: bool, timeout: Duration, certificates: Option<&Path>) -> Result<Self, StoreError> {
        Ok(Self { agent: agent(NAME, https, timeout, certificates)?, timeout })
    }

    /// Sends a request, with `length` bytes of a body where it has one; answers of every status are answers.
    pub(crate) fn send(&self, request: Request, body: Option<(&mut dyn Read, u64)>) -> Result<Answer, StoreError> {
        let Request { method, place, query, headers, work_bytes } = request;
        if let Some(kind) = kind(method, &query) {
            SENT[kind].fetch_add(1, Ordering::Relaxed);
        }
        let separator = if query.is_empty() { "" } else { "?" };
        let mut builder = ureq::http::Request::builder().method(method).uri(format!("{place}{separator}{query}"));
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        let failed = |error: ureq::Error| StoreError::Transient(format!("{method} {place}: {error}"));
        let malformed = |error: ureq::http::Error| StoreError::Permanent(format!("{method} {place}: {error}"));
        let most = |length| Some(body_time(self.timeout, length));
        let Some((mut body, length)) = body else {
            return self.agent.run(builder.body(()).map_err(malformed)?).map_err(failed);
        };
        let body = ureq::SendBody::from_reader(&mut body);
        let request = builder.header("content-length", length).body(body).map_err(malformed)?;
        let request = self.agent.configure_request(request).timeout_send_body(most(length));
        // A read that waits for the head of an answer is a read, too.
        let request = request.timeout_recv_response(most(work_bytes)).timeout_per_read(most(work_bytes)).build();
        self.agent.run(request).map_err(failed)
    }

    /// What an answer holds.
    pub(crate) fn body(&self, answer: Answer) -> Paced<ureq::BodyReader<'static>> {
        Paced::new(answer.into_body().into_reader(), self.timeout)
    }

    /// The text of an answer of failure: what there is of it.
    pub(crate) fn text_of_failure(&self, answer: Answer) -> String {
        let mut bytes = Vec::new();
        let _ = self.body(answer).take(4096).read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// An answer's body, at the rate that is asked of a store: a store that stalls in the middle would hold its caller, and its caller's
/// locks, for ever. The time of whoever reads does not count.
pub(crate) struct Paced<R> {
    body: R,
    bytes: u64,
    pub(crate) waited: Duration,
    timeout: Duration,
}

impl<R> Paced<R> {
    pub(crate) fn new(body: R, timeout: Duration) -> Self {
        Self { body, bytes: 0, waited: Duration::ZERO, timeout }
    }
}

impl<R: Read> Read for Paced<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.waited > body_time(self.timeout, self.bytes) {
            let text = format!("the store sent {} bytes in {:.1?}, which is too slow", self.bytes, self.waited);
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let began = Instant::now();
        let read = self.body.read(buffer);
        self.waited += began.elapsed();
        self.bytes += *read.as_ref().unwrap_or(&0) as u64;
        read
    }
}

/// Scheme and host of `https://host[:port]`, and where an endpoint `takes_path` what follows.
///
/// # Errors
/// [`StoreError::Permanent`]: that is no endpoint.
pub(crate) fn parse_endpoint(endpoint: &str, takes_path: bool) -> Result<(&str, &str), StoreError> {
    let is_meant = |(scheme, host): &(&str, &str)| {
        let is_host = !host.is_empty() && !host.starts_with('/') && !host.contains('?');
        ["http", "https"].contains(scheme) && is_host && (takes_path || !host.contains('/'))
    };
    let parsed = endpoint.trim_end_matches('/').split_once("://").filter(is_meant);
    parsed.ok_or_else(|| {
        StoreError::Permanent(format!("endpoint \"{endpoint}\": write it as https://host or http://host:port"))
    })
}

/// What an answer of failure means, but for what is there or is not: that each store says in its own words.
pub(crate) fn failure(status: u16, code: &str, key: &str, place: &str) -> StoreError {
    let separator = if code.is_empty() { "" } else { " " };
    match status {
        // 409 tells of another request at the same object at the same time; 501 of what the store will never do.
        408 | 409 | 425 | 429 | 500 | 502..=599 => {
            StoreError::Transient(format!("the store answered {status}{separator}{code} for {key}"))
        }
        _ => StoreError::Permanent(format!("the store answered {status}{separator}{code} for {key} in {place}")),
    }
}

/// `bytes 0-9/100` as the first byte, the last one, and the bytes of the object.
fn content_range_of(text: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, total.parse().ok()?))
}

/// A range of bytes as the header says it.
pub(crate) fn bytes_of(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

/// What a body of so many bytes may take.
pub(crate) fn body_time(timeout: Duration, bytes: u64) -> Duration {
    timeout + Duration::from_secs(bytes / 65_536)
}

/// The bytes of the object of which `range` was asked for, where exactly that is answered; `None`: neither that nor what follows, look at the
/// status.
///
/// # Errors
/// [`StoreError::Changed`]: it is not the object that was meant, or it ends before the range. [`StoreError::Permanent`]: other bytes came.
pub(crate) fn object_bytes_of<B>(
    key: &str,
    range: &Range<u64>,
    response: &ureq::http::Response<B>,
) -> Result<Option<u64>, StoreError> {
    let status = response.status().as_u16();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (content_range, length) = (header("content-range"), header("content-length"));
    let whole = length.and_then(|length| length.parse().ok()).filter(|length| *length <= range.end);
    match (status, content_range.as_deref().and_then(content_range_of), whole) {
        // Some answer a range that begins where the object ends with no bytes at all, and not with 416.
        (206, Some((_, _, total)), _) if total <= range.start => Err(StoreError::Changed(key.to_owned())),
        (206, Some((first, last, total)), _) if first == range.start && last < range.end => Ok(Some(total)),
        // A store that does not know ranges sends all, which is what was asked for.
        (200, None, Some(whole)) if range.start == 0 => Ok(Some(whole)),
        (200..=299, ..) => {
            let said = content_range.unwrap_or_else(|| "no Content-Range".into());
            let asked = format!("bytes {} to {}", range.start, range.end.saturating_sub(1));
            Err(StoreError::Permanent(format!("{key}: asked for {asked} the store answered {status}, {said}")))
        }
        (412 | 416, ..) => Err(StoreError::Changed(key.to_owned())),
        _ => Ok(None),
    }
}

/// Whether nobody else hears what is said there: this machine, and where clouds have what serves one machine alone.
pub(crate) fn is_near(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.split_once(']'))
        .map_or_else(|| host.rsplit_once(':').map_or(host, |(name, _)| name), |(address, _)| address);
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    ["localhost", "169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23"].contains(&host)
        || host.parse().is_ok_and(is_loopback)
}
