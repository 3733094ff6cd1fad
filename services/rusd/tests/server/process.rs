//! A running `rusd`, and what etcd's client says of it.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

use harness::{Process, TempDir, output, peer};
use rustix::process::Signal;
use serde_json::Value;

/// The program, without arguments and without anything of ours in its environment.
pub fn rusd() -> Command {
    let mut command = harness::command(env!("CARGO_BIN_EXE_rusd"));
    command.env_clear();
    command
}

/// A server with data of its own, which is killed when it is dropped.
pub struct Rusd {
    process: Process,
    scheme: &'static str,
    address: String,
    other_addresses: Vec<String>,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Rusd {
    /// Starts on a free port, and waits until it is ready.
    pub fn start(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self::start_in(harness::folder(), arguments)
    }

    /// As [`Rusd::start`], on data that are there: in the folder `data`.
    pub fn start_on(directory: TempDir, arguments: &[&str]) -> Self {
        Self::start_in(directory, arguments.iter().map(|argument| (*argument).to_owned()).collect())
    }

    fn start_in(directory: TempDir, arguments: Vec<String>) -> Self {
        Self::spawn(directory, arguments).ready()
    }

    /// As [`Rusd::start`], where so many files may be open.
    pub fn start_limited(open_files: usize, arguments: &[&str]) -> Self {
        let mut shell = harness::command("/bin/sh");
        let limited = format!("ulimit -n {open_files} && exec \"$0\" \"$@\"");
        shell.env_clear().args(["-c", &limited]).arg(env!("CARGO_BIN_EXE_rusd"));
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self::spawn_by(shell, harness::folder(), arguments).ready()
    }

    /// As [`Rusd::start_on`], with another program in front of it.
    pub fn start_by(program: &str, arguments_before: &[&str], directory: TempDir) -> Self {
        let mut command = harness::command(program);
        command.env_clear().args(arguments_before).arg(env!("CARGO_BIN_EXE_rusd"));
        Self::spawn_by(command, directory, Vec::new()).ready()
    }

    /// Starts it without waiting.
    pub fn spawn(directory: TempDir, arguments: Vec<String>) -> Starting {
        Self::spawn_by(rusd(), directory, arguments)
    }

    fn spawn_by(mut command: Command, directory: TempDir, arguments: Vec<String>) -> Starting {
        // What is asked by URL is what `etcdctl` speaks, whatever else there is.
        let is_asked = |start: &str| arguments.iter().any(|argument| argument.starts_with(start));
        let is_tls = is_asked("--cert-file") || is_asked("--auto-tls");
        let scheme = if is_tls && !is_asked("--listen-client-urls=http://") { "https" } else { "http" };
        command
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .arg(format!("--listen-client-urls={scheme}://127.0.0.1:0"))
            .arg(format!("--advertise-client-urls={scheme}://127.0.0.1:0"))
            .arg("--listen-peer-urls=http://127.0.0.1:0")
            .args(&arguments)
            .stderr(Stdio::piped());
        let mut process = Process::start(&mut command);
        let lines = BufReader::new(process.child().stderr.take().unwrap()).lines();
        let (address, other_addresses) = (String::new(), Vec::new());
        Starting { rusd: Self { process, scheme, address, other_addresses, arguments, directory }, lines }
    }

    /// Where it serves: `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it has in memory, bytes (`VmRSS`).
    pub fn resident_bytes(&self) -> u64 {
        self.memory_bytes("VmRSS:")
    }

    /// Where it serves besides, in the order of the flags.
    pub fn other_addresses(&self) -> &[String] {
        &self.other_addresses
    }

    /// The most memory that it has had, bytes (`VmHWM`).
    pub fn resident_bytes_max(&self) -> u64 {
        self.memory_bytes("VmHWM:")
    }

    /// How many threads it has.
    pub fn threads(&self) -> u64 {
        self.status("Threads:")
    }

    /// How many files it has open in the data directory itself that nobody else can see: copies for clients.
    pub fn nameless_files(&self) -> usize {
        let data = self.directory.path().join("data");
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        // One may be closed meanwhile.
        let paths = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        paths.filter(|path| path.parent() == Some(&data) && path.to_string_lossy().ends_with(" (deleted)")).count()
    }

    fn memory_bytes(&self, name: &str) -> u64 {
        self.status(name) << 10
    }

    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    }

