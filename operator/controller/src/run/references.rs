//! What a run refers to: its services, read from the API server and validated.

use std::collections::BTreeMap;

use kube::{Api, ResourceExt as _};
use storebench_core::validate::{self, ValidatedRun, ValidatedService};
use storebench_crds::{BenchmarkRun, Isolation, StorageService};

use super::observe::Identity;
use crate::context::Context;
use crate::error::{Error, Tried as _};

/// A service's spec can be corrected, a run's cannot: who waits for a run is told by the reason.
const INVALID_SERVICE: &str = "InvalidService";

/// A run with its services.
#[derive(Debug)]
pub struct References {
    /// The run, planned.
    pub run: ValidatedRun,
    /// The services as they are now, by name.
    pub services: BTreeMap<String, Identity>,
    /// Whether the services' own pods are loaded.
    pub is_shared: bool,
}

/// Why a run cannot go on unless its user changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// CamelCase, one word.
    pub reason: &'static str,
    /// In one line, with the remedy.
    pub message: String,
}

/// Reads and validates. The inner error is the user's to mend.
pub async fn dereference(
    run: &BenchmarkRun,
    namespace: &str,
    context: &Context,
) -> Result<Result<References, Problem>, Error> {
    let api = Api::<StorageService>::namespaced(context.client.clone(), namespace);
    let mut services = BTreeMap::new();
    let mut validated: Vec<ValidatedService> = Vec::new();
    for arm in &run.spec.arms {
        let Some(service_ref) = &arm.service_ref else {
            let message = format!(
                "arm {}: controlPlaneRef is not available in a cluster yet: run it with `storebench run`, or give a serviceRef",
                arm.name
            );
            return Ok(Err(Problem { reason: "InvalidSpec", message }));
        };
        let name = &service_ref.name;
        if services.contains_key(name) {
            continue;
        }
        let service = match api.get_opt(name).await {
            Ok(service) => service,
            Err(kube::Error::SerdeError(error)) => {
                let message = format!("StorageService/{name} cannot be read by this version: {error}");
                return Ok(Err(Problem { reason: INVALID_SERVICE, message }));
            }
            Err(error) => return Err(error).tried(|| format!("get StorageService {name}")),
        };
        let Some(service) = service.filter(|service| service.metadata.deletion_timestamp.is_none()) else {
            let message =
                format!("arm {}: there is no StorageService/{name} in namespace {namespace}: create it", arm.name);
            return Ok(Err(Problem { reason: "ServiceMissing", message }));
        };
        match validate::service(&service).and_then(|service| validate::for_kubernetes(&service).map(|()| service)) {
            Ok(service) => validated.push(service),
            Err(problem) => {
                return Ok(Err(Problem { reason: INVALID_SERVICE, message: problem.to_string() }));
            }
        }
        let identity = Identity {
            uid: service.uid().unwrap_or_default(),
            generation: service.metadata.generation.unwrap_or_default(),
        };
        services.insert(name.clone(), identity);
    }
    let is_shared = run.spec.isolation == Isolation::Shared;
    Ok(match validate::run(run, &validated, &[]) {
        Ok(run) => Ok(References { run, services, is_shared }),
        Err(problem) => Err(Problem { reason: "InvalidSpec", message: problem.to_string() }),
    })
}

impl References {
    /// The service of an arm.
    pub fn service(&self, arm: &str) -> Option<&ValidatedService> {
        self.run.arms.iter().find(|candidate| candidate.name == arm).map(|arm| &arm.service)
    }

    /// Services whose own pods are loaded.
    pub fn shared_services(&self) -> Vec<&str> {
        if self.is_shared { self.services.keys().map(String::as_str).collect() } else { Vec::new() }
    }

    /// Why trials from now on would not be comparable with those before: a service is not what it was.
    pub fn changed_since(&self, then: &BTreeMap<String, Identity>) -> Option<Problem> {
        let changed = self.services.iter().find(|(name, now)| then.get(*name).is_some_and(|then| then != *now))?;
        let message = format!("StorageService/{} was changed while the run was under way: make a new run", changed.0);
        Some(Problem { reason: "ServiceChanged", message })
    }
}
