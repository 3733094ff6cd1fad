//! What there is before the first command: a base of no keys, or the one file that Redis had before version 7, which becomes the base.

use std::fs;
use std::io;
use std::path::Path;

use wal::files::{Directory, File as _};

use super::replacing::write_manifest;
use super::{Kind, Manifest, Named, OpenError, io_error};

/// Begins the files where no manifest is: with this base, made safe before the manifest names it. As in Redis, every file set has a
/// base.
pub fn begin_with<D: Directory>(directory: &D, name: &str, base: &[u8], is_rdb: bool) -> io::Result<()> {
    let mut manifest = Manifest::new(name);
    if directory.names()?.contains(&format!("{name}.manifest")) {
        return Ok(());
    }
    let named = manifest.next_base(is_rdb);
    let file = directory.create_zeroed(&named.name, 0)?;
    file.write_at(base, 0)?;
    file.sync_data()?;
    directory.sync()?;
    manifest.files.push(named);
    write_manifest(directory, &manifest)
}

/// Takes over the append-only file of Redis before version 7, which lies beside the directory for data's own files: a manifest names it
/// as the base, and then it is moved into the append-only directory (`folder`). If that is cut short, the next start goes on. Whether
/// there was one to take.
pub fn take_over<D: Directory>(directory: &D, beside: &Path, folder: &Path, name: &str) -> Result<bool, OpenError> {
    let old = beside.join(name);
    if !old.is_file() {
        return Ok(false);
    }
    let failed = |error| io_error(format!("take over {}", old.display()))(error);
    let base = Named { name: name.to_owned(), number: 1, kind: Kind::Base };
    let (names, manifest_name) = (directory.names().map_err(failed)?, format!("{name}.manifest"));
    if names.contains(&manifest_name) {
        let text = directory.open(&manifest_name).and_then(|file| file.read()).map_err(failed)?;
        let was_cut_short = Manifest::parse(name, &text)?.files == [base] && !names.iter().any(|known| known == name);
        if !was_cut_short {
            return Ok(false);
        }
    } else {
        write_manifest(directory, &Manifest { name: name.to_owned(), files: vec![base] }).map_err(failed)?;
    }
    fs::rename(&old, folder.join(name)).map_err(failed)?;
    directory.sync().map_err(failed)?;
    fs::File::open(beside).and_then(|beside| beside.sync_all()).map_err(failed)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis wrote it before version 7; the manifest of a start that was cut short names it already.
    #[test]
    fn the_file_of_an_old_redis_is_taken_over_once() {
        let place = harness::folder();
        let folder = place.path().join("appendonlydir");
        let directory = wal::files::RealDirectory::open(&folder).unwrap();
        let take = || take_over(&directory, place.path(), &folder, "a.aof").unwrap();
        let write = |text: &str| fs::write(place.path().join("a.aof"), text).unwrap();
        assert!(!take());
        for is_cut_short in [false, true] {
            write("old");
            if is_cut_short {
                fs::write(folder.join("a.aof.manifest"), "file a.aof seq 1 type b\n").unwrap();
            }
            assert!(take());
            assert_eq!(fs::read(folder.join("a.aof")).unwrap(), b"old");
            assert!(!place.path().join("a.aof").exists());
            write("another");
            assert!(!take(), "there is a base");
            fs::remove_file(folder.join("a.aof")).unwrap();
            fs::remove_file(folder.join("a.aof.manifest")).unwrap();
        }
    }
}