    /// A place for files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills it and starts it on the same data.
    pub fn restart(self) -> Self {
        let (directory, arguments) = self.kill();
        Self::start_in(directory, arguments)
    }

    /// Kills it; what is left can be started again.
    pub fn kill(mut self) -> (TempDir, Vec<String>) {
        self.process.kill();
        let directory = std::mem::replace(&mut self.directory, harness::folder());
        (directory, std::mem::take(&mut self.arguments))
    }

    /// Where clients find it.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// Keeps it from running, or lets it go on: nothing of it notices.
    pub fn pause(&self, is_paused: bool) {
        self.process.signal(if is_paused { Signal::STOP } else { Signal::CONT });
    }

    /// Asks it to stop.
    pub fn stop(mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait()
    }

    /// etcd's client, pointed at it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(peer("etcd", "etcdctl"));
        command.env_clear().env("PATH", "/usr/bin:/bin").arg("--endpoints").arg(self.endpoint());
        command.args(["--command-timeout=60s", "--dial-timeout=60s"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What the client prints; it must succeed.
    pub fn etcdctl(&self, arguments: &[&str]) -> String {
        output(&mut self.command(arguments))
    }

    /// What the client says of an error; it must fail.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }
}

const READY: &str = "ready to serve client requests";

/// A server that is not ready yet.
pub struct Starting {
    rusd: Rusd,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Starting {
    /// Waits until it is ready.
    pub fn ready(self) -> Rusd {
        let (rusd, _, lines) = self.started();
        // What it says later is of no interest, but must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        rusd
    }

    /// As [`Starting::ready`], with what it says from its start on.
    pub fn ready_with_log(self) -> (Rusd, Log) {
        let (rusd, said, lines) = self.started();
        let (tell, told) = channel();
        // Where nobody listens any more, the pipe is emptied all the same.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(tell.send(line))));
        (rusd, Log { said: said.iter().map(|line| object(line)).collect(), told })
    }

    /// Waits until it is ready: it, what it has said, and what comes later.
    fn started(mut self) -> (Rusd, Vec<String>, Lines<BufReader<ChildStderr>>) {
        let mut said = Vec::new();
        let ready = loop {
            let Some(line) = self.lines.next() else { panic!("it ended before it was ready: {said:#?}") };
            let line = line.unwrap();
            if line.contains(READY) {
                break line;
            }
            said.push(line);
        };
        let told = object(&ready);
        let mut addresses = told["addresses"].as_str().unwrap().split(' ').map(str::to_owned);
        self.rusd.address = addresses.next().unwrap();
        self.rusd.other_addresses = addresses.collect();
        said.push(ready);
        (self.rusd, said, self.lines)
    }
}

/// A line of the log.
fn object(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// What a server says, from its start on.
pub struct Log {
    said: Vec<Value>,
    told: Receiver<String>,
}

impl Log {
    /// The first line whose text is so, if it was said by now.
    pub fn find(&mut self, is_it: impl Fn(&str) -> bool) -> Option<Value> {
        self.said.extend(self.told.try_iter().map(|line| object(&line)));
        self.said.iter().find(|line| line["msg"].as_str().is_some_and(&is_it)).cloned()
    }

    /// Waits for a line with this text.
    #[track_caller]
    pub fn line(&mut self, text: &str) -> Value {
        harness::eventually(text, || self.find(|said| said == text))
    }
}

impl Starting {
    /// The first line with this text, of one that does not become ready before.
    pub fn line_with(mut self, text: &str) -> String {
        let is_it = |line: &std::io::Result<String>| {
            let line = line.as_ref().unwrap();
            assert!(!line.contains(READY), "it serves: {line}");
            line.contains(text)
        };
        self.lines.find(is_it).unwrap_or_else(|| panic!("it ended without saying {text:?}")).unwrap()
    }

    /// A place for files.
    pub fn directory(&self) -> &Path {
        self.rusd.directory()
    }

    /// Kills it; what is left can be started again.
    pub fn kill(self) -> (TempDir, Vec<String>) {
        self.rusd.kill()
    }

    /// What it says when it ends without having been ready.
    pub fn refusal(self) -> String {
        let line = |line: std::io::Result<String>| {
            let line = line.unwrap();
            assert!(!line.contains(READY), "it serves: {line}");
            line + "\n"
        };
        self.lines.map(line).collect()
    }
}
