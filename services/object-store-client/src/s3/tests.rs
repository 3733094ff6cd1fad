//! The client against servers that answer as they should not.

use super::*;
use crate::credentials::Credentials;
use crate::http::Paced;
use crate::noting::{Seen, answering};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

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
    store_at(endpoint)
}

fn store_at(endpoint: String) -> S3Store {
    let region = "us-east-1".into();
    let settings =
        S3Settings { bucket: "b".into(), endpoint, region, path_style: true, timeout: TIMEOUT, certificates: None };
    let credentials = Credentials { access_key_id: "a".into(), secret_access_key: "s".into(), session_token: None };
    S3Store::new(settings, credentials).unwrap()
}

/// A store that gives each request the same answer and closes the connection, and notes what it was asked, whole.
pub(super) fn noting_store(answer: String) -> (S3Store, Seen) {
    let (endpoint, seen) = answering(move |_, _| answer.clone());
    (store_at(endpoint), seen)
}

/// The first lines of requests.
pub(super) fn request_lines(seen: &Mutex<Vec<String>>) -> Vec<String> {
    seen.lock().unwrap().iter().map(|request| request.lines().next().unwrap().to_owned()).collect()
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
fn a_listing_that_writes_a_key_otherwise_than_it_was_asked_for_is_an_error_and_not_empty() {
    let page = "<ListBucketResult><EncodingType></EncodingType><Contents><Key>p/bell\u{fffd}x/1</Key><Size>1</Size></Contents></ListBucketResult>";
    let (store, seen) = noting_store(format!("HTTP/1.1 200 OK\r\n\r\n{page}"));
    let error = store.list("p/bell\u{7}x/").unwrap_err();
    assert!(matches!(&error, StoreError::Permanent(text) if text.contains("cannot list such keys")), "{error}");
    assert!(!error.to_string().contains('\u{7}'), "{error}");
    let asked = "GET /b/?encoding-type=url&list-type=2&prefix=p%2Fbell%07x%2F HTTP/1.1";
    assert_eq!(request_lines(&seen), [asked]);
}

/// A store that keeps nothing but keys, as they were written, and lists them as AWS does.
#[test]
fn any_key_that_is_written_is_listed_as_it_was() {
    let (endpoint, _) = answering({
        let mut keys: Vec<String> = Vec::new();
        move |request, _| {
            let words: Vec<&str> = request.split(' ').collect();
            if words[0] == "PUT" {
                let key = words[1].strip_prefix("/b/").unwrap();
                let is_new = !keys.iter().any(|known| known == key);
                if is_new {
                    keys.push(key.to_owned());
                }
                return if is_new { "HTTP/1.1 200 OK" } else { "HTTP/1.1 412 Precondition Failed" }.into();
            }
            let encoding = if words[1].contains("encoding-type=url") { "<EncodingType>url</EncodingType>" } else { "" };
            let contents = keys
                .iter()
                .filter(|key| !key.contains(".probe-"))
                .map(|key| format!("<Contents><Key>{}</Key><Size>1</Size></Contents>", key.replace("%20", "+")));
            let contents = contents.collect::<String>();
            format!("HTTP/1.1 200 OK\r\n\r\n<ListBucketResult>{encoding}{contents}</ListBucketResult>")
        }
    });
    let store = store_at(endpoint);
    let mut keys: Vec<String> = (1..0x250).filter_map(char::from_u32).map(|letter| format!("p/{letter}x")).collect();
    keys.extend(
        ["p/per%41cent", "p/&#9;&amp;<Key>", "p/ a+b ", "p/\u{fffd}\u{feff}\u{ffff}\u{1f600}"].map(str::to_owned),
    );
    for key in &keys {
        store.create(key, &mut Cursor::new(b"x"), 1, &Attributes::default()).unwrap();
    }
    keys.sort();
    let listed: Vec<String> = store.list("p/").unwrap().into_iter().map(|object| object.key).collect();
    assert_eq!(listed, keys);
}

#[test]
fn a_page_of_a_proxy_is_no_listing_and_no_missing_object() {
    let page = "<html><body><h1>Please log in</h1></body></html>";
    for status in ["200 OK", "404 Not Found"] {
        let (store, _) = noting_store(format!("HTTP/1.1 {status}\r\n\r\n{page}"));
        let error = store.list("").unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, StoreError::Permanent(_)) && said.contains("\"Please log in\""), "{said}");
        assert!(said.contains("the store at http://127.0.0.1:") && !said.contains('<'), "{said}");
    }
    let (store, _) = noting_store(format!("HTTP/1.1 404 Not Found\r\n\r\n{page}"));
    let error = store.get("k", None).map(drop).unwrap_err();
    assert!(matches!(&error, StoreError::Permanent(said) if said.contains("for k in bucket b")), "{error}");
}

