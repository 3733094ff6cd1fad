//! An API server on loopback, as far as `storebench wait` and `report` need one: it holds the objects of one namespace,
//! finds them by name and label as a real one does, and tells watchers what they are to hear. And the binary, pointed at it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::finished::Finished;

/// The only namespace there is, and that of the kubeconfig.
pub const NAMESPACE: &str = "bench";

/// Before a watcher hears something: long enough for it to be waiting.
const PAUSE: Duration = Duration::from_millis(200);

/// What is in the namespace.
#[derive(Clone, Default)]
pub struct Contents {
    pub run: Option<Value>,
    pub suite: Option<Value>,
    pub config_maps: Vec<Value>,
    /// What each watch is told, in the order they come; what comes after the last hears nothing.
    pub watches: Vec<Watch>,
    /// Whether the server knows what a BenchmarkRun is.
    pub lacks_definitions: bool,
    /// Answers everything, with this status.
    pub refuses: Option<u16>,
}

/// What one watch is told.
#[derive(Clone)]
pub enum Watch {
    /// These events, one after the other; then the connection stays open.
    Events(Vec<Value>),
    /// Nothing but this status.
    Fails(u16),
}

pub struct ApiServer {
    directory: harness::TempDir,
}

impl ApiServer {
    pub fn start(contents: Contents) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let contents = Arc::new(Mutex::new(contents));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let contents = contents.clone();
                std::thread::spawn(move || serve(&connection.unwrap(), &contents));
            }
        });
        Self::at(address)
    }

    /// Where nobody listens.
    pub fn absent() -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
    }

    fn at(address: SocketAddr) -> Self {
        let directory = harness::folder();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": NAMESPACE } }],
        });
        std::fs::write(directory.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        Self { directory }
    }

    /// The binary in a directory of its own, with a kubeconfig that points here.
    pub fn storebench(&self, arguments: &[&str]) -> Finished {
        let mut command = Command::new(env!("CARGO_BIN_EXE_storebench"));
        command.args(arguments).current_dir(self.path()).env("KUBECONFIG", self.path().join("kubeconfig"));
        Finished::of(command.stdin(Stdio::null()).output().unwrap())
    }

    pub fn path(&self) -> &std::path::Path {
        self.directory.path()
    }
}

fn serve(connection: &TcpStream, contents: &Mutex<Contents>) {
    let mut lines = BufReader::new(connection).lines();
    // A client that only tried the port, or went away.
    let Some(Ok(line)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let target = line.strip_prefix("GET ").and_then(|rest| rest.strip_suffix(" HTTP/1.1")).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| decoded(value)).unwrap_or_default()
    };
    if parameter("watch") == "true" {
        return watch(connection, contents);
    }
    let (code, body) =
        answer(&contents.lock().unwrap(), path, &parameter("fieldSelector"), &parameter("labelSelector"));
    respond(connection, code, &body);
}

/// `%2F` and the like.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        decoded.push(char::from(u8::from_str_radix(code, 16).unwrap()));
        decoded.push_str(rest);
    }
    decoded
}

fn respond(mut connection: &TcpStream, code: u16, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {code} Said\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    // A client that went away is a client that was killed at its timeout.
    let _ = connection.write_all((head + body).as_bytes());
}

fn watch(mut connection: &TcpStream, contents: &Mutex<Contents>) {
    let told = {
        let mut contents = contents.lock().unwrap();
        if contents.watches.is_empty() { Watch::Events(Vec::new()) } else { contents.watches.remove(0) }
    };
    let events = match told {
        Watch::Fails(code) => return respond(connection, code, &failure(code, "Broken", "out of order").1),
        Watch::Events(events) => events,
    };
    let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    for event in events {
        std::thread::sleep(PAUSE);
        let _ = connection.write_all(format!("{event}\n").as_bytes());
    }
    // Until the client goes.
    let _ = std::io::copy(&mut connection, &mut std::io::sink());
}

fn answer(contents: &Contents, path: &str, fields: &str, labels: &str) -> (u16, String) {
    if let Some(code) = contents.refuses {
        return failure(code, "Refused", "no entry\nfor you");
    }
    if contents.lacks_definitions {
        return (404, "404 page not found\n".into());
    }
    let of = |group: &str, kinds: &str| format!("{group}/namespaces/{NAMESPACE}/{kinds}");
    let kinds: [(String, Vec<&Value>); 3] = [
        (of("/apis/storebench.dev/v1alpha1", "benchmarkruns"), contents.run.iter().collect()),
        (of("/apis/storebench.dev/v1alpha1", "benchmarksuites"), contents.suite.iter().collect()),
        (of("/api/v1", "configmaps"), contents.config_maps.iter().collect()),
    ];
    let found = kinds.into_iter().find_map(|(kinds, objects)| Some((objects, path.strip_prefix(&kinds)?)));
    let (objects, rest) = found.unwrap_or((Vec::new(), path));
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    if rest.is_empty() {
        let labelled = |object: &&&Value| {
            let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
            pairs.all(|(key, value)| object["metadata"]["labels"][key] == value)
        };
        let named = |object: &&&Value| fields.is_empty() || fields == format!("metadata.name={}", name(object));
        let items: Vec<_> = objects.iter().filter(labelled).filter(named).collect();
        return (200, json!({ "metadata": { "resourceVersion": "10" }, "items": items }).to_string());
    }
    let wanted = rest.rsplit('/').next().unwrap();
    match objects.into_iter().find(|object| name(object) == wanted) {
        Some(object) => (200, object.to_string()),
        None => failure(404, "NotFound", &format!("{wanted:?} not found")),
    }
}

fn failure(code: u16, reason: &str, message: &str) -> (u16, String) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
        "details": { "name": "demo" }, "code": code,
    });
    (code, status.to_string())
}
