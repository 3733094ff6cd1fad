//! S3: signed requests over one pool of connections, with a time limit each, bodies included. Path or virtual-host style.
//!
//! Objects are sent by one PUT with `If-None-Match: *`, so that two writers cannot both believe in one object. Whether the
//! server honours it is tried once, before the first object (AWS, R2, MinIO, B2 and versitygw do); where it does not,
//! the object is looked for before it is sent, which leaves a window, and a warning says so. Large objects are sent in parts
//! ([`multipart`]) under the same condition; a server that honours it for one PUT and not for parts gets every object by one PUT.

mod failure;
mod multipart;
mod removal;

use self::failure::{Asked, Failure};
use crate::credentials::Provider;
use crate::encoding::encode;
use crate::http::{self, Answer, Client, TRIES, bytes_of, first_words, object_bytes_of, parse_endpoint};
use crate::listing::{Page, Pages};
use crate::signature::{Canonical, authorization, hex, sha256_hex};
use crate::{Attributes, Body, Object, Part, Store, StoreError, retry};
use ring::digest;
use std::io::{Cursor, Read, SeekFrom};
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

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
    credentials: Box<dyn Provider>,
    client: Client,
    scheme: String,
    host: String,
    honours_conditions: OnceLock<bool>,
    honours_conditions_of_parts: OnceLock<bool>,
    removes_many: OnceLock<bool>,
    /// Larger objects are sent in parts of as many.
    part_bytes: u64,
}

/// One request; [`S3Store::send`] adds what signs it.
struct Request<'a> {
    method: &'static str,
    key: &'a str,
    query: &'a str,
    headers: Vec<(&'a str, String)>,
    payload_hash: String,
    /// Bytes that the server has to move before it answers.
    work_bytes: u64,
}

impl Request<'_> {
    fn new<'a>(method: &'static str, key: &'a str) -> Request<'a> {
        Request { method, key, query: "", headers: Vec::new(), payload_hash: sha256_hex(b""), work_bytes: 0 }
    }
}

/// A page of a listing: it has a thousand objects.
const LISTING_BYTES_MAX: u64 = 16 << 20;

