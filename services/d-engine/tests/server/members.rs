//! Groups that grow, shrink and replace members while clients write.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use d_engine_client::grpc::Channel;
use d_engine_client::proto::d_engine::server::cluster as new;
use d_engine_client::{Client, Operation, Options, ReadLevel, Transaction};

use crate::group::{Group, PATIENCE};

/// Adds to a counter until it is told to stop, on a thread of its own.
struct Adder {
    stop: Arc<AtomicBool>,
    adds: Arc<AtomicU64>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Adder {
    fn start(address: &str, only_given: bool) -> Self {
        let (address, stop, adds) = (address.to_owned(), Arc::new(AtomicBool::new(false)), Arc::default());
        let of_thread = (Arc::clone(&stop), Arc::clone(&adds));
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(Self::add(&address, only_given, &of_thread.0, &of_thread.1))
        };
        Self { stop, adds, thread: std::thread::spawn(work) }
    }

    async fn add(address: &str, only_given: bool, stop: &AtomicBool, adds: &AtomicU64) -> (u64, Duration) {
        let options = Options { request_timeout: PATIENCE, only_given, ..Options::default() };
        let client = Client::connect(&[address.to_owned()], options).await.unwrap();
        let session = client.session().await.unwrap();
        let mut longest = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let add = Transaction::of(Operation::Add { key: "counter".into(), delta: 1 });
            session.transact(add, PATIENCE).await.unwrap();
            longest = longest.max(begun.elapsed());
            adds.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        (adds.load(Ordering::Relaxed), longest)
    }

