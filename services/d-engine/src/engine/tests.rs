//! An engine as others see it: who may do what with it, where it can be reached, and how one waits for it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use d_engine_client::{Query, ReadLevel, Transaction, WatchOptions};
use futures::channel::oneshot;

use super::*;
use crate::state::UserChange;

/// Methods of a node that look at nobody, and why none has to.
const OPEN: [(&[&str], &str); 7] = [
    (&["acting_for"], "whoever has a node without a caller is the program that it is part of"),
    (&["asks_for_users", "user"], "passwords are checked with it, before anybody is known"),
    (&["is_asked_by_somebody", "forgotten", "ending"], "it is of the caller itself: what is open ends by it"),
    (
        &[
            "leads",
            "leader",
            "leader_elsewhere",
            "leadership",
            "members",
            "is_ready",
            "follow_addresses",
            "follow_votes",
        ],
        "clients look for a member to ask",
    ),
    (
        &["id", "group", "durability", "status", "sync_times", "has_lease", "sessions", "watchers", "counters"],
        "they are numbers of the member, and of no key or user",
    ),
    (&["read_then"], "a ticket shows nothing without a look"),
    (&["submit", "room_for_answers", "room_for_reads"], "what was begun says on whose behalf it is"),
];

/// All that a node is asked for somebody: what was called, and whether it was done. `session` is somebody else's.
async fn all_that_is_asked(node: &Node, session: u64) -> Vec<(&'static str, Result<(), Error>)> {
    let query = Query::Get("k".into());
    let put = || Transaction::put("k", "v");
    let watched = || WatchOptions::key("k");
    let change = UserChange::Remove { name: "who is not there".into() };
    let ticket = node.handle().try_read(replog::ReadLevel::Eventual, 0).unwrap();
    let (tell, written) = oneshot::channel();
    let (tell_opened, opened) = oneshot::channel();
    let mut begun = Begun::default();
    node.write_then(&mut begun, put(), None, move |outcome| {
        drop(tell.send(outcome));
        None
    });
    node.session_then(&mut begun, None, move |outcome| {
        drop(tell_opened.send(outcome));
        None
    });
    node.submit(&mut begun);
    vec![
        ("administers", node.administers()),
        ("list_users", node.list_users().map(drop)),
        ("backup", node.backup().await.map(drop)),
        ("defragment", node.defragment().await.map(drop)),
        ("change_members", node.change_members(MemberChange::Remove(9)).await),
        ("may_change_users", node.may_change_users(&change).await),
        ("change_users", node.change_users(change).await.map(drop)),
        ("read_now", node.read_now(&query, ReadLevel::Eventual.into()).unwrap().map(drop)),
        ("look_with", node.look_with(&query, ticket).await.unwrap().map(drop)),
        ("read_later", node.read_later(query.clone(), ReadLevel::Linearizable.into()).await.map(drop)),
        ("scan_all", node.scan_all("k".into(), 1 << 20).await.map(drop)),
        ("watch_now", node.watch_now(watched()).map(drop)),
        ("write_then", written.await.unwrap().map(drop)),
        ("write_later", node.write_later(put(), None, NotLeading::Forward).await.map(drop)),
        ("session_then", opened.await.unwrap().map(drop)),
        ("session_later", node.session_later(None).await.map(drop)),
        ("Door::read", node.read(query, ReadLevel::Lease.into()).await.map(drop)),
        ("Door::write", node.write(put(), None).await.map(drop)),
        ("Door::watch", node.watch(watched()).await.map(drop)),
        ("Door::open_session", node.open_session().await.map(drop)),
        ("Door::close_session", node.close_session(session).await),
    ]
}

/// Names of methods of a node in a text that others than the engine's own files can call; those of traits with the trait's name in front.
fn callable(text: &str, is_own_file: bool) -> Vec<String> {
    let (mut found, mut of) = (Vec::new(), None);
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("impl ").and_then(|line| line.strip_suffix("Node {")) {
            of = Some(head.strip_suffix(" for ").map(|name| format!("{name}::")).unwrap_or_default());
        } else if line == "}" {
            of = None;
        }
        let Some((of, line)) = of.as_ref().zip(line.strip_prefix("    ")) else { continue };
        let Some((before, behind)) = line.split_once("fn ") else { continue };
        let is_theirs = match of.as_str() {
            "" => before.starts_with("pub") && !(is_own_file && before.starts_with("pub(super)")),
            _ => ["", "async "].contains(&before),
        };
        if is_theirs {
            found.push(format!("{of}{}", behind.split(['(', '<']).next().unwrap_or_default()));
        }
    }
    found
}

