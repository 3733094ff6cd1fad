//! A group of servers.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use d_engine_client::grpc::Channel;
use d_engine_client::wire::{StatusReply, StatusRequest};
use d_engine_client::{Client, Options, Tls};
use harness::{Process, TempDir, command, free_address};
use rustix::process::Signal;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_d-engine");

/// Long enough for two busy cores.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Servers with data of their own; killed when dropped.
pub struct Group {
    root: TempDir,
    /// Of each member, where others find it.
    peers: Vec<String>,
    /// How many began the group.
    founders: usize,
    flags: Vec<String>,
    /// For clients; without, members are spoken to in the open.
    tls: Option<Tls>,
    pub addresses: Vec<String>,
    children: Vec<Option<Process>>,
}

/// What a process has in memory.
pub struct Memory {
    pub resident_bytes: u64,
    pub resident_most_bytes: u64,
}

impl std::fmt::Display for Memory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        write!(formatter, "{} MiB resident, {} at most", mib(self.resident_bytes), mib(self.resident_most_bytes))
    }
}

/// Addresses that nobody listens on, all different.
pub fn free(count: usize) -> Vec<String> {
    (0..count).map(|_| free_address().to_string()).collect()
}

impl Group {
    pub fn start(size: usize) -> Self {
        Self::start_with(size, &[])
    }

    /// With flags for each of them.
    pub fn start_with(size: usize, flags: &[&str]) -> Self {
        Self::start_by_tls(size, flags, None)
    }

