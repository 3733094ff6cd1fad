//! A member that is stopped, as one on a machine that hangs: its sockets stand, and it says nothing.

use std::time::Duration;

use d_engine_client::{
    Client, Error, EventKind, Operation, OperationResult, Options, ReadLevel, Transaction, WatchOptions,
};
use rustix::process::Signal;

use crate::group::{Group, PATIENCE};

/// For each request: more than members need to elect another leader.
const TIME: Duration = Duration::from_secs(10);

async fn client(addresses: &[String]) -> Client {
    Client::connect(addresses, Options { request_timeout: TIME, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn what_clients_do_goes_on_at_the_others_when_the_leader_is_stopped() {
    let group = Group::start(3);
    let leader = group.leader().await;
    let client = client(&group.addresses).await;
    client.put("k", "before").await.unwrap();
    let session = client.session().await.unwrap();
    let add = || Transaction::of(Operation::Add { key: "sum".into(), delta: 1 });
    session.transact(add(), PATIENCE).await.unwrap();
    let lease = client.lease(PATIENCE).await.unwrap();
    client.put_with_lease("leased", "v", lease.number()).await.unwrap();
    // One at the member that will be stopped.
    let mut watch = {
        let at_leader = group.client_of(leader).await;
        at_leader.watch(WatchOptions::key("k")).await.unwrap()
    };

    group.signal(leader, Signal::STOP);
    for _ in 0..3 {
        for level in [ReadLevel::Linearizable, ReadLevel::Lease, ReadLevel::Eventual] {
            let seen = client.get_with("k", level).await.unwrap_or_else(|error| panic!("{level:?}: {error}"));
            assert_eq!(seen.value.unwrap().value, "before");
        }
        session.transact(add(), PATIENCE).await.unwrap();
        assert!(client.keep_alive(lease.number()).await.unwrap().is_some(), "the lease has ended");
    }
    let written = session.transact(add(), PATIENCE).await.unwrap();
    assert_eq!(written.applied.results, [OperationResult::Sum(5)], "an addition was done twice, or not at all");
    // A write without a session is told at the worst that nobody knows; the next ones succeed.
    let put = client.put("k", "after").await;
    assert!(matches!(put, Ok(_) | Err(Error::UnknownOutcome(_))), "{put:?}");
    client.put("k", "after").await.unwrap();
    // What is kept alive in the background is, for longer than its time to live would be without.
    assert!(lease.is_alive());
    let told = tokio::time::timeout(PATIENCE, watch.next()).await.expect("the watch is silent for ever");
    assert!(matches!(told, Some(Err(Error::Unreachable(_)))), "{told:?}");

    // Named first, it keeps nobody waiting for long.
    let mut addresses = group.addresses.clone();
    addresses.swap(0, leader - 1);
    let output = std::process::Command::new(crate::group::PROGRAM)
        .args(["ctl", "get", "k", "--endpoints", &addresses.join(",")])
        .output()
        .unwrap();
    assert_eq!((output.status.success(), &*output.stdout), (true, &b"after\n"[..]), "{output:?}");

    group.signal(leader, Signal::CONT);
    let mut watch = client.watch(WatchOptions::key("k")).await.unwrap();
    client.delete("k").await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().kind, EventKind::Delete);
}
