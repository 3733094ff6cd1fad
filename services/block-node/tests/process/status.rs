//! `block-node status` says what a node has, in lines for people.

use super::*;

fn status(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).arg("status").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_a_node_has_and_checks_is_told_without_other_tools() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--block-node-earliest-managed-block", "7"]);
    let (code, said, errors) = status(&[&server.address]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains("blocks        none yet; next 7\n"), "{said}");
    assert!(run(http(&server, "/metrics")).contains("\nblock_node_first_block -1\n"));
    drop(server);
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(publish(&publisher(&server, 0, 10))).unwrap();
    let (code, said, errors) = status(&[&server.address]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains("blocks        0 to 9; next 10\n"), "{said}");
    assert!(said.contains("verification  hash verified, signature unchecked, "), "{said}");
    assert!(run(http(&server, "/metrics")).contains("\nblock_node_first_block 0\n"));
}

#[test]
fn a_node_that_is_not_there_has_no_status() {
    let address = harness::free_address().to_string();
    let (code, said, errors) = status(&[&address]);
    assert!(code == Some(1) && said.is_empty() && errors.contains(&address), "{said}{errors}");
}
