//! The file system under a store's data: its name, the space that the data take, and what is written to its disk.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use storebench_crds::meter::DiskWrites;

/// Space that a file, or a folder with everything in it, takes on disk, bytes: allocated blocks, as `du` counts. What is
/// deleted meanwhile counts for nothing.
pub fn allocated_bytes(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    let mut bytes = metadata.blocks() * 512;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += match allocated_bytes(&entry?.path()) {
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                counted => counted?,
            };
        }
    }
    Ok(bytes)
}

/// What was written so far to the disk under a path, by whomever: sectors of 512 bytes of the block device (the kernel's
/// `Documentation/block/stat.rst`). `None` where there is no such device, as under tmpfs or an overlay, and where it does not count.
///
/// Not from `/proc/PID/io`, which counts a whole folio as written when one block of it is: 1 MiB for each put of a log that
/// writes into files made before, on ext4 of Linux 6.18.
pub fn writes(path: &Path) -> Option<DiskWrites> {
    let device = fs::metadata(path).ok()?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let folder = format!("/sys/dev/block/{device}");
    // Of a partition, the queue is the disk's.
    let switch = ["queue/iostats", "../queue/iostats"].map(|name| fs::read_to_string(format!("{folder}/{name}")));
    let counters = fs::read_to_string(format!("{folder}/stat")).ok()?;
    let switch = switch.into_iter().find_map(Result::ok);
    Some(DiskWrites { device, written_bytes: SECTOR_BYTES * sectors_written(&counters, switch.as_deref())? })
}

/// Of which block devices count, whatever theirs are.
const SECTOR_BYTES: u64 = 512;

/// From a device's counters and the switch that stops them. One that has never written a sector, though a file system is on it, counts nothing:
/// such as NVMe with several paths before Linux 6.4.
fn sectors_written(counters: &str, switch: Option<&str>) -> Option<u64> {
    let sectors = counters.split_ascii_whitespace().nth(6)?.parse().ok()?;
    (sectors > 0 && switch.is_none_or(|switch| switch.trim() != "0")).then_some(sectors)
}

/// The file system's name, from its magic number in statfs(2).
pub fn file_system(path: &Path) -> Option<&'static str> {
    let magic = rustix::fs::statfs(path).ok()?.f_type;
    Some(match magic as u64 & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlayfs",
        0x2fc1_2fc1 => "zfs",
        0x6969 => "nfs",
        0xf2f5_2010 => "f2fs",
        _ => "another",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn files_in_folders_count_as_what_they_allocate() {
        let temporary = harness::folder();
        let folder = temporary.path().join("folder");
        fs::create_dir_all(folder.join("deeper")).unwrap();
        fs::write(folder.join("deeper/file"), vec![1; 100_000]).unwrap();
        let bytes = allocated_bytes(&folder).unwrap();
        // A file with a hole as large as the largest disk, and nothing in it.
        fs::File::create(folder.join("hole")).unwrap().set_len(1 << 40).unwrap();
        let with_hole = allocated_bytes(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert!(with_hole < 200_000, "{with_hole}");
        assert_eq!(allocated_bytes(&folder).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_is_synced_was_written_to_the_disk() {
        let folder = harness::folder_on_disk();
        let path = folder.path().join("file");
        let mut file = fs::File::create(&path).unwrap();
        let before = writes(&path);
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let after = writes(&path);
        // A machine without a disk of its own under this folder does not say.
        if let (Some(before), Some(after)) = (before, after) {
            assert_eq!(before.device, after.device);
            assert!(after.written_bytes - before.written_bytes >= 1 << 20, "{before:?} {after:?}");
        }
        assert_eq!(writes(Path::new("/proc")), None);
    }

    /// A store that writes would be said to write nothing.
    #[test]
    fn a_disk_that_does_not_count_says_nothing() {
        let counters = "  100  0  800  9  50  3  4096  7  0  8  16\n";
        assert_eq!(sectors_written(counters, None), Some(4096));
        assert_eq!(sectors_written(counters, Some("1\n")), Some(4096));
        assert_eq!(sectors_written(counters, Some("0\n")), None, "they stand still");
        assert_eq!(sectors_written("0 0 0 0 0 0 0 0 0 0 0", Some("1\n")), None);
        assert_eq!(sectors_written("", None), None);
    }

    #[test]
    fn the_process_folder_is_on_no_disk() {
        assert_eq!(file_system(Path::new("/proc")), Some("another"));
        assert_eq!(file_system(Path::new("/no/such")), None);
    }
}
