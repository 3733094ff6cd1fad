//! `storebench engines` says of every engine what the table says.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use serde_json::Value;
use storebench_core::engine::{ENGINES, Engine};
use storebench_crds::engine::{Allocator, Dialect, Source};

fn engines(arguments: &[&str]) -> String {
    let peers = harness::TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_storebench"));
    let output = command.arg("engines").args(arguments).env("STOREBENCH_PEERS", peers.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn programs_are_told_everything() {
    let all: Value = serde_json::from_str(&engines(&["-o", "json"])).unwrap();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), ENGINES.len());
    for (said, engine) in all.iter().zip(ENGINES) {
        let Engine { name, default_version, image, .. } = engine;
        assert_eq!((said["name"].as_str(), said["version"].as_str()), (Some(*name), Some(*default_version)));
        assert_eq!(said["engine"], format!("{:?}", engine.kind));
        assert_eq!(said["image"], format!("{image}:{default_version}"));
        assert_eq!(said["install"], engine.install());
        let durability: Vec<&String> = said["durability"].as_object().unwrap().keys().collect();
        assert_eq!(durability.len(), engine.durability.len(), "{name}: {durability:?}");
    }
}

#[test]
fn people_are_told_each_engine_and_how_to_install_it() {
    let table = engines(&[]);
    for engine in ENGINES {
        let line = table.lines().find(|line| line.starts_with(&format!("{} ", engine.name)));
        let line = line.unwrap_or_else(|| panic!("{} is not in\n{table}", engine.name));
        // Nothing is in the peers directory; a store of our own may be beside storebench, and others on PATH.
        // From here commands of the checkout have its path.
        let command = engine.install();
        let what = command.strip_prefix("peers/").unwrap_or(&command);
        assert!(line.contains(what) || line.ends_with(engine.binary()), "{line}");
    }
}

/// `peers/fetch etcd` leads nowhere from there.
#[test]
fn outside_of_the_checkout_the_command_that_installs_has_its_path() {
    let (peers, elsewhere) = (harness::folder(), harness::folder());
    let mut command = Command::new(env!("CARGO_BIN_EXE_storebench"));
    command.arg("engines").current_dir(elsewhere.path()).env("PATH", "/nonexistent");
    let output = command.env("STOREBENCH_PEERS", peers.path()).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let etcd = table.lines().find(|line| line.starts_with("etcd ")).unwrap();
    let command = etcd.split_whitespace().skip(3).collect::<Vec<_>>().join(" ");
    assert!(command.starts_with('/') && command.ends_with("/peers/fetch etcd"), "{etcd}");
}

/// Of a program that says what it is built with, the table must not say something else.
#[test]
fn stores_are_built_with_the_allocators_of_their_rows() {
    // Ours are compared with their manifests where rows are.
    let fetched = |engine: &&Engine| engine.dialect == Dialect::Redis && matches!(engine.source, Source::Peer(_));
    let engines: Vec<&Engine> = ENGINES.iter().filter(fetched).collect();
    assert!(engines.len() >= 2, "{engines:?}");
    for engine in engines {
        let output = Command::new(harness::peer(engine.name, engine.binary())).arg("--version").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let built = said.split_whitespace().find_map(|word| word.strip_prefix("malloc=")).expect(&said);
        let expected = match engine.allocator {
            Allocator::Jemalloc => "jemalloc",
            Allocator::Libc => "libc",
            Allocator::Runtime => "no runtime allocates for a program in C",
        };
        assert!(built.starts_with(expected), "{}: {said}", engine.name);
    }
}

/// README has the peers' folders in PATH.
#[test]
fn a_program_that_is_found_by_two_ways_is_listed_once() {
    let folder = harness::folder();
    let peer = folder.path().join("etcd").join(harness::peers::version("etcd"));
    std::fs::create_dir_all(&peer).unwrap();
    std::os::unix::fs::symlink(harness::peer("etcd", "etcd"), peer.join("etcd")).unwrap();
    let linked = folder.path().join("linked");
    std::os::unix::fs::symlink(&peer, &linked).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_storebench"));
    command.arg("engines").env("STOREBENCH_PEERS", folder.path()).env("PATH", &linked);
    let table = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(table.lines().filter(|line| line.starts_with("etcd ")).count(), 1, "{table}");
}
