//! The command line: how to serve, and what else this program can do.

use clap::{Parser, Subcommand};

use crate::java_files::{ExportFlags, ImportFlags};
use crate::settings::Flags;
use crate::simulate::{ConsumerFlags, PublisherFlags, StatusFlags};
use crate::verify::VerifyFlags;

/// A Hiero block node: verifies blocks, makes them safe on disk before it acknowledges them, serves one copy to everyone.
#[derive(Debug, Parser)]
#[command(
    name = "block-node",
    version,
    max_term_width = 120,
    args_conflicts_with_subcommands = true,
    next_line_help = true
)]
pub struct CommandLine {
    /// What else it can do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to serve.
    #[command(flatten)]
    pub flags: Flags,
}

/// What else it can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say which blocks a node has, and what it checks of them
    Status(StatusFlags),
    /// Publish crafted blocks that verify, or read and verify blocks
    #[command(subcommand)]
    Simulate(Simulate),
    /// Read every block of a directory and check it; exits with 1 where one is wrong
    Verify(VerifyFlags),
    /// Take blocks from files of the Java node, each verified; goes on where it was stopped
    Import(ImportFlags),
    /// Write blocks as files of the Java node; goes on where it was stopped
    Export(ExportFlags),
}

/// What is simulated.
#[derive(Debug, Subcommand)]
pub enum Simulate {
    /// Publish crafted blocks; the node must run with --accept-dummy-proofs
    Publisher(PublisherFlags),
    /// Subscribe, verify every block, and compare it with the one before
    Consumer(ConsumerFlags),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound_and_has_the_java_nodes_defaults() {
        CommandLine::command().debug_assert();
        let settings = CommandLine::try_parse_from(["block-node"]).unwrap().flags.settings();
        assert_eq!(settings.listen.to_string(), "http://127.0.0.1:40840");
        assert_eq!((settings.message_bytes_max, settings.future_max), (131_072_000, 4_000));
        assert!(!settings.accept_dummy_proofs);
        assert_eq!(settings.scrub.unwrap().interval.as_secs(), 604_800);
        let never = CommandLine::try_parse_from(["block-node", "--scrub-interval-seconds", "0"]).unwrap();
        assert_eq!(never.flags.settings().scrub, None);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for wrong in [
            &["--nonsense"][..],
            &["--wire-era", "v0.14"],
            &["--keep-blocks", "0"],
            &["--publishers-max", "0"],
            &["--server-http2-max-concurrent-streams", "0"],
            &["--segment-bytes", "0"],
            &["--segment-bytes", "100000000000000"],
            &["import", "a", "--segment-bytes", "0"],
            &["--scrub-bytes-per-second", "0"],
            &["--compression-level", "0"],
            &["--compression-level", "20"],
            &["--record-file-signers-percent", "50"],
            &["--rsa-address-book", "a", "--record-file-signers-percent", "101"],
            &["--producer-duplicate-block-skip-window", "11"],
            &["--producer-per-handler-message-budget", "9"],
            &["--tls-certificate", "certificate"],
            &["--tls-client-authority", "authority"],
            &["--backfill-peers", "localhost"],
            &["--backfill-tls-certificate", "a", "--backfill-tls-key", "b"],
        ] {
            assert!(CommandLine::try_parse_from([&["block-node"], wrong].concat()).is_err(), "{wrong:?}");
        }
    }
}
