//! The peers: the real stores and tools, where `peers/fetch` installs them, in the versions that `peers/versions` pins.

use std::path::PathBuf;

/// The one place that pins versions.
const VERSIONS: &str = include_str!("../../../peers/versions");

/// Where peers are installed; the same place that `peers/README.md` names.
pub fn folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("STOREBENCH_PEERS").unwrap_or_else(|| {
        let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")));
        data.expect("HOME is not set: set STOREBENCH_PEERS").join("storebench/peers")
    })
}

/// The version of a peer that is pinned.
#[track_caller]
pub fn version(peer: &str) -> &'static str {
    let pinned =
        |line: &'static str| line.split_once(' ').filter(|(name, _)| *name == peer).map(|(_, version)| version.trim());
    VERSIONS.lines().find_map(pinned).unwrap_or_else(|| panic!("peers/versions does not name {peer}"))
}

/// A program of a peer, such as `peer("etcd", "etcdctl")`.
#[track_caller]
pub fn peer(peer: &str, program: &str) -> PathBuf {
    installed(&format!("{peer}/{}/{program}", version(peer)))
}

/// A program by its path in the peers folder, for what `peers/versions` does not pin.
#[track_caller]
pub fn installed(path: &str) -> PathBuf {
    let path = folder().join(path);
    assert!(path.is_file(), "{} is missing; run: peers/fetch", path.display());
    path
}

/// A program of this project that another crate builds, such as `own("block-node")`: beside the test, where cargo puts it when it
/// builds the workspace.
#[track_caller]
pub fn own(program: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/release/deps/test
    let path = test.ancestors().nth(2).unwrap().join(program);
    assert!(path.is_file(), "{} is missing; run: cargo build --release -p {program}", path.display());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_are_pinned() {
        assert!(version("etcd").starts_with("3."), "{}", version("etcd"));
        assert_ne!(version("etcd"), version("etcd-old"));
    }

    #[test]
    #[should_panic(expected = "peers/versions does not name etc")]
    fn a_part_of_a_name_is_no_name() {
        version("etc");
    }

    #[test]
    #[should_panic(expected = "is missing; run: cargo build --release -p no-such-program")]
    fn a_program_that_was_not_built_is_named_with_its_remedy() {
        own("no-such-program");
    }

    #[test]
    #[should_panic(expected = "is missing; run: peers/fetch")]
    fn what_is_missing_is_named_with_its_remedy() {
        peer("etcd", "no-such-program");
    }
}
