//! Large objects, sent in parts: S3 takes no more than 5 GB in one request, and a connection that breaks costs one part.
//!
//! What is sent is read from the body part by part, and held nowhere. The object is there, whole, when the last request is answered, and that
//! one has the condition that a single PUT has. Before that nobody sees anything of it; an upload that fails is aborted, so that its
//! parts do not stay and cost. Where the process is killed they do: let the bucket have a rule for incomplete uploads.

use super::{Request, S3Store};
use crate::encoding::encode;
use crate::http::{Paced, TRIES, body_time};
use crate::listing::element;
use crate::signature::sha256_hex;
use crate::{Body, StoreError, retry};
use std::io::{Cursor, Read};

/// Bytes of a part where nobody says otherwise.
pub(super) const PART_BYTES: u64 = 256 << 20;
/// Parts of an object at most.
const PARTS_MAX: u64 = 10_000;
/// What an answer may have.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

impl S3Store {
    /// The same, which sends objects of more than `bytes` in parts of so many, or in larger ones where there would be more than 10,000. S3 takes
    /// parts of 5 MiB to 5 GiB.
    pub fn sending_parts_of(self, bytes: u64) -> S3Store {
        S3Store { part_bytes: bytes.max(1), ..self }
    }

    /// Sends an object in parts; where `is_conditional` only if there is none of this key when the last part is there.
    pub(super) fn put_in_parts(
        &self,
        key: &str,
        body: &mut dyn Body,
        length: u64,
        headers: Vec<(&str, String)>,
        is_conditional: bool,
    ) -> Result<(), StoreError> {
        let begin = Request { query: "uploads=", headers, ..Request::new("POST", key) };
        let answer = self.ask(begin, &[])?;
        let no_id = || StoreError::Permanent(format!("{key}: the store began an upload in parts without a name"));
        let upload = element(&answer, "UploadId").ok_or_else(no_id)?;
        let query = format!("uploadId={}", encode(&upload, false));
        let sent = self.put_parts(key, &query, body, length);
        let done = sent.and_then(|parts| self.complete(key, &query, &parts, length, is_conditional));
        done.map_err(|error| {
            self.abort(key, &query);
            match error {
                StoreError::NotFound(_) => StoreError::Transient(format!("{key}: somebody aborted its upload")),
                error => error,
            }
        })
    }

    /// Sends all parts, and gives what the store calls each.
    fn put_parts(&self, key: &str, upload: &str, body: &mut dyn Body, length: u64) -> Result<Vec<String>, StoreError> {
        let part_bytes = self.part_bytes.max(length.div_ceil(PARTS_MAX));
        let mut parts = Vec::new();
        let mut start = 0;
        while start < length {
            let end = length.min(start + part_bytes);
            let query = format!("partNumber={}&{upload}", parts.len() + 1);
            let part = retry(TRIES, || self.put_bytes(key, &query, body, start..end, Vec::new()))?;
            let part = part.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
            let no_name = || StoreError::Permanent(format!("{key}: the store took a part and gave it no ETag"));
            parts.push(part.ok_or_else(no_name)?);
            start = end;
        }
        Ok(parts)
    }

    fn complete(
        &self,
        key: &str,
        upload: &str,
        parts: &[String],
        length: u64,
        is_conditional: bool,
    ) -> Result<(), StoreError> {
        let mut headers = Vec::new();
        match is_conditional {
            true => headers.push(("if-none-match", "*".into())),
            false => self.refuse_existing(key)?,
        }
        let part = |(number, etag): (usize, &String)| {
            let etag = etag.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
            format!("<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", number + 1)
        };
        let parts: String = parts.iter().enumerate().map(part).collect();
        let namespace = "http://s3.amazonaws.com/doc/2006-03-01/";
        let text = format!("<CompleteMultipartUpload xmlns=\"{namespace}\">{parts}</CompleteMultipartUpload>");
        let request = Request { query: upload, headers, work_bytes: length, ..Request::new("POST", key) };
        let answer = self.ask(request, text.as_bytes())?;
        if answer.contains("CompleteMultipartUploadResult") {
            return Ok(());
        }
        // The answer begins before the store has done its work, which may still fail.
        match element(&answer, "Code").as_deref() {
            Some("PreconditionFailed") => Err(StoreError::AlreadyExists(key.to_owned())),
            code => {
                let code = code.unwrap_or("nothing");
                Err(StoreError::Transient(format!("{key}: the store put its parts together and answered {code}")))
            }
        }
    }

