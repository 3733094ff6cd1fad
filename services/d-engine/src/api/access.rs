//! Who calls: the header `authorization: Basic …`, with the name and the password of a user, in every dialect.
//!
//! A password that was right is remembered by its digest, as long as the user keeps it, so that bcrypt is asked once. As long as users are not asked
//! for, the header is not looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use service_kit::grpc::{Caller, Code, Status};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Api;
use super::users::is_password;
use crate::engine::Node;
use crate::state::Principal;

/// Passwords that are remembered; then it begins anew.
const REMEMBERED_MAX: usize = 4096;
/// Passwords that are checked at a time: each takes a processor for tens of milliseconds.
const CHECKS_MAX: usize = 2;
/// Calls that wait until their password is checked, besides: as many as are checked in a second or two.
const WAITING_MAX: usize = 32;
/// Of these, from one host at most: it shall not keep others from signing in.
const OF_ONE_HOST_MAX: usize = (CHECKS_MAX + WAITING_MAX) / 2;
/// What somebody's password is compared with whom nobody knows, so that names cannot be found out by the time that it takes.
const NOBODY: &str = "$2b$10$abcdefghijklmnopqrstuuH4rXHfLyE5l8V8ZlV3JvJz0KkS5Y1iK";

/// Who calls, as far as can be said at once.
pub(super) enum Who {
    Known(Principal),
    Claims(Claim),
    Unknown(Status),
}

/// Somebody that says a password.
pub(super) struct Claim {
    name: Bytes,
    password: String,
    digest: [u8; 32],
    /// The host that it comes from.
    origin: String,
}

impl Claim {
    /// Of a header, from a host.
    fn parse(value: &[u8], origin: impl FnOnce() -> String) -> Option<Self> {
        let (scheme, encoded) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let said = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (name, password) = said.split_once(':')?;
        // A name has no colon, so that these are no other name and password.
        let digest = Sha256::digest(&said).into();
        Some(Self {
            name: Bytes::copy_from_slice(name.as_bytes()),
            password: password.to_owned(),
            digest,
            origin: origin(),
        })
    }
}

fn refused(text: &'static str) -> Status {
    Status::new(Code::Unauthenticated, text)
}

/// What a stream ends with whose caller is nobody any more.
pub(super) fn nobody() -> Status {
    Status::new(Code::Aborted, "the user of this stream was removed, or has another password: sign in again")
}

/// Passwords that were right, by their digests, with the hash that they were right for; one of a member. Who has not said a right one yet
/// waits in a short line, and no longer than for any other answer.
pub struct SignedIn {
    right: Mutex<HashMap<[u8; 32], Bytes>>,
    places: Arc<Semaphore>,
    /// How many places each host has that has any.
    of_hosts: Arc<Mutex<HashMap<String, usize>>>,
    checks: Arc<Semaphore>,
}

impl Default for SignedIn {
    fn default() -> Self {
        let places = Arc::new(Semaphore::new(CHECKS_MAX + WAITING_MAX));
        Self { right: Mutex::default(), places, of_hosts: Arc::default(), checks: Arc::new(Semaphore::new(CHECKS_MAX)) }
    }
}

/// A place of those that a host has; given back when this is dropped.
struct OfHost {
    hosts: Arc<Mutex<HashMap<String, usize>>>,
    origin: String,
}

impl OfHost {
    fn take(hosts: &Arc<Mutex<HashMap<String, usize>>>, origin: &str) -> Option<Self> {
        let mut places = hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = places.get(origin).copied().unwrap_or_default();
        if taken >= OF_ONE_HOST_MAX {
            return None;
        }
        places.insert(origin.to_owned(), taken + 1);
        Some(Self { hosts: Arc::clone(hosts), origin: origin.to_owned() })
    }
}

impl Drop for OfHost {
    fn drop(&mut self) {
        let mut places = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = places.get_mut(&self.origin) {
            *taken -= 1;
            if *taken == 0 {
                places.remove(&self.origin);
            }
        }
    }
}

/// As long as it is there, one password less is checked beside.
pub(super) struct Turn {
    _of_host: OfHost,
    _place: OwnedSemaphorePermit,
    _check: OwnedSemaphorePermit,
}

