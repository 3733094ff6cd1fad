//! A group of servers.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use d_engine_client::grpc::Channel;
use d_engine_client::wire::{StatusReply, StatusRequest};
use d_engine_client::{Client, Options};
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_d-engine");

/// Long enough for two busy cores.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Servers with data of their own; killed when dropped.
pub struct Group {
    root: TempDir,
    members: String,
    flags: &'static [&'static str],
    pub addresses: Vec<String>,
    children: Vec<Option<Child>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Addresses that nobody listens on, all different.
pub fn free(count: usize) -> Vec<String> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
}

impl Group {
    pub fn start(size: usize) -> Self {
        Self::start_with(size, &[])
    }

    /// With flags for each of them.
    pub fn start_with(size: usize, flags: &'static [&'static str]) -> Self {
        let (clients, peers) = (free(2 * size), size);
        let (addresses, peers) = clients.split_at(peers);
        let member = |(at, (client, peer)): (usize, (&String, &String))| format!("{}={client},{peer}", at + 1);
        let members = addresses.iter().zip(peers).enumerate().map(member).collect::<Vec<_>>().join(" ");
        let mut group = Self {
            root: tempfile::tempdir().unwrap(),
            members,
            flags,
            addresses: addresses.to_vec(),
            children: (0..size).map(|_| None).collect(),
        };
        (1..=size).for_each(|id| group.start_member(id));
        group
    }

    pub fn directory(&self, id: usize) -> PathBuf {
        self.root.path().join(id.to_string())
    }

    fn command(&self, id: usize) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["serve", "--log-level", "warn", "--node-id", &id.to_string()])
            .args(self.flags)
            .arg("--db-root-dir")
            .arg(self.directory(id))
            .env("D_ENGINE_MEMBERS", &self.members)
            .stderr(fs::File::create(self.root.path().join(format!("{id}.log"))).unwrap());
        command
    }

    pub fn start_member(&mut self, id: usize) {
        self.children[id - 1] = Some(self.command(id).spawn().unwrap());
    }

    /// What a member that must end said, and how it ended.
    pub fn refused(&self, id: usize) -> (ExitStatus, String) {
        let status = self.command(id).status().unwrap();
        (status, fs::read_to_string(self.root.path().join(format!("{id}.log"))).unwrap())
    }

    /// `kill -9`.
    pub fn kill(&mut self, id: usize) {
        let mut child = self.children[id - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(&mut self, id: usize) -> ExitStatus {
        let mut child = self.children[id - 1].take().unwrap();
        let kill = Command::new("kill").arg(child.id().to_string()).stdout(Stdio::null()).status().unwrap();
        assert!(kill.success());
        child.wait().unwrap()
    }

    pub async fn status(&self, id: usize) -> Option<StatusReply> {
        let ask = async {
            let channel = Channel::connect(&self.addresses[id - 1]).await?;
            channel.unary("/storebench.dengine.v1.Store/Status", &StatusRequest {}).await
        };
        tokio::time::timeout(Duration::from_secs(2), ask).await.ok()?.ok()
    }

    /// Who leads, as soon as one of those that run says that it does.
    pub async fn leader(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            for id in 1..=self.addresses.len() {
                if let Some(status) = self.status(id).await
                    && status.leader_id == status.member_id
                    && status.is_ready
                {
                    return id;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nobody leads: {}", fs::read_to_string(self.root.path().join("1.log")).unwrap());
    }

    pub async fn client(&self) -> Client {
        let options = Options { request_timeout: PATIENCE, ..Options::default() };
        Client::connect(&self.addresses, options).await.unwrap()
    }

    /// A client of one member, which talks to nobody else.
    pub async fn client_of(&self, id: usize) -> Client {
        let options = Options { request_timeout: PATIENCE, only_given: true, ..Options::default() };
        Client::connect(&self.addresses[id - 1..id], options).await.unwrap()
    }
}
