//! Who calls: the header `authorization: Basic …`, with the name and the password of a user, in every dialect.
//!
//! A password that was right is remembered by its digest, as long as the user keeps it, so that bcrypt is asked once. As long as users are not asked
//! for, the header is not looked at.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use service_kit::grpc::{Caller, Code, Status};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::Api;
use crate::engine::Node;
use crate::state::Principal;

/// Passwords that are remembered; then it begins anew.
const REMEMBERED_MAX: usize = 4096;
/// Passwords that are checked at a time: each takes a processor for tens of milliseconds.
const CHECKS_MAX: usize = 2;
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
}

impl Claim {
    /// Of a header.
    fn parse(value: &[u8]) -> Option<Self> {
        let (scheme, encoded) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let said = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (name, password) = said.split_once(':')?;
        // A name has no colon, so that these are no other name and password.
        let digest = Sha256::digest(&said).into();
        Some(Self { name: Bytes::copy_from_slice(name.as_bytes()), password: password.to_owned(), digest })
    }
}

fn refused(text: &'static str) -> Status {
    Status::new(Code::Unauthenticated, text)
}

/// What a stream ends with whose caller is nobody any more.
pub(super) fn nobody() -> Status {
    Status::new(Code::Aborted, "the user of this stream was removed, or has another password: sign in again")
}

/// Passwords that were right, by their digests, with the hash that they were right for.
pub(super) struct SignedIn {
    right: Mutex<HashMap<[u8; 32], Bytes>>,
    checks: Semaphore,
}

impl Default for SignedIn {
    fn default() -> Self {
        Self { right: Mutex::default(), checks: Semaphore::new(CHECKS_MAX) }
    }
}

impl SignedIn {
    fn remembers(&self, claim: &Claim, hash: &Bytes) -> bool {
        self.right.lock().unwrap_or_else(PoisonError::into_inner).get(&claim.digest) == Some(hash)
    }

    /// Looks whether a password is right; waits its turn.
    pub(super) async fn check(&self, node: &Node, claim: Claim) -> Result<Principal, Status> {
        let _turn = self.checks.acquire().await.map_err(|_| refused("the member is ending"))?;
        let user = node.users().all().get(&claim.name).cloned();
        let hash = user.as_ref().map_or(Bytes::from_static(NOBODY.as_bytes()), |user| user.hash.clone());
        let (text, password) = (String::from_utf8_lossy(&hash).into_owned(), claim.password);
        let checked = tokio::task::spawn_blocking(move || bcrypt::verify(password, &text)).await;
        let is_right = matches!(checked, Ok(Ok(true)));
        match user {
            Some(user) if is_right => {
                let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
                if right.len() >= REMEMBERED_MAX {
                    right.clear();
                }
                right.insert(claim.digest, user.hash);
                Ok(Principal::User { name: claim.name, since: user.since })
            }
            _ => Err(refused("the name or the password is wrong")),
        }
    }
}

impl Api {
    /// Who calls.
    pub(super) fn who(&self, caller: &Caller) -> Who {
        let users = self.node.users();
        if !users.is_enabled() {
            return Who::Known(Principal::Nobody);
        }
        let Some(header) = caller.headers.get(AUTHORIZATION) else {
            return Who::Unknown(refused(
                "users are asked for: sign in with the header authorization: Basic NAME:PASSWORD in base64",
            ));
        };
        let Some(claim) = Claim::parse(header.as_bytes()) else {
            return Who::Unknown(refused("the header authorization is not Basic NAME:PASSWORD in base64"));
        };
        match users.all().get(&claim.name) {
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
        let claim = Claim::parse(header("anna:se:cret").as_bytes()).unwrap();
        assert_eq!((&claim.name[..], &claim.password[..]), (&b"anna"[..], "se:cret"));
        for bad in ["", "Basic", "Basic ", "Basic !", "Bearer YTpi", &header("nobody")] {
            assert!(Claim::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn who_is_not_known_takes_as_long_as_who_is() {
        assert!(matches!(bcrypt::verify("x", NOBODY), Ok(false)), "bcrypt refuses it at once");
    }
}
