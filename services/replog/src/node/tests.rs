//! Leases and reads, step by step: the requirements (a) to (h) that the design puts to them. `lease.rs` tests (a) and the
//! arithmetic of (b), (c) and (f), `settings.rs` tests (d).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::membership::Change;
use crate::reads::{ReadLevel, ReadPath};

mod ages;

/// Members whose disks are instant, and a network that does what the test says.
struct Group {
    nodes: BTreeMap<u64, Node>,
    now: u64,
    settings: Settings,
    mail: Vec<Message>,
    permits: BTreeMap<u64, Vec<ReadPermit>>,
    /// Links that are cut.
    cuts: Vec<(u64, u64)>,
    /// Whose disk does not answer.
    hangs: Option<u64>,
}

impl Group {
    fn of(count: u64) -> Self {
        let settings = Settings { lease_margin_micros: 0, ..Settings::default() };
        let mut group = Self {
            nodes: BTreeMap::new(),
            now: 1_000_000,
            settings,
            mail: Vec::new(),
            permits: BTreeMap::new(),
            cuts: Vec::new(),
            hangs: None,
        };
        for id in 1..=count {
            let (recovered, _) = Recovered::found(&group.settings, Membership::of(1..=count), b"");
            group.start(id, recovered);
        }
        group
    }

    fn start(&mut self, id: u64, recovered: Recovered) {
        let seed = id + 100 * self.now;
        let node = Node::new(id, self.settings.clone(), recovered, seed, self.clock()).unwrap();
        self.nodes.insert(id, node);
    }

    fn clock(&self) -> Now {
        Now { boot_micros: self.now, unix_millis: self.now / 1000 }
    }

    fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// Lets a node do what it wants.
    fn work(&mut self, id: u64) {
        let now = self.clock();
        loop {
            let node = self.nodes.get_mut(&id).unwrap();
            let output = node.take(now);
            if output.is_empty() {
                break;
            }
            if let Some(last) = output.entries.last() {
                node.applied(last.index);
            }
            if let Some(batch) = output.batch.filter(|_| self.hangs != Some(id)) {
                node.persisted(batch.token);
            }
            self.mail.extend(output.messages);
            self.permits.entry(id).or_default().extend(output.reads);
        }
    }

    /// Delivers everything that is under way, and what comes of it.
    fn settle(&mut self) {
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        ids.iter().for_each(|id| self.work(*id));
        while !self.mail.is_empty() {
            for message in std::mem::take(&mut self.mail) {
                let (to, now) = (message.to(), self.clock());
                if !self.cuts.contains(&(message.from(), to)) && self.nodes.contains_key(&to) {
                    self.node(to).receive(message, now).unwrap();
                    self.work(to);
                }
            }
        }
    }

    fn pass(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.now < end {
            self.now = (self.now + self.settings.tick_micros).min(end);
            let now = self.clock();
            self.nodes.values_mut().for_each(|node| node.tick(now));
            self.settle();
        }
    }

    fn cut(&mut self, a: u64, b: u64) {
        self.cuts.extend([(a, b), (b, a)]);
    }

    fn leader(&self) -> u64 {
        let leading = self.nodes.values().filter(|node| node.role() == Role::Leader);
        leading.max_by_key(|node| node.term()).map(Node::id).unwrap()
    }

    /// A group that has a leader with a lease; its other members.
    fn led(count: u64) -> (Self, u64, Vec<u64>) {
        let mut group = Self::of(count);
        group.pass(4 * group.settings.election_micros());
        let leader = group.leader();
        let others = (1..=count).filter(|id| *id != leader).collect();
        assert!(group.nodes[&leader].has_lease(group.clock()));
        (group, leader, others)
    }

    fn read(&mut self, id: u64, level: ReadLevel) -> Option<ReadPermit> {
        let now = self.clock();
        let read = self.node(id).read(level, 0, now).unwrap();
        self.work(id);
        self.permits.get(&id)?.iter().find(|permit| permit.id == read).copied()
    }
}

fn vote_request(from: u64, to: u64, term: u64, kind: WireKind) -> Message {
    let mut wire = Wire { from, to, term, index: 1000, log_term: term, ..Wire::default() };
    wire.set_msg_type(kind);
    Message { from, to, body: Body::Consensus(Box::new(wire), Stamp::default()) }
}

