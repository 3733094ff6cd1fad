//! Many objects removed by one request: S3's `DeleteObjects`. A store that does not know it, or wants it in another way, gets a request an
//! object, as it would without.

use super::{Request, S3Store};
use crate::StoreError;
use crate::listing::element;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

/// Keys of one request at most.
const KEYS_MAX: usize = 1000;

impl S3Store {
    /// Removes objects, a thousand by one request where the store knows how.
    pub(super) fn delete_objects(&self, keys: &[String]) -> Result<(), StoreError> {
        for keys in keys.chunks(KEYS_MAX) {
            let one_by_one = || keys.iter().try_for_each(|key| self.delete_object(key, ""));
            // XML has no place for most control characters, and a carriage return in it is a new line.
            let is_awkward = keys.iter().any(|key| key.contains(char::is_control));
            let goes_alone = keys.len() == 1 || is_awkward || self.removes_many.get() == Some(&false);
            if goes_alone || !self.delete_chunk(keys)? {
                one_by_one()?;
            }
        }
        Ok(())
    }

    /// Removes these by one request; `false`: the store does not do that.
    fn delete_chunk(&self, keys: &[String]) -> Result<bool, StoreError> {
        let objects: String = keys.iter().map(|key| format!("<Object><Key>{}</Key></Object>", escaped(key))).collect();
        let namespace = "http://s3.amazonaws.com/doc/2006-03-01/";
        let text = format!("<Delete xmlns=\"{namespace}\">{objects}<Quiet>true</Quiet></Delete>");
        // A removal wants a checksum beside the signature.
        let checksum = STANDARD.encode(digest::digest(&digest::SHA256, text.as_bytes()));
        let headers = vec![("x-amz-checksum-sha256", checksum), ("x-amz-sdk-checksum-algorithm", "SHA256".into())];
        let request = Request { query: "delete=", headers, ..Request::new("POST", "") };
        let answer = match self.ask(request, text.as_bytes()) {
            Ok(answer) => answer,
            // Nothing says so for certain; what is really wrong is so with one object, too.
            Err(StoreError::Permanent(why) | StoreError::NotFound(why)) if self.removes_many.get().is_none() => {
                tracing::info!(why, "the store does not remove many objects by one request: it gets one for each");
                self.removes_many.get_or_init(|| false);
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let failed = answer.split("<Error>").skip(1).find_map(|error| {
            let code = element(error, "Code").unwrap_or_default();
            let key = element(error, "Key").unwrap_or_default();
            (code != "NoSuchKey").then(|| (format!("the store answered {code} to the removal of {key}"), code))
        });
        match failed {
            Some((why, code)) if ["InternalError", "SlowDown", "ServiceUnavailable"].contains(&code.as_str()) => {
                Err(StoreError::Transient(why))
            }
            Some((why, _)) => Err(StoreError::Permanent(why)),
            None if answer.contains("<DeleteResult") => {
                self.removes_many.get_or_init(|| true);
                Ok(true)
            }
            None => Err(StoreError::Transient("the store's answer to a removal is not one of S3".into())),
        }
    }
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use crate::Store;
    use crate::s3::tests::{noting_store, request_lines};

    fn keys(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("a&b/{number}")).collect()
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\n\r\n{body}")
    }

    #[test]
    fn a_thousand_objects_go_by_one_request() {
        let (store, seen) = noting_store(answer("200 OK", "<DeleteResult/>"));
        store.delete_all(&keys(1002)).unwrap();
        assert_eq!(request_lines(&seen), ["POST /b/?delete= HTTP/1.1", "POST /b/?delete= HTTP/1.1"]);
        let requests = seen.lock().unwrap();
        assert_eq!(requests[0].matches("<Object><Key>a&amp;b/").count(), 1000);
        assert!(requests[0].contains("x-amz-checksum-sha256: "), "{}", &requests[0][..500]);
        drop(requests);
        store.delete_all(&keys(1)).unwrap();
        assert_eq!(request_lines(&seen)[2], "DELETE /b/a%26b/0 HTTP/1.1", "one is one");
    }

    #[test]
    fn keys_that_xml_cannot_write_go_one_by_one() {
        let (store, seen) = noting_store(answer("200 OK", "<DeleteResult/>"));
        store.delete_all(&["a\rb".into(), "c".into()]).unwrap();
        assert_eq!(request_lines(&seen), ["DELETE /b/a%0Db HTTP/1.1", "DELETE /b/c HTTP/1.1"]);
    }

    #[test]
    fn a_store_that_removes_one_object_a_request_is_asked_once_for_more() {
        for status in ["400 Bad Request", "405 Method Not Allowed", "501 Not Implemented", "404 Not Found"] {
            // To a single removal this is no success either, but for one that finds nothing.
            let (store, seen) = noting_store(answer(status, ""));
            let result = store.delete_all(&keys(2));
            assert_eq!(result.is_ok(), status.starts_with("404"), "{status}: {result:?}");
            let _ = store.delete_all(&keys(2));
            let lines = request_lines(&seen);
            assert_eq!(lines.iter().filter(|line| line.starts_with("POST")).count(), 1, "{status}: {lines:?}");
            assert!(lines[1].starts_with("DELETE /b/a%26b/0 "), "{status}: {lines:?}");
        }
    }

    #[test]
    fn an_object_that_stays_is_an_error_although_the_answer_is_200() {
        let of = |code: &str| {
            let body = format!("<DeleteResult><Error><Key>a&amp;b/1</Key><Code>{code}</Code></Error></DeleteResult>");
            noting_store(answer("200 OK", &body)).0.delete_all(&keys(2))
        };
        assert!(of("SlowDown").unwrap_err().is_transient());
        let error = of("AccessDenied").unwrap_err();
        assert!(!error.is_transient() && error.to_string().contains("AccessDenied to the removal of a&b/1"), "{error}");
        of("NoSuchKey").unwrap();
        let cut = noting_store(answer("200 OK", "<Delete")).0.delete_all(&keys(2)).unwrap_err();
        assert!(cut.is_transient(), "{cut}");
    }
}
