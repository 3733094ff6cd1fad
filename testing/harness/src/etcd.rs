//! A real etcd of one member, and its client.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::{Process, command, free_address, peer, until};

/// An etcd that does not sync; killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    /// `http://127.0.0.1:PORT`
    endpoint: String,
}

impl Etcd {
    /// On free ports, with its data here; answers when this returns.
    #[track_caller]
    pub fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    /// As [`Etcd::start`], with more flags.
    #[track_caller]
    pub fn start_with(data: &Path, arguments: &[&str]) -> Self {
        let [endpoint, members] = [(); 2].map(|()| format!("http://{}", free_address()));
        let mut command = command(peer("etcd", "etcd"));
        command.arg("--data-dir").arg(data).args(arguments).args(["--log-level", "error", "--unsafe-no-fsync"]);
        command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
        command.args(["--listen-peer-urls", &members]);
        let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let etcd = Self { process, endpoint };
        until("etcd's first answer", || etcd.ctl(&["get", "ready"]).output().unwrap().status.success());
        etcd
    }

    /// Stops it gently, so that its database has everything.
    pub fn stop(mut self) {
        self.process.signal(Signal::TERM);
        self.process.wait();
    }

    /// Where it serves: `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        self.endpoint.trim_start_matches("http://")
    }

    /// etcd's client, pointed at it.
    pub fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(peer("etcd", "etcdctl"));
        command.args(["--endpoints", &self.endpoint, "--command-timeout", "20s"]).args(arguments);
        command
    }
}
