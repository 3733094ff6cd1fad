//! Pages of suites, kept beside their runs in `DIRECTORY/SUITE/TIME-VERDICT/`, with `latest`, which leads to the newest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use storebench_crds::Verdict;

use super::{names, point_to, write};
use crate::folder_name::folder_time;

/// Keeps the pages of a suite, and lets `latest` lead there. One that was gone on with has begun when it did before, and its pages take the place
/// of the earlier ones, whatever the verdict was then. Returns the folder.
pub(crate) fn keep_suite(
    directory: &Path,
    suite: &str,
    started_at: &str,
    verdict: Verdict,
    pages: &[(&str, String)],
) -> anyhow::Result<PathBuf> {
    let time = folder_time(started_at);
    let folder = directory.join(suite).join(format!("{time}-{verdict:?}"));
    let said = || format!("--save: {}: cannot be written to", folder.display());
    fs::create_dir_all(&folder).with_context(said)?;
    for (name, text) in pages {
        write(&folder.join(name), text.as_bytes())?;
    }
    point_to(&folder)?;
    // Whatever else is named alike, or is no folder, is somebody's own.
    let is_verdict = |text: &str| serde_json::from_value::<Verdict>(text.into()).is_ok();
    let is_earlier =
        |name: &str| name.strip_prefix(&time).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_verdict);
    for name in names(&directory.join(suite)).with_context(said)?.iter().filter(|name| is_earlier(name)) {
        let earlier = folder.with_file_name(name);
        if earlier != folder && earlier.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            remove(&earlier, pages).with_context(|| format!("{}: cannot be removed", earlier.display()))?;
        }
    }
    Ok(folder)
}

/// Takes away the pages of a folder, and the folder, unless somebody keeps something else there.
fn remove(folder: &Path, pages: &[(&str, String)]) -> io::Result<()> {
    for (name, _) in pages {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interrupted, it is Invalid; gone on with, it has passed, and the folder that says it is Invalid would stand beside the other for ever.
    #[test]
    fn a_suite_that_was_gone_on_with_is_kept_once() {
        let directory = harness::folder();
        let keep = |started_at: &str, verdict: Verdict, text: &str| {
            let pages = [("suite.md", text.to_owned()), ("suite.html", text.to_owned())];
            keep_suite(directory.path(), "sizes", started_at, verdict, &pages).unwrap()
        };
        let all = directory.path().join("sizes");
        let kept = || {
            let mut names = names(&all).unwrap();
            names.sort();
            names
        };
        let (before, at) = ("2026-11-21T00:00:00Z", "2026-11-22T17:30:15Z");
        keep(before, Verdict::Invalid, "another");
        keep(at, Verdict::Invalid, "interrupted");
        let folder = keep(at, Verdict::Passed, "whole");
        assert_eq!(fs::read_to_string(folder.join("suite.md")).unwrap(), "whole");
        assert_eq!(kept(), ["20261121T000000Z-Invalid", "20261122T173015Z-Passed", "latest"]);
        assert_eq!(fs::read_link(all.join("latest")).unwrap(), Path::new("20261122T173015Z-Passed"));
        // What somebody keeps beside the pages stays.
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        keep(at, Verdict::Regressed, "whole");
        assert_eq!(names(&folder).unwrap(), ["notes.txt"]);
    }

    #[test]
    fn what_is_named_like_earlier_pages_of_a_suite_stays() {
        let directory = harness::folder();
        let all = directory.path().join("sizes");
        let (copy, archive) = (all.join("20261122T173015Z-Invalid-copy"), all.join("20261122T173015Z-Invalid.tar.gz"));
        let (file, link) = (all.join("20261122T173015Z-Regressed"), all.join("20261122T173015Z-Inconclusive"));
        fs::create_dir_all(&copy).unwrap();
        for own in [&copy.join("suite.md"), &archive, &file] {
            fs::write(own, "mine").unwrap();
        }
        std::os::unix::fs::symlink(&copy, &link).unwrap();
        let pages = [("suite.md", "whole".to_owned())];
        keep_suite(directory.path(), "sizes", "2026-11-22T17:30:15Z", Verdict::Passed, &pages).unwrap();
        for own in [&copy.join("suite.md"), &archive, &file, &link.join("suite.md")] {
            assert_eq!(fs::read_to_string(own).unwrap(), "mine", "{}", own.display());
        }
    }
}
