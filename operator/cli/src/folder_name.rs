//! Names of the folders of saved runs, `TIME[-NUMBER]-VERDICT`, or `-unfinished` until there is one; and what can be told by them: which run came
//! to its end, and which is newer than another.

pub(crate) const REPORT: &str = "report.json";
pub(crate) const UNFINISHED: &str = "-unfinished";
const INVALID: &str = "-Invalid";

/// A time as names of folders have it.
pub(crate) fn folder_time(started_at: &str) -> String {
    started_at.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Whether a folder of this name is one of a run that did not come to its end.
pub(crate) fn is_unfinished(folder: &str) -> bool {
    folder.ends_with(UNFINISHED)
}

/// Whether a folder of this name is one of a run, whether that came to its end or not.
pub(crate) fn is_of_a_run(folder: &str) -> bool {
    folder.starts_with(|first: char| first.is_ascii_digit()) && folder.contains('-')
}

/// Whether a path, with `/` between its parts, is that of the report of a run.
pub(crate) fn is_report(path: &str) -> bool {
    split(path).1 == REPORT
}

/// Whether that run came to its end, too.
pub(crate) fn is_finished_report(path: &str) -> bool {
    is_report(path) && !is_unfinished(split(path).0)
}

/// A folder, and what lies in it.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Whether that run's numbers can be trusted, as far as the name of its folder says.
pub(crate) fn is_valid_report(path: &str) -> bool {
    !split(path).0.ends_with(INVALID)
}

/// Of the paths of reports, the newest of each folder of runs, of which those come first that are preferred.
pub(crate) fn newest_of_each<T>(
    mut files: Vec<T>,
    path: impl Fn(&T) -> &str,
    is_preferred: impl Fn(&str) -> bool,
) -> Vec<T> {
    let parts = |file: &T| {
        let folder = split(path(file)).0;
        let (all, own) = split(folder);
        let is_preferred = is_preferred(path(file));
        // One that somebody named is a folder by itself.
        match is_of_a_run(own) {
            true => (all.to_owned(), is_preferred, age(own)),
            false => (folder.to_owned(), is_preferred, age("")),
        }
    };
    files.sort_by_cached_key(|file| std::cmp::Reverse(parts(file)));
    files.dedup_by(|one, other| parts(one).0 == parts(other).0);
    files.reverse();
    files
}

/// By what names are older than others: the time, and the number of those that began in the same second.
pub(crate) fn age(name: &str) -> (String, u32) {
    let mut parts = name.split('-');
    let time = parts.next().unwrap_or_default().to_owned();
    (time, parts.next().and_then(|part| part.parse().ok()).unwrap_or(1))
}

/// Whether what follows the beginning of a name does not go on with its last part.
pub(crate) fn ends_a_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_runs_in_a_second_the_second_is_newer() {
        let mut names = ["20261122T173015Z-2-Passed", "20261122T173015Z-unfinished", "20261122T173014Z-10-Passed"];
        names.sort_by_key(|name| age(name));
        assert_eq!(names, ["20261122T173014Z-10-Passed", "20261122T173015Z-unfinished", "20261122T173015Z-2-Passed"]);
    }

    #[test]
    fn of_many_reports_the_newest_of_each_folder_of_runs_is_taken() {
        let paths = [
            "runs/first/20261122T173015Z-Passed/report.json",
            "runs/first/20261122T173015Z-2-Invalid/report.json",
            "runs/first/20261121T000000Z-Passed/report.json",
            "runs/second/20261120T000000Z-Passed/report.json",
            "baseline/report.json",
            "report.json",
        ];
        let newest = newest_of_each(paths.to_vec(), |path| *path, |_| true);
        assert_eq!(newest, [paths[5], paths[4], paths[1], paths[3]]);
        let valid = newest_of_each(paths.to_vec(), |path| *path, is_valid_report);
        assert_eq!(valid, [paths[5], paths[4], paths[0], paths[3]]);
        assert_eq!(newest_of_each(vec![paths[1]], |path| *path, is_valid_report), [paths[1]], "there is no other");
        assert!(paths.iter().all(|path| is_finished_report(path)));
        for other in ["run.yaml", "runs/first/20261122T173015Z-unfinished/report.json", "runs/old-report.json"] {
            assert!(!is_finished_report(other), "{other}");
        }
    }
}
