//! `git:REVISION[:PATH]`: a folder or file of a revision.

use std::fmt;

use anyhow::{Context as _, bail};

use super::{ask, check_repository, entries, line, must};

const PREFIX: &str = "git:";

/// A place in the repository around the current directory. A folder whose name begins with `git:` is written as `./git:…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GitPlace {
    /// A branch, a tag, a commit.
    pub(super) revision: String,
    /// From the root of the repository, or `./` from the current directory; empty: all of it.
    pub(super) path: String,
}

/// A file there.
#[derive(Clone)]
pub(crate) struct GitFile {
    /// From the place; empty where the place is the file.
    pub(crate) path: String,
    object: String,
}

impl fmt::Display for GitPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.path.is_empty() { "" } else { ":" };
        write!(formatter, "{PREFIX}{}{colon}{}", self.revision, self.path)
    }
}

impl GitPlace {
    /// What a text names; `None`: it is not so written.
    pub(crate) fn of(text: &str) -> anyhow::Result<Option<Self>> {
        let Some(rest) = text.strip_prefix(PREFIX) else { return Ok(None) };
        let (revision, path) = rest.split_once(':').unwrap_or((rest, ""));
        if revision.is_empty() || revision.starts_with('-') {
            bail!("{text}: names no branch, tag or commit: write git:REVISION:PATH, such as git:main:runs");
        }
        Ok(Some(Self { revision: revision.into(), path: path.into() }))
    }

    /// All files at the place and below it.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<GitFile>> {
        self.list().with_context(|| self.to_string())
    }

    fn list(&self) -> anyhow::Result<Vec<GitFile>> {
        let object = self.object()?;
        if line(&must(&["cat-file", "-t", &object], b"")?) == "blob" {
            return Ok(vec![GitFile { path: String::new(), object }]);
        }
        let listed = must(&["ls-tree", "-r", "-z", "--full-tree", &object], b"")?;
        // Links, such as `latest`, lead to what is there by itself.
        let files = entries(&listed).filter(|entry| entry.mode.starts_with("100"));
        let file = |entry: super::Entry| GitFile {
            path: String::from_utf8_lossy(&entry.path).into_owned(),
            object: entry.object,
        };
        Ok(files.map(file).collect())
    }

    fn object(&self) -> anyhow::Result<String> {
        check_repository()?;
        let find = |what: &str| ask(&["rev-parse", "--quiet", "--verify", what], b"");
        let Self { revision, path } = self;
        if find(&format!("{revision}^{{tree}}"))?.is_err() {
            // A branch may have slashes in its name, so that only a look tells where that ends.
            let mut slashes =
                revision.match_indices('/').map(|(at, _)| revision.split_at(at)).filter(|_| path.is_empty());
            let meant = slashes.find_map(|(branch, folder)| {
                let folder = folder.trim_start_matches('/');
                matches!(find(&format!("{branch}:{folder}")), Ok(Ok(_))).then(|| format!("{PREFIX}{branch}:{folder}"))
            });
            if let Some(meant) = meant {
                bail!(
                    "the repository has no revision {revision}: between a revision and a folder stands a colon: write {meant}"
                );
            }
            bail!(
                "the repository has no revision {revision}: fetch it (git fetch origin {revision}), or name one that git branch --all lists"
            );
        }
        match find(&format!("{revision}:{path}"))? {
            Ok(object) => Ok(line(&object)),
            Err(_) => bail!(
                "{revision} has no {path}: name what git ls-tree -r --name-only {revision} lists, from the root of the repository, or ./PATH from here"
            ),
        }
    }

    /// What a file holds.
    pub(crate) fn read(&self, file: &GitFile) -> anyhow::Result<String> {
        let bytes = must(&["cat-file", "blob", &file.object], b"").with_context(|| self.name(file))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file's name in messages.
    pub(crate) fn name(&self, file: &GitFile) -> String {
        format!("{PREFIX}{}:{}", self.revision, self.path_of(file))
    }

    /// The path of a file in the revision.
    pub(crate) fn path_of(&self, file: &GitFile) -> String {
        let parts = [self.path.trim_end_matches('/'), &file.path];
        let path: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        path.join("/")
    }

    /// What a file of this name beside another holds. `None`: there is none.
    pub(crate) fn beside(&self, file: &GitFile, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let own = self.path_of(file);
        let path = own.rsplit_once('/').map_or_else(|| name.to_owned(), |(folder, _)| format!("{folder}/{name}"));
        let said = || format!("{PREFIX}{}:{path}", self.revision);
        let what = format!("{}:{path}", self.revision);
        match ask(&["rev-parse", "--quiet", "--verify", &what], b"").with_context(said)? {
            Ok(object) => Ok(Some(must(&["cat-file", "blob", &line(&object)], b"").with_context(said)?)),
            Err(_) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_that_it_is_in_git() {
        let of = |text: &str| GitPlace::of(text).unwrap().map(|place| (place.revision, place.path));
        let place = |revision: &str, path: &str| Some((revision.to_owned(), path.to_owned()));
        assert_eq!(of("git:main:runs/first"), place("main", "runs/first"));
        assert_eq!(of("git:v1.0"), place("v1.0", ""));
        assert_eq!(of("git:HEAD~3:./a:b"), place("HEAD~3", "./a:b"));
        for folder in ["runs", "./git:main", "main:runs", "-"] {
            assert_eq!(of(folder), None, "{folder}");
        }
        for nothing in ["git:", "git::runs", "git:--all:runs"] {
            assert!(GitPlace::of(nothing).unwrap_err().to_string().contains("write git:REVISION:PATH"), "{nothing}");
        }
        for text in ["git:main", "git:main:runs"] {
            assert_eq!(GitPlace::of(text).unwrap().unwrap().to_string(), text);
        }
    }
}
