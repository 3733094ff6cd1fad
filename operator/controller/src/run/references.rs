//! What a run refers to: services, control planes, clusters and workloads, read from the API server and validated.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, ResourceExt as _};
use ring::hmac;
use storebench_core::archive::{COMPONENT_LABEL, RUN_LABEL};
use storebench_core::control_plane::{self as core, ValidatedControlPlane};
use storebench_core::fingerprint;
use storebench_core::reason::Reason;
use storebench_core::trial::kills;
use storebench_core::validate::{self, ExternalStore, Referable, ValidatedArm, ValidatedRun, ValidatedService};
use storebench_crds::benchmark_run::WorkloadRef;
use storebench_crds::{BenchmarkRun, ControlPlane, Isolation, StorageService, Workload, WorkloadTemplate};

use super::clusters::{self, Cluster};
use super::observe::{Identity, head};
use super::step::Members;
use crate::context::Context;
use crate::error::Error;
use crate::health::Trouble;
use crate::kind::{self, Named};
use crate::objects::{
    self, COMPANION, CONTROL_PLANE, CONTROL_PLANE_LABEL, Labels, Owner, SERVICE_LABEL, STORE, control_plane, names,
    store,
};
use crate::secrets;

/// A run with everything that it refers to.
#[derive(Debug)]
pub struct References {
    /// The run, planned.
    pub run: ValidatedRun,
    /// The services and control planes as they are now, and until the run has begun the templates of its workloads, by kind and name; a service by
    /// its name alone.
    pub identities: BTreeMap<String, Identity>,
    /// How the clusters that are there already are reached, by arm.
    pub clusters: BTreeMap<String, Cluster>,
    /// The external stores whose Secret for TLS has a certificate to show, by the names of their services.
    pub certificates: BTreeSet<String>,
    /// Whether the services' and control planes' own pods are loaded.
    pub is_shared: bool,
}

/// Reads and validates. The inner error is the user's to mend.
pub async fn dereference(
    run: &BenchmarkRun,
    namespace: &str,
    context: &Context,
) -> Result<Result<References, Trouble>, Error> {
    let mut reader = Reader {
        context,
        namespace,
        secrets_key: context.signer.secrets_key(&run.uid().unwrap_or_default()),
        identities: BTreeMap::new(),
        services: Vec::new(),
        control_planes: Vec::new(),
        clusters: BTreeMap::new(),
        certificates: BTreeSet::new(),
    };
    let workloads = match reader.workloads(run).await? {
        Ok(workloads) => workloads,
        Err(trouble) => return Ok(Err(trouble)),
    };
    for arm in &run.spec.arms {
        let read = match (&arm.service_ref, &arm.control_plane_ref, &arm.kubeconfig_secret_ref) {
            (_, _, Some(secret)) => reader.cluster(&arm.name, &secret.name).await?,
            (_, Some(plane), None) => reader.control_plane(&arm.name, &plane.name).await?,
            (Some(service), None, None) => reader.service(&arm.name, &service.name).await?,
            // The schema allows no arm that refers to nothing.
            (None, None, None) => Ok(()),
        };
        if let Err(trouble) = read {
            return Ok(Err(trouble));
        }
    }
    let Reader { identities, services, control_planes, clusters, certificates, .. } = reader;
    let is_shared = run.spec.isolation == Isolation::Shared;
    let referable = Referable {
        services: &services,
        control_planes: &control_planes,
        workloads: &workloads,
        ..Referable::default()
    };
    let valid = validate::run(run, &referable);
    Ok(match valid.and_then(|run| validate::for_cluster(&run).map(|()| run)) {
        Ok(run) => Ok(References { run, identities, clusters, certificates, is_shared }),
        Err(problem) => Err(Trouble { reason: Reason::InvalidSpec, message: problem.to_string() }),
    })
}

/// Reads each object once.
struct Reader<'a> {
    context: &'a Context,
    namespace: &'a str,
    secrets_key: hmac::Key,
    identities: BTreeMap<String, Identity>,
    services: Vec<ValidatedService>,
    control_planes: Vec<ValidatedControlPlane>,
    clusters: BTreeMap<String, Cluster>,
    certificates: BTreeSet<String>,
}

