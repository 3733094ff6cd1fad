//! Where one file may be walsync's configuration or Litestream's: whoever restores has the file with which it was replicated.

use super::found::{Found, is_meant, is_pattern};
use super::litestream::Litestream;
use super::{Config, ConfigError, Location, Places, parse, read, refuse};
use crate::replica::Replica;
use crate::replicator::Settings;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What only one of both has.
#[derive(Deserialize)]
struct Words {
    store: Option<IgnoredAny>,
    databases: Option<IgnoredAny>,
}

/// A configuration of one of both.
pub enum Either {
    /// `walsync.yml`.
    Walsync(Box<Config>),
    /// `litestream.yml`.
    Litestream(Box<Litestream>),
}

/// A configuration whose stores are open.
pub enum Opened<'a> {
    /// All goes to one.
    Walsync(&'a Config, Location),
    /// One for each entry of `dbs`.
    Litestream(&'a Litestream, Vec<Location>),
}

impl Either {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Either, ConfigError> {
        Either::read_as(path, true)
    }

    /// Reads a file. What has a `store` or `databases` is walsync's; in Litestream's variables are replaced where it `expands`.
    pub fn read_as(path: &Path, expands: bool) -> Result<Either, ConfigError> {
        let text = read(path)?;
        let words: Words = parse(&text, path)?;
        match (words.store, words.databases) {
            (None, None) => Ok(Either::Litestream(Box::new(Litestream::of_text(&text, path, expands)?))),
            _ => Ok(Either::Walsync(Box::new(parse(&text, path)?))),
        }
    }

    /// How it replicates.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        match self {
            Either::Walsync(config) => config.settings(),
            Either::Litestream(config) => Ok(config.settings.clone()),
        }
    }

    /// Opens the stores. Where nobody logs in they only tell what is meant: credentials that are not there are made up.
    pub fn open(&self, logs_in: bool) -> Result<Opened<'_>, ConfigError> {
        match self {
            Either::Walsync(config) => {
                let store = Location::open_as(&config.store, (&**config).into(), logs_in)?;
                Ok(Opened::Walsync(config, store))
            }
            Either::Litestream(config) => Ok(Opened::Litestream(config, config.open(logs_in)?)),
        }
    }

    /// The replica of a database, which need not be there any more. Where walsync's words are at hand, `place` may be that of any replica: a
    /// URL, which is opened in these words.
    pub fn replica(&self, place: &str, file: &Path) -> Result<Replica, ConfigError> {
        let path = std::path::absolute(place).unwrap_or_else(|_| place.into());
        let found = match self {
            Either::Walsync(config) if place.contains("://") => {
                return Ok(Location::open(place, &**config)?.replica(""));
            }
            Either::Walsync(config) => match config.name_of(&path) {
                Some(name) => Some(Location::open(&config.store, &**config)?.replica(&name)),
                None => None,
            },
            Either::Litestream(config) => config.replica(&path).transpose()?,
        };
        found.map_or_else(|| refuse("database", format!("{} has no database {}", file.display(), path.display())), Ok)
    }
}

impl Opened<'_> {
    /// What is there to replicate now. Who has a place in `places` keeps it.
    pub fn look(&self, places: &mut Places) -> Result<Found, ConfigError> {
        match self {
            Opened::Walsync(config, store) => config.databases(store, places),
            Opened::Litestream(config, stores) => config.look(stores, places),
        }
    }

    /// Where to: each place once.
    pub fn places(&self) -> Vec<String> {
        let stores = match self {
            Opened::Walsync(_, store) => std::slice::from_ref(store),
            Opened::Litestream(_, stores) => stores,
        };
        let places: BTreeSet<String> = stores.iter().map(|store| store.place("").to_string()).collect();
        places.into_iter().collect()
    }

    /// Databases that are named in Litestream's words, not there, and to be restored first: those of which that is said, or `all`.
    pub fn lost(&self, all: bool) -> Vec<(PathBuf, Replica)> {
        match self {
            Opened::Walsync(..) => Vec::new(),
            Opened::Litestream(config, stores) => config.lost(stores, all),
        }
    }
}

impl Config {
    /// How a database is called in the store, whether it is there or not: by the entry that names it, or else by the first pattern that means it.
    fn name_of(&self, path: &Path) -> Option<String> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let file_name = path.file_name()?.to_str()?;
        let fits = |pattern: &PathBuf| {
            let pattern = absolute(pattern);
            let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            pattern.parent() == path.parent() && is_meant(name, file_name)
        };
        let named = self.databases.iter().find(|one| !is_pattern(&one.path) && absolute(&one.path) == path);
        let pattern = || self.databases.iter().find(|one| is_pattern(&one.path) && fits(&one.path));
        let found = named.or_else(pattern)?;
        Some(found.name.clone().unwrap_or_else(|| file_name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_lost_is_found_by_its_path_in_either_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("walsync.yml");
        let text = "store: file:///backup\ndatabases: [{path: /data/*.db}, {path: /srv/a.sqlite, name: app}, {path: /data/own.db, name: x/y}]\n";
        std::fs::write(&ours, text).unwrap();
        let either = Either::read(&ours).unwrap();
        let name = ltx::FileName { min_txid: 1, max_txid: 1 };
        for (path, folder) in [("/data/gone.db", "gone.db"), ("/srv/a.sqlite", "app"), ("/data/own.db", "x/y")] {
            let key = either.replica(path, &ours).unwrap().key(0, name);
            assert!(key.starts_with(&format!("{folder}/")), "{path}: {key}");
        }
        let refused = either.replica("/srv/b.sqlite", &ours).err().unwrap().to_string();
        assert!(refused.ends_with("walsync.yml has no database /srv/b.sqlite"), "{refused}");
        assert!(either.replica("/data/.hidden.db", &ours).is_err());
        let theirs = folder.path().join("litestream.yml");
        std::fs::write(&theirs, "dbs: [{path: /data/a.db, replica: {type: file, path: /backup/a}}]\n").unwrap();
        let either = Either::read(&theirs).unwrap();
        assert!(either.replica("/data/a.db", &theirs).is_ok() && either.replica("/data/b.db", &theirs).is_err());
    }
}
