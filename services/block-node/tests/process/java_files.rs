//! Files of the Java node: what is written is read by somebody else (Python's zipfile), and what somebody else has written is read.

use std::path::Path;
use std::process::{Command, Output};

use block_node::craft::{Crafter, Shape};
use block_node::simulate::publish;

use crate::server::{PROGRAM, Server};
use crate::{publisher, read_all, run};

fn program(arguments: &[&str], paths: &[&Path]) -> (Option<i32>, String) {
    let output = Command::new(PROGRAM).args(arguments).args(paths).output().unwrap();
    told(output)
}

fn told(output: Output) -> (Option<i32>, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

fn export(data: &Path, to: &Path, flags: &[&str]) -> (Option<i32>, String) {
    program(&[&["export"], flags, &["--data-dir"]].concat(), &[data, to])
}

fn import(data: &Path, from: &Path) -> (Option<i32>, String) {
    program(&["import", "--accept-dummy-proofs", "--data-dir"], &[data, from])
}

fn verify(data: &Path) -> (Option<i32>, String) {
    program(&["verify", "--data-dir"], &[data])
}

/// Python's standard library, which shares no code with the program.
fn python(script: &str, paths: &[&Path]) -> String {
    let output = Command::new("python3").arg("-c").arg(script).args(paths).output();
    let output = output.expect("this test needs python3 (apt-get install python3-minimal)");
    let (code, said) = told(output);
    assert_eq!(code, Some(0), "{said}");
    said
}

/// The files below a folder, by their paths in it, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    let mut names: Vec<_> =
        found.iter().map(|path| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// A directory with 35 blocks from 0 on.
fn stored(directory: &Path) {
    let server = Server::start(directory, &[]);
    run(publish(&publisher(&server, 0, 35))).unwrap();
    assert!(server.terminate());
}

#[test]
fn blocks_go_out_as_files_of_the_java_node_and_come_back() {
    let directory = harness::folder();
    let [data, java, again] = ["data", "java", "again"].map(|name| directory.path().join(name));
    stored(&data);
    let (code, said) = export(&data, &java, &["--powers-of-ten-per-zip-file-contents", "1"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("35 blocks written, 0 were there, 0 could not be exported"), "{said}");
    let recent = (30..35).map(|number| format!("000/000/000/000/000/0/{number:019}.blk.zstd"));
    let expected: Vec<_> = recent.chain((0..3).map(|digit| format!("000/000/000/000/000/00/{digit}0s.zip"))).collect();
    let mut sorted = expected.clone();
    sorted.sort();
    assert_eq!(files(&java), sorted);
    let script = r#"
import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1] + "/000/000/000/000/000/00/10s.zip")
assert archive.testzip() is None
assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
print(" ".join(archive.namelist()))
"#;
    let names: Vec<_> = (10..20).map(|number| format!("{number:019}.blk.zstd")).collect();
    assert_eq!(python(script, &[&java]).trim_end(), names.join(" "));
    let (code, said) = import(&again, &java);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("35 blocks imported"), "{said}");
    assert_eq!(verify(&again).0, Some(0));
    let server = Server::start(&again, &[]);
    run(async {
        let result = read_all(&server, 34).await;
        assert_eq!((result.blocks, result.wrong), (35, None));
    });
    assert!(server.terminate());
    let (code, said) = import(&again, &java);
    assert_eq!((code, said.starts_with("0 blocks imported")), (Some(0), true), "{said}");
}

