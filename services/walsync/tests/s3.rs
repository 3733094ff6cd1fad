//! The S3 client against a real server, versitygw on a folder: requests, conditions, listings, and a whole replication.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Authority, folder, free_port, until};
use std::io::Cursor;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use support::conformance::{self, Interrupted, get, large, put};
use support::gateway::{Gateway, KEY, SECRET, with_credentials};
use support::{Application, Walsync, content};
use walsync::config::Location;
use walsync::fetch::ReadAhead;
use walsync::restore::{Target, restore};
use walsync::store::credentials::Credentials;
use walsync::store::s3::{S3Settings, S3Store};
use walsync::store::{Attributes, Store, StoreError};

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

fn settings(port: u16) -> S3Settings {
    S3Settings {
        bucket: "bucket".into(),
        endpoint: format!("http://127.0.0.1:{port}"),
        region: "us-east-1".into(),
        path_style: true,
        timeout: Duration::from_secs(5),
        certificates: None,
    }
}

fn credentials(secret: &str) -> Credentials {
    Credentials { access_key_id: KEY.into(), secret_access_key: secret.into(), session_token: None }
}

#[test]
fn a_store_that_is_away_is_named_by_its_endpoint() {
    let port = free_port();
    let store = S3Store::new(settings(port), credentials(SECRET)).unwrap();
    let error = store.list("").unwrap_err().to_string();
    assert!(error.starts_with(&format!("GET http://127.0.0.1:{port}/bucket/: ")), "{error}");
}

fn store(gateway: &Gateway) -> S3Store {
    S3Store::new(settings(gateway.port), credentials(SECRET)).unwrap()
}

#[test]
fn objects_are_created_once_read_listed_and_deleted() {
    let gateway = Gateway::start();
    conformance::objects_are_created_once_read_listed_and_deleted(&store(&gateway));
}

#[test]
fn a_part_is_of_one_object_and_not_of_its_successor() {
    let gateway = Gateway::start();
    conformance::a_part_is_of_one_object_and_not_of_its_successor(&store(&gateway));
}

#[test]
fn a_second_writer_is_fenced_whether_its_object_is_shorter_longer_or_as_long() {
    let gateway = Gateway::start();
    let store = Arc::new(store(&gateway));
    conformance::a_second_writer_is_fenced_whether_its_object_is_shorter_longer_or_as_long(store);
}

#[test]
fn a_long_listing_comes_in_pages_and_is_whole() {
    let gateway = Gateway::start();
    conformance::a_long_listing_is_whole_and_ordered(&store(&gateway), 1100);
}

#[test]
fn keys_with_tabs_line_breaks_and_references_are_listed_as_they_were_written_and_removed() {
    let gateway = Gateway::start();
    let store = store(&gateway);
    let mut keys = [
        "a\tb",
        "a\nb",
        "a\rb",
        "a+b c",
        "per%41cent",
        "&#9;&amp;<Key>",
        "quote\"'x",
        "back\\slash",
        " lead",
        "~!*()é",
    ]
    .map(|name| format!("p/{name}/1"));
    for key in &keys {
        put(&store, key, b"x").unwrap();
    }
    keys.sort();
    let listed = || store.list("p/").unwrap().into_iter().map(|object| object.key).collect::<Vec<_>>();
    assert_eq!(listed(), keys);
    for key in &keys {
        let prefix = key.trim_end_matches('1');
        assert_eq!(store.list(prefix).unwrap()[0].key, *key);
        assert_eq!(get(&store, key, None).unwrap(), b"x");
    }
    store.delete_all(&keys).unwrap();
    assert_eq!(listed(), Vec::<String>::new());
    // What it cannot write in a listing is no empty listing.
    put(&store, "p/bell\u{7}/1", b"x").unwrap();
    let error = store.list("p/bell\u{7}/").unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("cannot list such keys"), "{error}");
}

