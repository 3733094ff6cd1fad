//! The S3 client against a real server, versitygw on a folder: requests, conditions, listings, and a whole replication.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, TempDir, command, folder, free_address, free_port, peer, until};
use std::io::{Cursor, Read};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;
use support::{Application, content};
use walsync::config::{Location, S3Options};
use walsync::restore::{Target, restore};
use walsync::store::credentials::Credentials;
use walsync::store::s3::{S3Settings, S3Store};
use walsync::store::{Attributes, Store, StoreError};

#[test]
#[ignore = "the body of child processes, started by the other tests"]
fn application_process() {
    support::application_process();
}

const KEY: &str = "walsync-test";
const SECRET: &str = "walsync-secret";

struct Gateway {
    _process: Process,
    port: u16,
    _folder: TempDir,
}

/// versitygw with a bucket `bucket`.
fn gateway() -> Gateway {
    let folder = folder();
    // Metadata lie beside the files: not every file system has extended attributes.
    let (data, metadata) = (folder.path().join("data"), folder.path().join("metadata"));
    std::fs::create_dir_all(data.join("bucket")).unwrap();
    std::fs::create_dir(&metadata).unwrap();
    let address = free_address();
    let mut command = command(peer("versitygw", "versitygw"));
    command.args(["--access", KEY, "--secret", SECRET, "--region", "us-east-1", "--port", &address.to_string()]);
    command.args(["posix", "--sidecar"]).args([metadata, data]).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process::start(&mut command);
    until("the gateway", || TcpStream::connect(address).is_ok());
    Gateway { _process: process, port: address.port(), _folder: folder }
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

fn put(store: &S3Store, key: &str, content: &[u8]) -> Result<(), StoreError> {
    store.create(key, &mut Cursor::new(content), content.len() as u64, &Attributes::default())
}

fn get(store: &S3Store, key: &str, range: Option<std::ops::Range<u64>>) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    store.get(key, range)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn objects_are_created_once_read_listed_and_deleted() {
    let gateway = gateway();
    let store = S3Store::new(settings(gateway.port), credentials(SECRET)).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let names = ["a/one", "a/two words", "a/ä+&=?%", "b/three"];
    for name in names {
        put(&store, name, name.as_bytes()).unwrap();
    }
    put(&store, "a/large", &large).unwrap();
    assert!(matches!(put(&store, "a/one", b"other"), Err(StoreError::AlreadyExists(_))));
    assert_eq!(get(&store, "a/one", None).unwrap(), b"a/one", "what is there stays");
    assert!(get(&store, "a/large", None).unwrap() == large);
    assert_eq!(get(&store, "a/large", Some(10..20)).unwrap(), large[10..20]);
    assert_eq!(get(&store, "a/one", Some(2..100)).unwrap(), b"one");
    assert!(matches!(get(&store, "a/none", None), Err(StoreError::NotFound(_))));
    let keys: Vec<String> = store.list("a/").unwrap().into_iter().map(|object| object.key).collect();
    assert_eq!(keys, ["a/large", "a/one", "a/two words", "a/ä+&=?%"]);
    store.delete("a/one").unwrap();
    store.delete("a/one").unwrap();
    assert_eq!(store.list("a/o").unwrap(), []);
}

#[test]
fn a_long_listing_comes_in_pages_and_is_whole() {
    let gateway = gateway();
    let store = S3Store::new(settings(gateway.port), credentials(SECRET)).unwrap();
    for number in 0..1100 {
        put(&store, &format!("many/{number:04}"), b"x").unwrap();
    }
    let objects = store.list("many/").unwrap();
    assert_eq!(objects.len(), 1100);
    assert!(objects.is_sorted_by(|a, b| a.key < b.key));
}

#[test]
fn a_wrong_secret_and_a_wrong_bucket_are_final_and_a_dead_server_is_not() {
    let gateway = gateway();
    let error = S3Store::new(settings(gateway.port), credentials("wrong")).unwrap().list("").unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("SignatureDoesNotMatch"), "{error}");
    let elsewhere = S3Settings { bucket: "nowhere".into(), ..settings(gateway.port) };
    let error = S3Store::new(elsewhere, credentials(SECRET)).unwrap().list("").unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("NoSuchBucket"), "{error}");
    let error = S3Store::new(settings(free_port()), credentials(SECRET)).unwrap().list("").unwrap_err();
    assert!(error.is_transient(), "{error}");
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
    let gateway = gateway();
    let folder = folder();
    let database = folder.path().join("app.db");
    let mut application = Application::start(&database, "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)");
    let endpoint = format!("http://127.0.0.1:{}", gateway.port);
    let mut command = support::walsync();
    command.arg("watch").arg(&database).args(["--to", "s3://bucket/some/prefix", "--endpoint", &endpoint]);
    command.args(["--interval-millis", "50"]).env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    let mut walsync = support::Walsync::start(command, &folder.path().join("log"));
    for txid in 1..=4 {
        walsync.wait_durable(txid);
        application.run("INSERT INTO t(v) VALUES (randomblob(30000))");
    }
    walsync.stop();
    let expected = content(&database);
    let options = S3Options {
        endpoint: Some(endpoint.clone()),
        access_key_id: Some(KEY.into()),
        secret_access_key: Some(SECRET.into()),
        ..S3Options::default()
    };
    let output = folder.path().join("restored.db");
    let replica = Location::open("s3://bucket/some/prefix", &options).unwrap().replica("app.db");
    restore(&replica, Target::Latest, &output, true).unwrap();
    assert!(std::fs::read(output).unwrap() == expected);
    let url = format!("s3://bucket/some/prefix/app.db?endpoint={endpoint}&force-path-style=true&region=us-east-1");
    let path = folder.path().join("litestream.db");
    let mut command = support::litestream();
    command.args(["restore", "-o"]).arg(&path).arg(url);
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET).env_remove("AWS_CA_BUNDLE");
    harness::output(&mut command);
    assert!(std::fs::read(path).unwrap() == expected, "restored by Litestream");
    application.close();
}
