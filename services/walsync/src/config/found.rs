//! Which databases are there, and which place in the store each of them has.

use super::{Config, ConfigError, Location, Place, Places, home, place, refuse};
use crate::replica::Replica;
use service_kit::directory::above;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What there is to replicate.
#[derive(Default)]
pub struct Found {
    /// Databases, each with its place in the store.
    pub databases: Vec<(PathBuf, Replica)>,
    /// Those that cannot be replicated, and why.
    pub refused: Vec<(PathBuf, String)>,
    /// Patterns that no file matches, and why.
    pub empty: BTreeMap<PathBuf, &'static str>,
}

/// Why a pattern waits: files may come.
pub(super) const NO_MATCH: &str = "no file matches";
/// The same, of one whose folder may come.
pub(super) const NO_FOLDER: &str = "its folder is not there";

/// A database that has no place yet.
pub(super) struct Wanted<'a> {
    pub path: PathBuf,
    /// What it is called in the store; nothing: it is the place itself.
    pub name: String,
    pub store: &'a Location,
    /// It was named by itself: what is wrong with it is a mistake of who wrote that. One that was found is refused alone.
    pub is_named: bool,
}

/// Which words of a configuration are wrong where a database cannot have its place, and what to write instead.
pub(super) struct Fields {
    pub path: &'static str,
    pub name: &'static str,
    /// Where another one has it.
    pub other: &'static str,
    /// Where its name cannot be written.
    pub rename: &'static str,
}

const FIELDS: Fields = Fields {
    path: "databases.path",
    name: "databases.name",
    other: "give one of them another name",
    rename: "give it another name, as in name: app",
};

/// Why a file has no name.
pub(super) const NO_TEXT: &str = "its name is no UTF-8, as names in a store are: rename it, or give it one by name";

impl Found {
    /// Gives each its place, those first that come first. Who has one in `places` keeps it.
    pub(super) fn place(
        &mut self,
        wanted: Vec<Wanted>,
        fields: &Fields,
        places: &mut Places,
    ) -> Result<(), ConfigError> {
        let mut known: BTreeMap<PathBuf, Place> = BTreeMap::new();
        for Wanted { path, name, store, is_named } in wanted {
            let place = store.place(&name);
            let problem = match known.get(&path) {
                Some(before) if *before != place && is_named => {
                    return refuse(fields.path, place::named_twice(&path, before, &place));
                }
                // What is named by itself is no less so for a pattern that it fits.
                Some(_) => continue,
                None if place.is_bucket() && name.contains('?') => Err(format!(
                    "{} would be called {name}, and no place in a bucket can be written with a ? in it: {}",
                    path.display(),
                    fields.rename
                )),
                None if place.is_bucket() && name.contains(char::is_control) => Err(format!(
                    "{path:?} would be called {name:?}, and not every store lists names with control characters as they were written: {}",
                    fields.rename
                )),
                None => places.take(place.clone(), &path, fields.other),
            };
            match problem {
                Ok(()) => {
                    self.databases.push((path.clone(), store.replica(&name)));
                    known.insert(path, place);
                }
                Err(problem) if is_named => return refuse(fields.name, problem),
                Err(problem) => self.refused.push((path, problem)),
            }
        }
        Ok(())
    }
}

impl Config {
    /// The databases that are there now, each with its place in the store. Who has one in `places` keeps it.
    ///
    /// # Errors
    /// What was written cannot be meant. A file that a pattern stands for and that cannot be replicated is refused alone.
    pub fn databases(&self, store: &Location, places: &mut Places) -> Result<Found, ConfigError> {
        if self.databases.is_empty() {
            return refuse("databases", "names none: nothing would be replicated");
        }
        let (mut found, mut wanted) = (Found::default(), Vec::new());
        // What is named one by one is named rightly, or not begun.
        let (patterns, named): (Vec<_>, Vec<_>) = self.databases.iter().partition(|options| is_pattern(&options.path));
        let mut meant = Vec::new();
        for options in named.into_iter().chain(patterns) {
            let paths = expand(&options.path)?;
            if paths.is_empty() {
                let why = if above(&options.path).is_dir() { NO_MATCH } else { NO_FOLDER };
                found.empty.insert(std::path::absolute(&options.path).unwrap_or_else(|_| options.path.clone()), why);
            }
            meant.extend(paths.into_iter().map(|path| (options, path)));
        }
        for (options, path) in meant {
            let name = match (&options.name, path.file_name().map(|name| name.to_str())) {
                (Some(name), _) => name.clone(),
                (None, Some(None)) => {
                    found.refused.push((path, NO_TEXT.to_owned()));
                    continue;
                }
                (None, name) => name.flatten().unwrap_or_default().to_owned(),
            };
            if place::is_ambiguous(&name) {
                let problem =
                    format!("\"{name}\" cannot be a folder in the store: no part may be empty, \".\" or \"..\"");
                return refuse(FIELDS.name, problem);
            }
            wanted.push(Wanted { path, name, store, is_named: !is_pattern(&options.path) });
        }
        found.place(wanted, &FIELDS, places)?;
        Ok(found)
    }
}

pub(super) fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains('*')
}

/// A path, or the files that it stands for: `*` in its last part. What SQLite puts beside a database is left out.
pub(super) fn expand(path: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let text = path.to_string_lossy();
    home::check("databases.path", path)?;
    if !is_pattern(path) {
        if path.is_dir() {
            return refuse("databases.path", format!("{text} is a folder: name its databases, as in {text}/*.db"));
        }
        return Ok(vec![std::path::absolute(path).unwrap_or_else(|_| path.to_owned())]);
    }
    let folder = above(path);
    let pattern = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if folder.to_string_lossy().contains('*') {
        return refuse("databases.path", format!("{text}: * is allowed in the last part only"));
    }
    let entries = match std::fs::read_dir(folder) {
        // Like a file, it may come.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| ConfigError::Read(folder.to_owned(), error))?,
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            is_meant(pattern, &name) && !is_beside(&name)
        })
        // The folder itself tells what is a file: a thousand of them are looked for every few seconds.
        .filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_symlink() && entry.path().is_file())
        })
        .map(|entry| entry.path())
        .map(|path| std::path::absolute(&path).unwrap_or(path))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Whether SQLite has files of such names beside a database.
pub(super) fn is_beside(name: &str) -> bool {
    ["-wal", "-shm", "-journal"].iter().any(|suffix| name.ends_with(suffix))
}

/// Whether `name` is what `pattern` stands for. As in shells a name that begins with a dot is meant only by a pattern that does: a restore
/// under way is called so.
pub(super) fn is_meant(pattern: &str, name: &str) -> bool {
    (pattern.starts_with('.') || !name.starts_with('.')) && matches(pattern, name)
}

/// Whether `name` is `pattern` with anything for each star. Each piece is taken where it comes first, so that a name costs no more than its
/// length, whatever it is: names are whoever's who may write into the folder.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(rest) = name.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let Some(end) = pieces.next_back() else { return rest.is_empty() };
    let Some(mut rest) = rest.strip_suffix(end) else { return false };
    pieces.all(|piece| {
        let after = rest.find(piece).map(|at| &rest[at + piece.len()..]);
        rest = after.unwrap_or_default();
        after.is_some()
    })
}
