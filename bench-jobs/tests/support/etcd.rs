//! A real etcd on ports of its own.

use std::process::Stdio;
use std::time::Duration;

use bench_jobs::net::etcd::messages::{
    DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, path,
};
use harness::{Authority, Process, TempDir, command, free_address, peer, until};
use prost::Message;
use rustix::process::Signal;
use service_kit::client::{Channel, GrpcError, Options};

/// For each request from outside.
const TIMEOUT: Duration = Duration::from_secs(2);

/// An etcd; killed when dropped.
pub struct Etcd {
    process: Process,
    pub endpoint: String,
    pub folder: TempDir,
}

impl Etcd {
    pub fn start() -> Self {
        Self::answering(Self::spawn())
    }

    /// The same with further arguments.
    pub fn with(arguments: &[&str]) -> Self {
        let mut etcd = command(peer("etcd", "etcd"));
        etcd.args(arguments);
        Self::answering(Self::spawn_as(etcd))
    }

    /// The same behind a proxy with planted faults, which `faulty-store` is.
    pub fn faulty(faults: &[&str]) -> Self {
        let mut proxy = command(harness::own("faulty-store"));
        proxy.args(["--store", "etcd", "--upstream"]).arg(peer("etcd", "etcd"));
        for fault in faults {
            proxy.args(["--fault", fault]);
        }
        proxy.arg("--");
        Self::answering(Self::spawn_as(proxy))
    }

    /// Where the store listens that a proxy stands before: what the proxy, its parent, told it.
    pub fn behind_the_proxy(&self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.pid());
        let child = std::fs::read_to_string(children).unwrap();
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", child.trim())).unwrap();
        let mut arguments = line.split('\0').skip_while(|argument| *argument != "--listen-client-urls");
        arguments.nth(1).unwrap().strip_prefix("http://").unwrap().to_owned()
    }

    fn answering(etcd: Self) -> Self {
        let read = RangeRequest { key: b"ready".to_vec(), ..RangeRequest::default() };
        until("etcd's first answer", || etcd.ask::<_, RangeResponse>(path::RANGE, &read).is_ok());
        etcd
    }

    /// Starts it and does not wait.
    pub fn spawn() -> Self {
        Self::spawn_as(command(peer("etcd", "etcd")))
    }

    /// One that speaks TLS, whose certificate and clients' certificates this authority has signed. Its user `root` has the password; a
    /// certificate alone makes nobody a user.
    pub fn over_tls(authority: &Authority, password: &str) -> Self {
        let (certificate, key) = authority.sign("etcd");
        let mut etcd = command(peer("etcd", "etcd"));
        etcd.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        etcd.arg("--client-cert-auth").arg("--trusted-ca-file").arg(authority.path());
        let etcd = Self::spawn_on(etcd, "https");
        let (certificate, key) = authority.sign("administrator");
        let ctl = |arguments: &[&str]| {
            let mut ctl = command(peer("etcd", "etcdctl"));
            ctl.args(["--endpoints", &format!("https://{}", etcd.endpoint), "--command-timeout", "20s"])
                .args(arguments);
            ctl.arg("--cacert").arg(authority.path()).arg("--cert").arg(&certificate).arg("--key").arg(&key);
            ctl.output().unwrap().status.success()
        };
        until("etcd's first answer over TLS", || ctl(&["get", "ready"]));
        let user = format!("root:{password}");
        for arguments in [
            &["user", "add", &user][..],
            &["role", "add", "root"],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            assert!(ctl(arguments), "{arguments:?}");
        }
        etcd
    }

    fn spawn_as(etcd: std::process::Command) -> Self {
        Self::spawn_on(etcd, "http")
    }

    fn spawn_on(mut etcd: std::process::Command, scheme: &str) -> Self {
        let folder = harness::folder_on_disk();
        let (endpoint, peer_url) = (free_address().to_string(), format!("http://{}", free_address()));
        let client = format!("{scheme}://{endpoint}");
        etcd.arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            // What is tested is the loader; the disk would only make it slower.
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self { process: Process::start(&mut etcd), endpoint, folder }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
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