#[test]
fn many_objects_go_by_few_requests_and_those_that_are_gone_are_no_error() {
    let gateway = Gateway::start();
    conformance::many_objects_go_at_once_and_those_that_are_gone_are_no_error(&store(&gateway));
}

#[test]
fn a_wrong_secret_and_a_wrong_bucket_are_final_and_a_dead_server_is_not() {
    let gateway = Gateway::start();
    let error = S3Store::new(settings(gateway.port), credentials("wrong")).unwrap().list("").unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("SignatureDoesNotMatch"), "{error}");
    let elsewhere = S3Settings { bucket: "nowhere".into(), ..settings(gateway.port) };
    let error = S3Store::new(elsewhere, credentials(SECRET)).unwrap().list("").unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("NoSuchBucket"), "{error}");
    let error = S3Store::new(settings(free_port()), credentials(SECRET)).unwrap().list("").unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[test]
fn what_is_wrong_between_here_and_the_store_is_one_line_that_says_what_to_do() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (plain, tls) = (Gateway::start(), Gateway::start_with_certificate(authority.sign("gateway")));
    let nameless = authority.sign_as("nameless", |parameters| parameters.subject_alt_names.clear());
    let nameless = Gateway::start_with_certificate(nameless);
    let settings = |endpoint: String| S3Settings { endpoint, certificates: Some(authority.path()), ..settings(1) };
    let of = |settings: S3Settings, secret: &str| {
        S3Store::new(settings, credentials(secret)).unwrap().list("p/").map(drop).unwrap_err()
    };
    let trusting = |path| S3Settings { certificates: Some(path), ..settings(tls.endpoint()) };
    let (of_same_name, unknown) = (trusting(stranger.path()), trusting(stranger.self_signed("unknown", |_| {}).0));
    let to_another_name = settings(nameless.endpoint());
    let no_bucket = S3Settings { bucket: "nowhere".into(), ..settings(plain.endpoint()) };
    for (settings, secret, is_transient, parts) in [
        (of_same_name, SECRET, false, ["BadSignature", "name that in `certificates`"]),
        (unknown, SECRET, false, ["UnknownIssuer", "name that in `certificates`"]),
        (to_another_name, SECRET, false, ["certificate", "is for another name"]),
        (
            settings(format!("https://127.0.0.1:{}", plain.port)),
            SECRET,
            false,
            ["does not speak TLS", "begin the endpoint with http://"],
        ),
        (
            settings(format!("http://127.0.0.1:{}", tls.port)),
            SECRET,
            true,
            ["http://127.0.0.1:", "begin the endpoint with https://"],
        ),
        (settings(format!("http://127.0.0.1:{}", free_port())), SECRET, true, ["refused", "nobody listens there"]),
        (
            settings("http://no-such-host.invalid:9000".into()),
            SECRET,
            true,
            ["no-such-host.invalid", "there is no such host"],
        ),
        (
            settings(plain.endpoint()),
            "wrong",
            false,
            ["403 SignatureDoesNotMatch for bucket bucket", "correct the secret access key"],
        ),
        (no_bucket, SECRET, false, ["404 NoSuchBucket for bucket nowhere", "make it there"]),
        (
            S3Settings { region: "eu-west-1".into(), ..settings(plain.endpoint()) },
            SECRET,
            false,
            ["400 AuthorizationHeaderMalformed", "say us-east-1, and not eu-west-1"],
        ),
    ] {
        let endpoint = settings.endpoint.clone();
        let error = of(settings, secret);
        let said = error.to_string();
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(said.contains(&endpoint) && said.lines().count() == 1 && !said.contains("  "), "{said}");
        assert_eq!(error.is_transient(), is_transient, "{said}");
    }
    let stranger = Credentials { access_key_id: "nobody".into(), ..credentials(SECRET) };
    let error = S3Store::new(settings(plain.endpoint()), stranger).unwrap().get("p/k", None).map(drop).unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, StoreError::Permanent(_)) && said.contains("does not know this access key"), "{said}");
    assert!(said.contains(" for p/k in bucket bucket"), "{said}");
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let settings = S3Settings { timeout: Duration::from_millis(300), ..settings(port) };
    let error = S3Store::new(settings, credentials(SECRET)).unwrap().list("").unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[test]
