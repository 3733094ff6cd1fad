//! Google Cloud Storage, by its JSON interface: requests over one pool of connections, with a time limit each, bodies included.
//!
//! An object is created by one request with `ifGenerationMatch=0`, which only a key without an object meets, so that two writers cannot both
//! believe in one object. A large one is sent in parts, read from the body one after another and held nowhere, by an upload that can be
//! resumed; it was begun under that condition, which the store looks at when the last part is there. Before that nobody sees anything of it;
//! one that fails is cancelled, and what a kill leaves the store forgets after a week.

use crate::cloud::{LISTING_BYTES_MAX, PART_BYTES, Server, check_length, metadata, modified_millis};
use crate::encoding::encode;
use crate::http::{Answer, Request, TRIES, bytes_of, failure, first_words, is_near, object_bytes_of};
use crate::listing::Pages;
use crate::token::Token;
use crate::{Attributes, Body, Object, Part, Store, StoreError, backoff};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Cursor, Read, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// Where Google's buckets are.
const ENDPOINT: &str = "https://storage.googleapis.com";
/// What a part is a multiple of, but for the last one.
const PART_UNIT_BYTES: u64 = 256 << 10;
/// The status of an upload of which there is more to come.
const INCOMPLETE: u16 = 308;

/// Where a bucket is.
#[derive(Clone, Debug)]
pub struct GcsSettings {
    /// The bucket.
    pub bucket: String,
    /// `https://host[:port]`, or `http://`.
    pub endpoint: String,
    /// For one request without its body, and for each read of an answer; a body may take this and a second for each 64 KiB, there and back.
    pub timeout: Duration,
    /// Certificates to trust for `https`, in PEM.
    pub certificates: Option<PathBuf>,
    /// The word of an object's metadata that has its time, where there is one: listings tell it.
    pub time_word: Option<String>,
}

impl GcsSettings {
    /// A bucket as Google's tools find it: at `endpoint`, or where `STORAGE_EMULATOR_HOST` says, or else at Google. Also whether somebody has to log
    /// in there: an emulator wants nobody.
    pub fn find(
        bucket: &str,
        endpoint: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> (GcsSettings, bool) {
        let emulator = variable("STORAGE_EMULATOR_HOST").filter(|host| !host.is_empty() && endpoint.is_none());
        let is_emulator = emulator.is_some();
        let emulator = emulator.map(|host| if host.contains("://") { host } else { format!("http://{host}") });
        let endpoint = endpoint.map(str::to_owned).or(emulator).unwrap_or_else(|| ENDPOINT.into());
        // Some write it with the path that one of Google's libraries wants there.
        let endpoint = endpoint.trim_end_matches('/').trim_end_matches("/storage/v1").to_owned();
        let (timeout, certificates) = (Duration::from_secs(30), None);
        (GcsSettings { bucket: bucket.to_owned(), endpoint, timeout, certificates, time_word: None }, !is_emulator)
    }
}

/// A bucket.
pub struct GcsStore {
    settings: GcsSettings,
    token: Option<Token>,
    server: Server,
    /// Larger objects are sent in parts of as many.
    part_bytes: u64,
}

/// How far an upload in parts has come.
enum Progress {
    Done,
    /// So many bytes of it are there.
    At(u64),
}

impl GcsStore {
    /// Connects at the first call. Without a token nobody logs in.
    ///
    /// # Errors
    /// [`StoreError::Permanent`]: the endpoint is none, or the token would go over a network in the clear.
    pub fn new(settings: GcsSettings, token: Option<Token>) -> Result<GcsStore, StoreError> {
        let server = Server::new(&settings.endpoint, settings.timeout, settings.certificates.as_deref())?;
        if token.is_some() && server.endpoint.starts_with("http://") && !is_near(&server.endpoint) {
            let text = format!(
                "endpoint {}: a token is for https:// alone; STORAGE_EMULATOR_HOST wants none",
                server.endpoint
            );
            return Err(StoreError::Permanent(text));
        }
        Ok(GcsStore { settings, token, server, part_bytes: PART_BYTES })
    }

