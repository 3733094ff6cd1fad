//! What the process tests share: real stores on ports of their own, `bench-job` and `store-meter` run against them.

// Each test program uses a part of it.
#![allow(dead_code)]

pub mod etcd;
pub mod job;
pub mod meter;
pub mod redis;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// A folder of its own, gone when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
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

/// A process, killed when dropped.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The pinned program of a peer, or one in PATH.
pub fn peer(peer: &str, program: &str) -> PathBuf {
    let versions = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../peers/versions")).unwrap();
    let pinned = |line: &str| line.strip_prefix(&format!("{peer} ")).map(|version| version.trim().to_owned());
    let version = versions.lines().find_map(pinned).unwrap_or_else(|| panic!("peers/versions does not name {peer}"));
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let peers = folder("STOREBENCH_PEERS").or_else(|| {
        let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")))?;
        Some(data.join("storebench/peers"))
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    peers
        .map(|peers| peers.join(peer).join(version))
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(program))
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("{program} is missing; run: peers/fetch {peer}"))
}
