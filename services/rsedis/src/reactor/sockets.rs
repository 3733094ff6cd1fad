//! The seam to the operating system: sockets that never wait.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use crate::settings::Settings;
use crate::tls::{Tls, TlsStream};

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody wants to connect.
    Accept,
    /// A socket has bytes, or has ended.
    Readable(usize),
    /// A socket takes bytes again.
    Writable(usize),
    /// The process was asked to stop.
    Stop(Signal),
}

/// What asks the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
}

impl Signal {
    /// The parameter that says how to stop then.
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Terminate => "shutdown-on-sigterm",
            Self::Interrupt => "shutdown-on-sigint",
        }
    }
}

/// What receiving gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other side has gone.
    End,
}

/// A client that has come.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The number of its socket: the smallest that is free.
    pub slot: usize,
    /// Its address, `ip:port`.
    pub address: String,
    /// The server's.
    pub local_address: String,
    /// It comes from this machine.
    pub is_local: bool,
}

/// See the module's description. Slots of sockets that were closed are used again.
pub trait Sockets: 'static {
    /// Waits for something to happen, at most so long.
    fn wait(&mut self, most: Duration, events: &mut Vec<Event>) -> io::Result<()>;
    /// A client that wants to connect, if there is one; `keepalive_seconds`: silence after which it is asked whether it is there, 0:
    /// never; `tls`: what those who come to a port of TLS are shown.
    fn accept(&mut self, keepalive_seconds: u32, tls: &Tls) -> io::Result<Option<Accepted>>;
    /// Listens where the settings say now. Errors: why that cannot be; then it is as before.
    fn listen(&mut self, settings: &Settings) -> Result<(), String>;
    /// Whether to hear of clients that want to connect.
    fn want_clients(&mut self, wanted: bool) -> io::Result<()>;
    /// Appends what a socket has, about so many bytes at most.
    fn receive(&mut self, slot: usize, into: &mut Vec<u8>, most: usize) -> Received;
    /// Sends what the socket takes; how many bytes. Bytes that were not taken come first in the next call. Errors: the other side has
    /// gone.
    fn send(&mut self, slot: usize, bytes: &[u8]) -> io::Result<usize>;
    /// Which events of a socket are wanted.
    fn want(&mut self, slot: usize, readable: bool, writable: bool) -> io::Result<()>;
    /// Takes a connection that was made, with TLS or without.
    fn adopt(&mut self, stream: TcpStream, keepalive_seconds: u32, tls: Option<TlsStream>) -> io::Result<Accepted>;
    /// Takes nobody any more: who comes is refused.
    fn stop_listening(&mut self);
    /// Closes a socket.
    fn close(&mut self, slot: usize);
}