    /// The same, which sends objects of more than `bytes` in parts of so many, rounded up to 256 KiB.
    pub fn sending_parts_of(self, bytes: u64) -> GcsStore {
        GcsStore { part_bytes: bytes.max(1).next_multiple_of(PART_UNIT_BYTES), ..self }
    }

    fn request(&self, method: &'static str, path: &str, query: String) -> Result<Request, StoreError> {
        let (endpoint, bucket) = (&self.server.endpoint, encode(&self.settings.bucket, false));
        let place = format!("{endpoint}{path}/b/{bucket}/o");
        let token = self.token.as_ref().map(Token::current).transpose()?;
        let headers = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}"))).into_iter().collect();
        Ok(Request { method, place, query, headers, work_bytes: 0 })
    }

    fn request_of(&self, method: &'static str, key: &str, query: String) -> Result<Request, StoreError> {
        let mut request = self.request(method, "/storage/v1", query)?;
        request.place = format!("{}/{}", request.place, encode(key, false));
        Ok(request)
    }

    fn failure(&self, key: &str, answer: Answer) -> StoreError {
        let status = answer.status().as_u16();
        let text = self.server.text_of_failure(answer);
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        let message = json.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        let reason = json.pointer("/error/errors/0/reason").and_then(Value::as_str).unwrap_or_default();
        // A page is a proxy's: it tells nothing of an object.
        let is_page = text.trim_start().starts_with('<');
        let words = format!("\"{}\"", first_words(&text));
        let reason = if is_page { words.as_str() } else { reason };
        match status {
            404 if !is_page && !message.contains("bucket does not exist") => StoreError::NotFound(key.to_owned()),
            412 => StoreError::AlreadyExists(key.to_owned()),
            404 if !is_page => failure(404, message, key, &format!("bucket {}", self.settings.bucket)),
            _ => failure(status, reason, key, &format!("bucket {}", self.settings.bucket)),
        }
    }

    /// The same where no object was asked for: what is not there is the bucket.
    fn failure_of_bucket(&self, key: &str, answer: Answer) -> StoreError {
        match self.failure(key, answer) {
            StoreError::NotFound(_) => {
                StoreError::Permanent(format!("the store answered 404: there is no bucket {}", self.settings.bucket))
            }
            error => error,
        }
    }

    /// What the store is told of an object.
    fn description(key: &str, attributes: &Attributes) -> String {
        let metadata: BTreeMap<String, String> = metadata(attributes, str::to_owned).into_iter().collect();
        json!({"name": key, "contentType": "application/octet-stream", "metadata": metadata}).to_string()
    }

