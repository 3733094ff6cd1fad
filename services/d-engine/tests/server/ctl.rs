//! `d-engine ctl`: what it says of members, and of mistakes that everybody makes once.

use std::process::Stdio;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::command_line::run;
use crate::group::{Group, PATIENCE, PROGRAM, free};

#[tokio::test]
async fn members_are_listed_and_a_learner_is_no_follower() {
    let mut group = Group::start(1);
    group.leader().await;
    let id = group.add_learner();
    group.wait_until_it_serves(id).await;
    let listed = group.ctl(&["member", "list"]).unwrap();
    let [first, second] = &group.addresses[..] else { panic!("two members") };
    assert_eq!(listed, format!("1 {first} voter leader\n2 {second} learner\n"));
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let status = group.ctl(&["status"]).unwrap();
        if status.contains("member 1 leader ") && status.contains("member 2 learner ") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{status}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let said = group.ctl(&["transfer", "77"]).unwrap_err();
    assert!(said.contains("77 is no member"), "{said}");
    // One that is not started has nothing that could be counted on.
    let gone = free(2).join(",");
    group.ctl_until(&["member", "add", "9", &gone]);
    let said = group.ctl(&["member", "promote", "9"]).unwrap_err();
    assert!(said.contains("member 9 is not reached") && !said.contains("which votes"), "{said}");
    for anywhere in ["0.0.0.0:1", "127.0.0.1:1,[::]:2"] {
        let said = group.ctl(&["member", "add", "10", anywhere]).unwrap_err();
        assert!(said.contains("name the address where others do"), "{said}");
    }
}

#[tokio::test]
async fn an_outcome_that_is_not_known_is_said_once() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    let gone = leader % 3 + 1;
    group.kill(gone);
    let said = group.ctl(&["transfer", &gone.to_string()]).unwrap_err();
    assert_eq!(said.matches("outcome is not known").count(), 1, "{said}");
}

#[tokio::test]
async fn a_status_of_members_of_which_one_is_silent_fails_and_names_it_once() {
    let group = Group::start(1);
    group.leader().await;
    let nobody = free(1).remove(0);
    let (code, out, error) = run(&["ctl", "status", "--endpoints", &format!("{}, {nobody}", group.addresses[0])]);
    assert_eq!(code, Some(1), "{out}{error}");
    assert!(out.contains("member 1 leader") && error.contains("1 of 2 members do not answer"), "{out}{error}");
    assert_eq!(out.matches(&nobody).count(), 1, "{out}");
    let (_, _, error) = run(&["ctl", "user", "list", "--endpoints", &nobody]);
    assert_eq!(error.matches(&nobody).count(), 1, "{error}");
}

#[tokio::test]
async fn flags_stand_behind_the_verb_and_values_begin_with_a_hyphen() {
    let group = Group::start(1);
    group.leader().await;
    let at = ["--endpoints", &group.addresses[0]];
    assert_eq!(run(&[&["ctl", "put", "a", "-5"][..], &at].concat()).0, Some(0));
    assert_eq!(run(&[&["ctl", "get", "a"][..], &at].concat()).1, "-5\n");
    let (code, _, error) = run(&[&["ctl", "put", "-k", "v"][..], &at].concat());
    assert!(code == Some(2) && error.contains("'-- -k'"), "{error}");
    assert_eq!(run(&[&["ctl", "put"][..], &at, &["--", "-k", "-v"]].concat()).0, Some(0));
    assert_eq!(run(&[&["ctl", "get"][..], &at, &["--", "-k"]].concat()).1, "-v\n");
    assert_eq!(run(&[&["bench", "put", "--total", "5"][..], &at].concat()).0, Some(0));
    let (_, help, _) = run(&["ctl", "status", "--help"]);
    assert!(["--endpoints", "--user", "--tls-authority"].iter().all(|flag| help.contains(flag)), "{help}");
    let (code, _, error) = run(&["bench", "--door", "x", "put"]);
    assert!(code == Some(2) && error.contains("[possible values: unary, first, stream]"), "{error}");
}

