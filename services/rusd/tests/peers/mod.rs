//! Where the real etcd is: `make test` fetches it. Each test uses some of this.

#![allow(dead_code, reason = "other tests use the rest")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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

/// An etcd; killed when dropped.
pub struct Etcd(Child, String);

impl Etcd {
    /// On free ports; answers when this returns.
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// As [`Etcd::start`], with more flags.
    pub fn start_with(data: &Path, arguments: &[&str]) -> Self {
        let address = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (client, peer) = (format!("http://{}", address()), format!("http://{}", address()));
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
