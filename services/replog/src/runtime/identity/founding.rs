//! A member that founds its group, and cannot know whether it has done so before: its directory may have been emptied. It says nothing to the
//! others, and hears nothing of them, until so many of them have said that they do not know it as are a majority with it; and it ends if one does
//! know it.
//!
//! They are asked whenever this member would connect to one, so that whoever answers late is asked as well. An answer counts only while nothing
//! is decided: afterwards others may know this member from what it does now.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::{IdentityError, Said};

/// What an introduction says of this member; `None`: it is of another group.
type Read = Box<dyn Fn(&[u8]) -> Option<Said> + Send + Sync>;
type Write = Box<dyn Fn() -> Result<(), IdentityError> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Asks,
    Begins,
    IsKnownTo(u64),
}

struct Inner {
    /// So many must not know it.
    needed: usize,
    read: Read,
    /// Writes down that it begins.
    write: Write,
    /// Who has said that it does not know it.
    unaware: Mutex<BTreeSet<u64>>,
    verdict: watch::Sender<Verdict>,
}

/// What the others have said. Clones are the same one.
#[derive(Clone)]
pub struct Founding(Arc<Inner>);

impl Founding {
    /// With so many others.
    pub(super) fn new(others: usize, read: Read, write: Write) -> Self {
        // Of one more than there are others, half without itself.
        let needed = others.div_ceil(2);
        let verdict = watch::Sender::new(Verdict::Asks);
        Self(Arc::new(Inner { needed, read, write, unaware: Mutex::default(), verdict }))
    }

    /// Whether it may speak and listen to the others.
    pub(crate) fn begins(&self) -> bool {
        *self.0.verdict.borrow() == Verdict::Begins
    }

    /// What a member has said, in its introduction. An error: it is not spoken to yet.
    pub(crate) fn heard(&self, member: u64, introduction: &[u8]) -> io::Result<()> {
        let said = (self.0.read)(introduction);
        let mut unaware = self.0.unaware.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = *self.0.verdict.borrow();
        match (verdict, said) {
            // One of another group refuses it by itself.
            (Verdict::Begins, _) | (Verdict::Asks, None) => return Ok(()),
            (Verdict::IsKnownTo(_), _) => return Err(is_known()),
            (Verdict::Asks, Some(Said::HasAcknowledged)) => {
                self.0.verdict.send_replace(Verdict::IsKnownTo(member));
                return Err(is_known());
            }
            (Verdict::Asks, Some(Said::CannotTell(why))) => {
                return Err(io::Error::new(
                    ErrorKind::WouldBlock,
                    format!("it cannot tell yet whether it knows this member: {why}"),
                ));
            }
            (Verdict::Asks, Some(Said::Nothing)) => drop(unaware.insert(member)),
        }
        if unaware.len() < self.0.needed {
            let more = "this member begins, and more of the others must say that they do not know it";
            return Err(io::Error::new(ErrorKind::WouldBlock, more));
        }
        // Before anything is said: at the next start others may know it.
        (self.0.write)().map_err(io::Error::other)?;
        self.0.verdict.send_replace(Verdict::Begins);
        Ok(())
    }

    /// The member that knows this one, which has lost what it had: it must end.
    pub fn is_known_to(&self) -> Option<u64> {
        match *self.0.verdict.borrow() {
            Verdict::IsKnownTo(member) => Some(member),
            Verdict::Asks | Verdict::Begins => None,
        }
    }

    /// Comes when there is one.
    pub async fn known_to(&self) -> u64 {
        let mut verdict = self.0.verdict.subscribe();
        loop {
            if let Verdict::IsKnownTo(member) = *verdict.borrow_and_update() {
                return member;
            }
            if verdict.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn is_known() -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, "this member begins, and another one knows that it has begun before")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const UNKNOWN: &[u8] = b"unknown";
    const KNOWN: &[u8] = b"known";
    const NOT_YET: &[u8] = b"not yet";
    const OTHER_GROUP: &[u8] = b"other group";

    fn read(introduction: &[u8]) -> Option<Said> {
        match introduction {
            UNKNOWN => Some(Said::Nothing),
            KNOWN => Some(Said::HasAcknowledged),
            NOT_YET => Some(Said::CannotTell("it begins".into())),
            _ => None,
        }
    }

    /// And how often it was written down that it begins.
    fn founding(others: usize) -> (Founding, Arc<AtomicUsize>) {
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let write = move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        (Founding::new(others, Box::new(read), Box::new(write)), written)
    }

    #[test]
    fn it_begins_when_a_majority_with_it_does_not_know_it() {
        for (others, needed) in [(1, 1), (2, 1), (3, 2), (4, 2), (6, 3)] {
            let (founding, written) = founding(others);
            for member in 1..needed {
                for _ in 0..2 {
                    assert!(founding.heard(member, UNKNOWN).is_err(), "one that says it twice counts once");
                }
            }
            assert!(founding.heard(90, NOT_YET).is_err());
            assert!(founding.heard(91, OTHER_GROUP).is_ok(), "it refuses by itself");
            assert!(!founding.begins() && written.load(Ordering::Relaxed) == 0, "{others} others");
            founding.heard(needed, UNKNOWN).unwrap();
            assert!(founding.begins() && written.load(Ordering::Relaxed) == 1, "{others} others");
            founding.heard(92, KNOWN).unwrap();
            assert_eq!(founding.is_known_to(), None, "that may be from what it has done since");
        }
    }

    #[test]
    fn one_that_knows_it_is_enough() {
        let (founding, written) = founding(4);
        assert!(founding.heard(1, UNKNOWN).is_err());
        assert!(founding.heard(2, KNOWN).is_err());
        assert!(founding.heard(3, UNKNOWN).is_err() && founding.heard(4, UNKNOWN).is_err());
        assert_eq!((founding.begins(), founding.is_known_to()), (false, Some(2)));
        assert_eq!(futures::executor::block_on(founding.known_to()), 2);
        assert_eq!(written.load(Ordering::Relaxed), 0);
    }
}
