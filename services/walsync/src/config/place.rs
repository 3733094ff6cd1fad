//! Where in which store a replica lies, written in one way, whatever way it was named in: of two databases that have one place each would take
//! the other for another process that writes there, and stop.

use super::{ConfigError, refuse};
use crate::store::http::without_secrets;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A place in a store. Two are equal where their objects would have the same names; one below another is a place of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    kind: Kind,
    /// The folder, or the bucket and what keys begin with.
    path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Folder,
    /// Of this kind of store, at this host; at the cloud whose kind it is where there is none: names of buckets are its own, whatever the region.
    Bucket(&'static str, Option<String>),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Folder => formatter.write_str(&self.path),
            Kind::Bucket(scheme, None) => write!(formatter, "{scheme}://{}", self.path),
            Kind::Bucket(scheme, Some(host)) => write!(formatter, "{scheme}://{} at {host}", self.path),
        }
    }
}

/// An endpoint as Litestream's users write it, too: with or without `https://`.
pub(super) fn endpoint(text: &str) -> String {
    if text.contains("://") { text.to_owned() } else { format!("https://{text}") }
}

/// What a place in a bucket begins with, in each kind of store.
pub(super) const BUCKETS: [&str; 3] = ["s3", "gs", "abs"];

/// Whether it is a place in a bucket, behind which words about that may stand.
fn is_in_bucket(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| BUCKETS.contains(&scheme))
}

/// A place in a bucket without the words about that which may stand behind it, and these, each with its value.
pub(super) fn with_words(url: &str) -> (&str, impl Iterator<Item = (&str, &str)>) {
    let (place, words) = url.split_once('?').unwrap_or((url, ""));
    let words = words.split('&').filter(|word| !word.is_empty());
    (place, words.map(|word| word.split_once('=').unwrap_or((word, ""))))
}

/// A place as messages tell it: what stands behind it may be an endpoint with a password, and in the place of a bucket there may be one, too.
fn shown(url: &str) -> String {
    let place = url.split('?').next().unwrap_or_default();
    // The account of Azure's is no secret.
    if place.starts_with("abs") { place.to_owned() } else { without_secrets(place) }
}

/// Refuses what is written as a place. It is told without what may be secret in it.
pub(super) fn refuse_place<T>(url: &str, problem: impl fmt::Display) -> Result<T, ConfigError> {
    refuse("store", format!("{}: {problem}", shown(url)))
}

/// The place of what is called `name` below this one.
pub fn with_name(url: &str, name: &str) -> String {
    let (place, query) = match url.find('?').filter(|_| is_in_bucket(url)) {
        Some(at) => url.split_at(at),
        None => (url, ""),
    };
    format!("{}/{name}{query}", place.trim_end_matches('/'))
}

/// Whether a store that keeps its objects as files would have an object of these parts where another name is: it, or the one that reads it, would
/// look elsewhere. Parts of nothing are such, too.
pub(super) fn is_ambiguous(key: &str) -> bool {
    key.split('/').any(|part| matches!(part, "" | "." | ".."))
}

/// What keys in a bucket begin with, as a place names it.
pub(super) fn prefix(url: &str, prefix: &str) -> Result<String, ConfigError> {
    let prefix = prefix.trim_matches('/');
    if !prefix.is_empty() && is_ambiguous(prefix) {
        return refuse_place(url, "no part of a place in a bucket may be empty, \".\" or \"..\": leave it out");
    }
    // XML, in which listings are answered, has no other control characters.
    if prefix.contains(|letter: char| letter.is_control() && !['\t', '\n', '\r'].contains(&letter)) {
        let problem = format!("{:?}: not every store lists names with control characters: leave them out", shown(url));
        return refuse("store", problem);
    }
    Ok(prefix.to_owned())
}

/// Where `path`, which begins in `folder`, leads: without links, as far as it is there, and without `.` and `..`. `folder` has none any more, so that
/// of a thousand databases, which are looked for every few seconds, each costs no more than its name.
fn without_links(folder: PathBuf, path: &Path) -> PathBuf {
    let mut found = folder;
    for component in path.components() {
        match component {
            Component::CurDir => {}
            // What it leads out of has no link any more.
            Component::ParentDir => drop(found.pop()),
            component => {
                found.push(component);
                if found.is_symlink() {
                    found = found.canonicalize().unwrap_or(found);
                }
            }
        }
    }
    found
}