impl SignedIn {
    /// Waits for a turn to have a password checked, or hashed, for a host.
    pub(super) async fn turn(&self, origin: &str, patience: Duration) -> Result<Turn, Status> {
        let too_many =
            || Status::new(Code::ResourceExhausted, "too many passwords are being checked: sign in again in a moment");
        let of_host = OfHost::take(&self.of_hosts, origin).ok_or_else(too_many)?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| too_many())?;
        let check = tokio::time::timeout(patience, Arc::clone(&self.checks).acquire_owned()).await;
        let check = check.map_err(|_| {
            Status::new(Code::DeadlineExceeded, "the password was not checked in time: sign in again in a moment")
        })?;
        let check = check.map_err(|_| refused("the member is ending"))?;
        Ok(Turn { _of_host: of_host, _place: place, _check: check })
    }

    fn remembers(&self, claim: &Claim, hash: &Bytes) -> bool {
        self.right.lock().unwrap_or_else(PoisonError::into_inner).get(&claim.digest) == Some(hash)
    }

    /// Looks whether a password is right; waits its turn.
    pub(super) async fn check(&self, node: &Node, claim: Claim, patience: Duration) -> Result<Principal, Status> {
        let turn = self.turn(&claim.origin, patience).await?;
        let user = node.user(&claim.name);
        if let Some(user) = user.as_ref().filter(|user| self.remembers(&claim, &user.hash)) {
            // Another call has said the same meanwhile.
            return Ok(Principal::User { name: claim.name, since: user.since });
        }
        let hash = user.as_ref().map_or(Bytes::from_static(NOBODY.as_bytes()), |user| user.hash.clone());
        let (text, password) = (String::from_utf8_lossy(&hash).into_owned(), claim.password);
        let checked = tokio::task::spawn_blocking(move || {
            // It goes on when the client has gone, and so does its turn.
            let _turn = turn;
            is_right(&password, &text)
        });
        let is_right = checked.await.unwrap_or(false);
        match user {
            Some(user) if is_right => {
                let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
                if right.len() >= REMEMBERED_MAX {
                    right.clear();
                }
                right.insert(claim.digest, user.hash.clone());
                Ok(Principal::User { name: claim.name, since: user.since })
            }
            _ => Err(refused("the name or the password is wrong")),
        }
    }
}

/// Whether a hash is this password's. What nobody can have takes as long as any other.
fn is_right(password: &str, hash: &str) -> bool {
    bcrypt::verify(password, hash).unwrap_or(false) & is_password(password)
}

impl Api {
    /// Who calls.
    pub(super) fn who(&self, caller: &Caller) -> Who {
        if !self.node.asks_for_users() {
            return Who::Known(Principal::Nobody);
        }
        let Some(header) = caller.headers.get(AUTHORIZATION) else {
            return Who::Unknown(refused(
                "users are asked for: ctl and bench sign in by --user NAME --password-file FILE (or D_ENGINE_PASSWORD), \
                 others by the header authorization: Basic NAME:PASSWORD in base64",
            ));
        };
        let Some(claim) = Claim::parse(header.as_bytes(), || caller.peer.origin()) else {
            return Who::Unknown(refused("the header authorization is not Basic NAME:PASSWORD in base64"));
        };
        match self.node.user(&claim.name) {
            Some(user) if self.signed_in.remembers(&claim, &user.hash) => {
                Who::Known(Principal::User { name: claim.name, since: user.since })
            }
            _ => Who::Claims(claim),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_a_name_and_a_password_or_nothing() {
        let header = |said: &str| format!("Basic {}", STANDARD.encode(said));
        let claim = Claim::parse(header("anna:se:cret").as_bytes(), String::new).unwrap();
        assert_eq!((&claim.name[..], &claim.password[..]), (&b"anna"[..], "se:cret"));
        for bad in ["", "Basic", "Basic ", "Basic !", "Bearer YTpi", &header("nobody")] {
            assert!(Claim::parse(bad.as_bytes(), String::new).is_none(), "{bad}");
        }
    }

    /// Ten thousand calls of a connection could stand in front of everybody who signs in, for minutes.
    #[tokio::test]
    async fn who_signs_in_waits_in_a_short_line_and_not_for_long() {
        let (signed_in, patience) = (SignedIn::default(), Duration::from_millis(50));
        let first = signed_in.turn("a", patience).await.unwrap();
        let _second = signed_in.turn("a", patience).await.unwrap();
        // One host has half of the line, however much it asks for.
        let waiting = futures::future::join_all((0..WAITING_MAX).map(|_| signed_in.turn("a", patience)));
        let of_others = futures::future::join_all((0..WAITING_MAX).map(|_| signed_in.turn("b", patience)));
        let (waited, of_others) = tokio::join!(waiting, of_others);
        let codes = |turns: Vec<Result<Turn, Status>>| {
            let late = turns.iter().filter(|turn| matches!(turn, Err(late) if late.code == Code::DeadlineExceeded));
            let late = late.count();
            let refused = turns.iter().filter(|turn| matches!(turn, Err(full) if full.code == Code::ResourceExhausted));
            (late, refused.count())
        };
        assert_eq!(codes(waited), (OF_ONE_HOST_MAX - 2, WAITING_MAX + 2 - OF_ONE_HOST_MAX));
        assert_eq!(codes(of_others), (OF_ONE_HOST_MAX, WAITING_MAX - OF_ONE_HOST_MAX));
        drop(first);
        assert!(signed_in.turn("c", patience).await.is_ok());
    }

    #[test]
    fn no_other_password_is_right_than_the_one_that_was_chosen() {
        let (long, short) = ("x".repeat(72), "abc");
        let hash = |password: &str| bcrypt::hash(password, 4).unwrap();
        assert!(is_right(&long, &hash(&long)) && is_right(short, &hash(short)));
        assert!(!is_right(&format!("{long}y"), &hash(&long)), "bcrypt looks at 72 bytes");
        assert!(!is_right("abc\0abc", &hash(short)), "bcrypt repeats what is short");
    }

    #[test]
    fn who_is_not_known_takes_as_long_as_who_is() {
        assert!(matches!(bcrypt::verify("x", NOBODY), Ok(false)), "bcrypt refuses it at once");
    }
}
