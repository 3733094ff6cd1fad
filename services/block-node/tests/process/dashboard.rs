//! The dashboard asks for what the server says, and for all of it; alerts ask for nothing else.

use std::path::Path;

use block_node::simulate::publish;

use crate::server::Server;
use crate::{http, publisher, read_all, run};

#[test]
fn every_query_of_the_dashboard_has_its_metric_and_every_metric_its_query() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 5)).await.unwrap();
        read_all(&server, 4).await;
        harness::dashboard::check("block-node.json", "block_node_", &http(&server, "/metrics").await);
    });
}

#[test]
fn every_alert_asks_for_a_metric_that_is_said() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../grafana/services/block-node-rules.yaml");
    let rules = std::fs::read_to_string(path).unwrap();
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    let said = run(http(&server, "/metrics"));
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let asked: Vec<&str> = rules.split(|character| !is_of_name(character)).collect();
    let asked = asked.into_iter().filter(|name| name.starts_with("block_node_"));
    let missing: Vec<&str> = asked
        .clone()
        .filter(|name| {
            !said.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
        })
        .collect();
    assert!(asked.count() > 5 && missing.is_empty(), "{missing:?}");
}
