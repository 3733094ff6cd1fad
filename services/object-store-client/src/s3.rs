//! S3: signed requests over one pool of connections, with a time limit each, bodies included. Path or virtual-host style.
//!
//! Objects are sent by one PUT with `If-None-Match: *`, so that two writers cannot both believe in one object. Whether the
//! server honours it is tried once, before the first object (AWS, R2, MinIO, B2 and versitygw do); where it does not,
//! the object is looked for before it is sent, which leaves a window, and a warning says so.

use crate::credentials::Credentials;
use crate::listing::{Page, element};
use crate::signature::{Canonical, authorization, encode, hex, sha256_hex};
use crate::{Attributes, Body, Object, Store, StoreError};
use ring::digest;
use std::io::{self, Cursor, Read, SeekFrom};
use std::ops::Range;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where a bucket is.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// `https://host[:port]`, or `http://`.
    pub endpoint: String,
    /// Part of the signature.
    pub region: String,
    /// `endpoint/bucket/key` instead of `bucket.endpoint/key`.
    pub path_style: bool,
    /// For one request without its body, and for each read of an answer; a body may take this and a second for each 64 KiB, there and back.
    pub timeout: Duration,
    /// Certificates to trust for `https`, in PEM.
    pub certificates: Option<std::path::PathBuf>,
}

/// A bucket.
pub struct S3Store {
    settings: S3Settings,
    credentials: Credentials,
    agent: ureq::Agent,
    scheme: String,
    host: String,
    honours_conditions: OnceLock<bool>,
}

/// One request; [`S3Store::send`] adds what signs it.
struct Request<'a> {
    method: &'a str,
    key: &'a str,
    query: &'a str,
    headers: Vec<(&'a str, String)>,
    payload_hash: String,
}

impl Request<'_> {
    fn new<'a>(method: &'a str, key: &'a str) -> Request<'a> {
        Request { method, key, query: "", headers: Vec::new(), payload_hash: sha256_hex(b"") }
    }
}

/// A page of a listing: it has a thousand objects.
const LISTING_BYTES_MAX: u64 = 16 << 20;

/// Certificates where distributions keep them.
const SYSTEM_CERTIFICATES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

