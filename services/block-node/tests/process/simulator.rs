//! `simulate` tells by its exit code whether all that was asked for came about, and what to do where it did not.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use harness::Process;
use rustix::process::Signal;

use super::*;

/// The exit code, what was printed, and what was said of errors.
fn simulate(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(PROGRAM);
    command.arg("simulate").args(arguments).args(["--address", &server.address]);
    if arguments[0] == "publisher" {
        command.args(["--block-bytes", "3000", "--window", "1"]);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_publisher_that_was_refused_fails_and_says_what_to_do_and_a_fault_that_was_asked_for_does_not() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    for fault in ["scrambled", "invalid-hash"] {
        let (code, said, errors) = simulate(&server, &["publisher", "--blocks", "3", "--fault", fault]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{said}");
        assert!(said.contains("BAD_BLOCK_PROOF; it has no block yet"), "{said}");
    }
    let (code, said, _) = simulate(&server, &["publisher", "--blocks", "3", "--fault", "mid-block-end"]);
    assert_eq!(code, Some(0), "{said}");
    let published = simulate(&server, &["publisher", "--blocks", "20"]);
    assert_eq!((published.0, published.2.as_str()), (Some(0), ""), "{}", published.1);
    let (code, _, said) = simulate(&server, &["publisher", "--blocks", "20"]);
    assert_eq!(code, Some(1), "{said}");
    let expected = "the node has blocks up to 19 and ended the stream with DUPLICATE_BLOCK: --first 20 goes on";
    assert!(said.contains(expected), "{said}");
    let (code, _, said) = simulate(&server, &["publisher", "--first", "20", "--blocks", "3", "--seed", "2"]);
    assert!(code == Some(1) && said.contains("BAD_BLOCK_PROOF") && said.contains("--accept-dummy-proofs"), "{said}");
    let (code, _, said) = simulate(&server, &["publisher", "--first", "20", "--blocks", "3"]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "what was said is the remedy");
}

#[test]
fn a_consumer_that_was_not_given_all_blocks_fails_and_says_which_there_are() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(publish(&publisher(&server, 0, 10))).unwrap();
    let (code, said, errors) = simulate(&server, &["consumer", "--start", "0", "--end", "9"]);
    assert!(code == Some(0) && said.trim_end().ends_with("; SUCCESS"), "{said}{errors}");
    let (code, said, errors) = simulate(&server, &["consumer", "--start", "9000", "--end", "9001"]);
    assert!(code == Some(1) && said.trim_end().ends_with("; NOT_AVAILABLE"), "{said}{errors}");
    assert!(errors.contains("the node has blocks 0 to 9: --start must be one of its blocks"), "{errors}");
    let (code, _, errors) = simulate(&server, &["consumer", "--start", "5", "--end", "4"]);
    assert!(code == Some(1) && errors.contains("INVALID_END_BLOCK_NUMBER"), "{errors}");
}

#[test]
fn a_publisher_that_was_sent_back_says_how_many_blocks_that_were() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(publish(&publisher(&server, 0, 10))).unwrap();
    let (code, said, errors) = simulate(&server, &["publisher", "--first", "15", "--blocks", "3"]);
    let expected = "8 blocks acknowledged (5 of them before --first: the node did not have them yet) in ";
    assert!(code == Some(0) && said.starts_with(expected), "{said}{errors}");
}

#[test]
fn a_consumer_that_waits_says_for_what_and_sums_up_when_a_signal_ends_it() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(publish(&publisher(&server, 0, 10))).unwrap();
    for (end, code) in [(&["--end", "100"][..], 1), (&[], 0)] {
        let mut command = harness::command(PROGRAM);
        command.args(["simulate", "consumer", "--start", "0", "--address", &server.address]).args(end);
        let mut consumer = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut errors = BufReader::new(consumer.child().stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert_eq!(line, "10 read; waiting for block 10\n");
        consumer.signal(Signal::TERM);
        let mut said = String::new();
        consumer.child().stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(
            said.starts_with("10 blocks read and verified in ") && said.ends_with("; ended by a signal\n"),
            "{said}"
        );
        line.clear();
        errors.read_to_string(&mut line).unwrap();
        assert_eq!(consumer.wait().code(), Some(code), "{line}");
        assert_eq!(line.contains("a signal ended it before block 100 came"), code == 1, "{line}");
    }
}

#[test]
fn a_filter_that_is_no_number_is_told_what_it_takes() {
    let output = Command::new(PROGRAM).args(["simulate", "consumer", "--only-items", "transactions"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("expected the number of a kind of item, its field in BlockItem"), "{said}");
}