/// The host of an endpoint, with a port that is not that of its scheme.
fn host(endpoint: &str) -> String {
    let (scheme, host) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let host = host.trim_end_matches('/').to_lowercase();
    let port = if scheme == "http" { ":80" } else { ":443" };
    host.strip_suffix(port).unwrap_or(&host).to_owned()
}

impl Place {
    /// A folder.
    pub(super) fn folder(path: &Path) -> Place {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Place::without_links(PathBuf::new(), &path)
    }

    fn without_links(folder: PathBuf, path: &Path) -> Place {
        Place { kind: Kind::Folder, path: without_links(folder, path).to_string_lossy().into_owned() }
    }

    /// What lies below `prefix` in a bucket of S3 that `endpoint` (`https://host[:port]`) serves.
    pub(super) fn bucket(endpoint: &str, bucket: &str, prefix: &str) -> Place {
        let host = Some(host(endpoint)).filter(|host| !host.ends_with(".amazonaws.com"));
        Place { kind: Kind::Bucket("s3", host), path: format!("{bucket}/{prefix}").trim_end_matches('/').to_owned() }
    }

    /// The same of another kind of store, which is at `home` where it is at the cloud's own.
    #[cfg(feature = "clouds")]
    pub(super) fn cloud(scheme: &'static str, endpoint: &str, home: &str, bucket: &str, prefix: &str) -> Place {
        let host = Some(host(endpoint)).filter(|host| host != home);
        Place { kind: Kind::Bucket(scheme, host), path: format!("{bucket}/{prefix}").trim_end_matches('/').to_owned() }
    }

    /// Whether a `?` in a name could not be written: what stands behind it would be read as words about the bucket.
    pub(super) fn is_bucket(&self) -> bool {
        matches!(self.kind, Kind::Bucket(..))
    }

    /// Whether it is this file, or would be below it as below a folder.
    fn is_within(&self, file: &Path) -> bool {
        matches!(self.kind, Kind::Folder) && Path::new(&self.path).starts_with(Place::folder(file).path)
    }

    /// What is called `name` there; the place itself where that is empty.
    pub(super) fn of(&self, name: &str) -> Place {
        match self.kind {
            _ if name.is_empty() => self.clone(),
            Kind::Folder => Place::without_links(PathBuf::from(&self.path), Path::new(name)),
            Kind::Bucket(..) => Place { path: format!("{}/{name}", self.path), ..self.clone() },
        }
    }
}

/// Which database has which place, for as long as this is kept: of two that would have one the first keeps it.
#[derive(Default)]
pub struct Places(BTreeMap<Place, PathBuf>);

impl Places {
    /// Gives a database its place, which it may have already; another one that has it is an error, and `other` says what to do.
    pub(super) fn take(&mut self, place: Place, path: &Path, other: &str) -> Result<(), String> {
        match self.0.entry(place) {
            // Asked once, for it costs a look at each folder of the path.
            Entry::Vacant(free) if free.key().is_within(path) => {
                let (path, place) = (path.display(), free.key());
                return Err(format!(
                    "{path} would be replicated into itself, for {place} is its replica's place: name another folder"
                ));
            }
            Entry::Vacant(free) => drop(free.insert(path.to_owned())),
            Entry::Occupied(taken) if taken.get() != path => {
                let (place, a, b) = (taken.key(), taken.get().display(), path.display());
                return Err(format!(
                    "{a} and {b} would both be replicated to {place}, and each would stop the other: {other}"
                ));
            }
            Entry::Occupied(_) => {}
        }
        Ok(())
    }

    /// Frees the places of databases that nobody watches any more.
    pub fn keep(&mut self, is_watched: impl Fn(&Path) -> bool) {
        self.0.retain(|_, path| is_watched(path));
    }
}

