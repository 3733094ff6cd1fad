//! Real stores behind `faulty-store`, each in a folder of its own, and clients that speak bytes to a socket. Everything
//! started here is killed and waited for when it is dropped.

#![allow(dead_code)] // each test binary uses its part

pub mod etcd;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Process, TempDir, command, eventually, free_port, peer};
use rustix::process::{Pid, Signal, kill_process};

/// No answer takes longer than this, on a machine however slow.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A store behind `faulty-store`, started the way storebench starts a peer.
pub struct Faulty {
    process: Process,
    pub address: SocketAddr,
    pub folder: TempDir,
}

impl Faulty {
    pub fn redis(faults: &[&str], more: &[&str]) -> Self {
        Self::start("redis", &peer("redis", "redis-server"), faults, |port, folder| {
            let mut arguments = vec!["--port".into(), port.to_string(), "--bind".into(), "127.0.0.1".into()];
            arguments.extend(["--dir".into(), folder.display().to_string(), "--save".into(), String::new()]);
            arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
            arguments
        })
    }

    pub fn etcd(faults: &[&str], more: &[&str]) -> Self {
        Self::start("etcd", &peer("etcd", "etcd"), faults, |port, folder| {
            let (client, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()));
            let mut arguments = vec!["--name".into(), "test".into(), "--log-level".into(), "error".into()];
            arguments.extend(["--data-dir".into(), folder.join("data").display().to_string()]);
            arguments.extend(["--unsafe-no-fsync".into(), "--initial-cluster".into(), format!("test={peers}")]);
            for (flag, url) in [("listen-client", &client), ("advertise-client", &client), ("listen-peer", &peers)] {
                arguments.extend([format!("--{flag}-urls"), url.clone()]);
            }
            arguments.extend(["--initial-advertise-peer-urls".into(), peers]);
            arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
            arguments
        })
    }

    /// Through a script of the store's name, as in a peers folder made for a test.
    fn start(store: &str, upstream: &Path, faults: &[&str], arguments: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        let folder = harness::folder();
        let script = folder.path().join(upstream.file_name().unwrap());
        let faults: String = faults.iter().map(|fault| format!(" --fault {fault}")).collect();
        let (myself, upstream) = (env!("CARGO_BIN_EXE_faulty-store"), upstream.display());
        let line = format!("#!/bin/sh\nexec {myself} --store {store} --upstream {upstream}{faults} -- \"$@\"\n");
        fs::write(&script, line).unwrap();
        let port = free_port();
        // Not executed itself: another test that forks just now may still hold it open for writing (ETXTBSY).
        let mut command = command("/bin/sh");
        command.arg(&script).args(arguments(port, folder.path())).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(folder.path().join("stderr")).unwrap());
        let process = Process::start(&mut command);
        Self { process, address: SocketAddr::from(([127, 0, 0, 1], port)), folder }
    }

    /// A connection, as soon as there is one to be had.
    pub fn connect(&self) -> TcpStream {
        let socket = eventually("a connection", || TcpStream::connect(self.address).ok());
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    /// The process id of the store behind the proxy.
    pub fn store(&self) -> u32 {
        eventually("the store's process", || self.store_if_any())
    }

    fn store_if_any(&self) -> Option<u32> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.process.id()));
        children.ok()?.split_whitespace().next()?.parse().ok()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // The store first, so that the proxy waits for it: what is orphaned stays a zombie where nobody reaps those.
        // Each of these fails if the process is gone already, which is what is wanted.
        if let Some(store) = self.store_if_any().and_then(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process(store, Signal::KILL);
            let deadline = Instant::now() + Duration::from_secs(1);
            while self.process.ended().is_none() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A Redis client that shows what came as it came.
pub struct Redis(BufReader<TcpStream>);

impl Redis {
    pub fn connect(faulty: &Faulty) -> Self {
        let mut redis = Self(BufReader::new(faulty.connect()));
        // Redis says -LOADING for a moment.
        eventually("PONG", || (redis.call("PING") == "+PONG").then_some(()));
        redis
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// One reply that has no other replies in it: a line, or the bytes of a string after a `$`.
    pub fn reply(&mut self) -> String {
        self.try_reply().expect("a reply")
    }

    pub fn try_reply(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_owned();
        match line.strip_prefix('$').map(|length| length.parse::<i64>().unwrap()) {
            Some(length @ 0..) => {
                let mut value = vec![0; length as usize + 2];
                self.0.read_exact(&mut value)?;
                Ok(format!("${}", String::from_utf8_lossy(&value[..length as usize])))
            }
            _ => Ok(line),
        }
    }

    /// Sends an inline command and returns the reply.
    pub fn call(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes());
        self.reply()
    }
}
