//! ControlPlane: dereference, validate, build, apply, observe, status, in that order.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::runtime::controller::Action;
use kube::{Api, Resource as _, ResourceExt as _};
use storebench_core::archive::COMPONENT_LABEL;
use storebench_core::conditions::{ServiceState, of_control_plane};
use storebench_core::control_plane::{self as core, ValidatedControlPlane};
use storebench_core::reason::Reason;
use storebench_core::validate;
use storebench_crds::control_plane::{ControlPlaneStatus, SecretRef};
use storebench_crds::{ControlPlane, StorageService};

use crate::apply::{apply, check_owner, create};
use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::events;
use crate::health::{self, Health, Trouble};
use crate::kind::{self, Conditions, Kind, Named, Said, Waits, report, stall};
use crate::meter;
use crate::objects::control_plane::{self, ControlPlaneObjects, ControlPlaneRequest};
use crate::objects::store::METER_PORT;
use crate::objects::{self, CONTROL_PLANE, CONTROL_PLANE_LABEL, Labels, Owner, Place, names};
use crate::queue::is_true;

/// A control plane that may be one this version cannot read.
pub type Guarded = kind::Guarded<ControlPlane>;

/// While a control plane starts, a look is due this often, should an event be missed.
const STARTING_INTERVAL: Duration = Duration::from_secs(15);
/// One that may yet recover by itself is looked at again after this.
const STALLED_INTERVAL: Duration = Duration::from_secs(60);

impl Kind for ControlPlane {
    type State = ServiceState;
    const NAME: &'static str = "ControlPlane";
    const STALLED: fn(Reason) -> ServiceState = ServiceState::Stalled;
    const CONDITIONS: Conditions<ServiceState> = of_control_plane;
    const MESSAGE_BYTES_MAX: usize = 1_024;

    async fn advance(&self, context: &Context) -> Result<Action, Error> {
        reconcile(self, context).await
    }

    async fn refused(&self, error: &Error, context: &Context) -> Result<Action, Error> {
        stall(self, ControlPlaneStatus::default(), &error.trouble(), context).await?;
        Ok(Action::requeue(kind::REFUSED_INTERVAL))
    }

    fn conditions(status: &ControlPlaneStatus) -> &[Condition] {
        &status.conditions
    }

    fn said(status: &mut ControlPlaneStatus) -> Said<'_> {
        let ControlPlaneStatus { observed_generation, conditions, .. } = status;
        Said { observed_generation, conditions, message: None }
    }
}

impl Named for ControlPlane {
    const MISSING: Reason = Reason::ControlPlaneMissing;
    const INVALID: Reason = Reason::InvalidControlPlane;
}

/// Brings one control plane to what its spec says.
async fn reconcile(plane: &ControlPlane, context: &Context) -> Result<Action, Error> {
    // Everything is owned by the control plane and goes with it; there is nothing to wait for.
    if plane.meta().deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let owner = Owner::of(plane, CONTROL_PLANE_LABEL)
        .ok_or(Error::Incomplete("a ControlPlane without name, uid or namespace"))?;
    let valid = match carried(plane, &owner.namespace, context).await? {
        Ok(valid) => valid,
        Err(waits) => {
            let found = ControlPlaneStatus::default();
            match waits {
                Waits::ForAnother(message) => {
                    report(plane, found, ServiceState::Starting, &message, context).await?;
                }
                Waits::ForUser(trouble) => stall(plane, found, &trouble, context).await?,
            }
            // The service is watched; another control plane that was there first is not.
            return Ok(Action::requeue(STALLED_INTERVAL));
        }
    };
    let name = names::control_plane(&plane.name_any());
    let request = ControlPlaneRequest {
        control_plane: &valid,
        name: &name,
        store: &names::store(&valid.service.name),
        instance: &name,
        owner: &owner,
        labels: &Labels::new(),
        operator_namespace: &context.settings.operator_namespace,
        images: &context.settings.images,
        place: &Place::default(),
    };
    deploy(&request, context).await?;
    observe(plane, &owner, &name, context).await
}

/// Applies every object of a control plane. Keys are made once: an operator that takes over finds and keeps them.
pub async fn deploy(request: &ControlPlaneRequest<'_>, context: &Context) -> Result<(), Error> {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), &request.owner.namespace);
    let get = async || secrets.get_opt(request.name).await.tried(|| format!("get Secret {}", request.name));
    let files = match get().await? {
        Some(files) => {
            check_owner::<Secret>(&files.metadata, &request.owner.metadata(request.name, &Labels::new()))?;
            files
        }
        None => {
            create(&context.client, &control_plane::secret(request, SystemTime::now())?).await?;
            get().await?.ok_or_else(|| Error::StillThere(format!("Secret {}", request.name)))?
        }
    };
    let kubeconfig = control_plane::kubeconfig(request, &files).ok_or(Error::Incomplete(
        "the Secret of a control plane, which lacks the administrator's kubeconfig: delete it",
    ))?;
    apply(&context.client, &kubeconfig).await?;
    // Without `..`: an object that is forgotten here does not compile.
    let ControlPlaneObjects { stateful_set, service, network_policy } = control_plane::build(request);
    apply(&context.client, &network_policy).await?;
    apply(&context.client, &service).await?;
    apply(&context.client, &stateful_set).await
}

