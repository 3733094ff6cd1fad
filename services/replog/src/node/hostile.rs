//! Whatever members say, in whatever order: no assertion fails. Nothing is promised about agreement when members lie.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::consensus::{self, WireKind};

/// Numbers near one another, so that they often fit; now and then absurd ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 0_u64..8, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn entries() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    let joined = (0_u64..8, 0_u64..5, 0_usize..5)
        .prop_map(|(first, term, count)| (first..).take(count).map(|index| (index, term, 0)).collect());
    prop_oneof![3 => joined, 1 => prop::collection::vec((number(), number(), 0_u8..3), 0..4)]
}

prop_compose! {
    fn wire()(
        kind in 0_u8..19,
        from in 1_u64..4,
        numbers in prop::array::uniform7(number()),
        reject in prop::bool::weighted(0.2),
        entries in entries(),
        has_snapshot in prop::bool::weighted(0.1),
        members in prop::array::uniform4(prop::collection::vec(0_u64..5, 0..4)),
        context in prop::collection::vec(any::<u8>(), 0..3),
    ) -> Option<Wire> {
        let mut wire = Wire::default();
        wire.set_msg_type(consensus::wire_kind(kind)?);
        (wire.from, wire.to, wire.reject, wire.context) = (from, 1, reject, context.into());
        [wire.term, wire.log_term, wire.index, wire.commit, wire.commit_term, wire.request_snapshot, wire.reject_hint] =
            numbers;
        if wire.get_msg_type() == WireKind::MsgTimeoutNow {
            wire.context = raft_transfer();
        }
        let kinds = [EntryKind::Command, EntryKind::Empty, EntryKind::Membership];
        let entries = entries.into_iter().map(|(index, term, kind)| {
            let data = Bytes::from_static(&[8, 1]);
            consensus::to_raft(Entry { index, term, kind: kinds[kind as usize], time_millis: 1, data })
        });
        wire.set_entries(entries.collect::<Vec<_>>().into());
        if has_snapshot {
            let [voters, learners, outgoing, learners_next] = members;
            let membership = Membership { voters, learners, outgoing, learners_next, leaves_by_itself: reject };
            let meta = SnapshotMeta { index: numbers[2], term: numbers[1], membership, chunk_bytes: 1, ..SnapshotMeta::default() };
            wire.set_snapshot(consensus::offer(&meta));
        }
        Some(wire)
    }
}

fn raft_transfer() -> Bytes {
    Bytes::from_static(b"CampaignTransfer")
}

/// What happens to the node.
#[derive(Clone, Debug)]
enum Step {
    Receive(Box<Wire>),
    Wait(u64),
    Persist,
    Propose,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => wire().prop_filter_map("no such message", |wire| wire.map(|wire| Step::Receive(Box::new(wire)))),
        2 => (0_u64..60).prop_map(Step::Wait),
        2 => Just(Step::Persist),
        1 => Just(Step::Propose),
        1 => Just(Step::Read),
    ]
}

fn settings() -> Settings {
    Settings { tick_micros: 1_000, heartbeat_ticks: 1, election_ticks: 10, snapshot_entries: 4, ..Settings::default() }
}

/// One that has been asked to lead before its snapshot is safe.
#[test]
fn who_is_asked_to_lead_while_it_takes_a_snapshot_does_not_panic() {
    let (recovered, _) = Recovered::found(&settings(), Membership::of(1..=2), b"");
    let now = Now { boot_micros: 1_000_000, unix_millis: 1 };
    let mut node = Node::new(1, settings(), recovered, 7, now).unwrap();
    let wire = |kind| {
        let mut wire = Wire::default();
        wire.set_msg_type(kind);
        (wire.from, wire.to, wire.term, wire.index, wire.log_term) = (2, 1, 6, 2, 1);
        wire
    };
    let mut snapshot = wire(WireKind::MsgSnapshot);
    let meta = SnapshotMeta {
        index: 2,
        term: 1,
        membership: Membership::of(1..=2),
        chunk_bytes: 1,
        ..SnapshotMeta::default()
    };
    snapshot.set_snapshot(consensus::offer(&meta));
    let mut ask = wire(WireKind::MsgTimeoutNow);
    ask.context = raft_transfer();
    let mut installs = false;
    for wire in [snapshot, ask] {
        let message = Message { from: 2, to: 1, body: Body::Consensus(Box::new(wire), Stamp::default()) };
        node.receive(Message::decode(&message.encode()).unwrap(), now).unwrap();
        for _ in 0..8 {
            let output = node.take(now);
            installs |= output.install.is_some();
            if let Some((_, meta)) = output.offer {
                node.snapshot_received(&meta);
            }
        }
    }
    assert!(installs && node.role() != Role::Leader);
}

