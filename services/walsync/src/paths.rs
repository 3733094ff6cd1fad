//! Names of a database's files, as SQLite makes and takes them.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `name` and a suffix, as SQLite names files: the whole name, whatever its extension.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A URI of SQLite, whatever bytes the path has.
pub fn sqlite_uri(path: &Path, query: &str) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            // Writing to a string cannot fail.
            byte => drop(write!(uri, "%{byte:02x}")),
        }
    }
    uri + "?" + query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_keeps_every_byte_of_a_path() {
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/a b/50%?#\xff.db"));
        assert_eq!(sqlite_uri(path, "mode=ro&readonly_shm=1"), "file:/a%20b/50%25%3f%23%ff.db?mode=ro&readonly_shm=1");
    }
}