    /// With flags for each of them, and TLS for clients.
    pub fn start_by_tls(size: usize, flags: &[&str], tls: Option<Tls>) -> Self {
        let all = free(2 * size);
        let (addresses, peers) = all.split_at(size);
        let mut group = Self {
            root: harness::folder(),
            peers: peers.to_vec(),
            founders: size,
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            tls,
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
        self.command_by(id, command(PROGRAM))
    }

    /// By another program, which becomes the member.
    fn command_by(&self, id: usize, mut command: Command) -> Command {
        command
            .args(["serve", "--log-level", "warn", "--node-id", &id.to_string()])
            .args(&self.flags)
            .arg("--db-root-dir")
            .arg(self.directory(id))
            // A machine that stands still for a second changes no leader; who kills leaders says how soon others are elected.
            .env("D_ENGINE_ELECTION_TIMEOUT_MS", "1500")
            .env("D_ENGINE_MEMBERS", if id <= self.founders { self.founding() } else { self.member(id) })
            .stderr(fs::File::create(self.root.path().join(format!("{id}.log"))).unwrap());
        if id > self.founders {
            command.env("D_ENGINE_JOIN", self.peers[..id - 1].join(","));
        }
        command
    }

    /// The founders and where they are.
    fn founding(&self) -> String {
        (1..=self.founders).map(|id| self.member(id)).collect::<Vec<_>>().join(" ")
    }

    /// A member that does not run is to be found elsewhere from now on, when it is started.
    pub fn moved(&mut self, id: usize) {
        let [client, peer] = <[String; 2]>::try_from(free(2)).unwrap();
        (self.addresses[id - 1], self.peers[id - 1]) = (client, peer);
    }

    /// Where a member is, for clients and for others, as `ctl member add` takes it.
    pub fn place(&self, id: usize) -> String {
        format!("{},{}", self.addresses[id - 1], self.peers[id - 1])
    }

    /// A member and where it is, as a flag says it.
    fn member(&self, id: usize) -> String {
        format!("{id}={}", self.place(id))
    }

    /// `d-engine ctl`, which asks all members.
    pub fn ctl(&self, verb: &[&str]) -> Result<String, String> {
        let output =
            Command::new(PROGRAM).args(["ctl", "--endpoints", &self.addresses.join(",")]).args(verb).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// As [`Group::ctl`], until it succeeds.
    pub fn ctl_until(&self, verb: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(said) = self.ctl(verb) {
            assert!(Instant::now() < deadline, "{verb:?}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Adds a member, starts it, and lets it vote; its number.
    pub fn grow(&mut self) -> usize {
        let id = self.add_learner();
        self.ctl_until(&["member", "promote", &id.to_string()]);
        id
    }

    /// Adds a member that does not vote, and starts it; its number.
    pub fn add_learner(&mut self) -> usize {
        let (id, mut found) = (self.addresses.len() + 1, free(2));
        self.peers.push(found.remove(1));
        let place = format!("{},{}", found[0], self.peers[id - 1]);
        self.ctl_until(&["member", "add", &id.to_string(), &place]);
        self.addresses.push(found.remove(0));
        self.children.push(None);
        self.start_member(id);
        id
    }

    /// Where other members find a member.
    pub fn peer_address(&self, id: usize) -> &str {
        &self.peers[id - 1]
    }

    /// Waits until a member has ended; what it said.
    pub fn wait_for_end(&mut self, id: usize) -> (ExitStatus, String) {
        let status = self.children[id - 1].take().unwrap().wait();
        (status, self.log(id))
    }

    pub fn log(&self, id: usize) -> String {
        fs::read_to_string(self.root.path().join(format!("{id}.log"))).unwrap()
    }

    /// From now on members are started without these flags.
    pub fn forget_flags(&mut self, flags: &[&str]) {
        self.flags.retain(|flag| !flags.contains(&flag.as_str()));
    }

    pub fn start_member(&mut self, id: usize) {
        self.children[id - 1] = Some(Process::start(&mut self.command(id)));
    }

    /// Starts a member with other flags than the others have, by a shell that does something first.
    pub fn start_by(&mut self, id: usize, script: &str, flags: &[&str]) {
        let mut shell = command("/bin/sh");
        shell.args(["-c", &format!("{script}; exec \"$0\" \"$@\""), PROGRAM]);
        self.children[id - 1] = Some(Process::start(self.command_by(id, shell).args(flags)));
    }

    /// What a member that must end said, and how it ended.
    pub fn refused(&self, id: usize) -> (ExitStatus, String) {
        let status = self.command(id).status().unwrap();
        (status, fs::read_to_string(self.root.path().join(format!("{id}.log"))).unwrap())
    }

    /// What a member has in memory.
    pub fn memory(&self, id: usize) -> Memory {
        let process = self.children[id - 1].as_ref().unwrap().id();
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
        };
        Memory { resident_bytes: bytes("VmRSS:"), resident_most_bytes: bytes("VmHWM:") }
    }

    /// Sends a member a signal.
    pub fn signal(&self, id: usize, signal: Signal) {
        self.children[id - 1].as_ref().unwrap().signal(signal);
    }

    /// `kill -9`.
    pub fn kill(&mut self, id: usize) {
        self.children[id - 1].take().unwrap().kill();
    }

    /// SIGTERM, and how it ended. Clients of this runtime go on meanwhile.
    pub async fn terminate(&mut self, id: usize) -> ExitStatus {
        let mut child = self.children[id - 1].take().unwrap();
        child.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "member {id} does not end: {}", self.log(id));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn status(&self, id: usize) -> Option<StatusReply> {
        let ask = async {
            let channel = Channel::connect_with(&self.addresses[id - 1], self.tls.as_ref()).await?;
            channel.unary("/storebench.dengine.v1.Store/Status", &StatusRequest {}).await
        };
        tokio::time::timeout(Duration::from_secs(15), ask).await.ok()?.ok()
    }

    /// Waits until all others have heard that a member has acknowledged entries: it shall not come back without them.
    pub fn wait_until_seen(&self, id: usize) {
        #[derive(serde::Deserialize)]
        struct Introduction {
            seen: Vec<usize>,
        }
        let has_heard = |peer: &String| {
            let said = replog::runtime::tcp::ask(peer, None).unwrap();
            serde_json::from_slice::<Introduction>(&said).unwrap().seen.contains(&id)
        };
        let deadline = Instant::now() + PATIENCE;
        let others: Vec<&String> = self.peers.iter().filter(|peer| **peer != self.peers[id - 1]).collect();
        while !others.iter().all(|peer| has_heard(peer)) {
            assert!(Instant::now() < deadline, "nobody has written down that member {id} has entries");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a member can be asked.
    pub async fn wait_until_it_serves(&self, id: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.status(id).await.is_none() {
            assert!(Instant::now() < deadline, "member {id} does not serve: {}", self.log(id));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
        let options = Options { request_timeout: PATIENCE, tls: self.tls.clone(), ..Options::default() };
        Client::connect(&self.addresses, options).await.unwrap()
    }

    /// A client of one member, which talks to nobody else.
    pub async fn client_of(&self, id: usize) -> Client {
        let (tls, request_timeout) = (self.tls.clone(), PATIENCE);
        let options = Options { request_timeout, only_given: true, tls, ..Options::default() };
        Client::connect(&self.addresses[id - 1..id], options).await.unwrap()
    }
}