/// Whoever lost its leader's connection waited for up to twice the election timeout all the same, and sometimes votes were split.
#[test]
fn a_leader_whose_connections_have_closed_is_followed_by_one_election() {
    for seed in 0..50 {
        let mut group = Group::of(3);
        group.now += seed * 7_919_000;
        group.pass(4 * group.settings.election_micros());
        let leader = group.leader();
        group.nodes.remove(&leader);
        group.nodes.values_mut().for_each(|node| node.link_closed(leader));
        let (election, begun) = (group.settings.election_micros(), group.now);
        while group.nodes.values().all(|node| node.role() != Role::Leader) {
            group.pass(group.settings.tick_micros);
            assert!(group.now - begun <= election + 3 * group.settings.tick_micros, "seed {seed}");
        }
        // The next one in line, and no earlier than it may.
        assert_eq!(group.leader(), leader % 3 + 1);
        let heard = u64::from(group.settings.heartbeat_ticks + 1) * group.settings.tick_micros;
        assert!(group.now - begun + heard > election, "seed {seed}");
    }
}

#[test]
fn a_leader_that_lives_leads_on_when_its_connections_have_closed() {
    let (mut group, leader, others) = Group::led(3);
    let term = group.nodes[&leader].term();
    for other in others {
        group.node(other).link_closed(leader);
        // Whoever asks meanwhile gets no vote.
        let request = vote_request(4 + other, other, term + 1, WireKind::MsgRequestVote);
        let now = group.clock();
        group.node(other).receive(request, now).unwrap();
        assert_eq!(group.nodes[&other].term(), term);
    }
    group.pass(4 * group.settings.election_micros());
    assert_eq!((group.leader(), group.nodes[&leader].term()), (leader, term));
}

/// Whoever compares what the log says with another clock waits for as long as that one is behind.
#[test]
fn the_time_that_is_told_is_what_the_next_entry_is_stamped_with() {
    let mut group = Group::of(1);
    group.settle();
    let now = group.clock();
    let ahead = Now { unix_millis: now.unix_millis + 3_600_000, ..now };
    group.node(1).propose([Bytes::from_static(b"x")], ahead).unwrap();
    group.settle();
    group.pass(10_000_000);
    let told = group.nodes[&1].time_millis(group.clock());
    assert!((ahead.unix_millis + 9_000..=ahead.unix_millis + 10_000).contains(&told), "{told}");
}