impl Named for WorkloadTemplate {
    const MISSING: Reason = Reason::WorkloadTemplateMissing;
    const INVALID: Reason = Reason::InvalidWorkloadTemplate;
}

impl Reader<'_> {
    /// The workloads that a run takes from templates: as they were when it began, whatever has become of the templates.
    async fn workloads(&mut self, run: &BenchmarkRun) -> Result<Result<Vec<Workload>, Trouble>, Error> {
        if run.spec.workload_refs.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let owner =
            Owner::of(run, RUN_LABEL).ok_or(Error::Incomplete("a BenchmarkRun without name, uid or namespace"))?;
        if let Some(head) = head(self.context, &owner).await? {
            return Ok(Ok(head.record.spec.workloads));
        }
        let mut workloads = Vec::new();
        for WorkloadRef { name } in &run.spec.workload_refs {
            let template = match kind::find::<WorkloadTemplate>(name, self.namespace, self.context).await? {
                Ok(template) => template,
                Err(trouble) => return Ok(Err(trouble)),
            };
            let workload = template.spec.named(name);
            let identity = Identity { content: Some(fingerprint::of_workload(&workload)), ..identity(&template) };
            self.identities.insert(format!("WorkloadTemplate/{name}"), identity);
            workloads.push(workload);
        }
        Ok(Ok(workloads))
    }

    async fn service(&mut self, arm: &str, name: &str) -> Result<Result<(), Trouble>, Error> {
        if self.identities.contains_key(name) {
            return Ok(Ok(()));
        }
        let service = match self.get::<StorageService>(arm, name).await? {
            Ok(service) => service,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let validated =
            validate::service(&service).and_then(|service| validate::for_kubernetes(&service).map(|()| service));
        Ok(match validated {
            Ok(validated) => {
                match secrets::of_service(&validated, self.namespace, self.context).await? {
                    Ok(secrets) => {
                        secrets.iter().for_each(|secret| self.note(secret));
                        if secrets::show_certificate(&validated, &secrets) {
                            self.certificates.insert(name.into());
                        }
                    }
                    Err(trouble) => return Ok(Err(trouble)),
                }
                self.services.push(validated);
                self.identities.insert(name.into(), identity(&service));
                Ok(())
            }
            Err(problem) => Err(Trouble { reason: StorageService::INVALID, message: problem.to_string() }),
        })
    }

    async fn control_plane(&mut self, arm: &str, name: &str) -> Result<Result<(), Trouble>, Error> {
        let key = format!("ControlPlane/{name}");
        if self.identities.contains_key(&key) {
            return Ok(Ok(()));
        }
        let plane = match self.get::<ControlPlane>(arm, name).await? {
            Ok(plane) => plane,
            Err(trouble) => return Ok(Err(trouble)),
        };
        if let Err(trouble) = self.service(arm, &plane.spec.service_ref.name).await? {
            return Ok(Err(trouble));
        }
        Ok(match core::validate(&plane, &self.services) {
            Ok(validated) => {
                self.control_planes.push(validated);
                self.identities.insert(key, identity(&plane));
                Ok(())
            }
            Err(problem) => Err(Trouble { reason: ControlPlane::INVALID, message: problem.to_string() }),
        })
    }

    async fn cluster(&mut self, arm: &str, name: &str) -> Result<Result<(), Trouble>, Error> {
        let secret = match clusters::secret(arm, name, self.namespace, self.context).await? {
            Ok(secret) => secret,
            Err(trouble) => return Ok(Err(trouble)),
        };
        Ok(clusters::read(arm, name, &secret).map(|cluster| {
            self.clusters.insert(arm.into(), cluster);
            self.note(&secret);
        }))
    }

    /// What a Secret was: pods take it anew in each trial.
    fn note(&mut self, secret: &Secret) {
        let identity = Identity { content: Some(secrets::content(secret, &self.secrets_key)), ..identity(secret) };
        self.identities.insert(format!("Secret/{}", secret.name_any()), identity);
    }

    /// An object that an arm names.
    async fn get<K: Named>(&self, arm: &str, name: &str) -> Result<Result<K, Trouble>, Error> {
        let found = kind::find::<K>(name, self.namespace, self.context).await?;
        Ok(found.map_err(|trouble| Trouble { message: format!("arm {arm}: {}", trouble.message), ..trouble }))
    }
}

