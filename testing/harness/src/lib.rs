//! What tests of all crates share; a dev-dependency and nothing else.
//!
//! - [`peers`]: the real stores and tools that `peers/fetch` installs
//! - [`etcd`]: a real etcd, for those that are compared with it
//! - [`process`]: child processes that end with their test, whatever becomes of it
//! - [`address`]: addresses for servers that must be told their own
//! - [`authority`]: certificates, and who signs them
//! - [`echo`]: a server that answers with what it is asked, and who asks it
//! - [`dashboard`]: whether a dashboard asks for what a server says
//! - [`random`]: chance from a seed
//! - [`folder`] and [`folder_on_disk`]: places for files, gone when dropped
//! - [`eventually`]: waiting with a bound
//! - [`in_one_of_five`]: scenes that a machine which stands still for a while spoils
//!
//! Whatever fails here panics: a test that cannot be set up has failed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "for tests: a failure is a failure")]

pub mod address;
pub mod authority;
pub mod dashboard;
pub mod echo;
pub mod etcd;
pub mod peers;
pub mod process;
pub mod random;

use std::path::Path;
use std::time::{Duration, Instant};

pub use address::{free_address, free_port};
pub use authority::Authority;
pub use etcd::Etcd;
pub use peers::{own, peer, version};
pub use process::{Process, command, output};
pub use random::Random;
pub use tempfile::TempDir;

/// Nothing that is waited for takes so long, on a machine however slow or busy: whoever waits longer waits in vain.
pub const LONG: Duration = Duration::from_secs(120);

/// Between two attempts.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(5);

/// Tries until there is a value, for at most [`LONG`]; `what` says what was waited for.
#[track_caller]
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(ATTEMPT_INTERVAL);
    }
}

/// A scene that depends on time: a machine that stands still for a second may spoil it, and says nothing of the code. What is wrong with the code
/// goes wrong each time: at least one of five must go well. An error says what was seen.
#[track_caller]
pub fn in_one_of_five(mut scene: impl FnMut() -> Result<(), String>) {
    let spoiled: Vec<String> = (0..5).map_while(|_| scene().err()).collect();
    assert!(spoiled.len() < 5, "each time: {spoiled:#?}");
}

/// Waits until it holds, for at most [`LONG`]; `what` says what was waited for.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// A folder of its own, removed when dropped. Its path is short, as the paths of sockets must be; it may be in memory.
pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The same on the disk that holds the build, for those who measure what is written.
pub fn folder_on_disk() -> TempDir {
    let test = std::env::current_exe().unwrap();
    // target/debug/deps/test
    let target = test.ancestors().nth(3).unwrap_or(Path::new("/tmp"));
    let parent = target.join("tmp");
    std::fs::create_dir_all(&parent).unwrap();
    tempfile::tempdir_in(parent).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_the_end_is_waited_for() {
        let mut attempts = 0;
        until("the third attempt", || {
            attempts += 1;
            attempts == 3
        });
        assert_eq!(eventually("a value", || Some(7)), 7);
    }

    #[test]
    fn a_folder_goes_when_it_is_dropped() {
        for folder in [folder(), folder_on_disk()] {
            let path = folder.path().to_owned();
            std::fs::write(path.join("file"), "text").unwrap();
            drop(folder);
            assert!(!path.exists(), "{}", path.display());
        }
    }
}