    fn create_at_once(
        &self,
        key: &str,
        body: &mut dyn Body,
        length: u64,
        attributes: &Attributes,
    ) -> Result<(), StoreError> {
        let query = "uploadType=multipart&ifGenerationMatch=0".to_owned();
        let mut request = self.request("POST", "/upload/storage/v1", query)?;
        let boundary = format!("{:016x}{:016x}", rand::random::<u64>(), rand::random::<u64>());
        request.headers.push(("content-type".into(), format!("multipart/related; boundary={boundary}")));
        let description = GcsStore::description(key, attributes);
        let head = format!(
            "--{boundary}\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n{description}\r\n\
             --{boundary}\r\ncontent-type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let all = head.len() as u64 + length + tail.len() as u64;
        let mut content = Cursor::new(head).chain(body.take(length)).chain(Cursor::new(tail));
        let answer = self.server.send(request, Some((&mut content, all)))?;
        if answer.status().is_success() { Ok(()) } else { Err(self.failure_of_bucket(key, answer)) }
    }

    fn create_in_parts(
        &self,
        key: &str,
        body: &mut dyn Body,
        length: u64,
        attributes: &Attributes,
    ) -> Result<(), StoreError> {
        // A large one that would be refused in the end need not be sent.
        self.refuse_existing(key)?;
        let query = format!("uploadType=resumable&ifGenerationMatch=0&name={}", encode(key, false));
        let mut request = self.request("POST", "/upload/storage/v1", query)?;
        request.headers.push(("content-type".into(), "application/json; charset=UTF-8".into()));
        request.headers.push(("x-upload-content-type".into(), "application/octet-stream".into()));
        request.headers.push(("x-upload-content-length".into(), length.to_string()));
        let description = GcsStore::description(key, attributes);
        let mut content = Cursor::new(&description);
        let answer = self.server.send(request, Some((&mut content, description.len() as u64)))?;
        if !answer.status().is_success() {
            return Err(self.failure_of_bucket(key, answer));
        }
        let session = answer.headers().get("location").and_then(|location| location.to_str().ok());
        let no_name =
            || StoreError::Permanent(format!("{key}: the store began an upload in parts and did not say where"));
        let session = session.ok_or_else(no_name)?.to_owned();
        // Whoever knows its name may go on with it: errors tell it to nobody, and no token goes there.
        self.put_parts(key, &session, body, length).map_err(|error| {
            if !matches!(error, StoreError::AlreadyExists(_)) {
                // What cannot be cancelled ends by itself.
                let _ = self.server.send(GcsStore::of_session("DELETE", &session), None);
            }
            error
        })
    }

    fn of_session(method: &'static str, session: &str) -> Request {
        let (place, query) = session.split_once('?').unwrap_or((session, ""));
        Request { method, place: place.to_owned(), query: query.to_owned(), headers: Vec::new(), work_bytes: 0 }
    }

    fn put_parts(&self, key: &str, session: &str, body: &mut dyn Body, length: u64) -> Result<(), StoreError> {
        let (mut there, mut tries) = (0, 0);
        loop {
            let end = length.min(there + self.part_bytes);
            let progress = match self.put_part(key, session, body, there..end, length) {
                Err(error) if error.is_transient() && tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(backoff(tries, rand::random()));
                    // Some of it may have come, or all.
                    match self.put_part(key, session, body, length..length, length) {
                        Err(error) if error.is_transient() => continue,
                        progress => progress?,
                    }
                }
                progress => progress?,
            };
            match progress {
                Progress::Done => return Ok(()),
                Progress::At(now) if now > there => (there, tries) = (now, 0),
                Progress::At(now) if tries < TRIES => (there, tries) = (now, tries + 1),
                Progress::At(_) => {
                    return Err(StoreError::Transient(format!("{key}: the store takes parts and keeps none of them")));
                }
            }
        }
    }

    /// Sends a part; an empty one asks how far the upload has come.
    fn put_part(
        &self,
        key: &str,
        session: &str,
        body: &mut dyn Body,
        range: Range<u64>,
        length: u64,
    ) -> Result<Progress, StoreError> {
        let mut request = GcsStore::of_session("PUT", session);
        let bytes = range.end - range.start;
        let said = match bytes {
            0 => format!("bytes */{length}"),
            _ => format!("bytes {}-{}/{length}", range.start, range.end - 1),
        };
        request.headers.push(("content-range".into(), said));
        // With the last part the store makes them one.
        request.work_bytes = if range.end == length { length } else { bytes };
        body.seek(SeekFrom::Start(range.start))?;
        let mut content = body.take(bytes);
        let answer = self.server.send(request, Some((&mut content, bytes)))?;
        let status = answer.status().as_u16();
        match status {
            200 | 201 => Ok(Progress::Done),
            INCOMPLETE => {
                let range = answer.headers().get("range").and_then(|range| range.to_str().ok());
                let last =
                    range.and_then(|range| range.rsplit_once('-')).and_then(|(_, last)| last.parse::<u64>().ok());
                Ok(Progress::At(last.map_or(0, |last| last.saturating_add(1)).min(length)))
            }
            404 | 410 => Err(StoreError::Transient(format!("{key}: somebody cancelled its upload"))),
            _ => Err(self.failure(key, answer)),
        }
    }

    fn refuse_existing(&self, key: &str) -> Result<(), StoreError> {
        let request = self.request_of("GET", key, "fields=generation".into())?;
        let answer = self.server.send(request, None)?;
        if answer.status().is_success() {
            return Err(StoreError::AlreadyExists(key.to_owned()));
        }
        self.failure(key, answer).unless_not_found()
    }

