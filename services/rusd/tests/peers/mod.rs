//! Where the real etcd is: `make test` fetches it. Each test uses some of this.

#![allow(dead_code, reason = "other tests use the rest")]

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A program of etcd in the version that `peers/versions` pins.
pub fn etcd(program: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let versions = std::fs::read_to_string(format!("{root}/peers/versions")).unwrap();
    let version = versions.lines().find_map(|line| line.strip_prefix("etcd ")).unwrap().trim();
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let peers = folder("STOREBENCH_PEERS").unwrap_or_else(|| {
        let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
        data.unwrap().join("storebench/peers")
    });
    let path = peers.join("etcd").join(version).join(program);
    assert!(path.exists(), "no {}: run peers/fetch etcd etcd-tools", path.display());
    path
}

/// What the program printed; it must succeed.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// An address for a server that must be told its own: nobody listens there, and the system gives its port to no connection, as it might
/// with a port that it chose itself, between here and the server's start. Given once by this process.
pub fn free_address() -> SocketAddr {
    const BEGIN: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Other processes begin elsewhere.
    let begin = std::process::id().wrapping_mul(797);
    loop {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(number < COUNT, "no port from {BEGIN} to {} is free", BEGIN + COUNT);
        let port = BEGIN + begin.wrapping_add(number) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap()));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// An etcd; killed when dropped.
pub struct Etcd(Child, String);

impl Etcd {
    /// On free ports; answers when this returns.
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// As [`Etcd::start`], with more flags.
    pub fn start_with(data: &Path, arguments: &[&str]) -> Self {
        let (client, peer) = (format!("http://{}", free_address()), format!("http://{}", free_address()));
        let mut command = Command::new(etcd("etcd"));
        command.arg("--data-dir").arg(data).args(arguments).args(["--log-level", "error", "--unsafe-no-fsync"]);
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
            "--listen-peer-urls",
            &peer,
        ]);
        let server = Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(), client);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !server.ctl(&["get", "ready"]).output().unwrap().status.success() {
            assert!(Instant::now() < deadline, "etcd does not start on {}", data.display());
        }
        server
    }

    /// Stops it gently, so that its database has everything.
    pub fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }

    /// Where it serves: `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.1.trim_start_matches("http://")
    }

    /// etcd's client, pointed at it.
    pub fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(etcd("etcdctl"));
        command.args(["--endpoints", &self.1, "--command-timeout", "20s"]).args(arguments);
        command
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
