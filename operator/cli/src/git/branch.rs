//! `git:BRANCH[:FOLDER]`: a branch on which runs are kept, a commit each.
//!
//! Promises: no file of a checkout and no index changes; the branch only ever goes forward, and from where it was when the commit was made; what
//! is on it is not written over.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow, bail};

use super::place::GitPlace;
use super::{Entry, ask, check_repository, entries, line, must};
use crate::saved::SavedRun;

/// A branch that nobody has checked out.
pub(crate) struct Branch {
    place: GitPlace,
    reference: String,
    /// Below which folder runs are kept; empty: at the root.
    folder: Vec<String>,
}

impl Branch {
    /// Looks whether runs may be kept there. A branch that is not there begins empty.
    pub(crate) fn new(place: GitPlace) -> anyhow::Result<Self> {
        let reference = format!("refs/heads/{}", place.revision);
        let said = || place.to_string();
        check_repository().with_context(said)?;
        if let Some(branch) = place.revision.strip_prefix("refs/") {
            let branch = branch.strip_prefix("heads/").unwrap_or("results");
            bail!("{place}: {} is no name of a branch, but where Git keeps one: write git:{branch}", place.revision);
        }
        // It makes names of words such as @{-1}, which name another branch each day.
        let named = ask(&["check-ref-format", "--branch", &place.revision], b"").with_context(said)?;
        if named.ok().is_none_or(|named| line(&named) != place.revision) {
            bail!("{place}: {} cannot be the name of a branch: write git:BRANCH, such as git:results", place.revision);
        }
        let is_name = |part: &str| !["", ".", ".."].contains(&part) && !part.eq_ignore_ascii_case(".git");
        let path = place.path.trim_matches('/');
        if !path.is_empty() && !path.split('/').all(is_name) {
            bail!("{place}: {path} cannot be a folder of a branch: write names with / between them");
        }
        if let Some(checkout) = checkout(&reference).with_context(said)? {
            let branch = &place.revision;
            bail!(
                "{place}: the branch is checked out in {checkout}, whose files would be behind it: check out another one there, or export to a \
                 branch of its own, such as git:{branch}-of-runs"
            );
        }
        let folder = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Ok(Self { place, reference, folder })
    }

    /// Commits a run's folder. Returns what became of it, in words.
    pub(crate) fn export(&self, run: &SavedRun) -> anyhow::Result<String> {
        self.commit(run).with_context(|| self.place.to_string())
    }

    fn commit(&self, run: &SavedRun) -> anyhow::Result<String> {
        let find = |what: String| Ok::<_, anyhow::Error>(ask(&["rev-parse", "--quiet", "--verify", &what], b"")?.ok());
        let before = find(format!("{}^{{commit}}", self.reference))?.map(|commit| line(&commit));
        let tree = find(format!("{}^{{tree}}", self.reference))?.map(|tree| line(&tree));
        let mut files = BTreeMap::new();
        for (name, bytes) in &run.files {
            files.insert(name.as_str(), line(&must(&["hash-object", "-w", "--stdin"], bytes)?));
        }
        let own = [run.report.record.name.as_str(), run.folder.as_str()];
        let path: Vec<&str> = self.folder.iter().map(String::as_str).chain(own).collect();
        let after = with_files(tree.as_deref(), &path, &files)?;
        if tree.as_ref() == Some(&after) {
            return Ok(format!("is on {} already", self.place));
        }
        let message = format!("Keep run {}", run.path());
        let mut arguments = vec!["commit-tree", after.as_str(), "-m", message.as_str()];
        arguments.extend(before.iter().flat_map(|parent| ["-p", parent.as_str()]));
        let commit = ask(&arguments, b"")?.map_err(|said| {
            anyhow!("git commit-tree: {said}: say who you are: git config user.name, git config user.email")
        })?;
        let commit = line(&commit);
        // That it must not be there is written as an empty text.
        let expected = before.as_deref().unwrap_or_default();
        let moved = ask(&["update-ref", "-m", "storebench export", &self.reference, &commit, expected], b"")?;
        moved.map_err(|said| anyhow!(
                "{said}: if somebody else has just moved the branch, export again; a folder of a branch is written git:BRANCH:FOLDER"
            ))?;
        Ok(format!("committed to {} as {commit}", self.place))
    }
}

/// Where a branch is checked out; `None`: nowhere.
fn checkout(reference: &str) -> anyhow::Result<Option<String>> {
    let listed = line(&must(&["worktree", "list", "--porcelain"], b"")?);
    let mut worktree = "";
    for line in listed.lines() {
        match line.split_once(' ') {
            Some(("worktree", path)) => worktree = path,
            Some(("branch", branch)) if branch == reference => return Ok(Some(worktree.to_owned())),
            _ => {}
        }
    }
    Ok(None)
}

/// The tree that has, besides what `tree` has, files with these names and objects in the folder `path`. Errors: another file is in the way.
fn with_files(tree: Option<&str>, path: &[&str], files: &BTreeMap<&str, String>) -> anyhow::Result<String> {
    let listed = tree.map(|tree| must(&["ls-tree", "-z", "--full-tree", tree], b"")).transpose()?.unwrap_or_default();
    let mut all: BTreeMap<Vec<u8>, Entry> = entries(&listed).map(|entry| (entry.path.clone(), entry)).collect();
    let mut put = |name: &str, mode: &str, kind: &str, object: String| {
        let path = name.as_bytes().to_vec();
        all.insert(path.clone(), Entry { mode: mode.into(), kind: kind.into(), object, path })
    };
    match path.split_first() {
        Some((name, below)) => {
            let folder = match entries(&listed).find(|entry| entry.path == name.as_bytes()) {
                Some(entry) if entry.kind != "tree" => {
                    bail!("{name} is a file there, and was to be a folder: export to another folder or branch")
                }
                there => there.map(|entry| entry.object),
            };
            put(name, "040000", "tree", with_files(folder.as_deref(), below, files)?);
        }
        None => {
            for (name, object) in files {
                if let Some(there) = put(name, "100644", "blob", object.clone())
                    && there.object != *object
                {
                    bail!(
                        "{name} is there with other content, and nothing is written over: export to another folder or branch"
                    );
                }
            }
        }
    }
    let mut lines = Vec::new();
    for Entry { mode, kind, object, path } in all.values() {
        lines.extend(format!("{mode} {kind} {object}\t").as_bytes());
        lines.extend(path);
        lines.push(0);
    }
    // What others keep there need not be here, as in a clone without its files.
    Ok(line(&must(&["mktree", "-z", "--missing"], &lines)?))
}