#[test]
fn one_node_is_a_group_of_one() {
    let mut group = Group::of(1);
    group.settle();
    let now = group.clock();
    let proposed = group.node(1).propose(vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")], now).unwrap();
    group.settle();
    assert_eq!(group.nodes[&1].applied_index(), proposed.last);
    assert_eq!(group.read(1, ReadLevel::Linearizable).unwrap().index, proposed.last);
    assert_eq!(group.read(1, ReadLevel::Lease).unwrap().path, ReadPath::Lease);
}

/// The leader's entries travel while its own disk works; a follower answers only when its disk has.
#[test]
fn who_waits_for_whose_disk() {
    let (mut group, leader, others) = Group::led(3);
    let now = group.clock();
    let before = group.nodes[&leader].commit_index();
    group.node(leader).propose(vec![Bytes::from_static(b"x")], now).unwrap();
    let output = group.node(leader).take(now);
    assert!(output.batch.is_some());
    let appends: Vec<Message> = output.messages.into_iter().filter(|message| message.entries().is_some()).collect();
    assert_eq!(appends.len(), 2, "to both followers, before its own disk has it");
    for append in appends {
        let to = append.to();
        group.node(to).receive(append, now).unwrap();
        let output = group.node(to).take(now);
        assert!(output.messages.is_empty(), "{:?}", output.messages);
        group.node(to).persisted(output.batch.unwrap().token);
        let answers = group.node(to).take(now).messages;
        assert!(answers.iter().any(|answer| answer.acknowledges().is_some()));
        group.mail.extend(answers);
    }
    // Both followers are a quorum without the leader's disk.
    for answer in std::mem::take(&mut group.mail) {
        group.node(leader).receive(answer, now).unwrap();
    }
    assert_eq!(group.nodes[&leader].commit_index(), before + 1);
    assert_eq!(group.nodes[&leader].applied_index(), before, "its own disk does not have it yet");
    assert_eq!(others.len(), 2);
}

/// Its heartbeats went on, so that nobody took its place, and nothing was answered for as long as the disk hung.
#[test]
fn a_leader_whose_disk_hangs_hands_over() {
    let (mut group, leader, others) = Group::led(3);
    assert_eq!(others.len(), 2);
    group.hangs = Some(leader);
    let now = group.clock();
    let proposed = group.node(leader).propose(vec![Bytes::from_static(b"x")], now).unwrap();
    group.settle();
    group.pass(group.settings.election_micros());
    assert_eq!(group.leader(), leader, "a disk may be slow");
    group.pass(2 * group.settings.election_micros());
    let heir = group.leader();
    assert_ne!(heir, leader);
    assert!(group.nodes[&heir].applied_index() >= proposed.last, "what the others had is not lost");
    let now = group.clock();
    let proposed = group.node(heir).propose(vec![Bytes::from_static(b"y")], now).unwrap();
    group.settle();
    assert!(group.nodes[&heir].applied_index() >= proposed.last);
}

/// Much waits for it, and a batch is safe now and then.
#[test]
fn a_leader_whose_disk_is_slow_and_moves_goes_on_leading() {
    let (mut group, leader, _) = Group::led(3);
    group.hangs = Some(leader);
    let now = group.clock();
    let mut tokens = Vec::new();
    for _ in 0..8 {
        group.node(leader).propose(vec![Bytes::from_static(b"x")], now).unwrap();
        tokens.extend(group.node(leader).take(now).batch.map(|batch| batch.token));
    }
    assert!(tokens.len() > 4, "{}", tokens.len());
    for token in tokens {
        group.pass(group.settings.election_micros());
        assert_eq!(group.leader(), leader);
        group.node(leader).persisted(token);
    }
}

#[test]
fn all_reads_that_wait_share_a_round() {
    let (mut group, leader, others) = Group::led(3);
    let now = group.clock();
    for node in [leader, others[0]] {
        for _ in 0..50 {
            group.node(node).read(ReadLevel::Linearizable, 0, now).unwrap();
        }
        group.work(node);
        let rounds = group.mail.iter().filter(|message| message.to() != node).count();
        assert!(rounds <= 2, "{rounds} messages for 50 reads");
        group.settle();
        assert_eq!(group.permits[&node].len(), 50);
    }
}

/// (b) A voter that hears a leader votes for nobody else, in either kind of vote.
#[test]
fn a_vote_is_withheld_while_a_leader_is_heard() {
    let (mut group, leader, others) = Group::led(3);
    let (voter, rival) = (others[0], others[1]);
    group.cut(rival, leader);
    for kind in [WireKind::MsgRequestPreVote, WireKind::MsgRequestVote] {
        let now = group.clock();
        let term = group.nodes[&voter].term();
        group.node(voter).receive(vote_request(rival, voter, term + 1, kind), now).unwrap();
        group.work(voter);
        assert!(group.mail.is_empty(), "{:?}", group.mail);
        assert_eq!(group.nodes[&voter].term(), term);
    }
    // It gives its vote when the leader was not heard for an election timeout.
    group.cut(voter, leader);
    group.now += group.settings.election_micros();
    let (now, term) = (group.clock(), group.nodes[&voter].term());
    group.node(voter).receive(vote_request(rival, voter, term + 5, WireKind::MsgRequestVote), now).unwrap();
    group.work(voter);
    assert_eq!(group.nodes[&voter].term(), term + 5);
}

/// (c) A voter that was started again has forgotten what it promised, and keeps it all the same.
#[test]
fn a_vote_is_withheld_after_a_start() {
    let (mut group, _, others) = Group::led(3);
    let (voter, rival) = (others[0], others[1]);
    let (mut recovered, _) = Recovered::found(&group.settings, Membership::of(1..=3), b"");
    recovered.hard = Hard { term: group.nodes[&voter].term(), vote: 0, commit: 1 };
    let term = recovered.hard.term;
    group.start(voter, recovered);
    let now = group.clock();
    group.node(voter).receive(vote_request(rival, voter, term + 1, WireKind::MsgRequestVote), now).unwrap();
    assert_eq!(group.nodes[&voter].term(), term, "it withholds its vote");
    group.now += group.settings.election_micros();
    let now = group.clock();
    group.node(voter).receive(vote_request(rival, voter, term + 1, WireKind::MsgRequestVote), now).unwrap();
    assert_eq!(group.nodes[&voter].term(), term + 1);
}

/// (d), (e), (h): a permit that was good is not when the node was stopped for longer than the lease; the next read takes a
/// round, and does not find one.
#[test]
fn a_lease_is_looked_at_again_after_the_read() {
    let (mut group, leader, _) = Group::led(3);
    let permit = group.read(leader, ReadLevel::Lease).unwrap();
    assert_eq!(permit.path, ReadPath::Lease);
    let now = group.clock();
    assert!(group.nodes[&leader].confirm(&permit, now));
    group.now += group.settings.lease_micros(u64::MAX);
    let now = group.clock();
    assert!(!group.nodes[&leader].confirm(&permit, now));
    assert_eq!(group.read(leader, ReadLevel::Lease), None, "it waits for a round");
    group.settle();
    assert_eq!(group.permits[&leader].last().unwrap().path, ReadPath::ReadIndex);
}

/// The others elected another leader and acknowledged writes, and this one answered by its lease without them for four seconds more.
#[test]
fn a_leader_that_waits_longer_than_the_others_has_no_lease_beyond_their_promises() {
    let mut group = Group::of(3);
    let (short, long) = (group.settings.election_ticks, 5 * group.settings.election_ticks);
    group.settings.election_ticks = long;
    let (recovered, _) = Recovered::found(&group.settings, Membership::of(1..=3), b"");
    group.start(1, recovered);
    let patience = group.settings.election_micros();
    group.settings.election_ticks = short;
    let election = group.settings.election_micros();
    group.pass(4 * patience);
    if group.leader() != 1 {
        let leader = group.leader();
        group.node(leader).transfer_leader(1).unwrap();
        group.pass(election / 2);
    }
    assert_eq!(group.leader(), 1);
    assert!(group.nodes[&1].has_lease(group.clock()));
    [2, 3].into_iter().for_each(|id| group.cut(1, id));
    group.pass(election);
    assert!(!group.nodes[&1].has_lease(group.clock()), "they may vote for another now");
    group.pass(3 * election);
    assert_ne!(group.leader(), 1);
    assert_eq!(group.nodes[&1].role(), Role::Leader, "it has not noticed");
    assert_eq!(group.read(1, ReadLevel::Lease), None);
}

/// As members of releases before answer.
#[test]
fn who_does_not_say_how_long_it_promises_gives_no_lease() {
    let (mut group, leader, others) = Group::led(3);
    let term = group.nodes[&leader].term();
    for promise in [0, group.settings.election_micros()] {
        group.now += 1_000;
        let now = group.clock();
        for other in &others {
            let mut wire = Wire { from: *other, to: leader, term, ..Wire::default() };
            wire.set_msg_type(WireKind::MsgHeartbeatResponse);
            let stamp = Stamp { heard: now.boot_micros, commit_or_promise: promise, ..Stamp::default() };
            let answer = Message { from: *other, to: leader, body: Body::Consensus(Box::new(wire), stamp) };
            group.node(leader).receive(answer, now).unwrap();
        }
        assert_eq!(group.nodes[&leader].has_lease(now), promise > 0);
    }
}

/// (f) Who offers leadership gives up its lease, and takes none when the offer comes to nothing.
#[test]
fn an_offer_of_leadership_ends_the_lease() {
    let (mut group, leader, others) = Group::led(3);
    let permit = group.read(leader, ReadLevel::Lease).unwrap();
    others.iter().for_each(|id| group.cuts.push((leader, *id)));
    group.node(leader).transfer_leader(others[0]).unwrap();
    group.settle();
    let now = group.clock();
    assert!(!group.nodes[&leader].confirm(&permit, now));
    group.cuts.clear();
    group.pass(group.settings.election_micros() / 2);
    assert_eq!(group.leader(), leader, "the offer was lost");
    let now = group.clock();
    assert!(!group.nodes[&leader].has_lease(now));
}

/// One that is slower than the load never has everything: a store that asked for nine tenths, as etcd does, waited for ever.
#[test]
fn a_learner_that_is_slower_than_the_load_may_vote() {
    let (mut group, leader, _) = Group::led(3);
    group.node(leader).change_membership(&[Change::AddLearner(4)]).unwrap();
    group.settle();
    let now = group.clock();
    group.node(leader).propose(vec![Bytes::from_static(b"x"); 2_000], now).unwrap();
    group.settle();
    let (commit, term) = (group.nodes[&leader].commit_index(), group.nodes[&leader].term());
    assert!(commit > 2_000);
    let mut promote = |matched| {
        let mut wire = Wire { from: 4, to: leader, term, index: matched, ..Wire::default() };
        wire.set_msg_type(WireKind::MsgAppendResponse);
        let heard = Message { from: 4, to: leader, body: Body::Consensus(Box::new(wire), Stamp::default()) };
        group.node(leader).receive(heard, now).unwrap();
        group.node(leader).change_membership(&[Change::Promote(4)]).map(|_| ())
    };
    assert_eq!(promote(commit - commit / 10 - 1), Err(Rejected::NotCaughtUp(4)));
    assert_eq!(promote(commit - commit / 10), Ok(()));
}

#[test]
fn a_leader_knows_who_answers() {
    let (mut group, leader, others) = Group::led(3);
    let answering = |group: &mut Group| {
        group.pass(2 * group.settings.election_micros());
        let (now, leader) = (group.clock(), &group.nodes[&group.leader()]);
        leader.answering(now).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(answering(&mut group), others);
    group.cut(leader, others[0]);
    assert_eq!(answering(&mut group), [others[1]]);
    let now = group.clock();
    assert_eq!(group.nodes[&others[1]].answering(now).len(), 0, "who follows is answered by nobody");
}

/// A hand-over to a member that is down cost the leader its lease for the rest of its term.
#[test]
fn an_offer_that_is_never_made_costs_no_lease() {
    let (mut group, leader, others) = Group::led(3);
    group.cut(leader, others[0]);
    let now = group.clock();
    group.node(leader).propose(vec![Bytes::from_static(b"later")], now).unwrap();
    group.settle();
    group.node(leader).transfer_leader(others[0]).unwrap();
    group.pass(3 * group.settings.election_micros());
    assert_eq!(group.leader(), leader);
    let now = group.clock();
    assert!(group.nodes[&leader].has_lease(now));
}

/// (g) A new leader does not know what is committed before it has committed something itself.
#[test]
fn a_new_leader_answers_no_strong_read_before_an_entry_of_its_own() {
    let (mut group, leader, others) = Group::led(3);
    group.node(leader).transfer_leader(others[0]).unwrap();
    group.work(leader);
    let mut new = None;
    // Until just before the first entry of the new term is committed.
    for _ in 0..100 {
        let mail = std::mem::take(&mut group.mail);
        for message in mail {
            let (to, now) = (message.to(), group.clock());
            group.node(to).receive(message, now).unwrap();
            group.work(to);
            if to == others[0] && group.nodes[&to].role() == Role::Leader {
                new = Some(to);
                break;
            }
        }
        if new.is_some() {
            break;
        }
    }
    let new = new.unwrap();
    assert_eq!(group.read(new, ReadLevel::Lease), None);
    assert_eq!(group.read(new, ReadLevel::Linearizable), None);
    group.settle();
    assert_eq!(group.permits[&new].len(), 2, "then it does");
}

/// (h) In doubt, never an old answer: a leader that is cut off answers nothing strong.
#[test]
fn a_leader_without_a_quorum_answers_no_strong_read() {
    let (mut group, leader, others) = Group::led(3);
    others.iter().for_each(|id| group.cut(leader, *id));
    group.pass(group.settings.election_micros() + group.settings.tick_micros);
    group.permits.clear();
    let levels = [ReadLevel::Lease, ReadLevel::Linearizable, ReadLevel::Bounded { max_staleness_micros: 1000 }];
    for level in levels {
        assert_eq!(group.read(leader, level), None);
    }
    let now = group.clock();
    let late = Now { boot_micros: now.boot_micros + 10 * group.settings.election_micros(), ..now };
    group.node(leader).tick(late);
    assert_eq!(group.node(leader).take(late).failed_reads.len(), 3, "they are told that it did not work");
    assert_eq!(group.read(leader, ReadLevel::Eventual).map(|permit| permit.path), Some(ReadPath::Local));
}

#[test]
fn queues_are_bounded() {
    let (mut group, leader, others) = Group::led(3);
    let now = group.clock();
    assert_eq!(group.node(others[0]).propose(vec![Bytes::new()], now), Err(Rejected::NotLeader(Some(leader))));
    let large = group.settings.command_bytes_max + 1;
    assert_eq!(group.node(leader).propose(vec![vec![0; large].into()], now), Err(Rejected::TooLarge(large)));
    let megabyte = Bytes::from(vec![0; 1 << 20]);
    let refused = (0..100).find_map(|_| group.node(leader).propose(vec![megabyte.clone()], now).err());
    assert_eq!(refused, Some(Rejected::Busy));
    let reads = (0..=group.settings.reads_max).find_map(|_| group.node(leader).read(ReadLevel::Eventual, 0, now).err());
    assert_eq!(reads, Some(Rejected::Busy));
}

/// Writes so many entries of a kilobyte at the leader, and tells everybody.
fn write(group: &mut Group, leader: u64, entries: usize) {
    for _ in 0..entries {
        let now = group.clock();
        group.node(leader).propose(vec![Bytes::from_static(&[7; 1024])], now).unwrap();
        group.settle();
    }
}

#[test]
fn a_member_alone_keeps_no_applied_entry_in_memory() {
    let (mut group, leader, _) = Group::led(1);
    write(&mut group, leader, 50);
    assert_eq!(group.nodes[&leader].log_in_memory(), (0, 0));
    assert_eq!(group.nodes[&leader].last_index(), group.nodes[&leader].applied_index());
}

#[test]
fn entries_that_all_have_are_kept_up_to_a_bound_and_for_one_that_is_gone_up_to_another() {
    let mut group = Group::of(3);
    group.settings.snapshot_keep_entries = 10;
    group.settings.lagging_log_bytes = 50_000;
    for id in 1..=3 {
        let (recovered, _) = Recovered::found(&group.settings, Membership::of(1..=3), b"");
        group.start(id, recovered);
    }
    let timeout = group.settings.election_micros();
    group.pass(4 * timeout);
    let leader = group.leader();
    let gone = (1..=3).find(|id| *id != leader).unwrap();
    write(&mut group, leader, 100);
    group.pass(2 * timeout);
    assert!(group.nodes.values().all(|node| node.log_in_memory().0 == 10));
    group.cuts.extend((1..=3).flat_map(|other| [(other, gone), (gone, other)]));
    write(&mut group, leader, 30);
    group.pass(3 * timeout);
    let held = group.nodes[&leader].log_in_memory().0;
    assert!((30..45).contains(&held), "what it lacks is kept: {held}");
    write(&mut group, leader, 100);
    group.pass(3 * timeout);
    let (held, bytes) = group.nodes[&leader].log_in_memory();
    assert!((30..60).contains(&held) && bytes <= 50_000, "but not for ever: {held} of {bytes} bytes");
}

/// Leases of a minute and tokens of five would live until then.
#[test]
fn a_leader_that_was_in_2100_does_not_stop_the_time_of_the_log() {
    const IN_2100: u64 = 4_102_444_800_000;
    let mut group = Group::of(1);
    group.work(1);
    let mut time_of_next = |now: Now| {
        let node = group.node(1);
        node.propose(vec![Bytes::from_static(b"x")], now).unwrap();
        let mut time = None;
        loop {
            let output = node.take(now);
            if output.is_empty() {
                return time.unwrap();
            }
            if let Some(last) = output.entries.last() {
                node.applied(last.index);
                time = Some(last.time_millis);
            }
            if let Some(batch) = output.batch {
                node.persisted(batch.token);
            }
        }
    };
    let right = Now { boot_micros: 2_000_000, unix_millis: 1_700_000_000_000 };
    assert_eq!(time_of_next(right), right.unix_millis);
    assert_eq!(time_of_next(Now { unix_millis: IN_2100, ..right }), IN_2100);
    let later = Now { boot_micros: right.boot_micros + 60_000_000, unix_millis: right.unix_millis + 60_000 };
    assert_eq!(time_of_next(later), IN_2100 + 60_000 - 60);
}