#[test]
fn a_change_of_the_membership_that_is_none_is_not_taken_from_others() {
    let cases: [(&'static [u8], u64); 2] = [(&[8, 1], 2), (&[0xff], 1)];
    for (data, last) in cases {
        let (recovered, _) = Recovered::found(&settings(), Membership::of(1..=2), b"");
        let now = Now { boot_micros: 1_000_000, unix_millis: 1 };
        let mut node = Node::new(1, settings(), recovered, 7, now).unwrap();
        let mut wire = Wire::default();
        wire.set_msg_type(WireKind::MsgAppend);
        (wire.from, wire.to, wire.term, wire.index, wire.log_term) = (2, 1, 2, 1, 1);
        wire.set_entries(vec![consensus::to_raft(change(2, data))].into());
        let message = Message { from: 2, to: 1, body: Body::Consensus(Box::new(wire), Stamp::default()) };
        node.receive(Message::decode(&message.encode()).unwrap(), now).unwrap();
        assert_eq!(node.consensus.last(), last, "{data:?}");
    }
}

fn change(term: u64, data: &'static [u8]) -> Entry {
    let data = Bytes::from_static(data);
    Entry { index: 2, term, kind: EntryKind::Membership, time_millis: 0, data }
}

/// Other members may have a change there: who went on without it would belong to another group.
#[test]
#[should_panic(expected = "entry 2 is no change of the membership: it was damaged")]
fn a_committed_change_of_the_membership_that_is_none_ends_the_member() {
    let (mut recovered, _) = Recovered::found(&settings(), Membership::of(1..=1), b"");
    recovered.entries.push_back(change(1, &[0xff]));
    recovered.hard = Hard { term: 1, vote: 0, commit: 2 };
    let now = Now { boot_micros: 1_000_000, unix_millis: 1 };
    Node::new(1, settings(), recovered, 7, now).unwrap().take(now);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_members_say_ends_the_process(founders in 1_u64..4, steps in prop::collection::vec(step(), 1..60)) {
        let (recovered, _) = Recovered::found(&settings(), Membership::of(1..=founders), b"");
        let mut now = Now { boot_micros: 1_000_000, unix_millis: 1 };
        let mut node = Node::new(1, settings(), recovered, 7, now).unwrap();
        let mut last = None;
        for step in steps {
            match step {
                Step::Receive(wire) => {
                    let message = Message { from: wire.from, to: 1, body: Body::Consensus(wire, Stamp::default()) };
                    // As it would come from a network.
                    let Ok(message) = Message::decode(&message.encode()) else { continue };
                    if node.receive(message, now).is_err() {
                        return Ok(());
                    }
                }
                Step::Wait(millis) => {
                    now.boot_micros += millis * 1_000;
                    node.tick(now);
                }
                Step::Persist => {
                    if let Some(token) = last.take() {
                        node.persisted(token);
                    }
                }
                Step::Propose => drop(node.propose(vec![Bytes::from_static(b"x")], now)),
                Step::Read => drop(node.read(crate::ReadLevel::Linearizable, 0, now)),
            }
            loop {
                let output = node.take(now);
                if output.is_empty() {
                    break;
                }
                last = output.batch.map(|batch| batch.token).or(last);
                if let Some(entry) = output.entries.last() {
                    node.applied(entry.index);
                }
                if let Some((_, meta)) = output.offer {
                    node.snapshot_received(&meta);
                }
            }
        }
    }
}
