//! The dashboard asks for what a member says, and for all of it; alerts ask for nothing else.

use std::time::{Duration, Instant};

use d_engine_client::WatchOptions;

use crate::command_line::get;
use crate::group::{Group, PATIENCE};

#[tokio::test]
async fn every_query_of_the_dashboard_has_its_metric_and_every_metric_its_query() {
    let group = Group::start(3);
    let leader = group.leader().await;
    group.client().await.put("k", "v").await.unwrap();
    let said = get(&group.addresses[leader - 1], "/metrics");
    harness::dashboard::check("services/d-engine.json", "dengine_", &said);
    harness::dashboard::check_rules("services/d-engine-rules.yaml", "dengine_", &said);
}

#[tokio::test]
async fn sessions_and_watchers_are_counted_as_long_as_they_are_there() {
    let group = Group::start(1);
    group.leader().await;
    let client = group.client().await;
    let counted = |name: &str| {
        let said = get(&group.addresses[0], "/metrics");
        said.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{said}"))
    };
    assert_eq!((counted("dengine_sessions "), counted("dengine_watchers ")), (0, 0));
    let session = client.session().await.unwrap();
    let watch = client.watch(WatchOptions::default()).await.unwrap();
    assert_eq!((counted("dengine_sessions "), counted("dengine_watchers ")), (1, 1));
    session.close().await.unwrap();
    drop(watch);
    let deadline = Instant::now() + PATIENCE;
    while (counted("dengine_sessions "), counted("dengine_watchers ")) != (0, 0) {
        assert!(Instant::now() < deadline, "a watcher that has gone is still counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