#[test]
fn a_stopped_export_goes_on_and_what_was_damaged_is_written_again() {
    let directory = harness::folder();
    let [data, java] = ["data", "java"].map(|name| directory.path().join(name));
    stored(&data);
    let zipped = ["--powers-of-ten-per-zip-file-contents", "1"];
    assert_eq!(export(&data, &java, &[&zipped[..], &["--end", "15"]].concat()).0, Some(0));
    let left = java.join("000/000/000/000/000/00/20s.zip.part");
    std::fs::write(&left, b"half of it").unwrap();
    let damaged = java.join("000/000/000/000/000/00/00s.zip");
    let mut bytes = std::fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let cut = java.join("000/000/000/000/000/0/0000000000000000012.blk.zstd");
    let file = std::fs::OpenOptions::new().write(true).open(&cut).unwrap();
    file.set_len(10).unwrap();
    let (code, said) = export(&data, &java, &["--end", "15"]);
    assert_eq!(code, Some(0), "{said}");
    // Now without ZIP files: blocks 10, 11, 13, 14 and 15 lay there and were right.
    assert!(said.contains("11 blocks written, 5 were there"), "{said}");
    assert!(!left.exists());
    let (code, said) = export(&data, &java, &zipped);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("35 blocks written, 0 were there"), "{said}");
    let (_, said) = export(&data, &java, &zipped);
    assert!(said.contains("0 blocks written, 35 were there"), "{said}");
}

#[test]
fn zip_files_of_others_are_imported_in_order_up_to_what_is_wrong() {
    let directory = harness::folder();
    let [data, java, again] = ["data", "java", "again"].map(|name| directory.path().join(name));
    stored(&data);
    assert_eq!(export(&data, &java, &[]).0, Some(0));
    // Ten blocks to a file, packed by somebody else, in another order; the last ones stay as they are.
    let script = r#"
import os, sys, zipfile
java = sys.argv[1]
folder = java + "/000/000/000/000/000/0/"
for digit in range(3):
    with zipfile.ZipFile("%s/%d0s.zip" % (java, digit), "w") as archive:
        for number in reversed(range(10 * digit, 10 * digit + 10)):
            name = "%019d.blk.zstd" % number
            archive.write(folder + name, name)
            os.remove(folder + name)
open(java + "/README", "w").write("no block")
"#;
    python(script, &[&java]);
    let twelfth = java.join("10s.zip");
    let right = std::fs::read(&twelfth).unwrap();
    let mut wrong = right.clone();
    // Blocks stand in it from the last to the first: somewhere within 15 or so.
    let place = wrong.len() / 2;
    wrong[place] ^= 1;
    std::fs::write(&twelfth, &wrong).unwrap();
    let (code, said) = import(&again, &java);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(" is refused: ") && said.contains("10s.zip"), "{said}");
    let (_, verified) = verify(&again);
    assert!(verified.contains(" 0 blocks wrong"), "{verified}");
    std::fs::write(&twelfth, &right).unwrap();
    let (code, said) = import(&again, &java);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 other files passed over"), "{said}");
    assert!(verify(&again).1.starts_with("blocks 0 to 34: "), "it went on where it was stopped");
}

#[test]
fn a_missing_block_a_block_of_another_chain_and_an_empty_folder_are_told() {
    let directory = harness::folder();
    let [data, java, again, empty] = ["data", "java", "again", "empty"].map(|name| directory.path().join(name));
    stored(&data);
    assert_eq!(export(&data, &java, &[]).0, Some(0));
    let file = |number: u64| java.join(format!("000/000/000/000/000/0/{number:019}.blk.zstd"));
    std::fs::remove_file(file(20)).unwrap();
    // A block that is right by itself, of another chain.
    let mut crafter = Crafter::new(2, 0);
    (0..7).for_each(|_| drop(crafter.next(Shape::of_bytes(2_000))));
    let other = crafter.next(Shape::of_bytes(2_000)).bytes;
    let seventh = std::fs::read(file(7)).unwrap();
    std::fs::remove_file(file(7)).unwrap();
    let plain = java.join("0000000000000000007.blk");
    std::fs::write(&plain, other).unwrap();
    let (code, said) = import(&again, &java);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("block 7 is refused") && said.contains("another root hash of the block before"), "{said}");
    std::fs::remove_file(plain).unwrap();
    std::fs::write(file(7), seventh).unwrap();
    let (code, said) = import(&again, &java);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("block 20 is missing, but later ones are there"), "{said}");
    assert!(verify(&again).1.starts_with("blocks 0 to 19: "));
    std::fs::create_dir(&empty).unwrap();
    let (code, said) = import(&again, &empty);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no .blk.zstd, .blk or .zip file with blocks is in it"), "{said}");
    let undummied = directory.path().join("strict");
    let (code, said) = program(&["import", "--data-dir"], &[&undummied, &java]);
    assert_eq!((code, said.contains("--accept-dummy-proofs accepts it")), (Some(1), true), "{said}");
}

