//! A real redis-server on a port of its own, and bench-job run against it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use storebench_crds::job::{Hindrance, JobLine, JobOutcome, JobSummary, Phase, WorkloadSummary};

/// The pinned redis-server, or one in PATH.
fn redis_server() -> PathBuf {
    let versions = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../peers/versions")).unwrap();
    let pinned = |line: &str| line.strip_prefix("redis ").map(|version| version.trim().to_owned());
    let version = versions.lines().find_map(pinned).expect("peers/versions names redis");
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let peers = folder("STOREBENCH_PEERS").or_else(|| {
        let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")))?;
        Some(data.join("storebench/peers"))
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    peers
        .map(|peers| peers.join("redis").join(version))
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join("redis-server"))
        .find(|program| program.is_file())
        .expect("redis-server is missing; run: peers/fetch redis")
}

/// A folder of its own, gone when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("redis-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A redis-server; killed when dropped.
pub struct Redis {
    process: Child,
    pub port: u16,
    _folder: Folder,
}

impl Redis {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_on(free_port(), arguments)
    }

    pub fn start_on(port: u16, arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let process = Command::new(redis_server())
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&folder.0)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { process, port, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        redis
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Sends a command from outside, and returns the first bytes of the reply.
    pub fn command(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut reply = [0; 256];
        let count = stream.read(&mut reply).unwrap();
        String::from_utf8_lossy(&reply[..count]).into_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A running bench-job.
pub struct Job {
    process: Child,
    lines: BufReader<ChildStdout>,
    seen: Vec<JobLine>,
    folder: Folder,
    /// Dropped when the job is over; until then a watchdog waits for that.
    _running: Sender<()>,
}

/// A bench-job that has ended, having written a summary.
pub struct Ended {
    pub summary: JobSummary,
    pub lines: Vec<JobLine>,
}

/// A workload named `w`; `redis` and `load` as users write them.
pub fn workload(redis: Value, load: Value) -> Value {
    json!({ "name": "w", "redis": redis, "load": load })
}

impl Job {
    pub fn start(port: u16, workload: Value, arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let spec = json!({
            "run": "test", "arm": "redis", "trial": 0, "seed": 42,
            "endpoints": [format!("127.0.0.1:{port}")], "workloads": [workload],
        });
        let job = folder.0.join("job.json");
        fs::write(&job, spec.to_string()).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_bench-job"))
            .arg("--job")
            .arg(&job)
            .arg("--termination-message")
            .arg(folder.0.join("summary.json"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let pid = Pid::from_child(&process);
        let (running, ended) = channel();
        // A job that hangs is a failure that must not hang the test.
        thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self { process, lines, seen: Vec::new(), folder, _running: running }
    }

    fn next_line(&mut self) -> Option<JobLine> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let decoded = JobLine::decode(line.trim_end())?.unwrap();
        self.seen.push(decoded.clone());
        Some(decoded)
    }

    /// Waits until a phase begins.
    pub fn until(&mut self, phase: Phase) {
        while let Some(line) = self.next_line() {
            if matches!(line, JobLine::Phase { phase: found, .. } if found == phase) {
                return;
            }
        }
        panic!("{phase:?} did not begin: {:?}", self.seen);
    }

    /// Waits until it has ended.
    pub fn end(mut self) -> Ended {
        while self.next_line().is_some() {}
        let status = self.process.wait().unwrap();
        assert!(status.success(), "bench-job ended with {status}");
        let summary = fs::read(self.folder.0.join("summary.json")).unwrap();
        Ended { summary: serde_json::from_slice(&summary).unwrap(), lines: std::mem::take(&mut self.seen) }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Ended {
    /// The workload's figures, if nothing was wrong with the store or the load. A busy machine may have hindered the
    /// loader, which a test of answers need not care about.
    pub fn measured(&self) -> &WorkloadSummary {
        match &self.summary.outcome {
            JobOutcome::Completed => {}
            JobOutcome::Hindered { hindrance, .. } if *hindrance != Hindrance::RateNotReached => {}
            other => panic!("{other:?}"),
        }
        &self.summary.workloads[0]
    }

    pub fn store_failed(&self) -> &str {
        match &self.summary.outcome {
            JobOutcome::StoreFailed { workload, detail } if workload == "w" => {
                assert!(self.summary.workloads.is_empty());
                assert!(!detail.contains('\n') && !detail.is_empty());
                detail
            }
            other => panic!("{other:?}"),
        }
    }
}
