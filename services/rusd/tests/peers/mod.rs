//! Where the real etcd is: `make test` fetches it.

use std::path::PathBuf;
use std::process::Command;

/// A program of etcd in the version that `peers/versions` pins.
pub fn etcd(program: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let versions = std::fs::read_to_string(format!("{root}/peers/versions")).unwrap();
    let version = versions.lines().find_map(|line| line.strip_prefix("etcd ")).unwrap().trim();
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let peers = folder("STOREBENCH_PEERS").unwrap_or_else(|| {
        let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(".local/share")));
        data.unwrap().join("storebench/peers")
    });
    let path = peers.join("etcd").join(version).join(program);
    assert!(path.exists(), "no {}: run peers/fetch etcd etcd-tools", path.display());
    path
}

/// What the program printed; it must succeed.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
