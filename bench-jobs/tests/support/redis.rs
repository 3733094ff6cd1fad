//! A real redis-server on a port of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Folder, Process, free_port, peer};

/// A redis-server; killed when dropped.
pub struct Redis {
    process: Process,
    pub port: u16,
    pub folder: Folder,
}

impl Redis {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_on(free_port(), arguments)
    }

    pub fn start_on(port: u16, arguments: &[&str]) -> Self {
        let redis = Self::spawn_on(port, arguments);
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        redis
    }

    /// Starts it and does not wait.
    pub fn spawn_on(port: u16, arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let process = Command::new(peer("redis", "redis-server"))
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&folder.0)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { process: Process(process), port, folder }
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
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
