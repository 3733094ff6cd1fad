//! Directories that are their user's alone.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Makes a directory, and those above it, for its user alone (mode 0700), and takes others' rights to one that was there away.
///
/// One that belongs to another user stays as it is, because only its owner can change it: a volume that a container platform has
/// mounted belongs to root. What a server makes within is private all the same.
pub fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    match fs::set_permissions(path, Permissions::from_mode(0o700)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_private_and_one_that_was_there_becomes_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("above/data");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        make_private(&path).unwrap();
        assert_eq!(mode(), 0o700);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        make_private(&path).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn a_directory_of_somebody_else_stays_as_it_is() {
        // Nobody but the kernel owns it.
        make_private(Path::new("/proc/self")).unwrap();
    }
}