#[test]
fn an_import_that_is_killed_leaves_verified_blocks_and_goes_on() {
    let directory = harness::folder();
    let [data, java, again] = ["data", "java", "again"].map(|name| directory.path().join(name));
    let server = Server::start(&data, &[]);
    run(publish(&publisher(&server, 0, 3_000))).unwrap();
    assert!(server.terminate());
    assert_eq!(export(&data, &java, &["--powers-of-ten-per-zip-file-contents", "2"]).0, Some(0));
    let mut was_killed = 0;
    for round in 0..12 {
        let mut command = Command::new(PROGRAM);
        command.args(["import", "--accept-dummy-proofs", "--data-dir"]).arg(&again).arg(&java);
        let mut child = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5 + 7 * round));
        was_killed += usize::from(child.try_wait().unwrap().is_none());
        let _ = child.kill();
        child.wait().unwrap();
        if again.join("00000000000000000001.blocks").exists() {
            let (code, said) = verify(&again);
            assert_eq!(code, Some(0), "{said}");
        }
    }
    assert!(was_killed > 0, "none was killed: this test shows nothing");
    assert_eq!(import(&again, &java).0, Some(0));
    assert!(verify(&again).1.starts_with("blocks 0 to 2999: "));
}

#[test]
fn a_wrong_copy_a_zip_file_that_is_cut_off_and_a_pipe_hinder_no_import_of_what_is_right() {
    let directory = harness::folder();
    let [data, java] = ["data", "java"].map(|name| directory.path().join(name));
    stored(&data);
    assert_eq!(export(&data, &java, &[]).0, Some(0));
    let name = format!("{:019}.blk.zstd", 7);
    // Whichever of them is found first or last.
    for folder in ["000/a", "0", "aaa", "zzz"] {
        std::fs::create_dir_all(java.join(folder)).unwrap();
        std::fs::write(java.join(folder).join(&name), b"damaged").unwrap();
    }
    std::fs::write(java.join("old.zip"), b"PK cut off").unwrap();
    // Opened, it would wait for a writer for ever.
    assert!(Command::new("mkfifo").arg(java.join("pipe.zip")).status().unwrap().success());
    let (code, said) = import(&directory.path().join("again"), &java);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("35 blocks imported"), "{said}");
    // What could not be read is told where it may hold what is missing.
    std::fs::remove_file(java.join("000/000/000/000/000/0").join(format!("{:019}.blk.zstd", 20))).unwrap();
    let (code, said) = import(&directory.path().join("third"), &java);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("block 20 is missing") && said.contains("old.zip: not a ZIP file"), "{said}");
}

#[test]
fn a_folder_behind_a_link_is_imported_once_and_a_first_block_behind_the_last_file_is_an_error() {
    let directory = harness::folder();
    let [data, java, linked, again] = ["data", "java", "linked", "again"].map(|name| directory.path().join(name));
    stored(&data);
    assert_eq!(export(&data, &java, &[]).0, Some(0));
    std::fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(&java, linked.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(&linked, linked.join("round")).unwrap();
    let (code, said) = import(&again, &linked);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("35 blocks imported"), "{said}");
    let late = directory.path().join("late");
    let flags = ["import", "--accept-dummy-proofs", "--block-node-earliest-managed-block", "50", "--data-dir"];
    let (code, said) = program(&flags, &[&late, &java]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("begins with block 50; the last one here is 34"), "{said}");
    assert_eq!(import(&again, &linked).0, Some(0), "all of them are there already");
}