fn trust(settings: &S3Settings) -> Result<ureq::tls::RootCerts, StoreError> {
    let environment = std::env::var_os("SSL_CERT_FILE").map(Into::into);
    let system = || SYSTEM_CERTIFICATES.iter().map(std::path::PathBuf::from).find(|path| path.exists());
    let path = settings.certificates.clone().or(environment).or_else(system);
    let path = path.ok_or_else(|| StoreError::Permanent("no certificates to trust: set SSL_CERT_FILE".into()))?;
    let text = std::fs::read(&path).map_err(|error| StoreError::Permanent(format!("{}: {error}", path.display())))?;
    let certificates = ureq::tls::parse_pem(&text).filter_map(|item| match item {
        Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    Ok(ureq::tls::RootCerts::new_with_certs(&certificates.collect::<Vec<_>>()))
}

impl S3Store {
    /// Connects at the first call.
    pub fn new(settings: S3Settings, credentials: Credentials) -> Result<S3Store, StoreError> {
        let refuse = |why: String| Err(StoreError::Permanent(why));
        let Some((scheme, host)) = settings.endpoint.trim_end_matches('/').split_once("://") else {
            return refuse(format!("endpoint \"{}\": write it as https://host or http://host:port", settings.endpoint));
        };
        if host.is_empty() || host.contains('/') || !["http", "https"].contains(&scheme) {
            return refuse(format!("endpoint \"{}\": write it as https://host or http://host:port", settings.endpoint));
        }
        let host = if settings.path_style { host.to_owned() } else { format!("{}.{host}", settings.bucket) };
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections(8)
            .user_agent("object-store-client")
            .timeout_connect(Some(settings.timeout))
            .timeout_recv_response(Some(settings.timeout))
            .timeout_per_read(Some(settings.timeout));
        if scheme == "https" {
            let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
            let tls = ureq::tls::TlsConfig::builder()
                .root_certs(trust(&settings)?)
                .unversioned_rustls_crypto_provider(provider);
            config = config.tls_config(tls.build());
        }
        let (agent, scheme) = (config.build().into(), scheme.to_owned());
        Ok(S3Store { settings, credentials, agent, scheme, host, honours_conditions: OnceLock::new() })
    }

    fn send(
        &self,
        request: Request<'_>,
        body: Option<(&mut dyn Body, u64)>,
    ) -> Result<ureq::http::Response<ureq::Body>, StoreError> {
        let key = encode(request.key, true);
        let path =
            if self.settings.path_style { format!("/{}/{key}", self.settings.bucket) } else { format!("/{key}") };
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = request.headers;
        headers.push(("host", self.host.clone()));
        headers.push(("x-amz-content-sha256", request.payload_hash.clone()));
        headers.push(("x-amz-date", time.clone()));
        if let Some(token) = &self.credentials.session_token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        headers.sort();
        let signed: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (method, query, payload_hash) = (request.method, request.query, request.payload_hash.as_str());
        let canonical = Canonical { method, path: &path, query, headers: &signed, payload_hash };
        let authorization = authorization(&canonical, &self.credentials, &self.settings.region, &time);
        let separator = if query.is_empty() { "" } else { "?" };
        let url = format!("{}://{}{path}{separator}{query}", self.scheme, self.host);
        let mut builder = ureq::http::Request::builder().method(method).uri(url).header("authorization", authorization);
        for (name, value) in &headers {
            builder = builder.header(*name, value);
        }
        let failed = |error: ureq::Error| StoreError::Transient(format!("{method} /{}: {error}", request.key));
        let malformed = |error: ureq::http::Error| StoreError::Permanent(format!("{method} /{}: {error}", request.key));
        let most = |length| Some(body_time(self.settings.timeout, length));
        match body {
            Some((body, length)) => {
                body.seek(SeekFrom::Start(0))?;
                let mut reader = body.take(length);
                let body = ureq::SendBody::from_reader(&mut reader);
                let request = builder.header("content-length", length).body(body).map_err(malformed)?;
                let request = self.agent.configure_request(request).timeout_send_body(most(length)).build();
                self.agent.run(request).map_err(failed)
            }
            None => {
                let request = builder.body(()).map_err(malformed)?;
                self.agent.run(request).map_err(failed)
            }
        }
    }

    /// What an answer holds.
    fn body(&self, response: ureq::http::Response<ureq::Body>) -> Paced<ureq::BodyReader<'static>> {
        Paced::new(response.into_body().into_reader(), self.settings.timeout)
    }

    /// The answer as an error. Reads a bounded part of the body, for S3's code.
    fn failure(&self, key: &str, response: ureq::http::Response<ureq::Body>) -> StoreError {
        let status = response.status().as_u16();
        let mut text = Vec::new();
        let _ = self.body(response).take(4096).read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let code = element(&text, "Code").map_or(String::new(), |code| format!(" {code}"));
        let bucket = &self.settings.bucket;
        match status {
            404 if !code.contains("NoSuchBucket") => StoreError::NotFound(key.to_owned()),
            412 => StoreError::AlreadyExists(key.to_owned()),
            // 409 tells of another request at the same object at the same time.
            408 | 409 | 425 | 429 | 500..=599 => {
                StoreError::Transient(format!("the store answered {status}{code} for {key}"))
            }
            _ if code.contains("RequestTimeTooSkewed") => {
                StoreError::Transient(format!("the store answered {status}{code}: this machine's clock is wrong"))
            }
            _ => StoreError::Permanent(format!("the store answered {status}{code} for {key} in bucket {bucket}")),
        }
    }

    fn put(&self, key: &str, body: &mut dyn Body, length: u64, headers: Vec<(&str, String)>) -> Result<(), StoreError> {
        let mut context = digest::Context::new(&digest::SHA256);
        body.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; 65_536];
        let mut left = length;
        while left > 0 {
            let most = buffer.len().min(left as usize);
            let read = body.read(&mut buffer[..most])?;
            if read == 0 {
                return Err(StoreError::Permanent(format!("{key}: its content is shorter than announced")));
            }
            context.update(&buffer[..read]);
            left -= read as u64;
        }
        let mut request = Request::new("PUT", key);
        request.headers = headers;
        request.payload_hash = hex(context.finish().as_ref());
        let response = self.send(request, Some((body, length)))?;
        if response.status().is_success() { Ok(()) } else { Err(self.failure(key, response)) }
    }

    /// Sends one small object twice; a server that honours the condition refuses the second.
    fn honours_conditions(&self, key: &str) -> Result<bool, StoreError> {
        if let Some(honours) = self.honours_conditions.get() {
            return Ok(*honours);
        }
        let probe =
            format!("{}.probe-{:016x}", key.rsplit_once('/').map_or("", |(folder, _)| folder), rand::random::<u64>());
        let put = || self.put(&probe, &mut Cursor::new(b"probe"), 5, vec![("if-none-match", "*".into())]);
        put()?;
        let honours = match put() {
            Err(StoreError::AlreadyExists(_)) => true,
            Ok(()) => false,
            Err(error) => return Err(error),
        };
        self.delete(&probe)?;
        if !honours {
            tracing::warn!(
                endpoint = self.settings.endpoint,
                "the store ignores If-None-Match: nothing stops a second writer for certain"
            );
        }
        Ok(*self.honours_conditions.get_or_init(|| honours))
    }
}

