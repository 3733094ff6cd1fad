//! The JSON gateway, side by side with that of etcd: equal requests, equal answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine;
use harness::Etcd;
use serde_json::{Value, json};

use crate::process::Rusd;

/// A request, sent; the status, and what follows the head.
pub fn send(address: &str, verb: &str, path: &str, headers: &str, body: &str) -> (u16, Box<dyn BufRead>) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let request = format!(
        "{verb} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    // At once: etcd resets a connection that is to be closed when a body that it does not want arrives behind its head.
    socket.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    let mut is_chunked = false;
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        is_chunked |= line.to_ascii_lowercase().starts_with("transfer-encoding: chunked");
        if line.trim().is_empty() {
            break;
        }
    }
    (status, if is_chunked { Box::new(BufReader::new(Chunked { reader, left: 0 })) } else { Box::new(reader) })
}

/// A body in chunks.
struct Chunked {
    reader: BufReader<TcpStream>,
    left: usize,
}

impl Read for Chunked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            while line.trim().is_empty() {
                line.clear();
                self.reader.read_line(&mut line)?;
            }
            self.left = usize::from_str_radix(line.trim(), 16).unwrap();
            if self.left == 0 {
                return Ok(0);
            }
        }
        let wanted = buffer.len().min(self.left);
        let count = self.reader.read(&mut buffer[..wanted])?;
        self.left -= count;
        Ok(count)
    }
}

/// The same, for a method that answers with one value.
pub fn post(address: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let (status, mut reader) = send(address, "POST", path, headers, body);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"));
    (status, value)
}

/// What the flag allows above 8 MiB was refused all the same.
#[test]
fn a_request_of_nine_megabytes_is_taken_where_the_flag_allows_ten() {
    let server = Rusd::start(&["--max-request-bytes=10485760"]);
    let value = base64::engine::general_purpose::STANDARD.encode(vec![7_u8; 9 << 20]);
    let put = json!({ "key": "YQ==", "value": value }).to_string();
    let (status, said) = post(server.address(), "/v3/kv/put", "", &put);
    assert_eq!(status, 200, "{said}");
}

/// Leaves out what two servers cannot have in common.
fn common(value: &Value) -> Value {
    const OWN: [&str; 10] = [
        "cluster_id",
        "member_id",
        "raft_term",
        "memberID",
        "dbSize",
        "dbSizeInUse",
        "raftIndex",
        "raftTerm",
        "raftAppliedIndex",
        "leader",
    ];
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
            Value::Object(members.map(|(name, value)| (name.clone(), common(value))).collect())
        }
        Value::Array(items) => items.iter().map(common).collect(),
        other => other.clone(),
    }
}