    fn abort(&self, key: &str, upload: &str) {
        if let Err(error) = retry(TRIES, || self.delete_object(key, upload)) {
            let remedy = "abort it, or let the bucket have a rule for incomplete uploads";
            tracing::warn!(key, upload, %error, remedy, "parts of an upload that failed are left in the store");
        }
    }

    /// Sends `body`, which is short, and gives the text of an answer that is no failure.
    pub(super) fn ask(&self, request: Request<'_>, body: &[u8]) -> Result<String, StoreError> {
        let (key, work_bytes) = (request.key, request.work_bytes);
        let request = Request { payload_hash: sha256_hex(body), ..request };
        let mut content = Cursor::new(body);
        let content: &mut dyn Body = &mut content;
        let response = self.send(request, Some((content, 0..body.len() as u64)))?;
        if !response.status().is_success() {
            return Err(self.failure(key, response));
        }
        let mut text = String::new();
        let patience = body_time(self.settings.timeout, work_bytes);
        let read = Paced::new(response.into_body().into_reader(), patience);
        let read = read.take(ANSWER_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| StoreError::Transient(format!("{key}: {error}")))?;
        Ok(text)
    }

    /// Whether the store honours the condition at the end of an upload in parts: tried once, over an object that is there. One that refuses it
    /// as it refuses what it does not know does not, either.
    pub(super) fn honours_conditions_of_parts(&self, key: &str) -> Result<bool, StoreError> {
        if let Some(honours) = self.honours_conditions_of_parts.get() {
            return Ok(*honours);
        }
        let honours = self.with_probe(key, |probe| {
            self.put(probe, &mut Cursor::new(b"probe"), 5, Vec::new())?;
            match self.put_in_parts(probe, &mut Cursor::new(b"probe"), 5, Vec::new(), true) {
                Err(StoreError::AlreadyExists(_)) => Ok(true),
                Ok(()) | Err(StoreError::Permanent(_)) => Ok(false),
                Err(error) => Err(error),
            }
        })?;
        if !honours {
            tracing::warn!(
                endpoint = self.settings.endpoint,
                "the store ignores or refuses If-None-Match where objects are sent in parts: they are sent whole, and it may refuse large ones"
            );
        }
        Ok(*self.honours_conditions_of_parts.get_or_init(|| honours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;
    use crate::s3::S3Settings;
    use crate::{Attributes, Store};
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// A server that honours `If-None-Match` in single requests, and answers the end of an upload in parts as it is told. Each request is noted.
    fn store(completed: &'static str) -> (S3Store, Arc<Mutex<Vec<String>>>) {
        store_that_ends("200 OK", completed)
    }

    fn store_that_ends(status_of_end: &'static str, completed: &'static str) -> (S3Store, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = seen.clone();
        std::thread::spawn(move || {
            let mut keys: BTreeSet<String> = BTreeSet::new();
            for socket in listener.incoming() {
                let mut socket = BufReader::new(socket.unwrap());
                let (mut head, mut length, mut is_conditional, mut metadata) = (String::new(), 0, false, String::new());
                socket.read_line(&mut head).unwrap();
                loop {
                    let mut line = String::new();
                    socket.read_line(&mut line).unwrap();
                    let line = line.trim_end().to_ascii_lowercase();
                    length = line.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap());
                    is_conditional |= line == "if-none-match: *";
                    if line.starts_with("x-amz-meta-") {
                        metadata = format!(" {line}");
                    }
                    if line.is_empty() {
                        break;
                    }
                }
                socket.read_exact(&mut vec![0; length]).unwrap();
                let words: Vec<&str> = head.split(' ').collect();
                let (key, query) = words[1].split_once('?').unwrap_or((words[1], ""));
                let (status, text) = match (words[0], query) {
                    ("PUT", "") if is_conditional && keys.contains(key) => ("412 Precondition Failed", ""),
                    ("PUT", "") => {
                        keys.insert(key.to_owned());
                        ("200 OK", "")
                    }
                    ("POST", "uploads=") => ("200 OK", "<X><UploadId>u&amp;1</UploadId></X>"),
                    ("PUT", _) => ("200 OK", ""),
                    ("POST", _) => (status_of_end, completed),
                    ("GET", _) if !keys.contains(key) => ("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>"),
                    _ => ("204 No Content", ""),
                };
                notes.lock().unwrap().push(format!("{} {query} {is_conditional}{metadata}", words[0]));
                let length = text.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\netag: \"e\"\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{text}"
                );
                let _ = socket.get_mut().write_all(answer.as_bytes());
            }
        });
        let settings = S3Settings { path_style: true, ..S3Settings::find("b", Some(&endpoint), None, |_| None) };
        let credentials = Credentials { access_key_id: "a".into(), secret_access_key: "s".into(), session_token: None };
        (S3Store::new(settings, credentials).unwrap().sending_parts_of(8), seen)
    }

    fn put(store: &S3Store) -> Result<(), StoreError> {
        store.create("folder/k", &mut Cursor::new([7; 20]), 20, &Attributes::default())
    }

    #[test]
    fn a_store_that_ignores_the_condition_for_parts_gets_an_object_whole_and_under_it() {
        let (store, seen) = store("<CompleteMultipartUploadResult/>");
        put(&store).unwrap();
        assert_eq!(seen.lock().unwrap().last().map(String::as_str), Some("PUT  true"), "{seen:?}");
        let before = seen.lock().unwrap().len();
        assert!(matches!(put(&store), Err(StoreError::AlreadyExists(_))));
        let after: Vec<String> = seen.lock().unwrap()[before..].to_vec();
        assert_eq!(after, ["GET  false"], "one that is there is not sent again, and nothing is tried twice");
    }

    #[test]
    fn a_store_that_refuses_the_condition_for_parts_gets_an_object_whole_and_no_probe_stays() {
        for (status, code) in [
            ("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>"),
            ("400 Bad Request", "<Error><Code>InvalidArgument</Code></Error>"),
        ] {
            let (store, seen) = store_that_ends(status, code);
            put(&store).unwrap();
            let seen = seen.lock().unwrap();
            assert_eq!(seen.last().map(String::as_str), Some("PUT  true"), "{seen:?}");
            // That of the single requests, and that of the parts.
            assert_eq!(seen.iter().filter(|request| *request == "DELETE  false").count(), 2, "{seen:?}");
        }
    }

    #[test]
    fn a_probe_goes_also_where_the_store_fails_in_the_middle() {
        let (store, seen) = store_that_ends("503 Slow Down", "<Error><Code>SlowDown</Code></Error>");
        assert!(put(&store).unwrap_err().is_transient());
        let seen = seen.lock().unwrap();
        assert_eq!(seen.iter().filter(|request| *request == "DELETE  false").count(), 2, "{seen:?}");
    }

    #[test]
    fn the_end_of_a_large_upload_is_waited_for_though_the_store_is_silent_until_then() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let timeout = Duration::from_millis(200);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = BufReader::new(socket.unwrap());
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    socket.read_line(&mut line).unwrap();
                }
                std::thread::sleep(4 * timeout);
                let _ =
                    socket.get_mut().write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
            }
        });
        let settings = S3Settings { timeout, ..S3Settings::find("b", Some(&endpoint), None, |_| None) };
        let credentials = Credentials { access_key_id: "a".into(), secret_access_key: "s".into(), session_token: None };
        let store = S3Store::new(settings, credentials).unwrap();
        // As many bytes as a store may put together in five seconds.
        let end = |work_bytes| store.ask(Request { work_bytes, ..Request::new("POST", "k") }, b"");
        assert_eq!(end(5 * 65_536).unwrap(), "ok");
        assert!(end(0).unwrap_err().is_transient(), "who has nothing to do is not waited for");
    }

    #[test]
    fn an_upload_whose_end_fails_after_its_answer_began_is_aborted_and_may_be_tried_again() {
        let (store, seen) = store("<Error><Code>InternalError</Code></Error>");
        let headers = vec![("x-amz-meta-word", "value".to_owned())];
        let error = store.put_in_parts("k", &mut Cursor::new([7; 20]), 20, headers, true).unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("InternalError"), "{error}");
        let parts = |number| format!("PUT partNumber={number}&uploadId=u%261 false");
        let (begin, end, abort) =
            ("POST uploads= false x-amz-meta-word: value", "POST uploadId=u%261 true", "DELETE uploadId=u%261 false");
        assert_eq!(*seen.lock().unwrap(), [begin.into(), parts(1), parts(2), parts(3), end.into(), abort.into()]);
    }

    #[test]
    fn an_upload_that_ends_after_somebody_elses_is_told_so_also_within_an_answer_that_began_well() {
        let (store, _) = store("<Error><Code>PreconditionFailed</Code></Error>");
        let result = store.put_in_parts("k", &mut Cursor::new([7; 20]), 20, Vec::new(), true);
        assert!(matches!(&result, Err(StoreError::AlreadyExists(key)) if key == "k"), "{result:?}");
    }
}
