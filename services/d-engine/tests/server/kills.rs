//! Members that are killed, and what is there afterwards; members that lost what they had.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use d_engine_client::{Error, Operation, ReadLevel, ReadOptions, Scan, Transaction};
use rustix::process::Signal;

use crate::group::{Group, PATIENCE};

/// The shortest election timeout where failovers are timed: that of members that are told none.
const ELECTION: Duration = Duration::from_millis(500);

/// Everything that a member has, read at this level, and the index of that.
async fn everything(
    group: &Group,
    id: usize,
    options: impl Into<ReadOptions>,
) -> (BTreeMap<Vec<u8>, (Vec<u8>, u64)>, u64) {
    let scan = Scan { limit: 100_000, ..Scan::default() };
    let seen = group.client_of(id).await.scan(scan, options).await.unwrap();
    assert!(!seen.value.has_more);
    let row = |item: d_engine_client::KeyValue| (item.key.to_vec(), (item.value.to_vec(), item.revision));
    (seen.value.items.into_iter().map(row).collect(), seen.index)
}

/// A leader that was killed, and when the next one was seen to lead.
struct Kill {
    at: Instant,
    leader: usize,
    next: usize,
    led: Duration,
}

/// How long nothing was acknowledged after each kill: a line for a document, and one for each that took long.
fn told_of_failovers(kills: &[Kill], mut acknowledged: Vec<Instant>, election: Duration) -> String {
    acknowledged.sort_unstable();
    // What is told in the same moment was acknowledged before.
    let after = |kill: &Instant| acknowledged.partition_point(|at| *at <= *kill + Duration::from_millis(1));
    let mut gaps = Vec::new();
    for kill in kills {
        let Some(first) = acknowledged.get(after(&kill.at)) else { continue };
        let gap = *first - kill.at;
        if gap >= 2 * election {
            println!(
                "{} was killed, {} seen to lead after {:?}; a write after {gap:?}",
                kill.leader, kill.next, kill.led
            );
        }
        gaps.push(gap);
    }
    gaps.sort_unstable();
    // Of so many as a hundred the 99th percentile is the 99th.
    let of = |part: usize| gaps[(gaps.len() * part).div_ceil(100).max(1) - 1].as_millis();
    let (median, nine, most, all) = (of(50), of(99), of(100), gaps.len());
    format!(
        "{all} leaders killed: no acknowledged write for {median} ms in the median, {nine} ms at p99, {most} ms at most"
    )
}

/// `LEADER_KILLS=100 cargo test --release -p d-engine --test server leaders_were_killed -- --nocapture` kills more of them.
#[tokio::test]
async fn what_was_acknowledged_is_there_after_leaders_were_killed() {
    let kills = std::env::var("LEADER_KILLS").map_or(3, |number| number.parse().unwrap());
    // So many writes that one page has them.
    let pause = if kills > 10 { Duration::from_millis(20) } else { Duration::ZERO };
    let mut killed = Vec::new();
    let mut group = Group::start_with(3, &["--election-timeout-ms", &ELECTION.as_millis().to_string()]);
    group.leader().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..4 {
        let (client, stop) = (group.client().await, Arc::clone(&stop));
        writers.push(tokio::spawn(async move {
            let (mut acknowledged, mut unknown) = (Vec::new(), 0);
            for number in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    return (acknowledged, unknown);
                }
                let key = format!("{writer}-{number}");
                match client.put(key.clone(), number.to_string()).await {
                    Ok(revision) => acknowledged.push((key, number, revision, Instant::now())),
                    Err(Error::UnknownOutcome(_)) => unknown += 1,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
                tokio::time::sleep(pause).await;
            }
            unreachable!()
        }));
    }
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = group.leader().await;
        let at = Instant::now();
        group.kill(leader);
        let next = group.leader().await;
        killed.push(Kill { at, leader, next, led: at.elapsed() });
        assert_ne!(next, leader);
        group.start_member(leader);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Ordering::Relaxed);
    let (mut acknowledged, mut unknown) = (Vec::new(), 0);
    for writer in writers {
        let written = writer.await.unwrap();
        acknowledged.extend(written.0);
        unknown += written.1;
    }
    println!("{} writes acknowledged, {unknown} of unknown outcome", acknowledged.len());
    println!("{}", told_of_failovers(&killed, acknowledged.iter().map(|(.., at)| *at).collect(), ELECTION));
    assert!(acknowledged.len() > 100, "{} writes in all", acknowledged.len());
    let leader = group.leader().await;
    let (first, _) = everything(&group, leader, ReadLevel::Lease).await;
    for (key, value, revision, _) in &acknowledged {
        let found =
            first.get(key.as_bytes()).unwrap_or_else(|| panic!("{key} was acknowledged at {revision}, and is gone"));
        assert_eq!(found, &(value.to_string().into_bytes(), *revision));
    }
    // Strong reads at any member, and members that have the same have it alike.
    for id in 1..=3 {
        let (seen, index) = everything(&group, id, ReadLevel::Linearizable).await;
        assert_eq!(seen, first, "member {id}");
        let options = ReadOptions { level: ReadLevel::Eventual, at_least: index };
        assert_eq!(everything(&group, id, options).await.0, first, "member {id}");
    }
}

