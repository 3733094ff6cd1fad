//! What tests of all crates share; a dev-dependency and nothing else.
//!
//! - [`peers`]: the real stores and tools that `peers/fetch` installs
//! - [`etcd`]: a real etcd, for those that are compared with it
//! - [`process`]: child processes that end with their test, whatever becomes of it
//! - [`address`]: addresses for servers that must be told their own
//! - [`authority`]: certificates, and who signs them
//! - [`echo`]: a server that answers with what it is asked, and who asks it
//! - [`dashboard`]: whether a dashboard asks for what a server says
//! - [`processor_time`]: what a thread or this process has used
//! - [`random`]: chance from a seed
//! - [`folder`] and [`folder_on_disk`]: places for files, gone when dropped
//! - [`eventually`]: waiting with a bound
//! - [`again_if_late`]: scenes that a machine which stands still for a while spoils
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
pub mod processor_time;
mod pulse;
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

use pulse::Pulse;

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

/// A thread that only sleeps is woken so late where the processors have more to do than they can, which spoils what is to be done at a certain rate.
pub const BUSY: Duration = Duration::from_millis(5);

/// As often a scene is tried that is spoiled each time.
const ATTEMPTS_MAX: usize = 5;

/// A scene that depends on time: what the machine spoils says nothing of the code, and is tried again. The machine is known to have spoiled it
/// where a thread that slept meanwhile was woken late by `late_min` or more, a part of what the scene bears, or [`BUSY`]; without that, what failed
/// has failed. An error says what was seen.
#[track_caller]
pub fn again_if_late(late_min: Duration, mut scene: impl FnMut() -> Result<(), String>) {
    let mut spoiled = Vec::new();
    while spoiled.len() < ATTEMPTS_MAX {
        let pulse = Pulse::begin();
        let Err(problem) = scene() else { return };
        let latest = pulse.latest();
        assert!(
            latest >= late_min,
            "{problem}: and the machine did not stand still: a thread that slept was woken {latest:?} late at most, and {late_min:?} would \
             have been a reason to try again; spoiled before: {spoiled:#?}"
        );
        spoiled.push(format!("{problem}, where a thread that slept was woken {latest:?} late"));
    }
    panic!("each time: {spoiled:#?}");
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
    use std::panic::{AssertUnwindSafe, catch_unwind};

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

    /// What a scene that goes wrong in its first attempts ends with, and how often it was tried.
    fn tried(late_min: Duration, wrong: usize) -> (Result<(), String>, usize) {
        let mut attempts = 0;
        let scene = || {
            attempts += 1;
            if attempts > wrong { Ok(()) } else { Err(format!("attempt {attempts}")) }
        };
        let ended = catch_unwind(AssertUnwindSafe(|| again_if_late(late_min, scene)));
        (ended.map_err(|panic| *panic.downcast::<String>().unwrap()), attempts)
    }

    /// A fault that shows four times of five went unseen.
    #[test]
    fn what_goes_wrong_on_a_machine_that_did_not_stand_still_stands() {
        let (ended, attempts) = tried(LONG, 1);
        let said = ended.unwrap_err();
        assert!(said.starts_with("attempt 1: and the machine did not stand still") && said.contains("120s"), "{said}");
        assert_eq!(attempts, 1);
    }

    #[test]
    fn what_a_standstill_spoils_is_tried_again_and_not_for_ever() {
        assert_eq!(tried(Duration::ZERO, 4), (Ok(()), 5));
        let (ended, attempts) = tried(Duration::ZERO, 9);
        let said = ended.unwrap_err();
        assert!(said.starts_with("each time: ") && said.contains("attempt 5, where a thread"), "{said}");
        assert_eq!(attempts, 5);
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
