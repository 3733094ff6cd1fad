//! A real redis-server on a port of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use harness::{Process, TempDir, command, free_port, own, peer, until};
use rustix::process::Signal;

/// Every command of the family, as the schema lists them.
pub fn commands() -> Vec<String> {
    let schema = storebench_crds::schema::of_kind("WorkloadTemplate").unwrap();
    let listed = &schema["properties"]["spec"]["properties"]["redis"]["properties"]["command"]["enum"];
    listed.as_array().unwrap().iter().map(|command| command.as_str().unwrap().to_owned()).collect()
}

/// A redis-server; killed when dropped.
pub struct Redis {
    process: Process,
    pub port: u16,
    pub folder: TempDir,
}

impl Redis {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_on(free_port(), arguments)
    }

    pub fn start_on(port: u16, arguments: &[&str]) -> Self {
        let redis = Self::spawn_on(port, arguments);
        until("redis-server to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        redis
    }

    /// Our own rsedis in its place.
    pub fn start_rsedis(arguments: &[&str]) -> Self {
        let redis = Self::spawn(&own("rsedis"), free_port(), arguments);
        until("rsedis to listen", || TcpStream::connect(("127.0.0.1", redis.port)).is_ok());
        redis
    }

    /// Starts it and does not wait.
    pub fn spawn_on(port: u16, arguments: &[&str]) -> Self {
        Self::spawn(&peer("redis", "redis-server"), port, arguments)
    }

    fn spawn(program: &Path, port: u16, arguments: &[&str]) -> Self {
        let folder = harness::folder_on_disk();
        let mut redis = command(program);
        redis
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder.path())
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self { process: Process::start(&mut redis), port, folder }
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
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
