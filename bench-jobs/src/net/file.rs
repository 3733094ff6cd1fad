//! What is said of a file that users name for a store of theirs.

use std::io;

/// Why it cannot be read, and what to do.
pub(crate) fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "is not there: name a file that is (a path is meant from the folder of the YAML file that has it)".into()
        }
        io::ErrorKind::PermissionDenied => "may not be read by this user: allow it, or name another file".into(),
        _ => error.to_string(),
    }
}