    /// Waits until it has added a few times more.
    async fn goes_on(&self) {
        let (before, deadline) = (self.adds.load(Ordering::Relaxed), Instant::now() + PATIENCE);
        while self.adds.load(Ordering::Relaxed) <= before + 10 {
            assert!(Instant::now() < deadline, "nothing was added since there were {before}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How often it has added, and the longest time that one took.
    fn stop(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn voters(group: &Group, id: usize) -> Vec<u64> {
    let status = group.status(id).await;
    let members = status.into_iter().flat_map(|status| status.members);
    members.filter(|member| member.is_voter).map(|member| member.id).collect()
}

/// Hands leadership over, again where somebody else was elected meanwhile.
async fn lead_by(group: &Group, id: usize) {
    let deadline = Instant::now() + PATIENCE;
    while group.leader().await != id {
        assert!(Instant::now() < deadline, "member {id} does not come to lead");
        let _ = group.ctl(&["transfer", &id.to_string()]);
    }
}

/// The members as the leader has them, as soon as they are these.
async fn wait_for_voters(group: &Group, wanted: &[u64]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let leader = group.leader().await;
        let voters = voters(group, leader).await;
        if voters == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{voters:?} are not {wanted:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn one_member_grows_to_three_and_shrinks_again_while_clients_write() {
    let mut group = Group::start(1);
    group.leader().await;
    let first = Adder::start(&group.addresses[0], false);
    let (second_id, third_id) = (group.grow(), group.grow());
    wait_for_voters(&group, &[1, 2, 3]).await;
    // A client of the new member alone: what it writes goes to the leader.
    let second = Adder::start(&group.addresses[second_id - 1], true);
    first.goes_on().await;
    second.goes_on().await;
    // The founder hands over and leaves.
    lead_by(&group, 1).await;
    assert!(group.ctl(&["member", "remove", "1"]).unwrap_err().contains("hand leadership over first"));
    lead_by(&group, second_id).await;
    // It knows of the founder alone.
    let (first, first_longest) = first.stop();
    group.ctl_until(&["member", "remove", "1"]);
    wait_for_voters(&group, &[2, 3]).await;
    let (status, said) = group.wait_for_end(1);
    assert!(!status.success() && said.contains("was removed from its group"), "{status}: {said}");
    group.ctl_until(&["member", "remove", &third_id.to_string()]);
    wait_for_voters(&group, &[2]).await;
    // Nobody comes back under the number of somebody who has left.
    assert!(group.ctl(&["member", "add", "1", "127.0.0.1:9,127.0.0.1:10"]).unwrap_err().contains("never used"));
    second.goes_on().await;
    let (second, second_longest) = second.stop();
    let longest = first_longest.max(second_longest);
    assert!(longest < PATIENCE, "a write took {longest:?}");
    let client = group.client_of(second_id).await;
    assert_eq!(client.get("counter").await.unwrap().unwrap().value, (first + second).to_string());
    // It goes on alone, also after a kill.
    group.kill(second_id);
    group.start_member(second_id);
    assert_eq!(group.leader().await, second_id);
    let client = group.client_of(second_id).await;
    assert_eq!(client.get("counter").await.unwrap().unwrap().value, (first + second).to_string());
}

#[tokio::test]
async fn a_member_that_lost_its_log_is_replaced() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    let client = group.client().await;
    for number in 0..100 {
        client.put(format!("k{number}"), number.to_string()).await.unwrap();
    }
    let lost = leader % 3 + 1;
    group.wait_until_seen(lost);
    group.kill(lost);
    fs::remove_dir_all(group.directory(lost)).unwrap();
    assert!(group.refused(lost).1.contains("has lost its log"));
    group.ctl_until(&["member", "remove", &lost.to_string()]);
    let new = group.grow();
    let rest: Vec<u64> = (1..=4).filter(|id| *id != lost as u64).collect();
    wait_for_voters(&group, &rest).await;
    // It counts: with one of the others down, it is needed.
    let other = (1..=3).find(|id| *id != lost && *id != leader).unwrap();
    group.kill(other);
    let written = client.put("after", "v").await.unwrap();
    let seen = group.client_of(new).await.get_with("k99", ReadLevel::Linearizable).await.unwrap();
    assert_eq!(seen.value.unwrap().value, "99");
    assert!(seen.index >= written);
    // It comes back without being told again whom it joined.
    group.kill(new);
    group.start_member(new);
    group.start_member(other);
    group.wait_until_it_serves(new).await;
    let seen = group.client_of(new).await.get_with("after", ReadLevel::Linearizable).await.unwrap();
    assert_eq!(seen.value.unwrap().value, "v");
}

#[tokio::test]
async fn a_member_whose_vote_is_needed_is_not_removed() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    let [silent, needed] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    group.kill(silent);
    // Once it is missed. Before that, the removal of one of three that answer would be right.
    tokio::time::sleep(Duration::from_secs(4)).await;
    lead_by(&group, leader).await;
    let refused = group.ctl(&["member", "remove", &needed.to_string()]).unwrap_err();
    assert!(refused.contains(&format!("start member {silent} again, or remove that first")), "{refused}");
    wait_for_voters(&group, &[1, 2, 3]).await;
    group.client_of(leader).await.put("k", "v").await.unwrap();
    group.ctl_until(&["member", "remove", &silent.to_string()]);
    group.ctl_until(&["member", "remove", &needed.to_string()]);
    wait_for_voters(&group, &[leader as u64]).await;
    assert_eq!(group.client_of(leader).await.get("k").await.unwrap().unwrap().value, "v");
}

/// Each looked at the members as they were before the other, and one that was asked again looked at nobody: two members were left, one of them
/// dead.
#[tokio::test]
async fn two_removals_at_once_leave_a_majority_that_answers() {
    let mut group = Group::start(4);
    let leader = group.leader().await;
    let [silent, one, other] = [1, 2, 3].map(|step| (leader + step - 1) % 4 + 1);
    group.kill(silent);
    tokio::time::sleep(Duration::from_secs(4)).await;
    lead_by(&group, leader).await;
    let remove = |id: usize| group.ctl(&["member", "remove", &id.to_string()]);
    let outcomes = std::thread::scope(|scope| {
        let removals = [one, other].map(|id| scope.spawn(move || [remove(id), remove(id), remove(id)]));
        removals.map(|removal| removal.join().unwrap())
    });
    let refused = outcomes.iter().flatten().filter_map(|outcome| outcome.as_ref().err());
    let refused: Vec<_> = refused.filter(|said| said.contains("no majority of the members that vote")).collect();
    assert!(!refused.is_empty(), "{outcomes:?}");
    group.client_of(leader).await.put("k", "v").await.unwrap();
    assert_eq!(voters(&group, leader).await.len(), 3, "{outcomes:?}");
}

#[tokio::test]
async fn a_member_that_moved_is_found_where_it_is_added_again() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    let [moved, other] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    let client = group.client_of(leader).await;
    client.put("before", "v").await.unwrap();
    group.kill(moved);
    group.moved(moved);
    let place = group.place(moved);
    let early = group.ctl(&["member", "add", &moved.to_string(), &place]).unwrap_err();
    assert!(early.contains("start it there first"), "{early}");
    group.start_member(moved);
    group.ctl_until(&["member", "add", &moved.to_string(), &place]);
    group.wait_until_it_serves(moved).await;
    // The third one has heard of it, too, and it counts: without the leader it is needed.
    group.kill(leader);
    let next = group.leader().await;
    let written = group.client_of(next).await.put("after", "v").await.unwrap();
    assert_ne!(next, leader);
    let told = group.status(other).await.unwrap();
    let told = told.members.iter().find(|member| member.id == moved as u64).unwrap();
    assert_eq!((&told.address, told.is_voter), (&group.addresses[moved - 1], true));
    let seen = group.client_of(moved).await.get_with("after", ReadLevel::Linearizable).await.unwrap();
    assert!(seen.index >= written && seen.value.unwrap().value == "v");
    // Who votes already is not made a learner by that, and a place that another has is refused.
    wait_for_voters(&group, &[1, 2, 3]).await;
    let other_place = format!("{},{}", group.addresses[other - 1], place.split_once(',').unwrap().1);
    let taken = group.ctl(&["member", "add", &other.to_string(), &other_place]).unwrap_err();
    assert!(taken.contains("already"), "{taken}");
}

/// Two members were lost for good by one mistyped address: nobody was left to decide on the right one.
#[tokio::test]
async fn a_mistyped_address_of_a_member_that_votes_costs_the_group_nothing() {
    let mut group = Group::start(2);
    let leader = group.leader().await;
    let other = 3 - leader;
    let client = group.client_of(leader).await;
    // By another name it is the leader's.
    let leaders = group.place(leader).split_once(',').unwrap().1.replace("127.0.0.1", "localhost");
    for (peer, why) in [("127.0.0.1:1", "Connection refused"), (&leaders, "there is member")] {
        let place = format!("{},{peer}", group.addresses[other - 1]);
        let refused = group.ctl(&["member", "add", &other.to_string(), &place]).unwrap_err();
        assert!(refused.contains("is not reached at") && refused.contains(why), "{refused}");
        client.put("k", peer.to_owned()).await.unwrap();
    }
    group.ctl(&["member", "add", &other.to_string(), &group.place(other)]).unwrap();
    // A learner is told where it is before it is started; its vote counts only once it was found there.
    let learner = group.add_learner();
    group.wait_until_it_serves(learner).await;
    let deadline = Instant::now() + PATIENCE;
    while group.status(learner).await.is_none_or(|status| !status.is_ready) {
        assert!(Instant::now() < deadline, "member {learner} does not catch up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let place = format!("{},127.0.0.1:1", group.addresses[learner - 1]);
    group.ctl_until(&["member", "add", &learner.to_string(), &place]);
    let refused = group.ctl(&["member", "promote", &learner.to_string()]).unwrap_err();
    assert!(refused.contains("is not reached at 127.0.0.1:1"), "{refused}");
    group.ctl_until(&["member", "add", &learner.to_string(), &group.place(learner)]);
    group.ctl_until(&["member", "promote", &learner.to_string()]);
    wait_for_voters(&group, &[1, 2, 3]).await;
    group.client_of(learner).await.put("k", "v").await.unwrap();
}

#[tokio::test]
async fn the_dialects_change_members() {
    let group = Group::start(1);
    group.leader().await;
    let channel = Channel::connect(&group.addresses[0]).await.unwrap();
    let path = "/d_engine.server.cluster.ClusterManagementService/JoinCluster";
    let join = |node_id, address: &str| new::JoinRequest { node_id, address: address.into(), ..Default::default() };
    let answer: new::JoinResponse = channel.unary(path, &join(2, "127.0.0.1:1")).await.unwrap();
    assert!(answer.success, "{}", answer.error);
    let nodes = answer.config.unwrap().nodes;
    let learner = nodes.iter().find(|node| node.id == 2).unwrap();
    assert_eq!((learner.role, &*learner.address), (4, "127.0.0.1:1"));
    let answer: new::JoinResponse = channel.unary(path, &join(3, "nowhere")).await.unwrap();
    assert!(!answer.success && answer.error.contains("not an address"), "{}", answer.error);
    let path = "/d_engine.server.cluster.ClusterManagementService/UpdateClusterConf";
    let change = |change| new::ClusterConfChangeRequest {
        id: 1,
        change: Some(new::MembershipChange { change: Some(change) }),
        ..Default::default()
    };
    use new::membership_change::Change;
    // It is not there, and so has not caught up.
    let promote = change(Change::Promote(new::PromoteLearner { node_id: 2, ..Default::default() }));
    let answer: new::ClusterConfUpdateResponse = channel.unary(path, &promote).await.unwrap();
    assert_eq!((answer.success, answer.error_code), (false, 4));
    let remove = change(Change::RemoveNode(new::RemoveNode { node_id: 2 }));
    let answer: new::ClusterConfUpdateResponse = channel.unary(path, &remove).await.unwrap();
    assert_eq!((answer.success, answer.error_code), (true, 0));
    let answer: new::ClusterConfUpdateResponse = channel.unary(path, &remove).await.unwrap();
    assert_eq!((answer.success, answer.error_code), (true, 0), "it is done already");
    let never = change(Change::RemoveNode(new::RemoveNode { node_id: 9 }));
    let answer: new::ClusterConfUpdateResponse = channel.unary(path, &never).await.unwrap();
    assert_eq!((answer.success, answer.error_code), (false, 4), "it never was a member");
    let answer: new::JoinResponse = {
        let path = "/d_engine.server.cluster.ClusterManagementService/JoinCluster";
        channel.unary(path, &join(2, "127.0.0.1:1")).await.unwrap()
    };
    assert!(!answer.success && answer.error.contains("never used"), "{}", answer.error);
}
