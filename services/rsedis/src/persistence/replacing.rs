//! What files are made and named in a rewrite. Each step waits for the disk, and none may come before the one in front of it is safe: threads of
//! their own do them, while commands are written to the last increment that the manifest names.

use std::io;

use wal::files::{Directory, File as _};

use super::{Manifest, free, snapshot};

/// An increment that is safe, as is a manifest that names it, under a temporary name.
pub(super) struct Next<F> {
    pub(super) manifest: Manifest,
    pub(super) file: F,
    /// The same one, for the thread that syncs.
    pub(super) for_syncs: F,
}

impl<F> Next<F> {
    /// Behind the files that this manifest names.
    pub(super) fn make<D: Directory<File = F>>(directory: &D, mut manifest: Manifest) -> io::Result<Self> {
        let name = manifest.add_increment();
        directory.create_zeroed(&name, 0)?;
        directory.sync()?;
        let (file, for_syncs) = (directory.open(&name)?, directory.open(&name)?);
        write_temporary_manifest(directory, &manifest)?;
        Ok(Self { manifest, file, for_syncs })
    }
}

/// How a base has taken its place.
pub(super) struct Placed {
    /// Of the base.
    pub(super) bytes: u64,
    /// What the files are, if the base is one of them.
    pub(super) manifest: Option<Manifest>,
    /// Whether all was done.
    pub(super) outcome: io::Result<()>,
}

/// Puts a base that was written and synced under a temporary name in the place of all files before the last increment, and removes these.
pub(super) fn place<D: Directory>(
    directory: &D,
    mut manifest: Manifest,
    temporary: &str,
    bytes: u64,
    is_rdb: bool,
) -> Placed {
    match put(directory, &mut manifest, temporary, is_rdb) {
        Err(error) => Placed { bytes, manifest: None, outcome: Err(error) },
        Ok(()) => {
            let outcome = remove_history(directory, &mut manifest);
            Placed { bytes, manifest: Some(manifest), outcome }
        }
    }
}

fn put<D: Directory>(directory: &D, manifest: &mut Manifest, temporary: &str, is_rdb: bool) -> io::Result<()> {
    let base = manifest.next_base(is_rdb);
    directory.rename(temporary, &base.name).inspect_err(|_| snapshot::remove(directory, temporary))?;
    directory.sync()?;
    manifest.set_base(base);
    write_manifest(directory, manifest)
}

/// Removes files that are no longer needed, and then their names.
pub(super) fn remove_history<D: Directory>(directory: &D, manifest: &mut Manifest) -> io::Result<()> {
    let mut without = manifest.clone();
    let names = directory.names()?;
    let history = without.take_history();
    let mut removed = Vec::new();
    for file in history.iter().filter(|file| names.contains(&file.name)) {
        removed.extend(directory.open(&file.name));
        directory.remove(&file.name)?;
    }
    free(removed);
    if !history.is_empty() {
        directory.sync()?;
        write_manifest(directory, &without)?;
        *manifest = without;
    }
    Ok(())
}

/// Puts a manifest in the place of the one before, if there is one.
pub(super) fn write_manifest<D: Directory>(directory: &D, manifest: &Manifest) -> io::Result<()> {
    write_temporary_manifest(directory, manifest)?;
    name_manifest(directory, manifest)?;
    directory.sync()
}

/// Makes a manifest safe under a temporary name.
fn write_temporary_manifest<D: Directory>(directory: &D, manifest: &Manifest) -> io::Result<()> {
    let file = directory.create_zeroed(&format!("temp-{}.manifest", manifest.name), 0)?;
    file.write_at(manifest.to_string().as_bytes(), 0)?;
    file.sync_data()
}

/// Gives it its name, which is safe once the directory is synced.
pub(super) fn name_manifest<D: Directory>(directory: &D, manifest: &Manifest) -> io::Result<()> {
    let name = format!("{}.manifest", manifest.name);
    directory.rename(&format!("temp-{name}"), &name)
}