fn a_database_goes_to_s3_and_comes_back_also_by_litestream() {
    let gateway = Gateway::start();
    let folder = folder();
    let database = folder.path().join("app.db");
    let mut application = Application::start(&database, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)");
    let endpoint = gateway.endpoint();
    let mut command = support::walsync();
    command.arg("watch").arg(&database).args(["--to", "s3://bucket/some/prefix", "--endpoint", &endpoint]);
    with_credentials(command.args(["--interval-millis", "50"]));
    let mut walsync = Walsync::start(command, &folder.path().join("log"));
    for txid in 1..=4 {
        walsync.wait_durable(txid);
        application.run("INSERT INTO t(v) VALUES (randomblob(30000))");
    }
    walsync.stop();
    let expected = content(&database);
    let replica = Location::open("s3://bucket/some/prefix", &gateway.options()).unwrap().replica("app.db");
    for (number, read_ahead) in [ReadAhead::default(), ReadAhead { part_bytes: 777, parts: 3 }].into_iter().enumerate()
    {
        let output = folder.path().join(format!("restored-{number}.db"));
        let restored = restore(&replica.clone().reading_ahead(read_ahead), Target::Latest, &output, true).unwrap();
        assert!(std::fs::read(output).unwrap() == expected, "{read_ahead:?}");
        assert!((1..=read_ahead.bytes_max()).contains(&restored.bytes_ahead_max), "{restored:?}");
    }
    let url = format!("s3://bucket/some/prefix/app.db?endpoint={endpoint}&force-path-style=true&region=us-east-1");
    let path = folder.path().join("litestream.db");
    harness::output(with_credentials(support::litestream().args(["restore", "-o"]).arg(&path).arg(url)));
    assert!(std::fs::read(path).unwrap() == expected, "restored by Litestream");
    application.close();
}

#[test]
fn over_tls_a_database_goes_to_whom_an_authority_that_is_trusted_has_signed_and_to_nobody_else() {
    let (trusted, unknown) = (Authority::new(), Authority::new());
    let gateway = Gateway::start_with_certificate(trusted.sign("gateway"));
    let folder = folder();
    let (database, output) = (folder.path().join("app.db"), folder.path().join("restored.db"));
    let application = Application::start(&database, "CREATE TABLE t(v); INSERT INTO t VALUES (randomblob(30000))");
    let with = |authority: &Authority, words: &[&str]| {
        let mut command = support::walsync();
        command.args(words).args(["--endpoint", &gateway.endpoint()]).env("SSL_CERT_FILE", authority.path());
        with_credentials(&mut command);
        command
    };
    let paths = [&database, &output].map(|path| path.to_str().unwrap().to_owned());
    harness::output(&mut with(&trusted, &["snapshot", &paths[0], "--to", "s3://bucket"]));
    let restore = ["restore", "s3://bucket/app.db", "-o", &paths[1]];
    let refused = with(&unknown, &restore).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("certificate") && !output.exists(), "{text}");
    harness::output(&mut with(&trusted, &restore));
    assert!(std::fs::read(&output).unwrap() == content(&database));
    // The configuration's own file comes first.
    let settings = |authority: &Authority| S3Settings {
        endpoint: gateway.endpoint(),
        certificates: Some(authority.path()),
        ..settings(gateway.port)
    };
    let listed = |authority| S3Store::new(settings(authority), credentials(SECRET)).unwrap().list("");
    assert!(!listed(&trusted).unwrap().is_empty());
    let error = listed(&unknown).unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    application.close();
}

