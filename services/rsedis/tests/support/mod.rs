//! Servers as processes, and a client that sees every byte.

// Each test program uses its own part of this.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod edges;
pub mod lines;
pub mod node;
pub mod ordered;
pub mod programs;
pub mod surroundings;
pub mod templates;
pub mod words;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::{LONG, Process};
use rustix::process::Signal;

/// A server that ends with the test.
pub struct Server {
    pub port: u16,
    pub process: Process,
}

/// A program of Redis.
pub fn redis_program(name: &str) -> PathBuf {
    harness::peer("redis", name)
}

pub fn rsedis_program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_rsedis"))
}

/// Starts a server in a directory, and waits until it answers.
pub fn start(program: &Path, directory: &Path, options: &[&str]) -> Server {
    start_command(&mut harness::command(program), directory, options)
}

pub fn start_command(command: &mut Command, directory: &Path, options: &[&str]) -> Server {
    let port = harness::free_port();
    let fixed = ["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"];
    command.args(["--port", &port.to_string()]).arg("--dir").arg(directory).args(fixed).args(options);
    let mut process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()));
    harness::until("the server's answer", || {
        assert_eq!(process.ended(), None, "the server ended");
        let client = Client::connect(port);
        client.and_then(|mut client| client.try_call(&[b"PING"])).is_ok_and(|reply| !reply.starts_with(b"-LOADING"))
    });
    Server { port, process }
}

impl Server {
    pub fn client(&self) -> Client {
        Client::connect(self.port).unwrap()
    }

    /// Kills it at once.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// How it ends, having been told to.
    pub fn wait(mut self) -> Option<i32> {
        self.process.wait().code()
    }

    /// Asks it to stop; its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        self.process.signal(Signal::TERM);
        self.process.wait().code()
    }
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(port: u16) -> std::io::Result<Self> {
        Self::on(TcpStream::connect(("127.0.0.1", port))?)
    }

    /// The same, where it was made already.
    pub fn on(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONG))?;
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
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
                // So ends a wait that is bounded when the process was stopped and goes on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
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
