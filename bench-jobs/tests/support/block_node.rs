//! A real block-node on a port of its own, and a liar before it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use harness::{Process, TempDir, command, free_port, own, until};
use rustix::process::Signal;

/// A block-node; killed when dropped.
pub struct BlockNode {
    process: Process,
    pub endpoint: String,
    _folder: TempDir,
}

impl BlockNode {
    pub fn start() -> Self {
        Self::start_with(&["--accept-dummy-proofs"])
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        let folder = harness::folder_on_disk();
        let port = free_port();
        let mut block_node = command(own("block-node"));
        block_node
            .args(["--server-port", &port.to_string(), "--log-level", "error"])
            .arg("--data-dir")
            .arg(folder.path().join("blocks"))
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::start(&mut block_node);
        until("block-node to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process, endpoint: format!("127.0.0.1:{port}"), _folder: folder }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

/// A store that lies: a real one behind a proxy that changes what comes out of it.
pub struct Liar {
    pub endpoint: String,
    lies: Arc<AtomicUsize>,
}

/// What a proxy makes of what comes out of the store on one connection.
type Change = Box<dyn FnMut(Vec<u8>) -> Vec<u8> + Send>;

impl Liar {
    /// Changes the byte that stands `behind` bytes after `mark`, from the `first` time on that this is seen. HTTP/2 has no checksums, so the
    /// message arrives.
    pub fn before(store: &BlockNode, mark: &[u8], behind: usize, first: usize) -> Self {
        let (mark, seen) = (mark.to_vec(), Arc::new(AtomicUsize::new(0)));
        Self::that(store, move |lies| {
            let (mark, seen) = (mark.clone(), Arc::clone(&seen));
            Box::new(move |mut found| {
                let places = found.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
                let places: Vec<usize> = places.map(|(at, _)| at + mark.len() + behind).collect();
                for place in places {
                    let Some(byte) = found.get_mut(place) else { continue };
                    if seen.fetch_add(1, Ordering::Relaxed) >= first {
                        *byte ^= 1;
                        lies.fetch_add(1, Ordering::Relaxed);
                    }
                }
                found
            })
        })
    }

    /// Leaves out acknowledgements, but for those of these blocks.
    pub fn silent_but_for(store: &BlockNode, is_told: fn(u64) -> bool) -> Self {
        Self::that(store, move |lies| {
            let mut pending = Vec::new();
            Box::new(move |found| {
                pending.extend(found);
                let mut told = Vec::new();
                while let Some(length) = frame_bytes(&pending) {
                    let frame: Vec<u8> = pending.drain(..length).collect();
                    told.extend(without_acknowledgements(frame, is_told, &lies));
                }
                told
            })
        })
    }

    fn that(store: &BlockNode, change: impl Fn(Arc<AtomicUsize>) -> Change + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let (store, lies) = (store.endpoint.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&lies);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&store).unwrap());
                let (mut to_server, mut from_server) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    // An error is the end of one of them.
                    let _ = std::io::copy(&mut client, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Both);
                });
                let mut change = change(Arc::clone(&counted));
                thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = server.read(&mut buffer) {
                        if from_server.write_all(&change(buffer[..count].to_vec())).is_err() {
                            break;
                        }
                    }
                    let _ = from_server.shutdown(Shutdown::Both);
                });
            }
        });
        Self { endpoint, lies }
    }

    /// How often it has lied.
    pub fn lies(&self) -> usize {
        self.lies.load(Ordering::Relaxed)
    }
}

/// What comes before the content of an HTTP/2 frame, and before a message of gRPC in it.
const FRAME_HEAD_BYTES: usize = 9;
const MESSAGE_HEAD_BYTES: usize = 5;

/// How long the first HTTP/2 frame of these bytes is, if it is whole.
fn frame_bytes(bytes: &[u8]) -> Option<usize> {
    let [a, b, c] = *bytes.first_chunk()?;
    let length = FRAME_HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
    (bytes.len() >= length).then_some(length)
}

/// A frame without the acknowledgements in it that are not to be told; nothing, if it has nothing else.
fn without_acknowledgements(frame: Vec<u8>, is_told: fn(u64) -> bool, lies: &AtomicUsize) -> Vec<u8> {
    let (head, mut rest) = frame.split_at(FRAME_HEAD_BYTES);
    let (mut told, mut left_out) = (head.to_vec(), 0);
    // Content of a stream has the type 0.
    while let (0, Some(message_head)) = (head[3], rest.first_chunk::<MESSAGE_HEAD_BYTES>()) {
        let [_, length @ ..] = *message_head;
        let end = MESSAGE_HEAD_BYTES + u32::from_be_bytes(length) as usize;
        let Some(message) = rest.get(MESSAGE_HEAD_BYTES..end) else { break };
        match acknowledged(message).is_some_and(|number| !is_told(number)) {
            true => left_out += 1,
            false => told.extend(&rest[..end]),
        }
        rest = &rest[end..];
    }
    if left_out == 0 {
        return frame;
    }
    lies.fetch_add(left_out, Ordering::Relaxed);
    told.extend(rest);
    let length = (told.len() - FRAME_HEAD_BYTES) as u32;
    told[..3].copy_from_slice(&length.to_be_bytes()[1..]);
    // The flag 1 ends the stream.
    if length == 0 && head[4] & 1 == 0 { Vec::new() } else { told }
}

/// The block that a message to a publisher acknowledges.
fn acknowledged(message: &[u8]) -> Option<u64> {
    match message {
        [0x0a, 0] => Some(0),
        [0x0a, length, 0x08, number @ ..] if number.len() + 1 == usize::from(*length) => {
            Some(number.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
        }
        _ => None,
    }
}
