//! Litestream's words, as scripts have them already: what they do here, and what is said of those that mean nothing here.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{Process, TempDir, folder, until};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use support::{
    Application, INSERT, TABLE, Walsync, content, database, litestream, restored_by_litestream, restored_by_walsync,
    said, walsync,
};

#[test]
#[ignore = "the application of other tests"]
fn application_process() {
    support::application_process();
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// A folder, and files in it by their name.
fn scene() -> (TempDir, impl Fn(&str) -> PathBuf) {
    let folder = folder();
    let path = folder.path().to_owned();
    (folder, move |name: &str| path.join(name))
}

#[test]
fn a_program_runs_meanwhile_and_what_it_commits_last_is_durable_when_it_has_ended() {
    let (_folder, at) = scene();
    let (path, log) = (at("app.db"), std::fs::File::create(at("log")).unwrap());
    let program = std::env::current_exe().unwrap();
    let exec = format!("'{}' --exact application_process --ignored --nocapture --test-threads=1", program.display());
    let mut command = walsync();
    command.args(["replicate", "-exec", &exec]).arg(&path).arg(url(&at("store/app.db")));
    command.env("WALSYNC_TEST_APPLICATION", &path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    let mut process = Process::start(&mut command);
    let mut input = process.child().stdin.take().unwrap();
    for line in ["PRAGMA journal_mode=WAL", TABLE, INSERT, INSERT] {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let status = process.wait();
    assert!(status.success(), "{status}: {}", std::fs::read_to_string(at("log")).unwrap());
    assert!(restored_by_walsync(url(&at("store/app.db"))) == content(&path));
}

#[test]
fn a_program_that_fails_is_told_and_one_that_is_at_work_is_asked_to_end() {
    let (_folder, at) = scene();
    database(&at("app.db"));
    let config = at("litestream.yml");
    let replica = at("store");
    let text = |exec: &str| {
        let (path, replica) = (at("app.db"), replica.display());
        format!("exec: {exec}\ndbs: [{{path: {}, replica: {{path: {replica}}}}}]\n", path.display())
    };
    std::fs::write(&config, text("sh -c 'exit 3'")).unwrap();
    let (code, text_) = said(walsync().args(["replicate", "-config"]).arg(&config));
    assert!(code == Some(1) && text_.contains("exec: the program ended with exit status: 3"), "{code:?} {text_}");
    assert!(restored_by_walsync(url(&replica)) == content(&at("app.db")));
    for (exec, expected) in [("sh -c 'exit", Some(2)), ("/nowhere/program", Some(1))] {
        let (code, said) = said(walsync().args(["replicate", "-exec", exec, "-config"]).arg(&config));
        assert!(code == expected && said.contains("exec: "), "{code:?} {said}");
    }
    let exec =
        "sh -c 'trap \"echo told > TOLD; exit 0\" TERM; echo > READY; for i in $(seq 1000); do sleep 0.05; done'";
    let exec = exec.replace("TOLD", at("told").to_str().unwrap()).replace("READY", at("ready").to_str().unwrap());
    let mut command = walsync();
    command.args(["watch", "--exec", &exec]).arg(at("app.db")).arg("--to").arg(at("elsewhere"));
    let running = Walsync::start(command, &at("log"));
    until("the program", || at("ready").exists());
    assert!(running.terminate().success());
    assert!(at("told").exists());
}

#[test]
fn databases_of_a_directory_go_each_below_its_own_name_and_come_back_by_litestream() {
    let (_folder, at) = scene();
    std::fs::create_dir_all(at("data/sub")).unwrap();
    let names = ["a.db", "sub/b.db"];
    names.iter().for_each(|name| database(&at("data").join(name)));
    std::fs::write(at("data/text.db"), "no database").unwrap();
    let config = at("litestream.yml");
    let (data, store) = (at("data"), at("store"));
    let text = format!(
        "dbs: [{{dir: {}, pattern: \"*.db\", recursive: true, watch: true, replica: {{type: file, path: {}, sync-interval: 50ms}}}}]\n",
        data.display(),
        store.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = walsync();
    command.args(["replicate", "-config"]).arg(&config);
    let mut running = Walsync::start(command, &at("log"));
    running.wait_durable(1);
    std::fs::create_dir(at("data/later")).unwrap();
    let mut later = Application::start(&at("data/later/c.db"), TABLE);
    later.run(INSERT);
    until("the later one", || store.join("later/c.db").is_dir());
    running.stop();
    later.close();
    for name in names.iter().chain(&["later/c.db"]) {
        let expected = content(&data.join(name));
        assert!(restored_by_walsync(url(&store.join(name))) == expected, "{name}");
        assert!(restored_by_litestream(&url(&store.join(name)), &[]) == expected, "{name}");
    }
    assert!(!store.join("text.db").exists());
    let listed = harness::output(walsync().args(["databases", "-config"]).arg(&config));
    let line = format!("{}\t{}\n", data.join("sub/b.db").display(), url(&store.join("sub/b.db")));
    assert!(listed.contains(&line) && listed.lines().count() == 3, "{listed}");
    // A database that is lost is found by its path.
    std::fs::remove_dir_all(at("data/sub")).unwrap();
    let mut restore = walsync();
    restore.arg("restore").arg(data.join("sub/b.db")).arg("-config").arg(&config).arg("-o").arg(at("b.db"));
    harness::output(&mut restore);
}

#[test]
fn the_same_databases_are_meant_as_by_litestream_whatever_way_their_paths_are_written() {
    let (_folder, at) = scene();
    let config = at("litestream.yml");
    let paths = [
        "~/walsync-none.db",
        "sqlite:///none/a.db",
        "sqlite3:///none/b.db",
        "sqlite3://c.db",
        "sqlite3://~/walsync-none-2.db",
        "~nobody/d.db",
        "e.db",
    ];
    let entry = |path: &&str| format!("{{path: \"{path}\", replica: {{path: /none/{}}}}}", path.len());
    let entries: Vec<String> = paths.iter().map(entry).collect();
    std::fs::write(&config, format!("dbs: [{}]\n", entries.join(", "))).unwrap();
    let first_words = |text: &str| {
        let words = text.lines().map(|line| line.split_whitespace().next().unwrap_or_default().to_owned());
        words.filter(|word| word.starts_with('/')).collect::<Vec<_>>()
    };
    let ours = first_words(&harness::output(walsync().args(["databases", "-config"]).arg(&config)));
    let theirs = first_words(&harness::output(litestream().args(["databases", "-config"]).arg(&config)));
    assert!(ours == theirs && ours.len() == paths.len(), "{ours:?} {theirs:?}");
}

#[test]
fn what_is_sent_once_is_restored_before_the_next_start() {
    let (_folder, at) = scene();
    let (path, replica) = (at("app.db"), url(&at("store")));
    database(&path);
    harness::output(walsync().args(["replicate", "-once"]).arg(&path).arg(&replica));
    let files = || harness::output(walsync().arg("ltx").arg(&replica)).lines().count();
    let before = files();
    harness::output(walsync().args(["replicate", "-once", "-force-snapshot"]).arg(&path).arg(&replica));
    assert!(files() > before);
    let state = content(&path);
    let remove = || {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(walsync::database::with_suffix(&path, suffix));
        }
    };
    remove();
    let start = |words: &[&str]| {
        let mut command = walsync();
        command.args(["replicate", "-exec", "true"]).args(words).arg(&path).arg(&replica);
        said(&mut command)
    };
    let (code, text) = start(&["-restore-if-db-not-exists"]);
    assert!(code == Some(0) && content(&path) == state, "{text}");
    remove();
    let none = at("none");
    let mut command = walsync();
    command.args(["replicate", "-exec", "true", "-restore-if-db-not-exists", "-log-level", "info"]);
    let (code, text) = said(command.arg(at("new.db")).arg(url(&none)));
    assert!(text.contains("there is no replica yet") && !at("new.db").exists(), "{code:?} {text}");
}

#[test]
fn restores_are_asked_for_in_litestreams_words() {
    let (_folder, at) = scene();
    database(&at("app.db"));
    let replica = url(&at("store"));
    harness::output(walsync().args(["replicate", "-once"]).arg(at("app.db")).arg(&replica));
    let restore = |words: &[&str], output: &str| {
        said(walsync().arg("restore").args(words).arg("-o").arg(at(output)).arg(&replica))
    };
    for (mode, is_told) in [("none", false), ("quick", true), ("full", true)] {
        let (code, text) = restore(&["-integrity-check", mode, "-parallelism", "8"], mode);
        assert!(code == Some(0) && text.contains("integrity check: ok") == is_told, "{mode}: {text}");
    }
    let (code, text) = restore(&["-dry-run"], "planned.db");
    assert!(code == Some(0) && text.contains("TXID 1 (0000000000000001), from 1 files"), "{text}");
    assert!(text.contains("ltx/0/0000000000000001-0000000000000001.ltx") && !at("planned.db").exists(), "{text}");
    for (words, problem) in [
        (&["-follow-interval", "1s"][..], "--follow"),
        (&["-f", "-follow-interval", "1"], "write it as 1s"),
        (&["-integrity-check", "some"], "some"),
        (&["-force"], "move the database away"),
        (&["-json"], "parts fields by tabs"),
        (
            &["-timestamp", "2026-11-27 07:00:38"],
            "write it as 2026-11-22T13:00:00Z, with Z or an offset such as +01:00",
        ),
        (&["-timestamp", "2026-11-27"], "write it as 2026-11-22T13:00:00Z"),
        (&["-timestamp", "1795762838"], "`list` has the times"),
    ] {
        let (code, text) = restore(words, "none.db");
        assert!(code == Some(2) && text.contains(problem) && text.lines().count() == 1, "{words:?}: {code:?} {text}");
    }
    let version = harness::output(walsync().arg("version"));
    assert!(harness::output(walsync().arg("--version")).contains(version.trim()));
}

#[test]
fn files_are_listed_with_the_times_that_a_restore_goes_by_and_in_json_as_by_litestream() {
    let (_folder, at) = scene();
    let replica = at("store");
    let begin = 1_790_000_000;
    let time = |txid: u64| jiff::Timestamp::from_second(begin + 60 * txid as i64).unwrap();
    let put = |level: u8, min_txid: u64, max_txid: u64| {
        let timestamp_millis = time(max_txid).as_millisecond();
        let header = ltx::Header {
            flags: ltx::NO_CHECKSUM,
            page_size: 512,
            commit: 1,
            min_txid,
            max_txid,
            timestamp_millis,
            ..ltx::Header::default()
        };
        let mut encoder = ltx::Encoder::new(Vec::new(), header).unwrap();
        encoder.page(1, &vec![max_txid as u8; 512]).unwrap();
        let path = replica.join(ltx::Layout::Files.key(level, ltx::FileName { min_txid, max_txid }));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, encoder.finish().unwrap().0).unwrap();
        path
    };
    // The store has them of now, as where a replica was copied, or S3 tells when objects were written.
    let files = [put(0, 1, 1), put(0, 2, 2), put(0, 3, 3), put(1, 2, 3)];
    let list = |words: &[&str]| harness::output(walsync().arg("ltx").args(words).arg(url(&replica)));
    let listed = list(&[]);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines[0], ["level", "min_txid", "max_txid", "size_bytes", "key", "committed"]);
    for (line, (level, txid)) in lines[1..].iter().zip([(0, 1), (0, 2), (0, 3), (1, 3)]) {
        assert_eq!((line[0], line[2]), (&*format!("{level}"), &*format!("{txid}")), "{listed}");
        assert_eq!(line[5], time(txid).to_string(), "{listed}");
        let output = at(&format!("restored-{level}-{txid}"));
        let mut restore = walsync();
        restore.arg("restore").arg(url(&replica)).args(["--timestamp", line[5], "-o"]).arg(&output);
        harness::output(&mut restore);
        assert_eq!(std::fs::read(output).unwrap()[0], txid as u8);
    }
    let mut restore = walsync();
    restore.arg("restore").arg(url(&replica)).args(["--timestamp", &time(0).to_string(), "-o"]).arg(at("none.db"));
    let (code, text) = said(&mut restore);
    let begins = format!("the replica begins after this time: what can be restored begins at {}; nearest", time(1));
    assert!(code == Some(1) && text.contains(&begins) && text.contains("TXID 1 after"), "{code:?} {text}");
    let range = format!("restorable: TXID 1 to 3, 3 points, committed {} to {}", time(1), time(3));
    assert!(listed.contains(&range), "{listed}");
    assert_eq!(list(&["-level", "1"]).lines().filter(|line| line.contains(".ltx")).count(), 1);
    // Litestream goes by what the folder has.
    for (path, txid) in files.iter().zip([1, 2, 3, 3]) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::from(time(txid))).unwrap();
    }
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for level in ["0", "1", "2", "all"] {
        let ours = list(&["-level", level, "-json"]);
        let theirs = harness::output(litestream().args(["ltx", "-json", "-level", level]).arg(url(&replica)));
        let theirs = if theirs.trim() == "null" { "[]".to_owned() } else { theirs };
        assert_eq!(json(&ours), json(&theirs), "{level}");
    }
    // What cannot be read is listed all the same.
    std::fs::write(&files[1], "nothing").unwrap();
    assert!(list(&[]).lines().any(|line| line.ends_with("0000000000000002-0000000000000002.ltx\t-")));
    assert!(list(&["-json"]).contains("null"));
}