#[test]
fn a_bucket_is_at_aws_unless_somebody_says_where() {
    let at_aws = S3Settings::find("b", None, None, |name| (name == "AWS_REGION").then(|| "eu-west-1".into()));
    assert_eq!((at_aws.endpoint.as_str(), at_aws.path_style), ("https://s3.eu-west-1.amazonaws.com", false));
    let said = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| "http://store:9000".to_owned());
    let elsewhere = S3Settings::find("b", None, Some("here"), said);
    assert_eq!((elsewhere.endpoint.as_str(), elsewhere.path_style), ("http://store:9000", true));
    assert_eq!(elsewhere.region, "here");
    assert_eq!(S3Settings::find("b", Some("http://other"), None, said).endpoint, "http://other");
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
fn a_part_is_of_the_object_and_of_the_bytes_that_were_asked_for() {
    let part = |head: &'static str, range: Range<u64>| store(head, says_nothing).get_part("k", range, Some("\"v\""));
    let right =
        "HTTP/1.1 206 Partial Content\r\netag: \"v\"\r\ncontent-range: bytes 2-4/9\r\ncontent-length: 3\r\n\r\nabc";
    let mut found = part(right, 2..5).unwrap();
    let mut bytes = Vec::new();
    found.body.read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.as_slice(), found.object_bytes, found.version.as_deref()), (&b"abc"[..], 9, Some("\"v\"")));
    // Other bytes than those that were asked for would be taken for them.
    for range in [1..5, 3..6, 2..4] {
        let error = part(right, range).map(drop).unwrap_err();
        assert!(error.to_string().contains("k: asked for bytes"), "{error}");
    }
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
    assert_eq!(part(whole, 0..3).unwrap().object_bytes, 3, "all is what was asked for");
    assert!(matches!(part(whole, 1..3), Err(StoreError::Permanent(_))));
    for head in
        ["HTTP/1.1 412 Precondition Failed\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 416 X\r\ncontent-length: 0\r\n\r\n"]
    {
        assert!(matches!(part(head, 0..3), Err(StoreError::Changed(key)) if key == "k"), "{head}");
    }
}

#[test]
fn a_listing_that_never_ends_is_an_error() {
    const PAGE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 141\r\n\r\n<ListBucketResult>\
        <IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>                      </ListBucketResult>";
    assert_eq!(PAGE.split_once("\r\n\r\n").unwrap().1.len(), 141);
    let store = store(PAGE, drop);
    let error = in_time(move || store.list("")).unwrap_err();
    assert!(matches!(&error, StoreError::Permanent(text) if text.contains("where another began")), "{error}");
}

/// A page of one key, again and again, of which each names another one as the next.
fn next_page(mut socket: TcpStream) {
    static PAGES: AtomicUsize = AtomicUsize::new(0);
    let token = PAGES.fetch_add(1, Ordering::Relaxed) % 3;
    let next = format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>");
    let object = "<Contents><Key>k</Key><Size>1</Size></Contents>";
    let _ = socket.write_all(format!("<ListBucketResult>{next}{object}</ListBucketResult>").as_bytes());
}

/// An empty page, of which each names the other one as the next.
fn other_page(mut socket: TcpStream) {
    static PAGES: AtomicUsize = AtomicUsize::new(0);
    let token = PAGES.fetch_add(1, Ordering::Relaxed) % 2;
    let next = format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>");
    let _ = socket.write_all(format!("<ListBucketResult>{next}</ListBucketResult>").as_bytes());
}

#[test]
fn a_listing_of_two_empty_pages_that_follow_each_other_is_an_error() {
    let store = store("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", other_page);
    let error = in_time(move || store.list("")).unwrap_err();
    assert!(matches!(&error, StoreError::Permanent(text) if text.contains("where another began")), "{error}");
}

#[test]
fn a_listing_whose_pages_go_round_in_a_circle_is_an_error() {
    let store = store("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", next_page);
    let error = in_time(move || store.list("")).unwrap_err();
    assert!(matches!(&error, StoreError::Permanent(text) if text.contains("where another began")), "{error}");
}

#[test]
fn a_body_that_came_too_slowly_for_the_store_is_worth_another_try() {
    let answer = |code: &str| {
        let body = format!("<Error><Code>{code}</Code></Error>");
        let (store, _) = noting_store(format!("HTTP/1.1 400 Bad Request\r\n\r\n{body}"));
        in_time(move || store.get("k", None).map(drop)).unwrap_err()
    };
    assert!(answer("RequestTimeout").is_transient());
    assert!(!answer("InvalidArgument").is_transient());
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
    assert_eq!(paced.read(&mut [0; 10]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn a_store_that_refuses_the_condition_is_used_as_one_that_ignores_it_and_one_that_refuses_all_is_not() {
    let store_that = |refuses: fn(&str) -> bool| {
        let (endpoint, seen) = answering(move |request, _| {
            let status = match request.split(' ').next() {
                Some("PUT") if refuses(&request.to_ascii_lowercase()) => "501 Not Implemented",
                Some("GET") => "404 Not Found",
                _ => "200 OK",
            };
            format!("HTTP/1.1 {status}")
        });
        (store_at(endpoint), seen)
    };
    let create = |store: &S3Store| store.create("a/b", &mut Cursor::new(b"x"), 1, &Attributes::default());
    let (store, seen) = store_that(|request| request.contains("if-none-match"));
    create(&store).unwrap();
    let last = request_lines(&seen).into_iter().next_back();
    assert_eq!(last.as_deref(), Some("PUT /b/a/b HTTP/1.1"));
    let (store, _) = store_that(|_| true);
    assert!(matches!(create(&store), Err(StoreError::Permanent(_))));
}
