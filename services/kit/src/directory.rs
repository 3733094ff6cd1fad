//! Directories and small files that hold a server's data: for their user alone, and there for good once they were made.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Makes a directory, and those above it that are missing, for its user alone (mode 0700); their names are on disk when this returns.
///
/// One that was there stays as it is, with a warning where others may look into it, as etcd has it: it may be a volume that a container
/// platform has mounted, or `/tmp`. What a server makes within is private all the same, by its umask.
pub fn make_private(path: &Path) -> io::Result<()> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for folder in &missing {
        sync_name(folder)?;
    }
    let mode = fs::metadata(path)?.mode() & 0o777;
    if missing.is_empty() && mode & 0o077 != 0 {
        let mode = format!("{mode:o}");
        tracing::warn!(path = %path.display(), mode, "others than this user may look into this directory: chmod 700");
    }
    Ok(())
}

/// The file that stands where a directory should be: at this path, or above it.
pub fn file_in_place_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|above| above.is_file())
}

/// Writes a file for its user alone: after a crash it is as before or as now, and once this returns, as now. Beside it `NAME.next` is made
/// and renamed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    sync_name(path)
}

/// Makes a name safe, or its removal: what the directory above says of it is on disk when this returns.
pub fn sync_name(path: &Path) -> io::Result<()> {
    File::open(above(path))?.sync_all()
}

/// The directory that this path lies in: of a name alone the one we work in.
pub fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_directory_is_made_private_and_one_that_was_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("above/data");
        make_private(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        make_private(&path).unwrap();
        assert_eq!(mode(&path), 0o755);
        // Nobody but the kernel owns it.
        make_private(Path::new("/proc/self")).unwrap();
    }

    #[test]
    fn a_file_in_place_of_a_directory_is_found_wherever_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        assert_eq!(file_in_place_of(&file), None);
        fs::write(&file, "").unwrap();
        assert_eq!(file_in_place_of(&file), Some(&*file));
        assert_eq!(file_in_place_of(&file.join("below/it")), Some(&*file));
    }

    #[test]
    fn a_file_is_written_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity.json");
        write_whole(&path, b"the first").unwrap();
        write_whole(&path, b"next").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"next".to_vec(), 0o600));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
