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
        let failed = |error: ureq::Error| unanswered(method, &place, &error);
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
/// [`StoreError::Permanent`]: that is no endpoint. Who would log in there by a name and a password is not told them again.
pub(crate) fn parse_endpoint(endpoint: &str, takes_path: bool) -> Result<(&str, &str), StoreError> {
    let is_meant = |(scheme, host): &(&str, &str)| {
        let is_host = !host.is_empty() && !host.starts_with('/') && !host.contains(['?', '#', '@', ' ']);
        ["http", "https"].contains(scheme) && is_host && (takes_path || !host.contains('/'))
    };
    let parsed = endpoint.trim_end_matches('/').split_once("://").filter(is_meant);
    parsed.ok_or_else(|| {
        let shown = without_secrets(endpoint);
        let keys = if endpoint.contains('@') {
            ", and keys where keys are said: what stands before @ is sent to nobody"
        } else {
            ""
        };
        StoreError::Permanent(format!("endpoint {shown:?}: write it as https://host or http://host:port{keys}"))
    })
}

/// A URL as it may be told: without a name and a password before its host, and without what follows a `?`, which may be a signature.
pub fn without_secrets(url: &str) -> String {
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) =
        shown.split_once("://").map_or(("", shown), |(scheme, rest)| (&shown[..scheme.len() + 3], rest));
    // A password may have any character, and who writes one may have forgotten to encode it.
    match url[scheme.len()..].rsplit_once('@') {
        Some((_, host)) => format!("{scheme}…@{}", host.split(['?', '#']).next().unwrap_or_default()),
        None => format!("{scheme}{rest}"),
    }
}

/// The first words of what somebody else answers, in one line, without what HTML has around them.
pub fn first_words(text: &str) -> String {
    const LETTERS_MAX: usize = 100;
    let (mut words, mut rest) = (String::new(), text);
    while let Some((before, markup)) = rest.split_once('<') {
        words.push_str(before);
        words.push(' ');
        // Nor what is in these, whose names may be in capitals.
        let lower = markup.to_ascii_lowercase();
        let within = ["style", "script"].into_iter().find(|name| lower.starts_with(name));
        let end = within.map_or(Some(0), |name| lower.find(&format!("</{name}")));
        rest = end.and_then(|end| markup[end..].split_once('>')).map_or("", |(_, after)| after);
    }
    words.push_str(rest);
    let words: Vec<&str> = words
        .split(|letter: char| letter.is_whitespace() || letter.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let words = words.join(" ");
    match words.char_indices().nth(LETTERS_MAX) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}

/// Whether a name is not resolved: the standard library has no kind for that, and a prefix of its message alone.
fn is_unknown_host(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound => true,
        ureq::Error::Io(error) => error.to_string().starts_with("failed to lookup address"),
        _ => false,
    }
}

/// Whether a connection ended too early.
fn is_cut(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Why there is no answer at all, and what to do.
fn unanswered(method: &str, place: &str, error: &ureq::Error) -> StoreError {
    use rustls::CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    let inner = match error {
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()),
        ureq::Error::Rustls(error) => Some(error),
        _ => None,
    };
    let (is_final, remedy) = match (inner, error) {
        (Some(rustls::Error::InvalidCertificate(why)), _) => (
            true,
            match why {
                // The other one: an authority was made anew, of the same name.
                UnknownIssuer | BadSignature => {
                    "the authority of its certificate is not trusted here: name that in `certificates`, or in SSL_CERT_FILE"
                }
                NotValidForName | NotValidForNameContext { .. } => {
                    "its certificate is for another name: correct the endpoint, or the certificate"
                }
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. } => {
                    "its certificate has ended, or has not begun: renew it, or set this machine's clock"
                }
                _ => "its certificate is not good: give it another one",
            },
        ),
        (Some(rustls::Error::InvalidMessage(_)), _) => (true, "it does not speak TLS: begin the endpoint with http://"),
        _ if is_unknown_host(error) => {
            (false, "there is no such host: correct the endpoint, or see that names are resolved here")
        }
        (_, ureq::Error::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            (false, "nobody listens there: see that the store is at work, and that host and port are right")
        }
        (_, ureq::Error::Protocol(_)) if place.starts_with("http://") => {
            (false, "it does not speak HTTP: where it speaks TLS, begin the endpoint with https://")
        }
        (_, ureq::Error::Io(error)) if place.starts_with("http://") && is_cut(error) => {
            (false, "it ended the connection without an answer: where it speaks TLS, begin the endpoint with https://")
        }
        (_, ureq::Error::Timeout(_)) => (false, "see that it can be reached from here"),
        // It would say the whole address again.
        (_, ureq::Error::BadUri(_)) => {
            return StoreError::Permanent(format!("{method} {place}: no such address can be: correct the endpoint"));
        }
        _ => return StoreError::Transient(format!("{method} {place}: {error}")),
    };
    let why = format!("{method} {place}: {error}: {remedy}");
    if is_final { StoreError::Permanent(why) } else { StoreError::Transient(why) }
}

/// Whether an answer of failure may be another one soon: 409 tells of another request at the same object at the same time; 501 of what the store
/// will never do.
pub(crate) fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429 | 500 | 502..=599)
}

/// What an answer of failure means, but for what is there or is not: that each store says in its own words.
#[cfg(feature = "clouds")]
pub(crate) fn failure(status: u16, code: &str, key: &str, place: &str) -> StoreError {
    let separator = if code.is_empty() { "" } else { " " };
    let of_key = if key.is_empty() { String::new() } else { format!("{key} in ") };
    let why = format!("the store answered {status}{separator}{code} for {of_key}{place}");
    if is_passing(status) { StoreError::Transient(why) } else { StoreError::Permanent(why) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_none_is_refused_and_no_secret_in_it_is_told() {
        for wrong in [
            "http://user:SECRET@host",
            "https://SECRET@host:9000/path",
            "http://user:SEC/RET@host",
            "http://user:SEC?RET@host",
            "user:SECRET@host",
            "https://account.host/container?sig=SECRET",
            "https://host#SECRET",
            "ftp://user:SECRET@host",
        ] {
            for takes_path in [false, true] {
                let said = parse_endpoint(wrong, takes_path).unwrap_err().to_string();
                assert!(!said.contains("SEC") && !said.contains("RET"), "{said}");
                assert!(said.starts_with("endpoint ") && said.contains("write it as https://host"), "{said}");
                assert_eq!(said.contains("keys where keys are said"), wrong.contains('@'), "{said}");
            }
        }
        assert_eq!(parse_endpoint("https://host:9000/", false).unwrap(), ("https", "host:9000"));
        assert_eq!(parse_endpoint("https://host/a", true).unwrap(), ("https", "host/a"));
        assert!(parse_endpoint("https://host/a", false).is_err() && parse_endpoint("host", true).is_err());
    }

    #[test]
    fn of_a_page_the_first_words_are_told_in_one_line() {
        for (page, words) in [
            ("", ""),
            ("<html><head><STYLE>p { a: b }</STYLE><title>Log in</title></head>\r\n<body>please<br>", "Log in please"),
            ("404 page\tnot\u{1b}[31m found\n", "404 page not [31m found"),
            ("a <unclosed", "a"),
            ("<script>if (a < b) x()</script><p>b", "b"),
        ] {
            assert_eq!(first_words(page), words, "{page}");
        }
        assert!(first_words(&"wörd ".repeat(1000)).chars().count() <= 101);
    }
}