/// An answer's body, at the rate that is asked of a store: a store that stalls in the middle would hold its caller, and its caller's
/// locks, for ever. The time of whoever reads does not count.
struct Paced<R> {
    body: R,
    bytes: u64,
    waited: Duration,
    timeout: Duration,
}

impl<R> Paced<R> {
    fn new(body: R, timeout: Duration) -> Self {
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

/// What a body of so many bytes may take.
fn body_time(timeout: Duration, bytes: u64) -> Duration {
    timeout + Duration::from_secs(bytes / 65_536)
}

impl Store for S3Store {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError> {
        let metadata: Vec<(String, &String)> =
            attributes.metadata.iter().map(|(name, value)| (format!("x-amz-meta-{name}"), value)).collect();
        let mut headers: Vec<(&str, String)> =
            metadata.iter().map(|(name, value)| (name.as_str(), (*value).clone())).collect();
        if self.honours_conditions(key)? {
            headers.push(("if-none-match", "*".into()));
        } else {
            match self.get(key, Some(0..1)) {
                Err(StoreError::NotFound(_)) => {}
                Ok(_) => return Err(StoreError::AlreadyExists(key.to_owned())),
                Err(error) => return Err(error),
            }
        }
        self.put(key, body, length, headers)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        let mut request = Request::new("GET", key);
        if let Some(range) = range {
            request.headers.push(("range", format!("bytes={}-{}", range.start, range.end.saturating_sub(1))));
        }
        let response = self.send(request, None)?;
        if !response.status().is_success() {
            return Err(self.failure(key, response));
        }
        Ok(Box::new(self.body(response)))
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        let mut objects = Vec::new();
        let mut token = String::new();
        loop {
            let prefix = encode(prefix, false);
            let token_parameter =
                if token.is_empty() { String::new() } else { format!("continuation-token={}&", encode(&token, false)) };
            // Parameters are signed in the order of their names. A token says as well where to go on.
            let start_after = match after.is_empty() || !token.is_empty() {
                true => String::new(),
                false => format!("&start-after={}", encode(after, false)),
            };
            let query = format!("{token_parameter}list-type=2&prefix={prefix}{start_after}");
            let response = self.send(Request { query: &query, ..Request::new("GET", "") }, None)?;
            if !response.status().is_success() {
                return Err(self.failure("", response));
            }
            let mut text = String::new();
            let read = self.body(response).take(LISTING_BYTES_MAX).read_to_string(&mut text);
            read.map_err(|error| StoreError::Transient(format!("LIST: {error}")))?;
            let page = Page::of(&text)?;
            objects.extend(page.objects);
            match page.next {
                Some(next) if next == token => {
                    return Err(StoreError::Permanent(
                        "the store's listing begins its next page where this one does".into(),
                    ));
                }
                Some(next) => token = next,
                None => break,
            }
        }
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(objects)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let response = self.send(Request::new("DELETE", key), None)?;
        match response.status().is_success() {
            true => Ok(()),
            false => match self.failure(key, response) {
                StoreError::NotFound(_) => Ok(()),
                error => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    const TIMEOUT: Duration = Duration::from_millis(300);
    /// Long enough for a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A store of which each answer is `head`, and then whatever `then` does to the connection.
    fn store(head: &'static str, then: fn(TcpStream)) -> S3Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|read| read > 0) {
                    request.push(byte[0]);
                }
                if socket.write_all(head.as_bytes()).is_ok() {
                    then(socket);
                }
            }
        });
        let region = "us-east-1".into();
        let settings =
            S3Settings { bucket: "b".into(), endpoint, region, path_style: true, timeout: TIMEOUT, certificates: None };
        let credentials = Credentials { access_key_id: "a".into(), secret_access_key: "s".into(), session_token: None };
        S3Store::new(settings, credentials).unwrap()
    }

    /// Until the client goes.
    fn says_nothing(mut socket: TcpStream) {
        let _ = socket.read(&mut [0]);
    }

    /// A byte at a time, each before anybody loses patience.
    fn trickles(mut socket: TcpStream) {
        while socket.write_all(b" ").is_ok() {
            std::thread::sleep(TIMEOUT / 4);
        }
    }

    const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n<ListBucketResult>";

    /// What comes of a call that must end.
    fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || drop(sender.send(call())));
        receiver.recv_timeout(PATIENCE).expect("the call ends")
    }

    #[test]
    fn a_store_that_stalls_in_the_middle_of_an_object_is_an_error_in_time() {
        for then in [says_nothing, trickles] {
            let store = store(HALF, then);
            let error = in_time(move || {
                let mut bytes = Vec::new();
                store.get("k", None).unwrap().read_to_end(&mut bytes).unwrap_err()
            });
            assert!(StoreError::from(error).is_transient());
        }
    }

    #[test]
    fn a_store_that_stalls_in_the_middle_of_a_listing_is_an_error_in_time() {
        for then in [says_nothing, trickles] {
            let store = store(HALF, then);
            let error = in_time(move || store.list("")).unwrap_err();
            assert!(error.is_transient() && error.to_string().contains("LIST"), "{error}");
        }
    }

    #[test]
    fn a_store_that_stalls_in_the_middle_of_an_error_is_that_error() {
        let store =
            store("HTTP/1.1 503 Slow Down\r\ncontent-length: 1000\r\n\r\n<Error><Code>SlowDown</Code>", says_nothing);
        let error = in_time(move || store.get("k", None).map(drop)).unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("503 SlowDown"), "{error}");
    }

    #[test]
    fn a_listing_that_never_ends_is_an_error() {
        const PAGE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 141\r\n\r\n<ListBucketResult>\
            <IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>                      </ListBucketResult>";
        assert_eq!(PAGE.split_once("\r\n\r\n").unwrap().1.len(), 141);
        let store = store(PAGE, drop);
        let error = in_time(move || store.list("")).unwrap_err();
        assert!(matches!(&error, StoreError::Permanent(text) if text.contains("next page")), "{error}");
    }

    /// Who takes long over what it has read has not been kept waiting.
    #[test]
    fn the_time_of_who_reads_does_not_count() {
        let mut paced = Paced::new(Cursor::new([7; 100]), Duration::from_millis(20));
        for _ in 0..3 {
            assert_eq!(paced.read(&mut [0; 10]).unwrap(), 10);
            std::thread::sleep(Duration::from_millis(30));
        }
        paced.waited = Duration::from_millis(21);
        assert_eq!(paced.read(&mut [0; 10]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
