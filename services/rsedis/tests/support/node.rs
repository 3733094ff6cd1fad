//! Servers that follow each other, and what one of them says of itself.

use std::path::{Path, PathBuf};

use harness::{TempDir, until};

use super::{Client, Server, redis_program, rsedis_program, start};

/// What all of them are started with.
const OPTIONS: [&str; 6] =
    ["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];

/// A server, its folder, and which of both it is.
pub struct Node {
    pub server: Server,
    pub folder: TempDir,
    program: PathBuf,
}

impl Node {
    fn start(program: &Path, options: &[&str]) -> Self {
        let folder = harness::folder();
        let server = start(program, folder.path(), &[&OPTIONS[..], options].concat());
        Self { server, folder, program: program.to_owned() }
    }

    pub fn ours(options: &[&str]) -> Self {
        Self::start(rsedis_program(), options)
    }

    pub fn theirs(options: &[&str]) -> Self {
        Self::start(&redis_program("redis-server"), options)
    }

    pub fn client(&self) -> Client {
        self.server.client()
    }

    pub fn call(&self, line: &str) -> String {
        self.client().call(line)
    }

    pub fn info(&self, field: &str) -> String {
        let text = self.call("INFO everything");
        let prefix = format!("{field}:");
        text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().trim().to_owned()
    }

    pub fn follow(&self, port: u16) {
        assert_eq!(self.call(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK\r\n");
    }

    pub fn wait_for_link(&self) {
        until("the link to the master", || self.info("master_link_status") == "up");
    }

    /// Killed at once, and ours started with its files.
    pub fn restart_as_ours(mut self, options: &[&str]) -> Self {
        self.program = rsedis_program().to_owned();
        self.restart(options)
    }

    /// Killed at once, and started again with the same files.
    pub fn restart(self, options: &[&str]) -> Self {
        let Self { server, folder, program } = self;
        server.kill();
        let server = start(&program, folder.path(), &[&OPTIONS[..], options].concat());
        Self { server, folder, program }
    }
}

/// Whether a replica comes to have all that its master has.
#[track_caller]
pub fn wait_until_same(master: &Node, replica: &Node) {
    until("the replica's offset", || {
        let offset: u64 = master.info("master_repl_offset").parse().unwrap();
        replica.info("slave_repl_offset").parse::<u64>().is_ok_and(|applied| applied >= offset)
    });
    // A key that expires just now goes on the master first.
    until("the same keys", || master.call("DEBUG DIGEST") == replica.call("DEBUG DIGEST"));
    assert_ne!(master.call("DEBUG DIGEST"), format!("+{}\r\n", "0".repeat(40)), "there is nothing to compare");
}