/// The control plane, validated, if its store can carry it now. The inner error: what it waits for before anything of it is started.
async fn carried(
    plane: &ControlPlane,
    namespace: &str,
    context: &Context,
) -> Result<Result<ValidatedControlPlane, Waits>, Error> {
    let stalled = |reason, message| Ok(Err(Waits::ForUser(Trouble { reason, message })));
    let name = &plane.spec.service_ref.name;
    let service = match kind::find::<StorageService>(name, namespace, context).await? {
        Ok(service) => service,
        Err(trouble) => return Ok(Err(Waits::ForUser(trouble))),
    };
    let validated = match validate::service(&service) {
        Ok(validated) => validated,
        Err(problem) => return stalled(StorageService::INVALID, problem.to_string()),
    };
    let valid = match core::validate(plane, &[validated]) {
        Ok(valid) => valid,
        Err(problem) => return stalled(Reason::InvalidSpec, problem.to_string()),
    };
    if let Some(elder) = elder(plane, namespace, context).await? {
        let message = format!("ControlPlane/{elder} is in StorageService/{name} already: name a service of its own");
        return stalled(Reason::ServiceTaken, message);
    }
    let conditions = service.status.map(|status| status.conditions).unwrap_or_default();
    let refused = conditions.iter().find(|one| one.type_ == "ProtocolReady" && one.status == "False");
    if let Some(refused) = refused {
        let message = format!("StorageService/{name} cannot hold a Kubernetes cluster: {}", refused.message);
        return stalled(Reason::StoreUnfit, message);
    }
    if !is_true(&conditions, "Ready") {
        return Ok(Err(Waits::ForAnother(format!("StorageService/{name} is not ready"))));
    }
    Ok(Ok(valid))
}

/// Who was first in the same store: two clusters there would be one.
async fn elder(plane: &ControlPlane, namespace: &str, context: &Context) -> Result<Option<String>, Error> {
    let planes = Api::<Guarded>::namespaced(context.client.clone(), namespace);
    let all = planes.list(&ListParams::default()).await.tried(|| "list ControlPlanes".into())?;
    let age = |plane: &ControlPlane| (plane.creation_timestamp(), plane.name_any());
    let others = all.items.iter().filter_map(|other| other.0.as_ref().ok());
    let mut elder = others
        .filter(|other| other.spec.service_ref == plane.spec.service_ref && age(other) < age(plane))
        .map(|other| other.name_any());
    Ok(elder.next())
}

async fn observe(plane: &ControlPlane, owner: &Owner, name: &str, context: &Context) -> Result<Action, Error> {
    let labels = format!("{},{COMPONENT_LABEL}={CONTROL_PLANE}", objects::of_control_plane(&plane.name_any()));
    let pods = Api::<Pod>::namespaced(context.client.clone(), &owner.namespace)
        .list(&ListParams::default().labels(&labels))
        .await
        .tried(|| "list Pods".into())?
        .items;
    let member = control_plane::member(name);
    let meter = pods.iter().find(|pod| pod.name_any() == member).and_then(|pod| pod.status.as_ref()?.pod_ip.clone());
    let meter = meter.map(|address| objects::socket_address(&address, METER_PORT));
    let address = format!("https://{}", control_plane::address(name, &owner.namespace));
    let mut found = ControlPlaneStatus {
        endpoints: BTreeMap::from([("api".to_owned(), address)]),
        kubeconfig_secret_ref: Some(SecretRef { name: names::kubeconfig(name) }),
        ..ControlPlaneStatus::default()
    };
    match health::of_members(&[member], &pods, Timestamp::now()) {
        Health::Ready => {
            let address = meter.unwrap_or_default();
            // Asked anew: nodes are created again where the store has lost them.
            let ready = meter::text(&address, "/readyz?anew=true").await;
            found.version = meter::text(&address, "/version").await.ok();
            match (ready, &found.version) {
                (Ok(_), Some(version)) => {
                    let message = format!("Kubernetes {version} serves, {} nodes take pods", plane.spec.nodes);
                    let state = ServiceState::Ready { protocol: None };
                    if report(plane, found, state, &message, context).await? {
                        events::ready(context, plane, &message).await;
                    }
                    Ok(Action::await_change())
                }
                (ready, _) => {
                    let message = ready.err().unwrap_or_else(|| "the API server does not tell its version yet".into());
                    report(plane, found, ServiceState::Starting, &message, context).await?;
                    Ok(Action::requeue(STARTING_INTERVAL))
                }
            }
        }
        Health::Starting(message) => {
            let waits = match &meter {
                Some(address) => meter::text(address, "/readyz").await.err(),
                None => None,
            };
            report(plane, found, ServiceState::Starting, &waits.unwrap_or(message), context).await?;
            Ok(Action::requeue(STARTING_INTERVAL))
        }
        Health::Failed(trouble) => {
            stall(plane, found, &trouble.into(), context).await?;
            Ok(Action::requeue(STALLED_INTERVAL))
        }
    }
}
