//! Litestream's words, as scripts have them already: what they do here, and what is said of those that mean nothing here.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use harness::{TempDir, folder};
use std::path::{Path, PathBuf};
use support::{litestream, walsync};

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
