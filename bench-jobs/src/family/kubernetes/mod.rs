//! The Kubernetes family: load on a Kubernetes API server, as users, controllers and kubelets make it.
//!
//! From the outside in: [`run`] makes a [`Plan`] that all threads share; each thread has a [`Kubernetes`] with a client of
//! the API server for each of its connections. One module per kind of load ([`create`], [`delete`], [`rollout`], [`jobs`],
//! [`fan_out`], [`custom`], [`heartbeats`], [`mixed`]). Pure are [`scope`] (names), [`manifests`], [`content`],
//! [`outcome`] (which state ends an operation) and [`expected`] (what must be there at the end).
//!
//! Promises:
//! - latencies are this client's own: from the send of a request to the arrival of its answer or of the watch event that
//!   shows the outcome, never from times in objects, which are whole seconds;
//! - nothing is retried; nothing but one request, or what one operation waits for, is between send and end;
//! - what the API server itself says of its requests is read before the measured phase and after it ([`requests`]);
//! - every acknowledged object is read back at the end ([`read_back`]), and everything created is removed, also after a
//!   failure ([`clean_up`]): before the next workload begins it is gone.

mod clean_up;
mod connection;
pub mod content;
mod create;
mod custom;
mod delete;
pub mod expected;
mod fan_out;
mod follow;
mod heartbeats;
mod jobs;
pub mod manifests;
mod mixed;
pub mod outcome;
mod prepare;
mod read_back;
mod requests;
mod rollout;
pub mod scope;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use storebench_crds::job::{JobOutcome, JobSpec, Phase};
use storebench_crds::workload::kubernetes::{KubernetesOperation, KubernetesWorkload};

use crate::failure::Failure;
use crate::load::session::Session;
use crate::load::{self, Context, Ending, Family, Seat, Surroundings};
use expected::Expected;
use fan_out::FanOut;
use follow::Hub;
use requests::Requests;
use scope::Scope;

/// Runs one workload of the Kubernetes family. Errors are the loader's own; everything about the API server and its store is
/// in the [`Ending`].
pub fn run(
    context: Context,
    job: &JobSpec,
    parameters: &KubernetesWorkload,
    around: &Surroundings<'_>,
) -> io::Result<Ending> {
    let kubeconfig = job
        .kubeconfig
        .clone()
        .ok_or_else(|| io::Error::other("kubeconfig: kubernetes workloads need it: give a path"))?;
    let (workload, timeout) = (context.workload.clone(), context.timeout);
    let scope = Scope::new(job, &workload);
    let clean_up = || clean_up::run(&kubeconfig, &scope, timeout);
    // What a first attempt left that was killed.
    let left_over = clean_up()?;
    let mut ending = match left_over {
        Ok(()) => {
            let requests = Requests::of(&workload, parameters.operation, &kubeconfig)?;
            let around = Surroundings { onlooker: Some(&requests), ..*around };
            load::run::<Kubernetes>(context, Plan::new(&kubeconfig, &scope, parameters), &around)?
        }
        Err(failure) => Ending { summary: None, outcome: store_failed(&workload, &failure) },
    };
    if let Err(failure) = clean_up()? {
        match ending.outcome {
            JobOutcome::Completed => ending.outcome = store_failed(&workload, &failure),
            // What went wrong before explains it.
            _ => around.report.warn(&format!("{workload}: {failure}")),
        }
    }
    Ok(ending)
}

fn store_failed(workload: &str, failure: &Failure) -> JobOutcome {
    JobOutcome::StoreFailed { workload: workload.into(), detail: failure.text().into() }
}

/// What all threads of one workload share.
#[derive(Debug)]
pub struct Plan {
    kubeconfig: String,
    scope: Scope,
    parameters: KubernetesWorkload,
    /// What must be there at the end.
    expected: Expected,
    /// How many objects the warm-up and the measured phase have named.
    named: [AtomicU64; 2],
    /// Whether the objects that all clients need are there.
    is_ready: tokio::sync::watch::Sender<bool>,
}

impl Plan {
    fn new(kubeconfig: &str, scope: &Scope, parameters: &KubernetesWorkload) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
            scope: scope.clone(),
            parameters: parameters.clone(),
            expected: Expected::default(),
            named: Default::default(),
            is_ready: tokio::sync::watch::Sender::new(false),
        }
    }

    fn operation(&self) -> KubernetesOperation {
        self.parameters.operation
    }

    /// The number of the next object of a phase.
    fn next_number(&self, phase: Phase) -> u64 {
        self.named[usize::from(phase == Phase::Measure)].fetch_add(1, Ordering::Relaxed)
    }

    /// The name of the next object of a phase.
    fn next_name(&self, phase: Phase) -> String {
        self.scope.object(phase, self.next_number(phase))
    }

    /// The name of an object that is there before the load.
    fn prepared(number: u32) -> String {
        format!("prepared-{number}")
    }
}

