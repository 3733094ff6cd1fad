//! The client against servers that answer as Google does, or should not.

use super::*;
use crate::noting::{Seen, answering};

fn store(answer: impl FnMut(&str, usize) -> String + Send + 'static) -> (GcsStore, Seen) {
    let (endpoint, seen) = answering(answer);
    let (settings, _) = GcsSettings::find("b", Some(&endpoint), |_| None);
    let settings = GcsSettings { timeout: Duration::from_secs(5), time_word: Some("time".into()), ..settings };
    (GcsStore::new(settings, None).unwrap().sending_parts_of(1), seen)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n\r\n{body}")
}

fn create(store: &GcsStore, length: usize) -> Result<(), StoreError> {
    let metadata = [("time", "1970-01-01T00:00:01Z".to_owned())];
    let attributes = Attributes { modified_millis: 1000, metadata: &metadata };
    store.create("a/k", &mut Cursor::new(vec![b'x'; length]), length as u64, &attributes)
}

#[test]
fn a_bucket_is_at_google_unless_somebody_says_where_and_an_emulator_wants_nobody_to_log_in() {
    let find = |endpoint, host: Option<&str>| {
        let (settings, logs_in) = GcsSettings::find("b", endpoint, |_| host.map(str::to_owned));
        (settings.endpoint, logs_in)
    };
    assert_eq!(find(None, None), ("https://storage.googleapis.com".into(), true));
    assert_eq!(find(None, Some("localhost:4443")), ("http://localhost:4443".into(), false));
    assert_eq!(find(None, Some("http://localhost:4443/storage/v1/")), ("http://localhost:4443".into(), false));
    assert_eq!(find(Some("https://x"), Some("localhost")), ("https://x".into(), true));
    let (settings, _) = GcsSettings::find("b", Some("http://elsewhere:1"), |_| None);
    let token = Token::google(None, |_| None).unwrap();
    assert!(GcsStore::new(settings, Some(token)).err().unwrap().to_string().contains("https:// alone"));
}

