//! A real etcd on ports of its own.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bench_jobs::etcd::messages::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, path,
};
use prost::Message;
use rustix::process::Signal;
use service_kit::client::{Channel, GrpcError, Options};

use super::{Folder, Process, peer};

/// For each request from outside.
const TIMEOUT: Duration = Duration::from_secs(2);

/// An etcd; killed when dropped.
pub struct Etcd {
    process: Process,
    pub endpoint: String,
    pub folder: Folder,
}

impl Etcd {
    pub fn start() -> Self {
        let etcd = Self::spawn();
        let deadline = Instant::now() + Duration::from_secs(20);
        let read = RangeRequest { key: b"ready".to_vec(), ..RangeRequest::default() };
        while etcd.ask::<_, RangeResponse>(path::RANGE, &read).is_err() {
            assert!(Instant::now() < deadline, "etcd did not answer");
            sleep(Duration::from_millis(50));
        }
        etcd
    }

    /// Starts it and does not wait.
    pub fn spawn() -> Self {
        let folder = Folder::new();
        let ports: Vec<u16> = {
            let listeners: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
        };
        let (endpoint, peer_url) = (format!("127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
        let client = format!("http://{endpoint}");
        let process = Command::new(peer("etcd", "etcd"))
            .arg("--data-dir")
            .arg(folder.0.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            // What is tested is the loader; the disk would only make it slower.
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process: Process(process), endpoint, folder }
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Asks as somebody else than the loader.
    pub fn ask<A: Message, B: Message + Default>(&self, path: &'static str, request: &A) -> Result<B, GrpcError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut channel = Channel::connect(&self.endpoint, Options::new(TIMEOUT)).await?;
            let call = channel.call(path);
            channel.unary(&call, request).await
        })
    }

    pub fn get(&self, key: &str) -> Vec<u8> {
        let request = RangeRequest { key: key.into(), ..RangeRequest::default() };
        let answer: RangeResponse = self.ask(path::RANGE, &request).unwrap();
        answer.kvs[0].value.to_vec()
    }

    /// How many keys begin with a prefix.
    pub fn count(&self, prefix: &str) -> i64 {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        let request = RangeRequest { key: prefix.into(), range_end: end, count_only: true, ..RangeRequest::default() };
        self.ask::<_, RangeResponse>(path::RANGE, &request).unwrap().count
    }

    pub fn put(&self, key: &str, value: &[u8]) {
        let request = PutRequest { key: key.into(), value: value.into() };
        let _: PutResponse = self.ask(path::PUT, &request).unwrap();
    }

    pub fn delete(&self, key: &str) {
        let request = DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() };
        let answer: DeleteRangeResponse = self.ask(path::DELETE_RANGE, &request).unwrap();
        assert_eq!(answer.deleted, 1);
    }
}
