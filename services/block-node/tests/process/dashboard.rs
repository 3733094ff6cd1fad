//! The dashboard asks for what the server says, and for all of it; alerts ask for nothing else.

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
        harness::dashboard::check("services/block-node.json", "block_node_", &http(&server, "/metrics").await);
    });
}

#[test]
fn every_alert_asks_for_a_metric_that_is_said() {
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    let said = run(http(&server, "/metrics"));
    harness::dashboard::check_rules("services/block-node-rules.yaml", "block_node_", &said);
}
