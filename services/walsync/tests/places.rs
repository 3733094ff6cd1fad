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
    for (name, problem) in [
        ("none", format!("there is no replica of Litestream 0.3 at {}: nothing below generations/", place("none"))),
        (
            "bk/app.db",
            format!("{} is a replica of Litestream 0.5, or of walsync: it needs no import", place("bk/app.db")),
        ),
    ] {
        let (code, text) = support::said(walsync().args(["import", &place(name), "--to", &place("new")]));
        assert!(code == Some(1) && text.contains(&problem), "{code:?} {text}");
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
        (&["generations", "/a.db"], "walsync import"),
        (&["snapshots", "s3://bucket/db"], "walsync list --level 9"),
        (&["wal", "/a.db"], "walsync list"),
        (&["list", "-socket", "/run/l.sock"], "no control socket"),
        (&["databases", "-json"], "parts fields by tabs"),
        (&["replicate", "-once", "-enforce-retention"], "walsync compact"),
        (&["replicate", "-once", "-exec", "true"], "cannot be used with"),
        (&["sync", "-wait", "/a.db", "--listen", "http://127.0.0.1:1"], "behind the database"),
        (&["sync", "-wait", "app.db", "--listen", "http://127.0.0.1:1"], "behind the database"),
        (&["sync", "-wait", "0", "/a.db", "--listen", "http://127.0.0.1:1"], "a TXID is a whole number from 1"),
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
fn either_programs_configuration_is_explained_and_says_whom_to_ask_or_what_else_does() {
    let folder = harness::folder();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let database = "path: /nonexistent.db";
    let port = harness::free_port();
    let replica = format!("{{{database}, replica: {{url: \"s3://bucket/prefix\"}}}}");
    let litestream = write("litestream.yml", &format!("addr: 127.0.0.1:{port}\ndbs: [{replica}]\n"));
    let silent = write("silent.yml", &format!("dbs: [{replica}]\n"));
    let ours = write("walsync.yml", &format!("store: s3://bucket/prefix\ndatabases: [{{{database}}}]\n"));
    let halved = write("halved.yml", &format!("databases: [{{{database}}}]\n"));
    let say = |words: &[&str]| {
        let mut command = walsync();
        for variable in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "LITESTREAM_ACCESS_KEY_ID"] {
            command.env_remove(variable);
        }
        let output = command.env("HOME", "/nonexistent").args(words).output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (output.status.code(), text)
    };
    for (words, code, expected) in [
        (&["explain", "--config", &litestream][..], 0, "/nonexistent.db -> prefix/0000/"),
        (&["explain", "--config", &ours], 0, "/nonexistent.db -> prefix/nonexistent.db/0000/"),
        (&["databases", "-config", &litestream], 0, "/nonexistent.db\ts3://bucket/prefix\n"),
        (&["explain", "--config", &halved], 2, "store"),
        (&["status", "--config", &litestream], 1, "is walsync at work there"),
        (&["status", "--config", &silent], 2, "has no addr"),
        (&["status", "--config", &ours], 2, "walsync.yml has no listen: either names the one of `watch`"),
        (&["sync", "/nonexistent.db", "--config", &ours], 2, "has no listen"),
        // They mean what they say to both; nobody logs in here.
        (&["watch", "--config", &litestream], 2, "no credentials"),
        (&["replicate", "-config", &ours], 2, "no credentials"),
        (&["replicate", "/a.db"], 2, "URL"),
    ] {
        let (seen, text) = say(words);
        assert!(seen == Some(code) && text.contains(expected), "{words:?}: {seen:?} {text}");
        assert!(code == 0 || text.lines().count() == 1, "{words:?}: {text}");
    }
}

#[test]
fn no_help_speaks_of_a_flag_that_the_verb_has_not() {
    for verb in
        ["watch", "snapshot", "restore", "list", "verify", "compact", "explain", "import", "bench", "status", "sync"]
    {
        let help = harness::output(walsync().args([verb, "--help"]));
        let has = help.lines().any(|line| line.trim_start().starts_with("--config"));
        assert!(has || !help.contains("--config"), "{verb}: {help}");
    }
}

#[test]
fn a_number_that_is_none_is_refused_with_its_unit() {
    for (words, unit) in [
        (
            &["watch", "/a.db", "--to", "/b", "--interval-millis", "1s"][..],
            "a whole number of milliseconds, 25 or more",
        ),
        (
            &["sync", "/a.db", "-timeout", "5s", "--listen", "http://127.0.0.1:1"],
            "a whole number of seconds, 0 or more",
        ),
        (&["snapshot", "/a.db", "--to", "/b", "--timeout", "1m"], "a whole number of seconds"),
        (&["verify", "/b", "--sample", "0"], "a whole number of files, 1 or more"),
        (&["compact", "/b", "--hourly", "x"], "a whole number of points"),
        (&["bench", "--dbs", "1,abc"], "a whole number of databases, from 1 to 10000"),
        (&["status", "--check", "--at-risk-max", "1m", "--listen", "http://127.0.0.1:1"], "a number of seconds"),
    ] {
        let (code, told) = support::said(walsync().args(words));
        assert!(code == Some(2) && told.contains(unit) && told.lines().count() == 1, "{words:?}: {code:?} {told}");
    }
}

#[test]
fn what_a_watch_would_refuse_or_warn_of_explain_tells_before() {
    let folder = harness::folder();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("app.db"), "").unwrap();
    let said = |verb: &str, words: &[&str]| support::said(walsync().arg(verb).args(words));
    let ours = |words: &str| format!("store: file://{}\n{words}\ndatabases: [{{path: {}}}]\n", at("bk"), at("app.db"));
    let theirs = |words: &str| format!("{words}\ndbs: [{{path: {}, replica: {{path: {}}}}}]\n", at("app.db"), at("bk"));
    for (text, problem) in [
        (ours("listen: 9091"), "listen: expected"),
        (ours("listen: ':9091'"), "listen: expected"),
        (theirs("addr: nonsense"), "addr: expected"),
        (theirs("exec: \"sh -c '\""), "exec: has a quote without its other one"),
        (ours(&format!("restore-drill: {{folder: {}}}", at("none"))), "none is not a folder: make it"),
    ] {
        std::fs::write(at("config.yml"), &text).unwrap();
        for verb in ["explain", "watch"] {
            let (code, told) = said(verb, &["--config", &at("config.yml")]);
            assert!(code == Some(2) && told.contains(problem) && told.lines().count() == 1, "{verb} {text}: {told}");
        }
    }
    let (code, told) = said("explain", &[&at("app.db"), "--to", &at("bk"), "--staging-folder", &at("none")]);
    assert!(code == Some(0) && told.contains("none: the staging folder is not there"), "{code:?} {told}");
    for to in [at(""), at("app.db"), at("x/../app.db/below")] {
        for verb in ["explain", "watch", "snapshot"] {
            let (code, told) = said(verb, &[&at("app.db"), "--to", &to]);
            let is_told = told.contains("app.db would be replicated into itself") && told.contains("another folder");
            assert!(code == Some(2) && is_told && told.lines().count() == 1, "{verb} {to}: {code:?} {told}");
        }
    }
    // Of those that a pattern finds the others are replicated.
    let (code, told) = said("explain", &[&at("*.db"), "--to", &at("")]);
    assert!(code == Some(0) && told.contains("is not replicated: ") && told.contains("into itself"), "{told}");
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
