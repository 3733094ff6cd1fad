//! Removes everything that a workload created, whatever became of it: what its scope finds, and waits until it is gone.

use std::fmt::Debug;
use std::io;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::scope::Scope;
use super::{connection, follow};
use crate::failure::Failure;

/// Deletions that are under way at a time.
const DELETIONS_MAX: usize = 16;
/// How long objects may take to be gone: a control plane deletes some tens of namespaces a second.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(100);

/// Removes everything of a scope. Namespaces take what is in them along. The outer error is the loader's own.
pub fn run(kubeconfig: &str, scope: &Scope, timeout: Duration) -> io::Result<Result<(), Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let patience = PATIENCE + timeout;
        match tokio::time::timeout(patience, remove(kubeconfig, scope, timeout)).await {
            Ok(removed) => removed.map_err(|failure| Failure::new(format_args!("remove what was created: {failure}"))),
            Err(_) => Err(Failure::new(format_args!("remove what was created: not gone within {patience:?}"))),
        }
    }))
}

async fn remove(kubeconfig: &str, scope: &Scope, timeout: Duration) -> Result<(), Failure> {
    let client = connection::connect(kubeconfig, timeout).await?;
    let selector = scope.selector();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let namespaces = Api::<Namespace>::all(client);
    // Custom resources first: a namespace whose kinds are going is deleted again and again.
    remove_all(&definitions, &selector).await?;
    remove_all(&namespaces, &selector).await
}

async fn remove_all<K>(api: &Api<K>, selector: &str) -> Result<(), Failure>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let begun = Instant::now();
    loop {
        let (left, _) = follow::list(api, selector).await?;
        if left.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let (kind, name) = (K::plural(&()), left[0].name_any());
            return Err(Failure::new(format_args!(
                "{} {kind} are left after {PATIENCE:?}, such as {name}",
                left.len()
            )));
        }
        let not_asked: Vec<&K> = left.iter().filter(|object| object.meta().deletion_timestamp.is_none()).collect();
        futures::stream::iter(not_asked.into_iter().map(Ok))
            .try_for_each_concurrent(DELETIONS_MAX, |object| delete(api, object.name_any()))
            .await?;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn delete<K>(api: &Api<K>, name: String) -> Result<(), Failure>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.delete(&name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        // Somebody else was faster.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(connection::failure("delete", &name, &error)),
    }
}
