//! A control plane that was just started, seen from outside: when it is ready, and the simulated nodes that it is given.
//!
//! [`meter`] is the program `control-plane-meter`, which does all of it in the control plane's own pod; an embedded run
//! calls the steps itself, in this order: [`serves`], [`create_nodes`], [`nodes_take_pods`].

pub mod meter;
pub mod nodes;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

/// Nodes that are created at a time.
const NODES_AT_A_TIME: usize = 16;

/// Whether the API server says that it is ready: its roles are there, its caches are filled.
pub async fn serves(client: &Client) -> Result<bool, kube::Error> {
    let request = http::Request::get("/readyz").body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(|answer| answer == "ok")
}

/// Creates the nodes that are not there yet; `Ok(true)` when all are.
pub async fn create_nodes(client: &Client, count: u32) -> Result<bool, kube::Error> {
    let api = &Api::<Node>::all(client.clone());
    let create = |number| async move {
        match api.create(&PostParams::default(), &nodes::node(number)).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    };
    stream::iter(0..count).map(create).buffer_unordered(NODES_AT_A_TIME).try_collect::<()>().await?;
    Ok(true)
}

/// Whether every node takes pods, and the controllers have given the first namespace its account.
pub async fn nodes_take_pods(client: &Client, count: u32) -> Result<bool, kube::Error> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let all = nodes.items.len() == count as usize && nodes.items.iter().all(nodes::is_ready);
    let account = Api::<ServiceAccount>::namespaced(client.clone(), "default").get_opt("default").await?;
    Ok(all && account.is_some())
}
