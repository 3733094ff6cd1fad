//! Runs and suites in a cluster, as `wait` and `report` share them: how the command line names them, how they are reached, how far
//! a run has come, and what went wrong in one line.

use std::error::Error as _;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use anyhow::{anyhow, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{ApiResource, DynamicObject, NamespaceResourceScope};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use storebench_crds::{BenchmarkRun, GROUP};

/// Where to look for a run.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// The namespace; absent: that of the current kubeconfig context
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
}

/// The name in `benchmarkrun/NAME`, in any form that `kubectl` takes or prints; `None`: this is not the name of a run.
pub(crate) fn run_name(text: &str) -> Option<&str> {
    name_in(text, ["benchmarkrun", "benchmarkruns", "benchrun"])
}

/// The name in `benchmarksuite/NAME`, likewise.
pub(crate) fn suite_name(text: &str) -> Option<&str> {
    name_in(text, ["benchmarksuite", "benchmarksuites", "benchsuite"])
}

fn name_in<'a>(text: &'a str, kinds: [&str; 3]) -> Option<&'a str> {
    let (kind, name) = text.split_once('/')?;
    let kind = kind.strip_suffix(GROUP).and_then(|kind| kind.strip_suffix('.')).unwrap_or(kind);
    kinds.contains(&kind).then_some(name)
}

/// Does `work`, for so long at most; `None`: it took longer.
pub(crate) fn within<T>(limit: Duration, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async { tokio::time::timeout(limit, work).await });
    // A name server that does not answer keeps a thread of the runtime; nobody waits for that thread.
    runtime.shutdown_background();
    result.ok().transpose()
}

/// What may be asked for by name.
pub(crate) trait Kind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned
{
}

impl<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned> Kind for K {}

/// An object, and the API server that knows it.
pub(crate) struct InCluster<K> {
    name: String,
    namespace: String,
    server: String,
    client: Client,
    kind: PhantomData<fn() -> K>,
}

/// A run, and the API server that knows it.
pub(crate) type ClusterRun = InCluster<BenchmarkRun>;

/// As in `benchmarkrun/demo in namespace bench`.
impl<K: Kind> fmt::Display for InCluster<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} in namespace {}", K::kind(&()).to_lowercase(), self.name, self.namespace)
    }
}

impl<K: Kind> InCluster<K> {
    /// Finds the cluster as `kubectl` does. Asks it nothing yet.
    pub(crate) async fn find(name: &str, place: &Place) -> anyhow::Result<Self> {
        // Both become part of a path, in which other characters would mean something else.
        for (what, text) in [(&*K::kind(&()), Some(name)), ("namespace", place.namespace.as_deref())] {
            if let Some(text) = text.filter(|text| !is_name(text)) {
                bail!("`{text}` cannot be the name of a {what}: use at most 63 of a-z, 0-9 and -");
            }
        }
        let config = Config::infer().await.map_err(|error| {
            // What is wrong with the kubeconfig; that storebench is not in a pod either would be beside the point.
            let reason = error.source().map(ToString::to_string).unwrap_or_default();
            anyhow!("no cluster is known: {reason}: set KUBECONFIG to the file that kubectl uses")
        })?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| {
            anyhow!("the kubeconfig cannot be used: {}: check its users and clusters", innermost(&error))
        })?;
        let namespace = place.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Self { name: name.into(), namespace, server, client, kind: PhantomData })
    }

    /// Another object of the same namespace.
    pub(crate) fn beside<L: Kind>(&self, name: &str) -> InCluster<L> {
        let Self { namespace, server, client, .. } = self;
        let (namespace, server, client) = (namespace.clone(), server.clone(), client.clone());
        InCluster { name: name.into(), namespace, server, client, kind: PhantomData }
    }

    /// What lies in the object's namespace.
    pub(crate) fn api<L: Kind>(&self) -> Api<L> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The object as it is in the cluster, with fields that this storebench does not know.
    pub(crate) async fn object(&self) -> anyhow::Result<DynamicObject> {
        self.dynamic().get(&self.name).await.map_err(|error| self.failure(&error))
    }

    /// The same; `None`: there is none of this name.
    pub(crate) async fn object_if_any(&self) -> anyhow::Result<Option<DynamicObject>> {
        self.dynamic().get_opt(&self.name).await.map_err(|error| self.failure(&error))
    }

    fn dynamic(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &ApiResource::erase::<K>(&()))
    }

    /// The object as this storebench understands it.
    pub(crate) fn understood(&self, object: DynamicObject) -> anyhow::Result<K> {
        object.try_parse().map_err(|error| self.not_understood(&error))
    }

    fn not_understood(&self, error: &dyn std::error::Error) -> anyhow::Error {
        anyhow!(
            "{self} is not what this storebench understands: {}: use that of the operator's version",
            innermost(error)
        )
    }

    /// What went wrong when the object, or what belongs to it, was read. kube's own messages say most things twice.
    pub(crate) fn failure(&self, error: &kube::Error) -> anyhow::Error {
        let status = match error {
            kube::Error::Api(status) => status,
            kube::Error::SerdeError(error) => return self.not_understood(error),
            other => {
                let (server, reason) = (&self.server, innermost(other));
                return anyhow!("{self}: the API server {server} cannot be reached: {reason}: check your kubeconfig");
            }
        };
        match status.code {
            // An unknown path is not answered as an unknown object is.
            404 if status.details.is_none() => anyhow!(
                "{self}: the cluster does not know the kind: install it with: storebench crds | kubectl apply -f -"
            ),
            404 => {
                let kinds = K::plural(&());
                anyhow!("{self} does not exist: list those that do with: kubectl get {kinds} --all-namespaces")
            }
            401 | 403 => anyhow!("{self} may not be read: {}: check the user in your kubeconfig", status.message),
            code => anyhow!("{self} cannot be read: the cluster answered {code}, {}: try again", status.message),
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The first cause.
fn innermost(mut error: &dyn std::error::Error) -> String {
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

/// Whether the run is over. What was said about an earlier generation of the spec does not count.
pub(crate) fn is_complete(run: &BenchmarkRun) -> bool {
    holds(run, "Complete").is_some()
}

/// Why the run will never begin, whatever happens elsewhere: its spec, which cannot be changed, is not one that the operator
/// can carry out. A service that is missing may yet be created, so it is not among the reasons.
pub(crate) fn is_hopeless(run: &BenchmarkRun) -> bool {
    holds(run, "Stalled").is_some_and(|stalled| matches!(stalled.reason.as_str(), "InvalidSpec" | "Unreadable"))
}

/// The condition of this type, if it is true of the spec as it is now.
fn holds<'a>(run: &'a BenchmarkRun, type_: &str) -> Option<&'a Condition> {
    run.status.iter().flat_map(|status| &status.conditions).find(|condition| {
        condition.type_ == type_
            && condition.status == "True"
            && condition.observed_generation == run.metadata.generation
    })
}

/// How far the run has come, in the operator's words, as in `Queued: 1 run goes first`.
pub(crate) fn state(run: &BenchmarkRun) -> String {
    let Some(status) = &run.status else { return "nothing was said about it yet: is the operator running?".into() };
    let reason = status.conditions.iter().find(|condition| condition.type_ == "Succeeded");
    let words = [reason.map_or("", |condition| &condition.reason), &status.message];
    words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(": ")
}