#[test]
fn what_a_killed_restore_left_behind_goes_with_the_next_of_the_same_words() {
    let gateway = Gateway::start();
    let folder = folder();
    let database = folder.path().join("app.db");
    let application = Application::start(&database, "CREATE TABLE t(v); INSERT INTO t VALUES (1)");
    let endpoint = gateway.endpoint();
    let mut command = support::walsync();
    command.arg("snapshot").arg(&database).args(["--to", "s3://bucket", "--endpoint", &endpoint]);
    harness::output(with_credentials(&mut command));
    for words in [&["--follow"][..], &[]] {
        let into = harness::folder();
        let output = into.path().join("restored.db");
        let left = into.path().join(".walsync-restore-restored.db");
        let command = || {
            let mut command = support::walsync();
            command.args(["restore", "s3://bucket/app.db", "--endpoint", &endpoint, "-o"]).arg(&output).args(words);
            with_credentials(&mut command);
            command
        };
        // A store that does not answer: it has begun, and comes no further.
        gateway.process.signal(rustix::process::Signal::STOP);
        let walsync = Walsync::start(command(), &folder.path().join("killed.log"));
        until("a restore that has begun", || left.exists());
        walsync.kill();
        gateway.process.signal(rustix::process::Signal::CONT);
        assert!(left.exists() && !output.exists(), "{words:?}");
        if words.is_empty() {
            harness::output(&mut command());
        } else {
            let walsync = Walsync::start(command(), &folder.path().join("follow.log"));
            until("a restored database", || output.exists());
            assert!(walsync.terminate().success());
        }
        assert!(content(&output) == content(&database), "{words:?}");
        let hidden = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b".");
        let names = std::fs::read_dir(into.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.filter(hidden).count(), 0, "{words:?}");
    }
    application.close();
}

/// As small as S3 takes parts.
const PART_BYTES: u64 = 5 << 20;

fn store_of_parts(gateway: &Gateway) -> S3Store {
    S3Store::new(settings(gateway.port), credentials(SECRET)).unwrap().sending_parts_of(PART_BYTES)
}

#[test]
fn a_large_object_is_sent_in_parts_and_once() {
    let gateway = Gateway::start();
    let store = store_of_parts(&gateway);
    let content = large(1);
    let metadata = [("litestream-timestamp", "2026-11-23T00:00:00Z".to_owned())];
    let attributes = Attributes { modified_millis: 0, metadata: &metadata };
    store.create("a/large", &mut Cursor::new(&content), content.len() as u64, &attributes).unwrap();
    assert!(get(&store, "a/large", None).unwrap() == content);
    assert!(matches!(put(&store, "a/large", &large(2)), Err(StoreError::AlreadyExists(_))));
    assert!(get(&store, "a/large", None).unwrap() == content, "what is there stays");
    // One byte more than a part, and no more.
    for bytes in [PART_BYTES, PART_BYTES + 1] {
        put(&store, &format!("a/{bytes}"), &content[..bytes as usize]).unwrap();
        assert!(get(&store, &format!("a/{bytes}"), None).unwrap() == content[..bytes as usize]);
    }
    let keys: Vec<String> = store.list("").unwrap().into_iter().map(|object| object.key).collect();
    assert_eq!(keys, ["a/5242880", "a/5242881", "a/large"], "no probe is left");
    assert_eq!(gateway.parts(), 0);
}

#[test]
fn of_two_writers_of_a_large_object_the_one_that_ends_last_is_refused() {
    let gateway = Gateway::start();
    let (ours, theirs) = (store_of_parts(&gateway), store_of_parts(&gateway));
    let content = large(1);
    // Theirs is there when our last part is sent: only the last request can tell.
    let action = || {
        assert!(gateway.parts() > 0, "parts of ours are there");
        put(&theirs, "a/large", &content).map_err(std::io::Error::other)
    };
    let mut body = Interrupted { body: Cursor::new(large(2)), at: 2 * PART_BYTES, action: Some(action) };
    let result = ours.create("a/large", &mut body, 12_000_000, &Attributes::default());
    assert!(matches!(&result, Err(StoreError::AlreadyExists(key)) if key == "a/large"), "{result:?}");
    assert!(body.action.is_none() && get(&ours, "a/large", None).unwrap() == content);
    assert_eq!(gateway.parts(), 0, "what was refused does not stay");
}

