//! The program as a process on loopback, which a test may kill.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use harness::Process;
use rustix::process::Signal;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_block-node");

pub struct Server {
    process: Process,
    pub address: String,
    /// Counts what it logs as an error.
    errors: JoinHandle<usize>,
}

impl Server {
    /// Starts on any free port, and waits until it is ready.
    pub fn start(directory: &Path, flags: &[&str]) -> Self {
        Self::ready(harness::command(PROGRAM), directory, flags)
    }

    /// The same with two arenas of the allocator, for who measures what is held: each keeps what was given back.
    pub fn start_with_two_arenas(directory: &Path, flags: &[&str]) -> Self {
        let mut command = harness::command(PROGRAM);
        command.env("MALLOC_ARENA_MAX", "2");
        Self::ready(command, directory, flags)
    }

    /// The same, where no file may become larger than some ten kilobytes.
    pub fn start_with_small_files(directory: &Path) -> Self {
        let mut shell = harness::command("sh");
        // The write shall fail; without the trap SIGXFSZ would end the process.
        shell.args(["-c", "trap '' 25; ulimit -f 64; exec \"$0\" \"$@\"", PROGRAM]);
        Self::ready(shell, directory, &[])
    }

    fn ready(mut command: Command, directory: &Path, flags: &[&str]) -> Self {
        command
            .args(["--server-port", "0", "--accept-dummy-proofs", "--log-format", "json", "--data-dir"])
            .arg(directory)
            .args(flags)
            .stderr(Stdio::piped());
        let mut process = Process::start(&mut command);
        let mut lines = BufReader::new(process.child().stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it ended before it was ready").unwrap();
            if let Some((_, rest)) = line.split_once("\"address\":\"") {
                break rest.split('"').next().unwrap().split(' ').next().unwrap().to_owned();
            }
        };
        // Nobody else reads what it says; it must not block on that.
        let is_error = |line: &String| line.contains("\"level\":\"ERROR\"");
        let errors = std::thread::spawn(move || lines.map_while(Result::ok).filter(is_error).count());
        Self { process, address, errors }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// As `kill -9`.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// As SIGTERM; how many errors it has logged since it was ready.
    pub fn errors(mut self) -> usize {
        self.process.signal(Signal::TERM);
        self.process.wait();
        self.errors.join().unwrap()
    }

    /// As SIGTERM; whether it ended well.
    pub fn terminate(mut self) -> bool {
        self.process.signal(Signal::TERM);
        self.process.wait().success()
    }
}
