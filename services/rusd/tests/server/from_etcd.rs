//! The commands of `from-etcd.md`, run as they stand there, but for addresses and folders.

use std::path::Path;
use std::process::{Command, Stdio};

use harness::{Etcd, Process, folder, free_address, output, peer, until};
use rustix::process::Signal;

/// The commands that the page has under this word.
fn commands(word: &str) -> &'static str {
    let page = include_str!("../../from-etcd.md");
    let (_, block) = page.split_once(&format!("```sh {word}\n")).unwrap();
    block.split_once("```").unwrap().0
}

/// A machine that has `/var/lib`, and clients and members at these addresses.
struct Machine {
    folder: tempfile::TempDir,
    client: String,
    members: String,
}

impl Machine {
    fn new() -> Self {
        let [client, members] = [(); 2].map(|()| free_address().to_string());
        Self { folder: folder(), client, members }
    }

    fn lib(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// A shell that runs these commands here.
    fn shell(&self, commands: &str) -> Command {
        let commands = commands.replace("/var/lib", &self.folder.path().display().to_string());
        let commands = commands.replace("127.0.0.1:2379", &self.client).replace("127.0.0.1:2380", &self.members);
        let programs = [Path::new(env!("CARGO_BIN_EXE_rusd")), &peer("etcd", "etcdctl")]
            .map(|program| program.parent().unwrap().to_owned());
        let path = std::env::join_paths(programs.into_iter().chain(["/usr/bin".into(), "/bin".into()])).unwrap();
        let mut shell = harness::command("/bin/bash");
        shell.env_clear().env("PATH", path).current_dir(self.folder.path()).args(["-euo", "pipefail", "-c", &commands]);
        shell
    }

    /// A server that these commands start.
    fn start(&self, commands: &str) -> Process {
        let command = format!("exec {}", commands.trim_end().trim_end_matches('&'));
        Process::start(self.shell(&command).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// As [`Machine::start`]; it answers when this returns.
    fn serve(&self, commands: &str) -> Process {
        let process = self.start(commands);
        until("an answer", || self.ctl(&["get", "k"]).output().unwrap().status.success());
        process
    }

    fn ctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(peer("etcd", "etcdctl"));
        command.arg(format!("--endpoints={}", self.client)).args(arguments);
        command
    }
}

/// What there is, without the address that says so.
fn hash(command: &mut Command) -> String {
    output(command).split_once(", ").unwrap().1.to_owned()
}

fn fill(etcd: &Etcd) -> String {
    for arguments in
        [&["put", "k", "1"][..], &["put", "k", "2"], &["compaction", "2", "--physical"], &["put", "l", "1"]]
    {
        output(&mut etcd.ctl(arguments));
    }
    hash(&mut etcd.ctl(&["endpoint", "hashkv"]))
}

#[test]
fn a_member_of_etcd_goes_on_as_rusd_and_goes_back_at_once() {
    let machine = Machine::new();
    let etcd = Etcd::start(&machine.lib("etcd"));
    let before = fill(&etcd);
    etcd.stop();
    let mut rusd = machine.serve(commands("one"));
    assert_eq!(hash(&mut machine.ctl(&["endpoint", "hashkv"])), before);
    rusd.signal(Signal::TERM);
    rusd.wait();
    output(&mut machine.shell(commands("undo")));
    assert_eq!(hash(&mut Etcd::start(&machine.lib("etcd")).ctl(&["endpoint", "hashkv"])), before);
}

#[test]
fn a_group_moves_by_a_snapshot_and_back_with_what_was_written() {
    let mut machine = Machine::new();
    let etcd = Etcd::start(&machine.lib("etcd"));
    let before = fill(&etcd);
    machine.client = etcd.address().to_owned();
    output(&mut machine.shell(commands("group")));
    etcd.stop();
    // The other member is on this machine, too.
    let Machine { folder, client, members: b } = Machine::new();
    let members = machine.members.clone();
    let of_b = |commands: &str| {
        let commands = commands
            .replace("--name=a", "--name=b")
            .replace("advertise-peer-urls=http://127.0.0.1:", "advertise-peer-urls=http://127.0.0.2:");
        let commands = commands.replace("listen-peer-urls=http://127.0.0.1:", "listen-peer-urls=http://127.0.0.2:");
        commands
            .replace("before.db", &machine.lib("before.db").display().to_string())
            .replace("127.0.0.1:2380", &members)
            .replace("127.0.0.2:2380", &b)
    };
    let of_a = |commands: &str| commands.replace("127.0.0.2:2380", &b);
    let other = Machine { folder, client, members: b.clone() };
    output(&mut machine.shell(&of_a(commands("member"))));
    output(&mut other.shell(&of_b(commands("member"))));
    // Neither is ready without the other.
    let started = other.start(&of_b(commands("start")));
    let rusd = machine.serve(&of_a(commands("start")));
    assert_eq!(hash(&mut machine.ctl(&["endpoint", "hashkv"])), before);
    output(&mut other.ctl(&["put", "k", "3"]));
    assert_eq!(output(&mut machine.ctl(&["get", "k", "--print-value-only"])), "3\n", "it has that, too");
    let written = hash(&mut machine.ctl(&["endpoint", "hashkv"]));
    output(&mut machine.shell(commands("back")));
    drop((rusd, started));
    let _etcd = machine.serve(commands("etcd"));
    assert_eq!(output(&mut machine.ctl(&["get", "k", "--print-value-only"])), "3\n");
    assert_eq!(hash(&mut machine.ctl(&["endpoint", "hashkv"])), written);
}