/// What is wrong with a database that is named for two places: the second would be left out without a word.
pub(super) fn named_twice(path: &Path, one: &Place, other: &Place) -> String {
    let path = path.display();
    format!("{path} is named twice, for {one} and for {other}: a database has one replica; leave one of them out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bucket_of_one_store_is_one_place_and_all_else_is_another() {
        let place =
            |endpoint: &str, bucket: &str, prefix: &str, name: &str| Place::bucket(endpoint, bucket, prefix).of(name);
        let here = place("https://store", "b", "a", "c");
        for (endpoint, prefix, name) in
            [("https://STORE:443/", "a/c", ""), ("http://store:80", "a", "c"), ("store", "a/c", "")]
        {
            assert_eq!(place(endpoint, "b", prefix, name), here, "{endpoint} {prefix} {name}");
        }
        for (endpoint, bucket, prefix, name) in [
            ("https://store:9000", "b", "a", "c"),
            ("https://other", "b", "a", "c"),
            ("https://store", "b2", "a", "c"),
            // Names of objects are taken as they are.
            ("https://store", "b", "a", "C"),
            ("https://store", "b", "a//c", ""),
            ("https://store", "b", "a", ""),
            ("https://store", "b", "a/c", "0000"),
            ("https://s3.us-east-1.amazonaws.com", "b", "a", "c"),
        ] {
            assert_ne!(place(endpoint, bucket, prefix, name), here, "{endpoint} {bucket} {prefix} {name}");
        }
        let of_region = |region: &str| place(&format!("https://s3.{region}.amazonaws.com"), "b", "", "");
        assert_eq!(of_region("us-east-1"), of_region("eu-west-1"));
        let written = [here, of_region("us-east-1"), of_region("us-east-1").of("a")].map(|place| place.to_string());
        assert_eq!(written, ["s3://b/a/c at store", "s3://b", "s3://b/a"]);
    }

    #[test]
    fn a_name_stands_before_the_words_about_a_bucket() {
        for (url, expected) in [
            ("s3://b", "s3://b/a.db"),
            ("abs://a@b/p/?endpoint=http://s", "abs://a@b/p/a.db?endpoint=http://s"),
            ("file:///what?/", "file:///what?/a.db"),
            ("what?", "what?/a.db"),
        ] {
            assert_eq!(with_name(url, "a.db"), expected);
        }
    }

    #[test]
    fn one_folder_is_one_place_through_whatever_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| Place::folder(&folder.path().join(path));
        std::fs::create_dir_all(folder.path().join("a/deep")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a/deep"), folder.path().join("link")).unwrap();
        for path in ["link/x", "./a//deep/x/", "link/../deep/x", "none/../link/x", "a/deep/y/../x"] {
            assert_eq!(at(path), at("a/deep").of("x"), "{path}");
        }
        for path in ["a/deep", "a/deep/x/ltx", "a/x", "link/X"] {
            assert_ne!(at(path), at("a/deep").of("x"), "{path}");
        }
    }

    #[test]
    fn of_two_databases_the_first_keeps_the_place() {
        let (mut places, place) = (Places::default(), Place::bucket("store", "b", ""));
        let mut take = |name: &str, path: &str| places.take(place.of(name), Path::new(path), "rename it");
        assert!(take("a", "/a.db").is_ok() && take("b", "/b.db").is_ok());
        assert!(take("a", "/a.db").is_ok(), "it is found again with each look");
        assert!(
            take("a", "/b.db").unwrap_err().contains("/a.db and /b.db would both be replicated to s3://b/a at store")
        );
        assert!(take("b", "/b.db").is_ok());
        let into_itself = Places::default().take(Place::folder(Path::new("/none/a.db")), Path::new("/none/./a.db"), "");
        assert!(into_itself.unwrap_err().contains("/none/./a.db would be replicated into itself"));
        for (place, refused) in [("/none/a.db/a.db", true), ("/none/a.db-wal", false), ("/none", false)] {
            let taken = Places::default().take(Place::folder(Path::new(place)), Path::new("/none/a.db"), "");
            assert_eq!(taken.is_err(), refused, "{place}");
        }
        places.keep(|path| path == Path::new("/b.db"));
        assert!(places.0.len() == 1 && places.take(place.of("a"), Path::new("/b.db"), "").is_ok());
    }
}
