//! Paths as Litestream takes them: `~` before a `/` is the home folder of who runs it, and `sqlite://` or `sqlite3://` before a path says nothing. In our
//! own words there is neither: what only a shell would know is refused, for it would be waited for beside the working folder, without an end.

use super::{ConfigError, refuse};
use std::path::{Path, PathBuf};

/// What Litestream means by a path, in full. `name` is what mistakes call its entry.
pub(super) fn litestreams(name: &str, path: &Path) -> Result<PathBuf, ConfigError> {
    in_full(name, path, home)
}

fn in_full(name: &str, path: &Path, home: impl FnOnce() -> Option<PathBuf>) -> Result<PathBuf, ConfigError> {
    let bare =
        path.to_str().and_then(|text| text.strip_prefix("sqlite3://").or_else(|| text.strip_prefix("sqlite://")));
    let path = bare.map_or(path, Path::new);
    if path.as_os_str().is_empty() {
        return refuse(name, "names no file or folder: write its path");
    }
    let path = match path.strip_prefix("~") {
        Err(_) => path.to_owned(),
        Ok(rest) => match home() {
            Some(home) => home.join(rest),
            None => return refuse(name, "nobody knows the home folder that ~ stands for: write the whole path"),
        },
    };
    Ok(std::path::absolute(&path).unwrap_or(path))
}

/// As Litestream finds it: the one of `/etc/passwd`, whatever `HOME` says, and that where this user is not there.
fn home() -> Option<PathBuf> {
    let user = rustix::process::getuid().as_raw().to_string();
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of_user = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2) == Some(&&*user)).then(|| fields.get(5).map(PathBuf::from)).flatten()
    };
    known.lines().find_map(of_user).filter(|home| home.is_absolute()).or_else(std::env::home_dir)
}

/// Refuses a path in our words that only a shell would have understood.
pub(super) fn check(field: &str, path: &Path) -> Result<(), ConfigError> {
    let shown = path.display();
    match path.as_os_str().as_encoded_bytes().first() {
        Some(b'~' | b'$') => refuse(
            field,
            format!(
                "{shown}: ~ and $ mean something to a shell alone: write the whole path, or ./{shown} where it is called so"
            ),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_home_folder_or_with_sqlites_scheme_is_the_one_that_litestream_means() {
        let full = |text: &str| in_full("dbs", Path::new(text), || Some("/home/me".into())).unwrap();
        let here = std::env::current_dir().unwrap();
        for (text, expected) in [
            ("~/app.db", "/home/me/app.db"),
            ("~", "/home/me"),
            ("sqlite:///data/app.db", "/data/app.db"),
            ("sqlite3:///data/app.db", "/data/app.db"),
            ("sqlite3://~/app.db", "/home/me/app.db"),
            ("/data/~/app.db", "/data/~/app.db"),
        ] {
            assert_eq!(full(text), Path::new(expected), "{text}");
        }
        for (text, below) in [
            ("~me/app.db", "~me/app.db"),
            ("~.db", "~.db"),
            ("sqlite3://app.db", "app.db"),
            ("sqlite:/app.db", "sqlite:/app.db"),
            ("sqlite3://sqlite://app.db", "sqlite:/app.db"),
        ] {
            assert_eq!(full(text), here.join(below), "{text}");
        }
        let nobody = in_full("dbs ~/app.db", Path::new("~/app.db"), || None).unwrap_err().to_string();
        assert!(nobody.starts_with("dbs ~/app.db: nobody knows the home folder"), "{nobody}");
        for empty in ["", "sqlite3://"] {
            let said = in_full("dbs", Path::new(empty), || None).unwrap_err().to_string();
            assert!(said.contains("names no file or folder"), "{empty}: {said}");
        }
        assert_eq!(in_full("dbs", Path::new("/app.db"), || None).unwrap(), Path::new("/app.db"));
    }
}
