//! `--import-in-place`: what an etcd left in `--data-dir` is taken over where it is, in one step, and kept beside it.
//!
//! The new member is made whole in a folder of its own; then that and `member` change places, at once (renameat2(2), `RENAME_EXCHANGE`):
//! a server that is killed on the way finds either etcd's data, and begins again, or its own. What etcd wrote stays as `member.etcd`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use service_kit::directory::sync_name;

use super::{CannotImport, Imported, found, read};
use crate::etcd_file::database_in;
use crate::flags::Mistake;
use crate::server::refuse_beside_own;
use crate::settings::Settings;

/// Where the new member is made.
const MADE: &str = "import-in-place";
/// What etcd wrote, afterwards.
const KEPT: &str = "member.etcd";

/// Takes over what an etcd left, if it has left anything; `None`: it has not, or it was taken over before.
pub fn in_place(settings: &Settings) -> Result<Option<Imported>, CannotImport> {
    let data = &settings.data_directory;
    let place = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| CannotImport::Place(path, error)
    };
    let (member, made, kept) = (data.join("member"), data.join(MADE), data.join(KEPT));
    if database_in(&made).exists() {
        // They have changed places, and then it was killed.
        keep(&made, &kept).map_err(place(&kept))?;
        return Ok(None);
    }
    if made.exists() {
        fs::remove_dir_all(&made).map_err(place(&made))?;
    }
    if !database_in(data).exists() {
        return Ok(None);
    }
    refuse_beside_own(data)?;
    if settings.founders.len() > 1 || settings.joins {
        let what = "is for a group of one member: members that stopped at different moments have different data; for more, \
                    import one snapshot into a new --data-dir of each";
        return Err(Mistake::new("import-in-place", what).into());
    }
    if kept.exists() {
        return Err(CannotImport::Exists(kept));
    }
    // A log on another disk cannot change places at the same moment.
    if let Some(elsewhere) = &settings.wal_directory {
        return Err(CannotImport::LogElsewhere(data.clone(), elsewhere.clone()));
    }
    let (state, imported) = read(data, None)?;
    found(&Settings { data_directory: made.clone(), ..settings.clone() }, state)?;
    exchange(&made.join("member"), &member).map_err(place(&member))?;
    keep(&made, &kept).map_err(place(&kept))?;
    Ok(Some(imported))
}

fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE)?;
    sync_name(new)?;
    sync_name(old)
}

fn keep(made: &Path, kept: &Path) -> io::Result<()> {
    fs::rename(made.join("member"), kept)?;
    sync_name(kept)?;
    fs::remove_dir_all(made)
}

/// For messages.
pub fn kept_in(settings: &Settings) -> PathBuf {
    settings.data_directory.join(KEPT)
}
