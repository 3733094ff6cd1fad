//! The client against servers that answer as Azure does, or should not.

use super::*;
use crate::noting::{Seen, answering};

const KEY: &str = "a2V5";

fn store_with(
    credentials: AzureCredentials,
    answer: impl FnMut(&str, usize) -> String + Send + 'static,
) -> (AzureStore, Seen) {
    let (endpoint, seen) = answering(answer);
    let settings = AzureSettings::new("me", "c", Some(&format!("{endpoint}/me")));
    let settings = AzureSettings { timeout: Duration::from_secs(5), time_word: Some("the-time".into()), ..settings };
    (AzureStore::new(settings, credentials).unwrap().sending_parts_of(8), seen)
}

fn store(answer: impl FnMut(&str, usize) -> String + Send + 'static) -> (AzureStore, Seen) {
    store_with(AzureCredentials::key(KEY).unwrap(), answer)
}

fn create(store: &AzureStore, length: usize) -> Result<(), StoreError> {
    let metadata = [("the-time", "1970-01-01T00:00:01Z".to_owned())];
    let attributes = Attributes { modified_millis: 1000, metadata: &metadata };
    store.create("a/k", &mut Cursor::new(vec![b'x'; length]), length as u64, &attributes)
}

/// The example "Put Blob" of Microsoft's page "Authorize with Shared Key", as far as it uses what is used here.
#[test]
fn what_is_signed_is_what_microsoft_says() {
    let headers = [
        ("content-type", "text/plain; charset=UTF-8"),
        ("x-ms-date", "Sun, 20 Sep 2009 20:36:40 GMT"),
        ("x-ms-meta-m1", "v1"),
        ("x-ms-meta-m2", "v2"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let text =
        to_sign("PUT", "testaccount1", "/mycontainer/hello.txt", &[("timeout", "30"), ("comp", "x")], &headers, 11);
    let expected = "PUT\n\n\n11\n\ntext/plain; charset=UTF-8\n\n\n\n\n\n\nx-ms-date:Sun, 20 Sep 2009 20:36:40 GMT\nx-ms-meta-m1:v1\n\
                    x-ms-meta-m2:v2\n/testaccount1/mycontainer/hello.txt\ncomp:x\ntimeout:30";
    assert_eq!(text, expected);
    assert_eq!(
        to_sign("GET", "a", "/a/c/k", &[], &[], 0),
        "GET\n\n\n\n\n\n\n\n\n\n\n\n/a/a/c/k",
        "no length where there is no body"
    );
}

#[test]
fn an_object_is_created_under_the_condition_that_there_is_none() {
    let (store, seen) = store(|_, _| "HTTP/1.1 201 Created\r\n\r\n".into());
    create(&store, 3).unwrap();
    let request = seen.lock().unwrap()[0].clone();
    assert!(request.starts_with("PUT /me/c/a/k HTTP/1.1") && request.ends_with("\r\n\r\nxxx"), "{request}");
    for line in
        ["if-none-match: *", "x-ms-blob-type: BlockBlob", "x-ms-meta-thetime: 1970-", "authorization: SharedKey me:"]
    {
        assert!(request.contains(line), "{line}: {request}");
    }
}

#[test]
fn a_signature_of_access_stands_in_every_request_and_in_no_error() {
    let (store, seen) = store_with(AzureCredentials::signature("?sv=1&sig=secret"), |_, _| "no answer".into());
    let errors = [store.list("p").unwrap_err(), store.delete("k").unwrap_err()];
    assert!(errors.iter().all(|error| error.is_transient() && !error.to_string().contains("secret")), "{errors:?}");
    let seen = seen.lock().unwrap();
    assert!(seen[0].starts_with("GET /me/c?comp=list&include=metadata&prefix=p&restype=container&sv=1&sig=secret "));
    assert!(seen.last().unwrap().starts_with("DELETE /me/c/k?sv=1&sig=secret "), "{}", seen.last().unwrap());
}

#[test]
fn what_azure_answers_is_understood() {
    let of = |status: &'static str, code: &'static str| {
        store(move |_, _| format!("HTTP/1.1 {status}\r\nx-ms-error-code: {code}\r\n\r\n")).0
    };
    for (status, code) in [("409 Conflict", "BlobAlreadyExists"), ("412 X", "ConditionNotMet")] {
        assert!(matches!(create(&of(status, code), 3), Err(StoreError::AlreadyExists(key)) if key == "a/k"), "{code}");
    }
    assert!(create(&of("503 X", "ServerBusy"), 3).unwrap_err().is_transient());
    assert!(create(&of("404 X", "ContainerNotFound"), 3).unwrap_err().to_string().contains("there is no container c"));
    assert!(matches!(of("404 X", "BlobNotFound").get("k", None).map(drop), Err(StoreError::NotFound(_))));
    of("404 X", "BlobNotFound").delete("k").unwrap();
    assert!(matches!(of("412 X", "ConditionNotMet").get_part("k", 0..1, Some("e")), Err(StoreError::Changed(_))));
    let error = of("403 X", "AuthenticationFailed").list("").unwrap_err();
    assert!(
        !error.is_transient() && error.to_string().contains("403 AuthenticationFailed for a listing in container c"),
        "{error}"
    );
}

fn page(blobs: &str, next: &str) -> String {
    let body = format!("<?xml?><EnumerationResults X=\"1\"><Blobs>{blobs}</Blobs>{next}</EnumerationResults>");
    format!("HTTP/1.1 200 OK\r\n\r\n{body}")
}

#[test]
fn a_listing_comes_in_pages_with_the_times_of_the_objects_and_does_not_go_round_in_a_circle() {
    const TWO: &str = "<Blob><Name>a/&amp;2</Name><Properties><Last-Modified>Thu, 01 Jan 1970 00:00:09 GMT</Last-Modified>\
        <Content-Length>3</Content-Length></Properties></Blob><Blob><Name Encoded=\"true\">a%FFFE</Name></Blob>";
    const ONE: &str = "<Blob><Name>a/&amp;1</Name><Properties><Content-Length>4</Content-Length></Properties><Metadata>\
        <thetime>1970-01-01T00:00:01Z</thetime></Metadata></Blob><Blob><Name>b</Name><Content-Length>0</Content-Length></Blob>";
    let (store, seen) = store(|request, _| match request.contains("marker=") {
        false => page(TWO, "<NextMarker>m/</NextMarker>"),
        true => page(ONE, "<NextMarker />"),
    });
    let found = store.list_after("a/", "a/&0").unwrap();
    let objects: Vec<_> =
        found.iter().map(|object| (object.key.as_str(), object.size, object.modified_millis)).collect();
    assert_eq!(objects, [("a/&1", 4, 1000), ("a/&2", 3, 9000)]);
    assert!(seen.lock().unwrap()[1].contains("&prefix=a%2F&marker=m%2F&restype="), "{seen:?}");
    let listed = |page: String| self::store(move |_, _| page.clone()).0.list("").unwrap_err().to_string();
    assert!(listed(page("", "<NextMarker>m</NextMarker>")).contains("where another began"));
    assert!(listed("HTTP/1.1 200 OK\r\n\r\n<EnumerationResults>".into()).contains("is not one of Azure's"));
}

#[test]
fn blocks_become_an_object_under_the_condition_and_those_of_a_writer_who_was_faster_do_not() {
    let blocks = |status_of_end: &'static str, is_there_then: bool| {
        let mut ended = false;
        store(move |request, _| {
            let status = match request.split(' ').next().unwrap() {
                "HEAD" if ended && is_there_then => "200 OK",
                "HEAD" => "404 X\r\nx-ms-error-code: BlobNotFound",
                _ if request.contains("comp=blocklist") => {
                    ended = true;
                    status_of_end
                }
                _ => "201 Created",
            };
            format!("HTTP/1.1 {status}\r\n\r\n")
        })
    };
    let (store, seen) = blocks("201 Created", false);
    create(&store, 20).unwrap();
    let sent = seen.lock().unwrap().clone();
    assert_eq!(sent.iter().filter(|request| request.contains("comp=block ")).count(), 3);
    let end = sent.last().unwrap();
    assert!(
        end.contains("if-none-match: *")
            && end.contains("x-ms-meta-thetime: ")
            && end.matches("<Uncommitted>").count() == 3,
        "{end}"
    );
    let gone = "400 X\r\nx-ms-error-code: InvalidBlockList";
    for status in ["409 X\r\nx-ms-error-code: BlobAlreadyExists", gone] {
        let result = create(&blocks(status, true).0, 20);
        assert!(matches!(&result, Err(StoreError::AlreadyExists(_))), "{status}: {result:?}");
    }
    assert!(create(&blocks(gone, false).0, 20).unwrap_err().is_transient());
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