/// Bytes that are no text were printed as other ones.
#[tokio::test]
async fn a_value_may_be_any_bytes_from_a_file_and_back() {
    let group = Group::start(1);
    group.leader().await;
    let folder = harness::folder();
    let file = folder.path().join("value");
    let ctl = |verb: &[&str], input: Option<&std::path::Path>| {
        let mut ctl = harness::command(PROGRAM);
        ctl.args(["ctl", "--endpoints", &group.addresses[0]]).args(verb);
        if let Some(input) = input {
            ctl.stdin(std::fs::File::open(input).unwrap());
        }
        let output = ctl.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(output.stdout) } else { Err(said) }
    };
    let path = file.to_str().unwrap();
    for (value, printed) in [(&b"\xff\0a\n"[..], &b"\xff\0a\n"[..]), (b"text", b"text\n"), (b"", b"\n")] {
        std::fs::write(&file, value).unwrap();
        ctl(&["put", "k", "--value-file", path], None).unwrap();
        assert_eq!(ctl(&["get", "k"], None).unwrap(), printed);
        ctl(&["delete", "k"], None).unwrap();
        ctl(&["put", "k", "--value-file", "-"], Some(&file)).unwrap();
        assert_eq!(ctl(&["get", "k"], None).unwrap(), printed);
    }
    std::fs::write(&file, vec![0; (1 << 20) + 1]).unwrap();
    let said = ctl(&["put", "k", "--value-file", path], None).unwrap_err();
    assert!(said.contains(path) && said.contains("1048576 bytes at most"), "{said}");
    let said = ctl(&["put", "k", "--value-file", "/nowhere"], None).unwrap_err();
    assert!(said.contains("--value-file /nowhere: No such file"), "{said}");
}

/// The two ports of a member, with and without TLS: none of it is a write whose outcome is not known.
#[tokio::test]
async fn a_port_for_something_else_is_told_with_what_to_look_at() {
    let group = Group::start(1);
    group.leader().await;
    let get = |endpoint: &str| {
        let (code, _, error) = run(&["ctl", "get", "a", "--endpoints", endpoint]);
        assert_eq!(error.trim_end().lines().count(), 1, "{endpoint}: {error}");
        (code, error)
    };
    let (code, said) = get(group.peer_address(1));
    assert!(code == Some(1) && said.contains("is this the port for clients") && !said.contains("outcome"), "{said}");
    let (code, said) = get(&format!("https://{}", group.addresses[0]));
    assert!(code == Some(1) && said.contains("--tls-authority"), "{said}");
    for none in ["localhost", "", "a b:1", "127.0.0.1:x", ":9081"] {
        let (code, said) = get(none);
        assert!(code == Some(2) && said.contains("expected HOST:PORT"), "{none:?}: {said}");
    }
    let folder = harness::folder();
    let data = folder.path().join("data").display().to_string();
    let place = free(2);
    let member = format!("9={},{}", place[0], place[1]);
    let joins = ["serve", "--node-id", "9", "--member", &member, "--db-root-dir", &data, "--join", &group.addresses[0]];
    let (_, _, said) = run(&joins);
    assert!(said.contains("is this its port for members"), "{said}");
}

#[tokio::test]
async fn without_a_majority_it_is_said_that_there_is_none() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    (1..=3).filter(|id| *id != leader).for_each(|id| group.kill(id));
    // Those that are gone hide nothing of what the last one says.
    let gone = (1..=3).filter(|id| *id != leader).map(|id| group.addresses[id - 1].as_str());
    let all = [&group.addresses[leader - 1]].map(String::as_str).into_iter().chain(gone).collect::<Vec<_>>().join(",");
    let at = ["--endpoints", &all];
    let deadline = std::time::Instant::now() + PATIENCE;
    let new = free(2).join(",");
    for verb in [&["get", "a"][..], &["get", "a", "--consistency", "s"], &["member", "add", "9", &new]] {
        loop {
            let (code, _, said) = run(&[&["ctl"], verb, &at].concat());
            assert_eq!(code, Some(1), "{verb:?}: {said}");
            if said.contains("is a majority running?") && !said.contains("outcome") {
                break;
            }
            // It may not have noticed yet.
            assert!(std::time::Instant::now() < deadline, "{verb:?}: {said}");
        }
    }
}

#[test]
fn a_password_is_not_read_from_a_terminal_that_shows_it() {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    // Whoever reads it all the same does not wait for ever.
    rustix::io::write(&terminal, b"secret\n").unwrap();
    let mut ctl = harness::command(PROGRAM);
    ctl.args(["ctl", "user", "add", "anna"]).stdin(Stdio::from(end));
    let output = ctl.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--new-password-file, or pipe it in"), "{said}");
}
