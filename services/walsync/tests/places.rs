//! Places that hold no replica: they are named, and so are the replicas below them. And words of Litestream's that mean nothing here.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ltx::{FileName, Layout};
use support::walsync;

#[test]
fn a_place_without_a_replica_is_an_error_that_names_it_and_the_replica_below_it() {
    let folder = harness::folder();
    let place = |name: &str| format!("file://{}", folder.path().join(name).display());
    // A replica whose files are not read.
    let put = |name: &str| {
        let file = folder.path().join(name).join(Layout::Files.key(0, FileName { min_txid: 1, max_txid: 1 }));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    };
    let said = |verb: &str, name: &str| {
        let mut command = walsync();
        command.arg(verb).arg(place(name));
        if verb == "restore" {
            command.arg("-o").arg(folder.path().join("restored.db"));
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb} {name}");
        String::from_utf8(output.stderr).unwrap()
    };
    put("bk/app.db");
    for verb in ["list", "verify", "restore", "compact"] {
        let nothing = format!("there is no replica here: no LTX file below {}", place("none"));
        let text = said(verb, "none");
        assert!(text.contains(&nothing), "{verb}: {text}");
        let text = said(verb, "bk");
        assert!(text.contains(&format!("there is one at {}: name that", place("bk/app.db"))), "{verb}: {text}");
    }
    put("bk/other.db");
    let text = said("list", "bk");
    assert!(text.contains(&format!("2 below it: name one, such as {}", place("bk/app.db"))), "{text}");
    assert!(!folder.path().join("restored.db").exists(), "nothing was made");
}

#[test]
fn verbs_of_litestreams_daemon_are_refused_with_what_to_do() {
    for (words, remedy) in [
        (&["info", "-json"][..], "walsync status"),
        (&["start", "/a.db"], "add the database"),
        (&["stop", "-timeout", "10", "/a.db"], "walsync sync"),
        (&["register", "-replica", "s3://bucket/db", "/a.db"], "within 5 s"),
        (&["unregister", "-dry-run", "/a.db"], "its replica stays"),
        (&["reset", "-config", "/none.yml", "/a.db"], "no state beside the database"),
        (&["sync", "-wait", "/a.db", "--listen", "http://127.0.0.1:1"], "behind the database"),
    ] {
        let output = walsync().args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(remedy), "{words:?}: {said}");
    }
    // Nobody answers there: the words are right.
    let asked = walsync().args(["sync", "/a.db", "-wait", "--listen", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(asked.status.code(), Some(1));
}

#[test]
fn a_configuration_is_explained_without_credentials_and_walsync_alone_says_where_its_words_are() {
    let mut command = walsync();
    for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "LITESTREAM_ACCESS_KEY_ID"] {
        command.env_remove(variable);
    }
    command.env("HOME", "/nonexistent").args(["explain", "/nonexistent.db", "--to", "s3://bucket/prefix"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("prefix/nonexistent.db"), "{text}");
    let output = walsync().output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("Usage: walsync") && text.contains("restore"), "{text}");
}
