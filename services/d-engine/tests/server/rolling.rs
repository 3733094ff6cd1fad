//! A restart of all members, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use d_engine_client::ReadLevel;

use crate::group::{Group, PATIENCE};

/// Reads of each client.
const READS_MIN: u64 = 30;

/// Clients notice nothing: strong reads are made again by the client where a member ends, and each sees what was acknowledged before.
#[tokio::test]
async fn no_strong_read_fails_while_all_members_are_restarted() {
    let mut group = Group::start(3);
    group.leader().await;
    let writer = group.client().await;
    writer.put("k", "0").await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for level in [ReadLevel::Linearizable, ReadLevel::Lease, ReadLevel::Linearizable] {
        let (client, stop) = (group.client().await, Arc::clone(&stop));
        readers.push(tokio::spawn(async move {
            let (mut reads, mut newest) = (0_u64, 0);
            // Some of them after the last restart, however slow it all is.
            while !stop.load(Ordering::Relaxed) || reads < READS_MIN {
                let seen = client.get_with("k", level).await.unwrap_or_else(|error| panic!("{level:?}: {error}"));
                let revision = seen.value.unwrap().revision;
                assert!(revision >= newest, "{level:?} saw {revision} after {newest}");
                (reads, newest) = (reads + 1, revision);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            reads
        }));
    }
    for id in 1..=3 {
        let status = group.terminate(id).await;
        assert!(status.success(), "{status}: {}", group.log(id));
        group.start_member(id);
        group.wait_until_it_serves(id).await;
        group.leader().await;
        // It has caught up: a strong read at it succeeds.
        group.client_of(id).await.get("k").await.unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while let Err(error) = writer.put("k", id.to_string()).await {
            assert!(error.is_temporary() && tokio::time::Instant::now() < deadline, "{error}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.unwrap() >= READS_MIN);
    }
}