impl S3Settings {
    /// A bucket as AWS's tools find it: at `endpoint`, or where `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` says, or else at AWS; in `region`, or
    /// `AWS_REGION`, `AWS_DEFAULT_REGION`, or else us-east-1. At another endpoint than AWS's, the bucket is part of the path.
    pub fn find(
        bucket: &str,
        endpoint: Option<&str>,
        region: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> S3Settings {
        let either = |given: Option<&str>, names: [&str; 2]| {
            let set = |name: &str| variable(name).filter(|value| !value.is_empty());
            given.map(str::to_owned).or_else(|| names.into_iter().find_map(set))
        };
        let region = either(region, ["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or_else(|| "us-east-1".into());
        let endpoint = either(endpoint, ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        S3Settings {
            bucket: bucket.to_owned(),
            path_style: endpoint.is_some(),
            endpoint: endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
            region,
            timeout: Duration::from_secs(30),
            certificates: None,
        }
    }
}

impl S3Store {
    /// Connects at the first call.
    pub fn new(settings: S3Settings, credentials: impl Provider + 'static) -> Result<S3Store, StoreError> {
        let (scheme, host) = parse_endpoint(&settings.endpoint, false)?;
        let host = if settings.path_style { host.to_owned() } else { format!("{}.{host}", settings.bucket) };
        let client = Client::new(scheme == "https", settings.timeout, settings.certificates.as_deref())?;
        let scheme = scheme.to_owned();
        let (honours_conditions, honours_conditions_of_parts) = (OnceLock::new(), OnceLock::new());
        let part_bytes = multipart::PART_BYTES;
        Ok(S3Store {
            settings,
            credentials: Box::new(credentials),
            client,
            scheme,
            host,
            honours_conditions,
            honours_conditions_of_parts,
            removes_many: OnceLock::new(),
            part_bytes,
        })
    }

    fn send(&self, request: Request<'_>, body: Option<(&mut dyn Body, Range<u64>)>) -> Result<Answer, StoreError> {
        let key = encode(request.key, true);
        let path =
            if self.settings.path_style { format!("/{}/{key}", self.settings.bucket) } else { format!("/{key}") };
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = request.headers;
        headers.push(("host", self.host.clone()));
        headers.push(("x-amz-content-sha256", request.payload_hash.clone()));
        headers.push(("x-amz-date", time.clone()));
        let credentials = self.credentials.current()?;
        if let Some(token) = &credentials.session_token {
            headers.push(("x-amz-security-token", token.clone()));
        }
        headers.sort();
        let signed: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (method, query, payload_hash) = (request.method, request.query, request.payload_hash.as_str());
        let canonical = Canonical { method, path: &path, query, headers: &signed, payload_hash };
        let authorization = authorization(&canonical, &credentials, &self.settings.region, &time);
        let place = format!("{}://{}{path}", self.scheme, self.host);
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let headers = std::iter::once(("authorization".to_owned(), authorization)).chain(headers).collect();
        let work_bytes = request.work_bytes;
        let sent = http::Request { method, place, query: query.to_owned(), headers, work_bytes };
        let Some((body, range)) = body else { return self.client.send(sent, None) };
        body.seek(SeekFrom::Start(range.start))?;
        let length = range.end - range.start;
        self.client.send(sent, Some((&mut body.take(length), length)))
    }

    /// The answer as an error. Reads a bounded part of the body, for S3's code.
    fn failure(&self, key: &str, response: Answer) -> StoreError {
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (region, location) = (header("x-amz-bucket-region"), header("location"));
        let text = self.client.text_of_failure(response);
        let S3Settings { endpoint, bucket, region: asked, .. } = &self.settings;
        let (region, location) = (region.as_deref(), location.as_deref());
        Asked { endpoint, region: asked, bucket, key }.failed(&Failure { status, region, location, text: &text })
    }

    fn put(&self, key: &str, body: &mut dyn Body, length: u64, headers: Vec<(&str, String)>) -> Result<(), StoreError> {
        self.put_bytes(key, "", body, 0..length, headers).map(drop)
    }

    /// Sends a range of the body's bytes; an answer of failure is an error.
    fn put_bytes(
        &self,
        key: &str,
        query: &str,
        body: &mut dyn Body,
        range: Range<u64>,
        headers: Vec<(&str, String)>,
    ) -> Result<Answer, StoreError> {
        let mut context = digest::Context::new(&digest::SHA256);
        body.seek(SeekFrom::Start(range.start))?;
        let mut buffer = vec![0; 65_536];
        let mut left = range.end - range.start;
        while left > 0 {
            let most = buffer.len().min(left as usize);
            let read = body.read(&mut buffer[..most])?;
            if read == 0 {
                return Err(StoreError::Permanent(format!("{key}: its content is shorter than announced")));
            }
            context.update(&buffer[..read]);
            left -= read as u64;
        }
        let payload_hash = hex(context.finish().as_ref());
        let request = Request { query, headers, payload_hash, ..Request::new("PUT", key) };
        let response = self.send(request, Some((body, range)))?;
        if response.status().is_success() { Ok(response) } else { Err(self.failure(key, response)) }
    }

    /// Looks for an object, where nothing better is to be had.
    fn refuse_existing(&self, key: &str) -> Result<(), StoreError> {
        match self.get(key, Some(0..1)) {
            Err(StoreError::NotFound(_)) => Ok(()),
            Ok(_) => Err(StoreError::AlreadyExists(key.to_owned())),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object, or what `query` says of it. What is not there is deleted.
    fn delete_object(&self, key: &str, query: &str) -> Result<(), StoreError> {
        let response = self.send(Request { query, ..Request::new("DELETE", key) }, None)?;
        if response.status().is_success() { Ok(()) } else { self.failure(key, response).unless_not_found() }
    }

    /// Tries something with a probe, an object beside `key` that nobody else has, and removes it whatever comes of that.
    fn with_probe<T>(&self, key: &str, attempt: impl FnOnce(&str) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        let probe = format!("{folder}.probe-{:016x}", rand::random::<u64>());
        let answer = attempt(&probe);
        if let Err(error) = retry(TRIES, || self.delete_object(&probe, "")) {
            tracing::warn!(probe, %error, remedy = "remove it", "a probe is left in the store");
        }
        answer
    }

    /// Sends one small object twice; a server that honours the condition refuses the second. One that refuses the first, and takes it without the
    /// condition, does not know it.
    fn honours_conditions(&self, key: &str) -> Result<bool, StoreError> {
        if let Some(honours) = self.honours_conditions.get() {
            return Ok(*honours);
        }
        let honours = self.with_probe(key, |probe| {
            let put = || self.put(probe, &mut Cursor::new(b"probe"), 5, vec![("if-none-match", "*".into())]);
            match put() {
                Err(refused @ StoreError::Permanent(_)) => {
                    let plain = self.put(probe, &mut Cursor::new(b"probe"), 5, Vec::new());
                    return plain.map(|()| false).map_err(|_| refused);
                }
                result => result?,
            }
            match put() {
                Err(StoreError::AlreadyExists(_)) => Ok(true),
                Ok(()) => Ok(false),
                Err(error) => Err(error),
            }
        })?;
        if !honours {
            tracing::warn!(
                endpoint = self.settings.endpoint,
                "the store ignores or refuses If-None-Match: nothing stops a second writer for certain"
            );
        }
        Ok(*self.honours_conditions.get_or_init(|| honours))
    }
}

impl Store for S3Store {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError> {
        let metadata: Vec<(String, &String)> =
            attributes.metadata.iter().map(|(name, value)| (format!("x-amz-meta-{name}"), value)).collect();
        let mut headers: Vec<(&str, String)> =
            metadata.iter().map(|(name, value)| (name.as_str(), (*value).clone())).collect();
        let is_conditional = self.honours_conditions(key)?;
        let is_large = length > self.part_bytes;
        if !is_conditional || is_large {
            // A large one that would be refused in the end need not be sent.
            self.refuse_existing(key)?;
        }
        if is_large && (!is_conditional || self.honours_conditions_of_parts(key)?) {
            return self.put_in_parts(key, body, length, headers, is_conditional);
        }
        if is_conditional {
            headers.push(("if-none-match", "*".into()));
        }
        self.put(key, body, length, headers)
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        let mut request = Request::new("GET", key);
        if let Some(range) = range {
            request.headers.push(("range", bytes_of(&range)));
        }
        let response = self.send(request, None)?;
        if !response.status().is_success() {
            return Err(self.failure(key, response));
        }
        Ok(Box::new(self.client.body(response)))
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        let mut request = Request::new("GET", key);
        request.headers.push(("range", bytes_of(&range)));
        if let Some(version) = version {
            request.headers.push(("if-match", version.to_owned()));
        }
        let response = self.send(request, None)?;
        let Some(object_bytes) = object_bytes_of(key, &range, &response)? else {
            return Err(self.failure(key, response));
        };
        let version = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(Part { body: Box::new(self.client.body(response)), object_bytes, version })
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        let (mut pages, mut token) = (Pages::default(), String::new());
        loop {
            let encoded = encode(prefix, false);
            let token_parameter =
                if token.is_empty() { String::new() } else { format!("continuation-token={}&", encode(&token, false)) };
            // Parameters are signed in the order of their names. A token says as well where to go on.
            let start_after = match after.is_empty() || !token.is_empty() {
                true => String::new(),
                false => format!("&start-after={}", encode(after, false)),
            };
            let query = format!("{token_parameter}encoding-type=url&list-type=2&prefix={encoded}{start_after}");
            let response = self.send(Request { query: &query, ..Request::new("GET", "") }, None)?;
            if !response.status().is_success() {
                return Err(self.failure("", response));
            }
            let mut text = String::new();
            let read = self.client.body(response).take(LISTING_BYTES_MAX).read_to_string(&mut text);
            read.map_err(|error| StoreError::Transient(format!("LIST: {error}")))?;
            if !text.contains("<ListBucketResult") {
                let (endpoint, words) = (&self.settings.endpoint, first_words(&text));
                return Err(StoreError::Permanent(format!(
                    "the store at {endpoint} answered what is no listing of S3, \"{words}\": correct the endpoint, or see what stands between"
                )));
            }
            let page = Page::of(&text)?;
            // A key that the store cannot write in its answer, and writes otherwise, would count as gone.
            if let Some(Object { key, .. }) = page.objects.iter().find(|object| !object.key.starts_with(prefix)) {
                return Err(StoreError::Permanent(format!(
                    "the store's listing of keys that begin with {prefix:?} has {key:?}: it cannot list such keys; use others"
                )));
            }
            match pages.take(page.objects, page.next)? {
                Some(next) => token = next,
                None => return Ok(pages.into_objects()),
            }
        }
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.delete_object(key, "")
    }

    fn delete_all(&self, keys: &[String]) -> Result<(), StoreError> {
        self.delete_objects(keys)
    }
}

#[cfg(test)]
mod tests;
