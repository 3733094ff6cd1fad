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

/// A store that lies: a real one behind a proxy that changes a byte of what comes out of it, wherever it finds what it looks for.
/// HTTP/2 has no checksums, so the message arrives.
pub struct Liar {
    pub endpoint: String,
    lies: Arc<AtomicUsize>,
}

impl Liar {
    /// Changes the byte that stands `behind` bytes after `mark`, from the `first` time on that this is seen.
    pub fn before(store: &BlockNode, mark: &[u8], behind: usize, first: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let (store, mark, lies) = (store.endpoint.clone(), mark.to_vec(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&lies);
        thread::spawn(move || {
            let seen = Arc::new(AtomicUsize::new(0));
            for client in listener.incoming() {
                let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&store).unwrap());
                let (mut to_server, mut from_server) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    // An error is the end of one of them.
                    let _ = std::io::copy(&mut client, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Both);
                });
                let (mark, seen, counted) = (mark.clone(), Arc::clone(&seen), Arc::clone(&counted));
                thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = server.read(&mut buffer) {
                        let found = &mut buffer[..count];
                        let places = found.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark);
                        let places: Vec<usize> = places.map(|(at, _)| at + mark.len() + behind).collect();
                        for place in places.into_iter().filter(|place| *place < count) {
                            if seen.fetch_add(1, Ordering::Relaxed) >= first {
                                found[place] ^= 1;
                                counted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        if from_server.write_all(found).is_err() {
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
