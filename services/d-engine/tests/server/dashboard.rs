//! The dashboard asks for what a member says, and for all of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use d_engine_client::WatchOptions;

use crate::command_line::get;
use crate::group::{Group, PATIENCE};

/// Names of metrics in a text, without the endings that a histogram, a counter or a description gives them.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let names = text.match_indices("dengine_").filter_map(|(at, _)| {
        let name: String = text[at..].chars().take_while(|character| is_of_name(*character)).collect();
        let is_whole = !text[..at].ends_with(is_of_name);
        is_whole.then_some(name)
    });
    let family = |name: String| {
        let endings = ["_bucket", "_sum", "_count", "_total"];
        endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name).to_owned()
    };
    names.map(family).collect()
}

#[tokio::test]
async fn every_query_of_the_dashboard_has_its_metric_and_every_metric_its_query() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../grafana/services/d-engine.json");
    let dashboard = std::fs::read_to_string(path).unwrap();
    let group = Group::start(3);
    let leader = group.leader().await;
    group.client().await.put("k", "v").await.unwrap();
    let said = get(&group.addresses[leader - 1], "/metrics");
    let said: Vec<&str> = said.lines().filter(|line| !line.starts_with('#')).collect();
    let (asked, said) = (metrics(&dashboard), metrics(&said.join("\n")));
    assert!(asked.len() > 15, "{asked:?}");
    assert_eq!(asked, said);
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