#[tokio::test]
async fn a_session_adds_once_however_often_it_must_ask() {
    let mut group = Group::start(3);
    group.leader().await;
    let client = group.client().await;
    let session = client.session().await.unwrap();
    let mut adders = Vec::new();
    for _ in 0..4 {
        let session = session.clone();
        adders.push(tokio::spawn(async move {
            for _ in 0..100 {
                let add = Transaction::of(Operation::Add { key: "counter".into(), delta: 1 });
                session.transact(add, PATIENCE).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }));
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let leader = group.leader().await;
        group.kill(leader);
        group.leader().await;
        group.start_member(leader);
    }
    for adder in adders {
        adder.await.unwrap();
    }
    let counter = client.get("counter").await.unwrap().unwrap();
    assert_eq!(counter.value, "400");
    session.close().await.unwrap();
    assert!(matches!(client.session().await, Ok(next) if next.number() > 0));
}

#[tokio::test]
async fn a_member_that_lost_its_log_is_refused_and_the_others_go_on() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    let client = group.client().await;
    client.put("k", "v").await.unwrap();
    let lost = leader % 3 + 1;
    client.put("k", "w").await.unwrap();
    group.wait_until_seen(lost);
    group.kill(lost);
    fs::remove_dir_all(group.directory(lost)).unwrap();
    let (status, said) = group.refused(lost);
    assert!(!status.success() && said.contains("has lost its log"), "{status}: {said}");
    assert_eq!(client.get("k").await.unwrap().unwrap().value, "w");
    // The file that says who it is, and nothing else, is not enough either.
    group.kill(leader);
    let wal = group.directory(leader).join("wal");
    fs::remove_dir_all(&wal).unwrap();
    let (status, said) = group.refused(leader);
    assert!(!status.success() && said.contains("it is gone"), "{status}: {said}");
}

/// Others were asked at its start alone: with one that did not answer just then it began anew, and elected without what the third alone had.
#[tokio::test]
async fn a_member_that_lost_its_log_is_refused_by_one_that_answers_late() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    let client = group.client_of(leader).await;
    client.put("k", "v").await.unwrap();
    let (lost, late) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    group.wait_until_seen(lost);
    group.signal(late, Signal::STOP);
    client.put("k", "w").await.unwrap();
    group.kill(leader);
    group.kill(lost);
    fs::remove_dir_all(group.directory(lost)).unwrap();
    // Another start, too: that nobody answered at the first one is no answer.
    let wal = group.directory(lost).join("wal");
    for is_first in [true, false] {
        group.start_member(lost);
        harness::until("it has begun a log", || wal.read_dir().is_ok_and(|files| files.count() > 0));
        if is_first {
            group.kill(lost);
        }
    }
    group.signal(late, Signal::CONT);
    let (status, said) = group.wait_for_end(lost);
    assert!(!status.success() && said.contains("has lost its log"), "{status}: {said}");
}

/// It said so as long as it believed that it leads; `/readyz` did not.
#[tokio::test]
async fn a_member_whose_majority_is_gone_does_not_say_that_it_is_ready() {
    let mut group = Group::start(2);
    let leader = group.leader().await;
    group.kill(3 - leader);
    assert!(!group.status(leader).await.unwrap().is_ready);
}

#[tokio::test]
async fn a_member_alone_keeps_everything_over_kills_and_ends_at_once_when_asked() {
    let mut group = Group::start(1);
    group.leader().await;
    let client = group.client().await;
    for number in 0..200_u64 {
        client.put(format!("k{number}"), number.to_string()).await.unwrap();
    }
    client.put_with_ttl("short", "v", Duration::from_millis(300)).await.unwrap();
    group.kill(1);
    group.start_member(1);
    group.leader().await;
    let client = group.client().await;
    let seen = client.scan(Scan { limit: 1000, ..Scan::prefix("k") }, ReadLevel::Linearizable).await.unwrap();
    assert_eq!(seen.value.items.len(), 200);
    // It ends by an entry of the log, some time after.
    let deadline = std::time::Instant::now() + PATIENCE;
    while client.get("short").await.unwrap().is_some() {
        assert!(std::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let begun = std::time::Instant::now();
    let status = group.terminate(1).await;
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
