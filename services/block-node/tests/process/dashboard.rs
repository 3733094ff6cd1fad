//! The dashboard asks for what the server says, and for all of it; alerts ask for nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use block_node::simulate::publish;

use crate::server::Server;
use crate::{http, publisher, read_all, run};

/// Names of metrics in a text, without the endings that a histogram or a counter gives them.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_of_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let names = text.match_indices("block_node_").filter_map(|(at, _)| {
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

fn of_grafana(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../grafana/services").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_query_of_the_dashboard_has_its_metric_and_every_metric_its_query() {
    let dashboard = of_grafana("block-node.json");
    let alerted = metrics(&of_grafana("block-node-rules.yaml"));
    let directory = harness::folder();
    let server = Server::start(directory.path(), &[]);
    run(async {
        publish(&publisher(&server, 0, 5)).await.unwrap();
        read_all(&server, 4).await;
        let said: String = http(&server, "/metrics")
            .await
            .lines()
            .filter(|line| !line.starts_with('#'))
            .fold(String::new(), |said, line| said + line + "\n");
        let (asked, said) = (metrics(&dashboard), metrics(&said));
        assert!(asked.len() > 20, "{asked:?}");
        assert_eq!(asked, said);
        assert!(alerted.len() > 5 && alerted.is_subset(&said), "{:?}", alerted.difference(&said));
    });
}