fn identity<K: Resource>(object: &K) -> Identity {
    let generation = object.meta().generation.unwrap_or_default();
    Identity { uid: object.uid().unwrap_or_default(), generation, content: None }
}

impl References {
    /// An arm as it was asked for.
    pub fn arm(&self, name: &str) -> Option<&ValidatedArm> {
        self.run.arms.iter().find(|arm| arm.name == name)
    }

    /// The service of an arm, where it is deployed.
    pub fn service(&self, arm: &str) -> Option<&ValidatedService> {
        self.arm(arm)?.service()
    }

    /// The store of an arm, where it was there already.
    pub fn external(&self, arm: &str) -> Option<&ExternalStore> {
        self.arm(arm)?.external()
    }

    /// The control plane of an arm, where it has one.
    pub fn control_plane(&self, arm: &str) -> Option<&ValidatedControlPlane> {
        self.arm(arm)?.control_plane()
    }

    /// The name of the objects of the control plane that a trial of an arm loads.
    pub fn control_plane_name(&self, arm: &str, trial: &str) -> Option<String> {
        let plane = self.control_plane(arm)?;
        Some(names::control_plane(if self.is_shared { &plane.name } else { trial }))
    }

    /// The name of the objects of the store that a trial of an arm loads.
    pub fn store_name(&self, service: &ValidatedService, trial: &str) -> String {
        if self.is_shared { names::store(&service.name) } else { trial.to_owned() }
    }

    /// Names of the pods that an arm's load meets.
    pub fn members(&self, arm: &str, trial: &str) -> Members {
        let Some(service) = self.service(arm) else { return Members::default() };
        let name = self.store_name(service, trial);
        Members {
            companions: store::companions(service, &name),
            store: store::members(service, &name),
            control_plane: self.control_plane_name(arm, trial).map(|name| control_plane::member(&name)),
            is_shared: self.is_shared,
            kills: kills(&self.run),
        }
    }

    /// The labels of the service and the control plane of an arm, where they are themselves loaded.
    pub fn shared(&self, arm: &str) -> Vec<Labels> {
        if !self.is_shared {
            return Vec::new();
        }
        let Some(arm) = self.arm(arm) else { return Vec::new() };
        let service = arm.service().map(|service| (SERVICE_LABEL, &service.name));
        let plane = arm.control_plane().map(|plane| (CONTROL_PLANE_LABEL, &plane.name));
        let label = |(label, name): (&str, &String)| Labels::from([(label.to_owned(), name.clone())]);
        service.into_iter().chain(plane).map(label).collect()
    }

    /// What selects the pods of services and control planes that are themselves loaded.
    pub fn shared_pods(&self) -> Vec<String> {
        if !self.is_shared {
            return Vec::new();
        }
        let of_arm = |arm: &ValidatedArm| {
            let service = arm.service().into_iter();
            let service = service.flat_map(|one| [STORE, COMPANION].map(|part| (objects::of_service(&one.name), part)));
            let plane = arm.control_plane().map(|plane| (objects::of_control_plane(&plane.name), CONTROL_PLANE));
            service.chain(plane).collect::<Vec<_>>()
        };
        let mut selectors: Vec<String> = self.run.arms.iter().flat_map(of_arm).map(selector).collect();
        selectors.sort();
        selectors.dedup();
        selectors
    }

    /// Why trials from now on would not be comparable with those before: a service or control plane is not what it was.
    pub fn changed_since(&self, then: &BTreeMap<String, Identity>) -> Option<Trouble> {
        let changed = self.identities.iter().find(|(name, now)| then.get(*name).is_some_and(|then| then != *now))?.0;
        let (object, reason) = match changed.split_once('/') {
            Some(("Secret", _)) => (changed.clone(), Reason::SecretChanged),
            // Whoever had this operator's place before has begun the run with another one.
            Some(("WorkloadTemplate", _)) => (changed.clone(), Reason::WorkloadTemplateChanged),
            Some(_) => (changed.clone(), Reason::ControlPlaneChanged),
            None => (format!("StorageService/{changed}"), Reason::ServiceChanged),
        };
        Some(Trouble { reason, message: format!("{object} was changed while the run was under way: make a new run") })
    }
}

fn selector((owner, component): (String, &str)) -> String {
    format!("{owner},{COMPONENT_LABEL}={component}")
}
