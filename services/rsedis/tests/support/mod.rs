//! Servers as processes, and a client that sees every byte.

// Each test program uses its own part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod templates;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that ends with the test.
pub struct Server {
    pub port: u16,
    pub child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program of Redis 7.0.15, from where `peers/fetch redis` puts it.
pub fn redis_program(name: &str) -> PathBuf {
    let home = std::env::var("HOME").unwrap();
    let data = std::env::var("XDG_DATA_HOME").unwrap_or(format!("{home}/.local/share"));
    let path = Path::new(&data).join("storebench/peers/redis/7.0.15").join(name);
    assert!(path.exists(), "{} is missing: run peers/fetch redis", path.display());
    path
}

pub fn rsedis_program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_rsedis"))
}

/// Starts a server in a directory, and waits until it answers.
pub fn start(program: &Path, directory: &Path, options: &[&str]) -> Server {
    let mut command = Command::new(program);
    start_command(&mut command, directory, options)
}

pub fn start_command(command: &mut Command, directory: &Path, options: &[&str]) -> Server {
    let port = free_port();
    let fixed = ["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"];
    command.args(["--port", &port.to_string()]).arg("--dir").arg(directory).args(fixed).args(options);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut server = Server { port, child };
    let began = Instant::now();
    loop {
        if let Ok(mut client) = Client::connect(port)
            && client.try_call(&[b"PING"]).is_ok_and(|reply| !reply.starts_with(b"-LOADING"))
        {
            return server;
        }
        assert_eq!(server.child.try_wait().unwrap(), None, "the server ended");
        assert!(began.elapsed() < PATIENCE, "the server does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Server {
    pub fn client(&self) -> Client {
        Client::connect(self.port).unwrap()
    }

    /// Kills it at once.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop; its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// One reply, byte for byte.
    pub fn receive(&mut self) -> std::io::Result<Vec<u8>> {
        loop {
            if let Some(length) = frame(&self.buffer) {
                return Ok(self.buffer.drain(..length).collect());
            }
            let mut piece = [0; 64 << 10];
            match self.stream.read(&mut piece)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => self.buffer.extend_from_slice(&piece[..count]),
            }
        }
    }

    pub fn try_call(&mut self, arguments: &[&[u8]]) -> std::io::Result<Vec<u8>> {
        let bytes = encode(arguments);
        self.send(&bytes)?;
        self.receive()
    }

    /// A command by its words; the reply.
    pub fn call(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = self.try_call(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Whether the other side closes without another byte.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok_and(|_| rest.is_empty())
    }
}

pub fn encode(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The length of the first whole reply.
fn frame(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[1..end]).unwrap().parse::<i64>().unwrap();
    let mut at = end + 2;
    match bytes[0] {
        b'$' | b'=' => match number() {
            -1 => Some(at),
            length => {
                let to = at + length as usize + 2;
                (bytes.len() >= to).then_some(to)
            }
        },
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            for _ in 0..number().max(0) * if kind == b'%' { 2 } else { 1 } {
                at += frame(&bytes[at..])?;
            }
            Some(at)
        }
        _ => Some(at),
    }
}

/// The elements of an array, set or map, each byte for byte.
pub fn elements(reply: &[u8]) -> Vec<&[u8]> {
    let Some(end) = reply.windows(2).position(|pair| pair == b"\r\n") else { return Vec::new() };
    if !matches!(reply[0], b'*' | b'~' | b'>' | b'%') {
        return Vec::new();
    }
    let (mut rest, mut found) = (&reply[end + 2..], Vec::new());
    while let Some(length) = frame(rest) {
        found.push(&rest[..length]);
        rest = &rest[length..];
        if rest.is_empty() {
            break;
        }
    }
    found
}