/// `a` to `e` in base64.
const CALLS: &[(&str, &str)] = &[
    ("/v3/kv/put", r#"{"key":"YQ==","value":"MQ=="}"#),
    ("/v3/kv/put", r#"{"key":"YQ","value":"Mg","prevKv":true}"#),
    ("/v3/kv/put", r#"{"key":"YQ==","value":"Mw==","prev_kv":true}"#),
    ("/v3beta/kv/put", r#"{"key":"Yg==","value":""}"#),
    ("/v3/kv/range", r#"{"key":"YQ=="}"#),
    ("/v3/kv/range", r#"{"key":"YQ==","range_end":"ZQ==","sort_order":"DESCEND","limit":1}"#),
    ("/v3/kv/range", r#"{"key":"YQ==","rangeEnd":"ZQ==","limit":"1","countOnly":true}"#),
    ("/v3/kv/range", r#"{"key":"YQ==","revision":"99"}"#),
    ("/v3/kv/range", r#"{"key":"Yw=="}"#),
    ("/v3/kv/range", r#"{}"#),
    ("/v3/kv/range", ""),
    (
        "/v3/kv/txn",
        r#"{"compare":[{"target":"CREATE","key":"Yw==","createRevision":"0"}],
        "success":[{"requestPut":{"key":"Yw==","value":"NA=="}},{"requestRange":{"key":"Yw=="}}],"failure":[]}"#,
    ),
    (
        "/v3/kv/txn",
        r#"{"compare":[{"target":"VERSION","key":"Yw==","version":"7","result":"GREATER"}],
        "success":[{"requestPut":{"key":"Yw==","value":"NA=="}}],"failure":[{"request_delete_range":{"key":"Yw==","prev_kv":true}}]}"#,
    ),
    ("/v3/kv/deleterange", r#"{"key":"Yg=="}"#),
    ("/v3/kv/deleterange", r#"{"key":"ZQ=="}"#),
    ("/v3/lease/grant", r#"{"TTL":"600","ID":"7"}"#),
    ("/v3/lease/grant", r#"{"TTL":"600","ID":"7"}"#),
    ("/v3/kv/put", r#"{"key":"bA==","lease":"7"}"#),
    ("/v3/kv/put", r#"{"key":"bA==","lease":"8"}"#),
    ("/v3/lease/leases", "{}"),
    ("/v3/lease/keepalive", r#"{"ID":"7"}"#),
    ("/v3/lease/timetolive", r#"{"ID":"9","keys":true}"#),
    ("/v3/lease/revoke", r#"{"ID":"9"}"#),
    ("/v3/kv/lease/revoke", r#"{"ID":"7"}"#),
    ("/v3/kv/compaction", r#"{"revision":"4"}"#),
    ("/v3/kv/compaction", r#"{"revision":"4"}"#),
    ("/v3/maintenance/alarm", r#"{"action":"GET"}"#),
    ("/v3/maintenance/alarm", r#"{"action":"ACTIVATE","memberID":"5","alarm":"NOSPACE"}"#),
    ("/v3/kv/put", r#"{"key":"YQ==","value":"MQ=="}"#),
    ("/v3/maintenance/alarm", r#"{"action":"DEACTIVATE","memberID":"5","alarm":1}"#),
    ("/v3/maintenance/hashkv", "{}"),
    ("/v3/maintenance/defragment", "{}"),
    ("/v3/auth/status", "{}"),
    ("/v3/auth/enable", "{}"),
    ("/v3/auth/user/add", r#"{"name":"root","password":"secret"}"#),
    ("/v3/auth/user/add", r#"{"name":"root","password":"secret"}"#),
    ("/v3/auth/role/add", r#"{"name":"reader"}"#),
    ("/v3/auth/role/grant", r#"{"name":"reader","perm":{"permType":"READWRITE","key":"YQ==","range_end":"Yg=="}}"#),
    ("/v3/auth/role/get", r#"{"role":"reader"}"#),
    ("/v3/auth/role/list", "{}"),
    ("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#),
    ("/v3/auth/user/list", "{}"),
    ("/v3/auth/user/get", r#"{"name":"root"}"#),
    ("/v3/auth/user/get", r#"{"name":"nobody"}"#),
    ("/v3/auth/authenticate", r#"{"name":"root","password":"secret"}"#),
    ("/v3/lock/lock", r#"{"name":"bG9jaw==","lease":"77"}"#),
    ("/v3/lease/grant", r#"{"TTL":"600","ID":"77"}"#),
    ("/v3/lock/lock", r#"{"name":"bG9jaw==","lease":"77"}"#),
    ("/v3/lock/unlock", r#"{"key":"bG9jay80ZA=="}"#),
    ("/v3/election/leader", r#"{"name":"ZQ=="}"#),
    ("/v3/election/campaign", r#"{"name":"ZQ==","lease":"77","value":"bWU="}"#),
    ("/v3/election/leader", r#"{"name":"ZQ=="}"#),
    ("/v3/election/proclaim", r#"{"value":"bWU="}"#),
    ("/v3/election/resign", r#"{"leader":{"name":"ZQ==","key":"ZS80ZA==","rev":"1","lease":"77"}}"#),
    ("/v3/kv/nothing", "{}"),
];

#[test]
fn equal_requests_have_equal_answers() {
    let directory = harness::folder();
    let etcd = Etcd::start(&directory.path().join("etcd"));
    let rusd = Rusd::start(&[]);
    let mut differences = Vec::new();
    for (path, body) in CALLS {
        let [theirs, ours] = [etcd.address(), rusd.address()].map(|address| {
            let (status, value) = post(address, path, "", body);
            (status, common(&value))
        });
        if theirs != ours {
            differences.push(format!("{path} {body}\n  etcd {theirs:?}\n  rusd {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn what_is_no_request_is_refused_as_etcd_refuses_it() {
    let directory = harness::folder();
    let etcd = Etcd::start(&directory.path().join("etcd"));
    let rusd = Rusd::start(&[]);
    let bad = [
        ("POST", "/v3/kv/put", r#"{"key":5}"#),
        ("POST", "/v3/kv/put", r#"{"key":"YQ=="#),
        ("POST", "/v3/kv/put", r#"[]"#),
        ("POST", "/v3/kv/range", r#"{"key":"YQ==","sort_order":"UPWARDS"}"#),
        ("POST", "/v3/kv/range", r#"{"key":"YQ==","limit":"1.5"}"#),
        ("GET", "/v3/kv/range", ""),
        ("POST", "/v3/none", "{}"),
    ];
    for (verb, path, body) in bad {
        let [theirs, ours] = [etcd.address(), rusd.address()].map(|address| {
            let (status, mut reader) = send(address, verb, path, "", body);
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            (status, value["code"].clone())
        });
        assert_eq!(theirs, ours, "{verb} {path} {body}");
    }
}

/// A connection that is closed with something unread is reset, and then the client may never see why it was refused. Go's server reads
/// what is left, and the connection goes on.
#[test]
fn who_is_refused_before_the_request_is_read_keeps_the_connection() {
    let rusd = Rusd::start(&[]);
    let body = "x".repeat(200 << 10);
    for (verb, path, expected) in [
        ("POST", "/v3/none", "404"),
        ("GET", "/v3/kv/range", "501"),
        ("POST", "/nowhere", "404"),
        ("POST", "/v3/kv/put", "400"),
        ("POST", "/v3/watch", "400"),
    ] {
        let mut socket = TcpStream::connect(rusd.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(socket, "{verb} {path} HTTP/1.1\r\nHost: it\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        write!(socket, "GET /version HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        assert!(said.starts_with(&format!("HTTP/1.1 {expected} ")), "{verb} {path}: {said}");
        assert!(said.contains("HTTP/1.1 200 OK\r\n") && said.contains("etcdserver"), "{verb} {path}: {said}");
    }
}

#[test]
fn a_watch_says_a_line_for_each_message() {
    let directory = harness::folder();
    let etcd = Etcd::start(&directory.path().join("etcd"));
    let rusd = Rusd::start(&[]);
    let [theirs, ours] = [etcd.address(), rusd.address()].map(|address| {
        post(address, "/v3/kv/put", "", r#"{"key":"YQ==","value":"MQ=="}"#);
        let create = r#"{"create_request":{"key":"YQ==","start_revision":"2","prev_kv":true}}"#;
        let (status, reader) = send(address, "POST", "/v3/watch", "", create);
        assert_eq!(status, 200);
        let mut lines = reader.lines().map(|line| common(&serde_json::from_str(&line.unwrap()).unwrap()));
        let mut seen = vec![lines.next().unwrap(), lines.next().unwrap()];
        post(address, "/v3/kv/deleterange", "", r#"{"key":"YQ=="}"#);
        seen.push(lines.next().unwrap());
        seen
    });
    assert_eq!(theirs, ours);
    assert_eq!(ours[2]["result"]["events"][0]["type"], "DELETE");
}

#[test]
fn a_token_in_a_header_names_the_user() {
    let rusd = Rusd::start(&["--bcrypt-cost=4"]);
    rusd.etcdctl(&["user", "add", "root:secret"]);
    rusd.etcdctl(&["user", "grant-role", "root", "root"]);
    rusd.etcdctl(&["auth", "enable"]);
    let put = r#"{"key":"YQ==","value":"MQ=="}"#;
    let (status, refused) = post(rusd.address(), "/v3/kv/put", "", put);
    assert_eq!((status, &refused["message"]), (400, &json!("etcdserver: user name is empty")));
    let (_, granted) = post(rusd.address(), "/v3/auth/authenticate", "", r#"{"name":"root","password":"secret"}"#);
    let header = format!("Authorization: {}\r\n", granted["token"].as_str().unwrap());
    assert_eq!(post(rusd.address(), "/v3/kv/put", &header, put).0, 200);
    let (status, refused) = post(rusd.address(), "/v3/kv/put", "Authorization: wrong\r\n", put);
    assert_eq!((status, &refused["message"]), (401, &json!("etcdserver: invalid auth token")));
}

#[test]
fn without_the_flag_there_is_no_gateway() {
    let rusd = Rusd::start(&["--enable-grpc-gateway=false"]);
    assert_eq!(send(rusd.address(), "POST", "/v3/kv/range", "", "{}").0, 404);
}

/// A page of another site that made its name point here, and one that is welcome.
#[test]
fn hosts_and_origins_that_are_not_allowed_are_told_what_etcd_tells_them() {
    let directory = harness::folder();
    let flags = ["--host-whitelist=example.org,127.0.0.1", "--cors=https://page.example:8443"];
    let etcd = Etcd::start_with(&directory.path().join("etcd"), &flags);
    let rusd = Rusd::start(&flags);
    let ask = |address: &str, verb: &str, path: &str, host: &str, headers: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = if verb == "POST" { "Content-Length: 2\r\n" } else { "" };
        let body = if verb == "POST" { "{}" } else { "" };
        let request =
            format!("{verb} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}{headers}\r\n{body}");
        socket.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
        let cors = lines.map(str::to_ascii_lowercase).filter(|line| line.starts_with("access-control"));
        let mut cors: Vec<String> = cors.collect();
        cors.sort();
        (status.clone(), cors, if status == "421" { body.to_owned() } else { String::new() })
    };
    for (verb, path, host, headers) in [
        ("GET", "/version", "example.org", ""),
        ("GET", "/version", "example.org:2379", "Origin: https://page.example:8443\r\n"),
        ("GET", "/health", "127.0.0.1", "Origin: https://other.example\r\n"),
        ("GET", "/version", "evil.example:2379", ""),
        ("POST", "/v3/kv/range", "evil.example", "Origin: https://page.example:8443\r\n"),
        ("OPTIONS", "/v3/kv/range", "example.org", "Origin: https://page.example:8443\r\n"),
        ("OPTIONS", "/v3/kv/range", "example.org", ""),
    ] {
        let theirs = ask(etcd.address(), verb, path, host, headers);
        assert_eq!(ask(rusd.address(), verb, path, host, headers), theirs, "{verb} {path} for {host}, {headers}");
    }
    drop((etcd, rusd));
    // Whoever says nothing lets all pages in.
    let rusd = Rusd::start(&[]);
    let (_, cors, _) = ask(rusd.address(), "GET", "/version", "anything", "");
    assert!(cors.contains(&"access-control-allow-origin: *".to_owned()), "{cors:?}");
}
