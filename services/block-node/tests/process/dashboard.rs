//! The dashboard asks for what the server says, and for all of it.

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