#[test]
fn an_object_is_created_under_the_condition_that_there_is_none() {
    let (store, seen) = store(|_, _| ok("{}"));
    create(&store, 3).unwrap();
    let request = seen.lock().unwrap()[0].clone();
    assert!(
        request.starts_with("POST /upload/storage/v1/b/b/o?uploadType=multipart&ifGenerationMatch=0 "),
        "{request}"
    );
    assert!(request.contains(r#""metadata":{"time":"1970-01-01T00:00:01Z"},"name":"a/k"}"#), "{request}");
    assert!(request.contains("octet-stream\r\n\r\nxxx\r\n--"), "{request}");
    let error = store.create("a/k", &mut Cursor::new(b"xx"), 3, &Attributes::default()).unwrap_err();
    assert!(error.to_string().contains("shorter than announced"), "{error}");
}

#[test]
fn what_google_answers_is_understood() {
    let of = |status: &'static str, body: &'static str| store(move |_, _| format!("HTTP/1.1 {status}\r\n\r\n{body}")).0;
    assert!(
        matches!(create(&of("412 Precondition Failed", ""), 3), Err(StoreError::AlreadyExists(key)) if key == "a/k")
    );
    assert!(create(&of("429 Too Many", ""), 3).unwrap_err().is_transient());
    assert!(matches!(of("404 Not Found", "").get("k", None).map(drop), Err(StoreError::NotFound(_))));
    let no_bucket = r#"{"error": {"message": "The specified bucket does not exist."}}"#;
    assert!(matches!(of("404 Not Found", no_bucket).get("k", None).map(drop), Err(StoreError::Permanent(_))));
    assert!(create(&of("404 Not Found", ""), 3).unwrap_err().to_string().contains("there is no bucket b"));
    let forbidden = of("403 Forbidden", r#"{"error": {"errors": [{"reason": "insufficientPermissions"}]}}"#);
    assert!(
        forbidden.list("").unwrap_err().to_string().contains("403 insufficientPermissions for a listing in bucket b")
    );
    of("404 Not Found", "").delete("k").unwrap();
    for wrong in ["", "[]", r#"{"items": [{"name": "k"}]}"#] {
        let error = store(move |_, _| ok(wrong)).0.list("").unwrap_err();
        assert!(!error.is_transient() && error.to_string().contains("listing"), "{wrong}: {error}");
    }
}

#[test]
fn a_listing_comes_in_pages_with_the_times_of_the_objects_and_does_not_go_round_in_a_circle() {
    let item = |name: &str| format!(r#"{{"name": "{name}", "size": "3", "updated": "1970-01-01T00:00:09Z"}}"#);
    let (one, two) = (item("a/2"), item("a/1").replace('}', r#", "metadata": {"time": "1970-01-01T00:00:01Z"}}"#));
    let (store, seen) = store(move |request, _| match request.contains("pageToken") {
        false => ok(&format!(r#"{{"items": [{one}], "nextPageToken": "t&"}}"#)),
        true => ok(&format!(r#"{{"items": [{two}]}}"#)),
    });
    let found = store.list_after("a/", "a/0").unwrap();
    let objects: Vec<_> =
        found.iter().map(|object| (object.key.as_str(), object.size, object.modified_millis)).collect();
    assert_eq!(objects, [("a/1", 3, 1000), ("a/2", 3, 9000)]);
    let seen = seen.lock().unwrap();
    assert!(seen[0].starts_with("GET /storage/v1/b/b/o?prefix=a%2F&startOffset=a%2F0&fields="), "{}", seen[0]);
    assert!(seen[1].contains("&pageToken=t%26 "), "{}", seen[1]);
    let circle = self::store(|_, _| ok(r#"{"nextPageToken": "t"}"#)).0.list("").unwrap_err();
    assert!(circle.to_string().contains("where another began"), "{circle}");
}

#[test]
fn another_generation_is_another_object_whatever_the_store_makes_of_the_condition() {
    let answer = "HTTP/1.1 206 Partial Content\r\nx-goog-generation: 7\r\ncontent-range: bytes 2-4/9\r\n\r\nabc";
    let (store, seen) = store(|_, _| answer.to_owned());
    let part = store.get_part("k", 2..5, Some("7")).unwrap();
    assert_eq!((part.object_bytes, part.version.as_deref()), (9, Some("7")));
    assert!(seen.lock().unwrap()[0].starts_with("GET /storage/v1/b/b/o/k?alt=media&ifGenerationMatch=7 "));
    assert!(matches!(store.get_part("k", 2..5, Some("6")), Err(StoreError::Changed(_))));
}

/// An upload that can be resumed: a store that answers the parts as told, and tells what is there when it is asked.
fn uploading(parts: fn(usize) -> &'static str) -> (GcsStore, Seen) {
    let mut sent = 0;
    store(move |request, _| match request.split(' ').next().unwrap() {
        "GET" => "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
        "POST" => {
            let (_, host) = request.split_once("host: ").unwrap();
            format!("HTTP/1.1 200 OK\r\nlocation: http://{}/session?id=1\r\n\r\n", host.lines().next().unwrap())
        }
        "PUT" => {
            sent += 1;
            format!("HTTP/1.1 {}\r\n\r\n", parts(sent))
        }
        _ => "HTTP/1.1 499 Client Closed Request\r\n\r\n".to_owned(),
    })
}

fn ranges(seen: &Seen) -> Vec<String> {
    let seen = seen.lock().unwrap();
    let of =
        |request: &String| request.lines().find_map(|line| line.strip_prefix("content-range: ").map(str::to_owned));
    seen.iter().filter_map(of).collect()
}

const PART: u64 = PART_UNIT_BYTES;

#[test]
fn an_upload_in_parts_goes_on_where_the_store_says() {
    // The second part is lost, and half of it is there; all of the third one's answer is lost.
    let (store, seen) = uploading(|sent| match sent {
        1 => "308 Resume Incomplete\r\nrange: bytes=0-262143",
        2 | 5 => "503 Service Unavailable",
        3 => "308 Resume Incomplete\r\nrange: bytes=0-299999",
        4 => "308 Resume Incomplete\r\nrange: bytes=0-562143",
        _ => "200 OK",
    });
    create(&store, 600_000).unwrap();
    let expected = ["0-262143", "262144-524287", "*", "300000-562143", "562144-599999", "*"];
    assert_eq!(ranges(&seen), expected.map(|range| format!("bytes {range}/600000")));
    let begin = seen.lock().unwrap()[1].clone();
    assert!(begin.contains("?uploadType=resumable&ifGenerationMatch=0&name=a%2Fk "), "{begin}");
    assert!(begin.contains("x-upload-content-length: 600000"), "{begin}");
}

#[test]
fn an_upload_in_parts_that_is_refused_in_the_end_is_somebody_elses_and_one_that_fails_is_cancelled() {
    let (store, _) = uploading(|sent| ["308 X\r\nrange: bytes=0-262143", "412 Precondition Failed"][sent - 1]);
    assert!(matches!(create(&store, PART as usize + 1), Err(StoreError::AlreadyExists(_))));
    let (store, seen) = uploading(|_| "403 Forbidden");
    assert!(!create(&store, PART as usize + 1).unwrap_err().is_transient());
    assert!(seen.lock().unwrap().last().unwrap().starts_with("DELETE /session?id=1 "), "{seen:?}");
    let (store, _) = uploading(|_| "308 Resume Incomplete");
    assert!(create(&store, PART as usize + 1).unwrap_err().to_string().contains("keeps none of them"));
}

#[test]
fn a_page_of_a_proxy_is_no_missing_object() {
    let page = "HTTP/1.1 404 Not Found\r\n\r\n<html><h1>Please log in</h1></html>".to_owned();
    let (store, _) = store(move |_, _| page.clone());
    for error in [store.get("k", None).map(drop).unwrap_err(), store.list("p/").map(drop).unwrap_err()] {
        let said = error.to_string();
        assert!(matches!(error, StoreError::Permanent(_)) && said.contains("404 \"Please log in\""), "{said}");
    }
}
