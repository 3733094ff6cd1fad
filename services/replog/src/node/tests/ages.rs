//! How old what a member has is, at most: of followers, of who led, and of who lacks what it was told of.

use super::*;

#[test]
fn a_follower_knows_how_old_it_is() {
    let (mut group, leader, others) = Group::led(3);
    let follower = others[0];
    group.pass(group.settings.tick_micros * 20);
    let bound = group.settings.tick_micros * u64::from(group.settings.heartbeat_ticks) * 3;
    let permit = group.read(follower, ReadLevel::Bounded { max_staleness_micros: bound }).unwrap();
    assert_eq!(permit.path, ReadPath::Age);
    group.cut(leader, follower);
    group.now += bound;
    assert_eq!(group.read(follower, ReadLevel::Bounded { max_staleness_micros: bound }), None);
}

/// Whoever led knew how old it was, and said "no quorum" to any bound, however wide, when it led no more.
#[test]
fn a_leader_that_steps_down_still_knows_how_old_it_is() {
    let (mut group, leader, others) = Group::led(3);
    let with_others = group.now;
    others.iter().for_each(|id| group.cut(leader, *id));
    group.pass(4 * group.settings.election_micros());
    assert_ne!(group.nodes[&leader].role(), Role::Leader);
    let alone = group.now - with_others;
    let permit = group.read(leader, ReadLevel::Bounded { max_staleness_micros: 2 * alone }).unwrap();
    assert_eq!(permit.path, ReadPath::Age);
    let lease = group.settings.lease_micros(u64::MAX);
    assert!((alone - lease..=alone).contains(&permit.age_micros.unwrap()), "{permit:?} after {alone}");
    let standing = group.nodes[&leader].standing(group.clock());
    assert_eq!(standing.as_of_micros, group.now - permit.age_micros.unwrap());
    assert_eq!(group.read(leader, ReadLevel::Bounded { max_staleness_micros: alone - lease - 1 }), None);
}

/// A follower that was told of an entry, and then never got it, forgot how old it was without that.
#[test]
fn a_follower_that_lacks_the_newest_entry_knows_how_old_it_is_without() {
    let (mut group, leader, others) = Group::led(3);
    let (follower, now) = (others[0], group.clock());
    let before = group.nodes[&follower].standing(now);
    assert!(before.as_of_micros > 0);
    group.cut(leader, follower);
    group.node(leader).propose(vec![Bytes::from_static(b"x")], now).unwrap();
    group.settle();
    let commit = group.nodes[&leader].commit_index();
    assert!(commit > before.applied);
    // One heartbeat still comes through.
    let heartbeat = loop {
        group.now += group.settings.tick_micros;
        let now = group.clock();
        group.node(leader).tick(now);
        let messages = group.node(leader).take(now).messages;
        let kind = |message: &Message| match &message.body {
            Body::Consensus(wire, _) => Some(wire.get_msg_type()),
            _ => None,
        };
        let beat = |message: &Message| message.to() == follower && kind(message) == Some(WireKind::MsgHeartbeat);
        if let Some(message) = messages.into_iter().find(beat) {
            break message;
        }
    };
    let now = group.clock();
    group.node(follower).receive(heartbeat, now).unwrap();
    group.work(follower);
    let node = &group.nodes[&follower];
    assert_eq!((node.applied_index(), node.freshness.commit), (before.applied, commit));
    assert_eq!(node.standing(now).as_of_micros, before.as_of_micros);
    let wide = ReadLevel::Bounded { max_staleness_micros: now.boot_micros };
    let permit = group.read(follower, wide).unwrap();
    assert_eq!((permit.index, permit.age_micros), (before.applied, Some(now.boot_micros - before.as_of_micros)));
}
