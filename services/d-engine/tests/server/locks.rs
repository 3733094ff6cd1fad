//! Leases and locks of clients far away, while leaders are killed.

use std::time::Duration;

use d_engine_client::{Error, ReadLevel, Transaction};

use crate::group::{Group, PATIENCE};

/// Whoever holds the lock writes under its fence: by the order of the log, no holder writes after one that came later.
#[tokio::test]
async fn no_holder_of_a_lock_writes_after_the_next_one_did() {
    let mut group = Group::start(3);
    group.leader().await;
    let ttl = Duration::from_millis(1500);
    let mut contenders = Vec::new();
    for _ in 0..3 {
        let client = group.client().await;
        contenders.push(tokio::spawn(async move {
            let mut written = Vec::new();
            for turn in 0..6 {
                let lock = match client.lock("lock", ttl, PATIENCE).await {
                    Ok(lock) => lock.unwrap(),
                    Err(error) if error.is_temporary() => continue,
                    Err(error) => panic!("{error}"),
                };
                for _ in 0..5 {
                    let put = Transaction::put("guarded", lock.token().to_string());
                    match client.transact(Transaction { compares: vec![lock.fence()], ..put }).await {
                        Ok(put) if put.applied.succeeded => written.push((put.revision, lock.token())),
                        Ok(_) => break,
                        Err(error) => assert!(error.is_temporary(), "{error}"),
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                // Sometimes it goes away without a word.
                if turn % 3 == 2 {
                    drop(lock);
                } else if let Err(error) = lock.release().await {
                    assert!(error.is_temporary(), "{error}");
                }
            }
            written
        }));
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let leader = group.leader().await;
        group.kill(leader);
        group.leader().await;
        group.start_member(leader);
    }
    let mut written = Vec::new();
    for contender in contenders {
        written.extend(contender.await.unwrap());
    }
    written.sort_unstable();
    let tokens: Vec<u64> = written.iter().map(|(_, token)| *token).collect();
    assert!(tokens.is_sorted(), "in the order of the log, tokens fall: {tokens:?}");
    let mut holders = tokens.clone();
    holders.dedup();
    assert!(holders.len() > 2, "{} turns", holders.len());
}

/// A new leader gives those time who could not keep their leases alive while nobody led.
#[tokio::test]
async fn a_lease_that_is_kept_alive_outlives_leaders_and_one_that_is_not_ends_everywhere() {
    let mut group = Group::start(3);
    let leader = group.leader().await;
    let client = group.client().await;
    let lease = client.lease(Duration::from_secs(15)).await.unwrap();
    let forgotten = client.grant_lease(Duration::from_millis(2500)).await.unwrap();
    client.put_with_lease("kept", "v", lease.number()).await.unwrap();
    client.put_with_lease("forgotten", "v", forgotten.number).await.unwrap();
    group.kill(leader);
    group.leader().await;
    group.start_member(leader);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match client.get("forgotten").await {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
        assert!(tokio::time::Instant::now() < deadline, "a lease that nobody keeps alive does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for id in 1..=3 {
        group.wait_until_it_serves(id).await;
        let own = group.client_of(id).await;
        assert_eq!(own.get_with("forgotten", ReadLevel::Linearizable).await.unwrap().value, None);
        let kept = own.get_with("kept", ReadLevel::Linearizable).await.unwrap().value;
        assert_eq!(kept.map(|item| item.lease), Some(lease.number()), "member {id}");
    }
    assert!(lease.is_alive());
    let late = client.put_with_lease("late", "v", forgotten.number).await.unwrap_err();
    assert!(matches!(&late, Error::Invalid(said) if said.contains("no such lease")), "{late}");
}

#[tokio::test]
async fn a_lock_waits_for_no_key_that_is_no_lock() {
    let group = Group::start(1);
    group.leader().await;
    let client = group.client().await;
    let (ttl, patience) = (Duration::from_secs(30), Duration::from_secs(3));
    client.put("jobs/queue", "v").await.unwrap();
    client.put("jobs/0123456789abcdef", "v").await.unwrap();
    let inner = client.lock("jobs/1", ttl, patience).await.unwrap().unwrap();
    let outer = client.lock("jobs", ttl, patience).await.unwrap();
    let outer = outer.expect("it waits for keys that nobody holds it by");
    assert!(client.lock("jobs", ttl, Duration::from_millis(200)).await.unwrap().is_none(), "it is held");
    outer.release().await.unwrap();
    inner.release().await.unwrap();
}