    fn object(&self, item: &Value) -> Option<Object> {
        let text = |name: &str| item.get(name)?.as_str();
        let said = self.settings.time_word.as_deref().and_then(|word| item.get("metadata")?.get(word)?.as_str());
        let listed = text("updated").and_then(|time| time.parse().ok());
        let size = text("size")?.parse().ok()?;
        Some(Object { key: text("name")?.to_owned(), size, modified_millis: modified_millis(said, listed) })
    }
}

impl Store for GcsStore {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, attributes: &Attributes) -> Result<(), StoreError> {
        check_length(key, body, length)?;
        match length > self.part_bytes {
            true => self.create_in_parts(key, body, length, attributes),
            false => self.create_at_once(key, body, length, attributes),
        }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        let mut request = self.request_of("GET", key, "alt=media".into())?;
        if let Some(range) = range {
            request.headers.push(("range".into(), bytes_of(&range)));
        }
        let answer = self.server.send(request, None)?;
        if !answer.status().is_success() {
            return Err(self.failure(key, answer));
        }
        Ok(Box::new(self.server.body(answer)))
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        let condition =
            version.map_or(String::new(), |version| format!("&ifGenerationMatch={}", encode(version, false)));
        let mut request = self.request_of("GET", key, format!("alt=media{condition}"))?;
        request.headers.push(("range".into(), bytes_of(&range)));
        let answer = self.server.send(request, None)?;
        let Some(object_bytes) = object_bytes_of(key, &range, &answer)? else {
            return Err(self.failure(key, answer));
        };
        let generation = answer.headers().get("x-goog-generation").and_then(|generation| generation.to_str().ok());
        let generation = generation.map(str::to_owned);
        if version.is_some() && generation.is_some() && version != generation.as_deref() {
            return Err(StoreError::Changed(key.to_owned()));
        }
        Ok(Part { body: Box::new(self.server.body(answer)), object_bytes, version: generation })
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        let mut pages = Pages::default();
        let start = if after.is_empty() { String::new() } else { format!("&startOffset={}", encode(after, false)) };
        let fields = encode("items(name,size,updated,metadata),nextPageToken", false);
        let query = format!("prefix={}{start}&fields={fields}", encode(prefix, false));
        let mut page = String::new();
        loop {
            let answer = self.server.send(self.request("GET", "/storage/v1", format!("{query}{page}"))?, None)?;
            if !answer.status().is_success() {
                return Err(self.failure_of_bucket("a listing", answer));
            }
            let text = self.server.text(answer, LISTING_BYTES_MAX);
            let text = text.map_err(|error| StoreError::Transient(format!("a listing: {error}")))?;
            let wrong = |what: &str| StoreError::Permanent(format!("the store's listing {what}"));
            let json: Value = serde_json::from_str(&text).map_err(|_| wrong("is not one of Google's"))?;
            if !json.is_object() {
                return Err(wrong("is not one of Google's"));
            }
            let items = json.get("items").and_then(Value::as_array).into_iter().flatten();
            let objects = items.map(|item| self.object(item)).collect::<Option<Vec<_>>>();
            let objects = objects.ok_or_else(|| wrong("has an object without name or size"))?;
            let next = json.get("nextPageToken").and_then(Value::as_str).filter(|token| !token.is_empty());
            match pages.take(objects, next.map(str::to_owned))? {
                Some(token) => page = format!("&pageToken={}", encode(&token, false)),
                None => break,
            }
        }
        let mut objects = pages.into_objects();
        objects.retain(|object| object.key.starts_with(prefix) && *object.key > *after);
        Ok(objects)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let answer = self.server.send(self.request_of("DELETE", key, String::new())?, None)?;
        if answer.status().is_success() {
            return Ok(());
        }
        self.failure(key, answer).unless_not_found()
    }
}

#[cfg(test)]
#[path = "gcs_tests.rs"]
mod tests;
