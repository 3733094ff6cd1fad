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
/// How long nothing may change of what is going. A namespace says how much is left in it, so each look at it that found less counts:
/// one of 5,000 pods takes minutes.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long all of it may take, whatever changes.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(1_800);
/// Between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(100);

/// Removes everything of a scope. Namespaces take what is in them along. The outer error is the loader's own.
pub fn run(kubeconfig: &str, scope: &Scope, timeout: Duration) -> io::Result<Result<(), Failure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        match tokio::time::timeout(PATIENCE_IN_ALL, remove(kubeconfig, scope, timeout)).await {
            Ok(removed) => removed.map_err(|failure| Failure::new(format_args!("remove what was created: {failure}"))),
            Err(_) => Err(Failure::new(format_args!("remove what was created: not gone within {PATIENCE_IN_ALL:?}"))),
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
    let mut progress = Progress::begin(Instant::now());
    loop {
        let (left, _) = follow::list(api, selector).await?;
        if left.is_empty() {
            return Ok(());
        }
        if progress.silence(&left, Instant::now()) > PATIENCE {
            let (kind, name) = (K::plural(&()), left[0].name_any());
            return Err(Failure::new(format_args!(
                "{} {kind} are left, such as {name}, of which nothing has changed for {PATIENCE:?}",
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

/// When something of what is going has changed last.
struct Progress {
    at: Instant,
    seen: Vec<(String, Option<String>)>,
}

impl Progress {
    fn begin(now: Instant) -> Self {
        Self { at: now, seen: Vec::new() }
    }

    /// For how long nothing has changed of what is left.
    fn silence<K: kube::Resource>(&mut self, left: &[K], now: Instant) -> Duration {
        let seen: Vec<_> = left.iter().map(|object| (object.name_any(), object.resource_version())).collect();
        if seen != self.seen {
            *self = Self { at: now, seen };
        }
        now.saturating_duration_since(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(versions: &[u64]) -> Vec<Namespace> {
        let namespace = |(number, version): (usize, &u64)| {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(format!("n{number}"));
            namespace.metadata.resource_version = Some(version.to_string());
            namespace
        };
        versions.iter().enumerate().map(namespace).collect()
    }

    #[test]
    fn a_namespace_of_many_pods_may_take_long_as_long_as_it_says_that_fewer_are_left() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut progress = Progress::begin(begin);
        assert_eq!(progress.silence(&namespaces(&[7, 8]), at(1)), Duration::ZERO);
        assert_eq!(progress.silence(&namespaces(&[7, 8]), at(101)), Duration::from_secs(100));
        assert_eq!(progress.silence(&namespaces(&[7, 9]), at(110)), Duration::ZERO, "one has changed");
        assert_eq!(progress.silence(&namespaces(&[7]), at(200)), Duration::ZERO, "one is gone");
        assert!(progress.silence(&namespaces(&[7]), at(400)) > PATIENCE);
    }
}
