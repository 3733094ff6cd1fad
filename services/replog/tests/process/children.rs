//! Members as child processes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use harness::{Process, command, eventually};
use rustix::process::Signal;

use crate::server::file;

/// A client that has waited so long for an answer does not know what happened, and goes to somebody else.
const PATIENCE: Duration = Duration::from_secs(1);

/// A group of processes. They die with it.
pub struct Children {
    pub root: PathBuf,
    pub members: u64,
    running: Mutex<Vec<Option<Process>>>,
}

impl Children {
    pub fn new(root: &Path, members: u64) -> Self {
        let running = Mutex::new((0..members).map(|_| None).collect());
        Self { root: root.to_path_buf(), members, running }
    }

    /// Starts a member, perhaps by another program in front of it.
    pub fn start_by(&self, id: u64, wrapper: &[&str]) {
        fs::create_dir_all(self.root.join(id.to_string())).unwrap();
        let _ = fs::remove_file(file(&self.root, id, "client"));
        let exe = std::env::current_exe().unwrap();
        let mut command = match wrapper {
            [] => command(exe),
            [program, arguments @ ..] => {
                let mut command = command(program);
                command.args(arguments).arg(exe);
                command
            }
        };
        command.args(["server::serve", "--exact", "--ignored", "--nocapture", "--quiet"]);
        command.env("REPLOG_MEMBER_ROOT", &self.root).env("REPLOG_MEMBER_ID", id.to_string());
        command.env("REPLOG_MEMBERS", self.members.to_string());
        let log = fs::OpenOptions::new().create(true).append(true).open(file(&self.root, id, "log")).unwrap();
        let process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log));
        self.running.lock().unwrap()[id as usize - 1] = Some(process);
    }

    pub fn start(&self, id: u64) {
        self.start_by(id, &[]);
    }

    /// `kill -9`.
    pub fn kill(&self, id: u64) {
        if let Some(mut process) = self.running.lock().unwrap()[id as usize - 1].take() {
            process.kill();
        }
    }

    pub fn signal(&self, id: u64, signal: Signal) {
        if let Some(process) = &self.running.lock().unwrap()[id as usize - 1] {
            process.signal(signal);
        }
    }

    /// Waits until a member ends by itself. What it said last.
    pub fn wait_for_end(&self, id: u64) -> (ExitStatus, String) {
        let mut process = self.running.lock().unwrap()[id as usize - 1].take().unwrap();
        let status = process.wait();
        let mut log = String::new();
        fs::File::open(file(&self.root, id, "log")).unwrap().read_to_string(&mut log).unwrap();
        (status, log)
    }

    pub fn connect(&self, id: u64) -> Option<Connection> {
        let address = fs::read_to_string(file(&self.root, id, "client")).ok()?;
        let socket = TcpStream::connect(address).ok()?;
        socket.set_nodelay(true).ok()?;
        socket.set_read_timeout(Some(PATIENCE)).ok()?;
        let out = socket.try_clone().ok()?;
        Some(Connection { lines: BufReader::new(socket), out })
    }

    /// A connection to a member that is starting.
    pub fn wait_for(&self, id: u64) -> Connection {
        eventually("the start of a member", || self.connect(id))
    }

    /// Who says that it leads.
    pub fn leader(&self) -> Option<u64> {
        (1..=self.members).find(|id| {
            let status = self.connect(*id).and_then(|mut connection| connection.ask("status"));
            status.is_some_and(|status| status.starts_with("Leader"))
        })
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        (1..=self.members).for_each(|id| self.kill(id));
    }
}

/// A client's connection.
pub struct Connection {
    lines: BufReader<TcpStream>,
    out: TcpStream,
}

impl Connection {
    /// Asks and waits for the answer; `None`: there is none, and nobody knows whether there was somebody to hear it.
    pub fn ask(&mut self, request: &str) -> Option<String> {
        self.send(request)?;
        self.receive()
    }

    /// Asks, and does not wait.
    pub fn send(&mut self, request: &str) -> Option<()> {
        self.out.write_all(format!("{request}\n").as_bytes()).ok()
    }

    /// Waits for an answer.
    pub fn receive(&mut self) -> Option<String> {
        let mut answer = String::new();
        let read = self.lines.read_line(&mut answer).ok()?;
        (read > 0 && answer.ends_with('\n')).then(|| answer.trim_end().to_owned())
    }
}