/// One thread's clients of the API server, and whom it watches.
pub struct Kubernetes {
    plan: Arc<Plan>,
    seat: Rc<Seat>,
    /// By index into the seat's connections.
    clients: Vec<Client>,
    deployments: OnceCell<Rc<Hub<Deployment>>>,
    pods: OnceCell<Rc<Hub<Pod>>>,
    jobs: OnceCell<Rc<Hub<Job>>>,
    namespaces: OnceCell<Rc<Hub<Namespace>>>,
    /// By client: the revision that its Deployment's pods are of.
    revisions: RefCell<HashMap<u32, u64>>,
    fan_out: FanOut,
}

impl Kubernetes {
    fn client(&self, session: &Session) -> Client {
        self.clients[session.connection() as usize].clone()
    }

    /// Objects of a kind in the workload's namespace.
    fn api<K>(&self, session: &Session) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(session), &self.plan.scope.namespace())
    }

    /// The numbers of the prepared objects that a client owns and alone changes.
    fn own_objects(&self, session: &Session) -> impl Iterator<Item = u32> + use<> {
        (session.client()..self.plan.parameters.objects()).step_by(self.seat.context.clients as usize)
    }

    /// The data of an object's version.
    fn content(&self, name: &str, version: u64) -> String {
        content::write(self.seat.context.seed, name, version, self.plan.parameters.object_bytes)
    }

    /// What is wrong with the data of an object that should be of this version.
    fn mismatch(&self, name: &str, version: u64, found: Option<&str>) -> Option<String> {
        content::mismatch(self.seat.context.seed, name, version, self.plan.parameters.object_bytes, found)
    }
}

/// A hub that was opened in Prepare, where failing to open it ended the workload.
fn opened<K>(hub: &OnceCell<Rc<Hub<K>>>) -> Result<&Rc<Hub<K>>, Failure> {
    hub.get().ok_or_else(|| Failure::new("nothing is watched"))
}

/// What an API server answered to `doing` with `name`, as the loader says it.
fn answered<T>(answer: kube::Result<T>, doing: &str, name: &str) -> Result<T, Failure> {
    answer.map_err(|error| connection::failure(doing, name, &error))
}

/// A request that is not part of the load, bounded by the timeout.
async fn aside<T>(session: &Session, request: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut batch = session.begin(1);
    let answer = request.await?;
    session.answered_uncounted(&mut batch, 1);
    Ok(answer)
}

/// Creates an object that is there before the load.
async fn create_prepared<K>(session: &Session, api: &Api<K>, object: &K) -> Result<(), Failure>
where
    K: kube::Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let doing = format!("create {}", K::kind(&()));
    let created = async { answered(api.create(&PostParams::default(), object).await, &doing, &object.name_any()) };
    aside(session, created).await.map(drop)
}

impl Family for Kubernetes {
    type Plan = Plan;

    async fn connect(plan: Arc<Plan>, seat: Rc<Seat>) -> Result<Self, Failure> {
        let mut clients = Vec::with_capacity(seat.connections.len());
        for _ in &seat.connections {
            clients.push(connection::connect(&plan.kubeconfig, seat.context.timeout).await?);
        }
        Ok(Self {
            clients,
            deployments: OnceCell::new(),
            pods: OnceCell::new(),
            jobs: OnceCell::new(),
            namespaces: OnceCell::new(),
            revisions: RefCell::default(),
            fan_out: FanOut::default(),
            plan,
            seat,
        })
    }

    async fn prepare(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        prepare::run(&self, &session).await
    }

    async fn load(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        let session = Rc::new(session);
        match self.plan.operation() {
            KubernetesOperation::CreateNamespaces => create::namespaces(&self, &session).await,
            KubernetesOperation::CreateConfigMaps => create::config_maps(&self, &session).await,
            KubernetesOperation::DeployAndScale => rollout::deploy_and_scale(&self, &session).await,
            KubernetesOperation::RollingUpdate => rollout::update(&self, &session).await,
            KubernetesOperation::DeleteNamespaces => delete::load(&self, &session).await,
            KubernetesOperation::ListAndWatch => fan_out::load(&self, &session).await,
            KubernetesOperation::CreateJobs => jobs::load(&self, &session).await,
            KubernetesOperation::CustomResourceChurn => custom::load(&self, &session).await,
            KubernetesOperation::NodeHeartbeats => heartbeats::load(&self, &session).await,
            KubernetesOperation::MixedChurn => mixed::load(&self, &session).await,
        }
    }

    async fn verify(self: Rc<Self>, session: Session) -> Result<(), Failure> {
        match session.client() {
            0 => read_back::run(&self, &session).await,
            _ => Ok(()),
        }
    }
}

/// Now: an answer was read.
fn now() -> Instant {
    Instant::now()
}