/// Who may do what was a list of methods of the API, and of the API alone: a method that was forgotten there was open to everybody.
#[tokio::test]
async fn every_method_of_a_node_refuses_who_may_nothing() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut methods = callable(&fs::read_to_string(source.join("engine.rs")).unwrap(), false);
    for file in fs::read_dir(source.join("engine")).unwrap().map(|file| file.unwrap().path()) {
        if file.is_file() {
            methods.extend(callable(&fs::read_to_string(file).unwrap(), true));
        }
    }

    let root = harness::folder();
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start(options).unwrap();
    let mut leadership = engine.leadership();
    leadership.wait_for(|now| now.is_ready_leader).await.unwrap();
    let node = engine.node();
    engine.client().put("k", "v").await.unwrap();
    let session = node.open_session().await.unwrap();
    let add = |name: &'static str, is_admin| UserChange::Add { name: name.into(), hash: "h".into(), is_admin };
    for change in [add("root", true), add("guest", false), UserChange::Enable(true)] {
        node.change_users(change).await.unwrap();
    }
    let since = node.user(b"guest").unwrap().since;
    let guest = Principal::User { name: "guest".into(), since };
    let late = Principal::User { name: "guest".into(), since: since - 1 };

    let mut known =
        OPEN.iter().flat_map(|(names, _)| names.iter().map(|name| (*name).to_owned())).collect::<BTreeSet<_>>();
    for who in [guest, late, Principal::Nobody] {
        for (method, outcome) in all_that_is_asked(&node.acting_for(who.clone()), session).await {
            let is_refused = matches!(outcome, Err(Error::Denied(_) | Error::NoSession(_)));
            assert!(is_refused, "{method} does for {who:?} what only others may: {outcome:?}");
            known.insert(method.to_owned());
        }
    }
    let looked_at_nowhere: Vec<_> = methods.iter().filter(|method| !known.contains(*method)).collect();
    assert!(
        looked_at_nowhere.is_empty(),
        "who may call {looked_at_nowhere:?}? Add a call to all_that_is_asked, or say in OPEN why anybody may"
    );
    let gone: Vec<_> = known.iter().filter(|method| !methods.contains(method)).collect();
    assert!(gone.is_empty(), "{gone:?} are no methods any more");

    // It is for who asks that they are refused, and not for what is asked.
    for (method, outcome) in all_that_is_asked(node, session).await {
        assert!(!matches!(outcome, Err(Error::Denied(_) | Error::NoSession(_))), "{method}: {outcome:?}");
    }
}

#[test]
fn a_port_of_members_is_open_without_tls_beyond_loopback() {
    let is_open = |address: &str, has_tls| is_open([address.parse().unwrap()].into_iter(), has_tls);
    for (address, expected) in [
        ("127.0.0.1:1", false),
        ("[::1]:1", false),
        ("[::ffff:127.0.0.1]:1", false),
        ("0.0.0.0:1", true),
        ("10.0.0.1:1", true),
    ] {
        assert_eq!((is_open(address, false), is_open(address, true)), (expected, false), "{address}");
    }
    assert!(!super::is_open(std::iter::empty(), false), "nobody is served");
}

#[tokio::test]
async fn who_waits_until_an_engine_is_ready_does_not_ask_without_a_pause() {
    let asked = Cell::new(0);
    let refuse = || async {
        asked.set(asked.get() + 1);
        Err(Error::Stopped)
    };
    let waited = ready_in_time(Duration::from_millis(100), refuse).await;
    assert!(matches!(waited, Err(Error::Stopped)));
    assert!((1..=11).contains(&asked.get()), "{}", asked.get());
    assert!(matches!(ready_in_time(Duration::from_millis(1), std::future::pending).await, Err(Error::NoQuorum)));
    assert!(ready_in_time(Duration::from_secs(1), || async { Ok(()) }).await.is_ok());
}

/// Only the API checked them: a program that has the engine within itself could name a user with nothing, whose row was then taken for the one
/// that says whether users are asked for.
#[tokio::test]
async fn a_change_of_users_that_no_member_makes_is_refused_to_a_program_too() {
    let root = harness::folder();
    let options = Options { durability: Durability::None, ..Options::alone(root.path().join("data")) };
    let engine = Engine::start(options).unwrap();
    engine.wait_ready(std::time::Duration::from_secs(30)).await.unwrap();
    let node = engine.node();
    let grant = |name: &str, prefix: usize, access| UserChange::Grant {
        name: Bytes::copy_from_slice(name.as_bytes()),
        prefix: vec![b'p'; prefix].into(),
        access,
    };
    let both = crate::state::Access { read: true, write: true };
    for change in [
        UserChange::Add { name: Bytes::new(), hash: "h".into(), is_admin: true },
        UserChange::Add { name: "a:b".into(), hash: "h".into(), is_admin: true },
        UserChange::Password { name: vec![b'n'; 70_000].into(), hash: "h".into() },
        UserChange::RemoveAlone { name: "n".into() },
        grant("n", 70_000, both),
        grant("n", 1, crate::state::Access { read: false, write: false }),
    ] {
        let outcome = node.change_users(change.clone()).await;
        assert!(matches!(outcome, Err(Error::Invalid(_))), "{change:?}: {outcome:?}");
    }
    assert!(node.list_users().unwrap().all().is_empty());
}
