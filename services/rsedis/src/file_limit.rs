//! How many files the system lets this process have open, and for how many clients that is enough.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::log;

/// Files that the server has open for itself, as in Redis.
pub const OWN_FILES: u64 = 32;

/// What the system allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Clients, and no more than were asked for.
    pub clients: i64,
    /// Open files.
    pub files: u64,
}

/// Asks for as many files as so many clients need, and for some for the server itself.
pub fn raise_for(clients: i64) -> Allowed {
    let wanted = (clients.max(0) as u64).saturating_add(OWN_FILES);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            log::warning(format_args!("raise the limit of open files: {error}"));
        }
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(wanted);
    Allowed { clients: files.min(wanted).saturating_sub(OWN_FILES) as i64, files }
}
