//! Validated services and requests for their objects, as tests have them: each test changes what it is about.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use storebench_core::engine::Engine;
use storebench_core::validate::{self, ValidatedService};
use storebench_crds::engine::Companion;
use storebench_crds::storage_service::VolumeRetention;
use storebench_crds::{EngineKind, StorageService};

use super::load::LoadRequest;
use super::store::StoreRequest;
use super::{Labels, Owner, Place};
use crate::settings::Settings;

pub(super) fn settings() -> Settings {
    clap::Parser::parse_from(["storebench-operator"])
}

pub(super) fn service(spec: &Value) -> ValidatedService {
    let service = StorageService::new("store", serde_json::from_value(spec.clone()).unwrap());
    validate::service(&service).unwrap()
}

/// The same of an engine that needs an object store.
pub(super) fn with_object_store(spec: &Value) -> ValidatedService {
    let mut service = service(spec);
    let companions = &[Companion { role: "object-store", engine: EngineKind::Versitygw }];
    service.engine = Box::leak(Box::new(Engine { companions, ..*service.engine }));
    service.companions = validate::companions(service.engine, &service.name);
    service
}

/// For the store of a trial of that name, or of a service that stands by itself.
pub(super) fn store<T>(
    service: &ValidatedService,
    owner: &Owner,
    name: &str,
    build: impl FnOnce(&StoreRequest) -> T,
) -> T {
    build(&StoreRequest {
        service,
        name,
        owner,
        labels: &Labels::new(),
        retention: VolumeRetention::Delete,
        has_fault_proxy: false,
        strike_token: None,
        operator_namespace: "storebench-system",
        images: &settings().images,
        place: &Place::default(),
    })
}

/// For a load that is alone in its pod. `spec` is its [`JobSpec`](storebench_crds::job::JobSpec).
pub(super) fn load<T>(spec: Value, owner: &Owner, name: &str, build: impl FnOnce(LoadRequest) -> T) -> T {
    build(LoadRequest {
        spec: serde_json::from_value(spec).unwrap(),
        name,
        owner,
        labels: &Labels::new(),
        kubeconfig: None,
        shared: Vec::new(),
        is_struck: false,
        outside_ports: Vec::new(),
        shows_certificate: false,
        beside: None,
        deadline_seconds: 60,
        started_at: "2026-11-22T00:00:00Z",
        settings: &settings(),
        place: &Place::default(),
    })
}