#[test]
fn an_upload_in_parts_that_fails_leaves_nothing() {
    let gateway = Gateway::start();
    let store = store_of_parts(&gateway);
    let action = || -> std::io::Result<()> {
        assert!(gateway.parts() > 0, "parts are there, to be left");
        Err(std::io::ErrorKind::PermissionDenied.into())
    };
    let mut body = Interrupted { body: Cursor::new(large(1)), at: 2 * PART_BYTES, action: Some(action) };
    // Shorter than it was announced: no second try of a part helps.
    let result = store.create("a/large", &mut body, 13_000_000, &Attributes::default());
    assert!(matches!(&result, Err(StoreError::Permanent(text)) if text.contains("shorter")), "{result:?}");
    assert!(body.action.is_none(), "a part that could not be read was tried again");
    assert_eq!((store.list("").unwrap().len(), gateway.parts()), (0, 0));
}

#[test]
fn where_a_store_is_is_said_by_a_flag_or_by_a_file_and_an_address_that_nobody_can_ask_is_refused() {
    let folder = folder();
    let (config, database) = (folder.path().join("walsync.yml"), folder.path().join("app.db"));
    std::fs::write(&config, format!("{{store: s3://b/p, databases: [{{path: {}}}]}}", database.display())).unwrap();
    std::fs::write(&database, "precious").unwrap();
    let said = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = support::walsync();
        with_credentials(command.args(words).envs(variables.iter().copied()));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (config, database) = (config.to_str().unwrap(), database.to_str().unwrap());
    for flag in ["--endpoint", "--region"] {
        for words in [["explain", "--config", config].as_slice(), &["list", database, "--config", config]] {
            let (code, text) = said(&[words, &[flag, "http://127.0.0.1:1"]].concat(), &[]);
            assert!(code == Some(2) && text.contains(&format!("{flag}: cannot be used with --config")), "{text}");
        }
    }
    // What the environment says goes along with a file.
    let (code, text) = said(&["explain", "--config", config], &[("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")]);
    assert_eq!(code, Some(0), "{text}");
    for secret in ["http://user:SECRET@127.0.0.1:1", "https://127.0.0.1:1?sig=SECRET"] {
        for (words, variables) in [
            (&["list", "s3://b/p", "--endpoint", secret][..], &[][..]),
            (&["list", "s3://b/p"], &[("AWS_ENDPOINT_URL", secret)]),
            (&["explain", database, "--to", "s3://b/p"], &[("AWS_ENDPOINT_URL_S3", secret)]),
            (&["list", &format!("s3://b/p?endpoint={secret}")], &[]),
        ] {
            let (code, text) = said(words, variables);
            assert!(code == Some(2) && text.contains("write it as https://host"), "{words:?}: {code:?} {text}");
            assert!(!text.contains("SECRET") && text.lines().count() == 1, "{words:?}: {text}");
        }
    }
    let (unix, to) = (format!("unix://{database}"), format!("file://{}", folder.path().join("store").display()));
    for listen in [unix.as_str(), "https://127.0.0.1:9091"] {
        for words in [["watch", database, "--to", &to].as_slice(), &["status"], &["sync", database]] {
            let (code, text) = said(&[words, &["--listen", listen]].concat(), &[]);
            assert!(code == Some(2) && text.contains("expected http://HOST:PORT"), "{words:?}: {code:?} {text}");
        }
    }
    assert_eq!(std::fs::read(database).unwrap(), b"precious");
}
