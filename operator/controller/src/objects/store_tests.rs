//! What stores of several roles become in a cluster.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use storebench_core::archive::COMPONENT_LABEL;
use storebench_core::engine::Engine;

use super::*;
use crate::objects::LOAD;
use crate::objects::fixture::{self, service, with_object_store};
use crate::objects::load::{self, LOAD_CONTAINER, LoadRequest};
use crate::settings::Settings;

/// A store that replicates the files of the load to an object store. Valkey's executable stands for its own.
fn replicator() -> ValidatedService {
    let mut service = with_object_store(&serde_json::json!({ "engine": "Valkey", "storage": { "size": "1Gi" } }));
    service.engine = Box::leak(Box::new(Engine { shares_directory: true, ..*service.engine }));
    service
}

fn owner() -> Owner {
    Owner { namespace: "benchmarks".into(), reference: OwnerReference::default(), labels: Labels::new() }
}

fn with<T>(service: &ValidatedService, build: impl FnOnce(&StoreRequest) -> T) -> T {
    fixture::store(service, &owner(), "trial", build)
}

fn with_images<T>(service: &ValidatedService, images: &Images, build: impl FnOnce(&StoreRequest) -> T) -> T {
    with(service, |request| build(&StoreRequest { images, ..request.clone() }))
}

fn pod(role: &RoleObjects) -> &PodSpec {
    role.stateful_set.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}

fn words(container: &Container) -> &[String] {
    container.args.as_deref().unwrap_or_default()
}

#[test]
fn members_of_a_replicated_store_share_a_command_line_and_keep_a_majority() {
    let service = service(&serde_json::json!({ "engine": "Etcd", "replicas": 3 }));
    let StoreObjects { companions, store } = with(&service, build);
    assert_eq!(companions, []);
    let store = store.unwrap();
    assert!(store.disruption_budget.is_some() && store.files.is_none());
    let pod = pod(&store);
    let arguments = words(&pod.containers[0]);
    assert!(arguments.contains(&"--name=$(POD_NAME)".into()), "{arguments:?}");
    let cluster = arguments.iter().find(|argument| argument.starts_with("--initial-cluster=")).unwrap();
    assert!(cluster.contains("trial-2=http://trial-2.trial.benchmarks.svc:2380"), "{cluster}");
    let meter = &pod.init_containers.as_ref().unwrap()[0];
    assert!(words(meter).contains(&"--ready=protocol".into()), "{:?}", words(meter));
    assert_eq!(members(&service, "trial"), ["trial-0", "trial-1", "trial-2"]);
    assert!(with(&service, beside_load).is_none());
}

/// Companions can be given no image by their user: without this a cluster with a registry of its own could run none.
#[test]
fn engines_images_come_from_their_registry_and_named_ones_from_where_they_are() {
    let arguments = ["storebench-operator", "--engine-registry=registry.example/mirror/"];
    let images = <Settings as clap::Parser>::parse_from(arguments).images;
    let image = |container: &Container| container.image.clone().unwrap();
    let replicator = replicator();
    let companions = with_images(&replicator, &images, build).companions;
    let object_store = image(&pod(&companions[0]).containers[0]);
    assert!(object_store.starts_with("registry.example/mirror/storebench/versitygw:"), "{object_store}");
    let beside = with_images(&replicator, &images, beside_load).unwrap();
    assert!(image(&beside.sidecars[1]).starts_with("registry.example/mirror/storebench/"), "{beside:?}");
    let named = service(&serde_json::json!({ "engine": "Redis", "image": "elsewhere.example/redis:7" }));
    let store = with_images(&named, &images, build).store.unwrap();
    assert_eq!(image(&pod(&store).containers[0]), "elsewhere.example/redis:7");
    let plain = service(&serde_json::json!({ "engine": "Redis", "version": "7.0.15" }));
    let store = with(&plain, build).store.unwrap();
    assert_eq!(image(&pod(&store).containers[0]), "storebench/redis:7.0.15", "no registry is named");
}

#[test]
fn a_companion_has_pods_of_its_own_which_load_and_store_may_reach() {
    let service = replicator();
    let StoreObjects { companions: built, store } = with(&service, build);
    assert!(store.is_none(), "it runs beside the load");
    let [companion] = built.as_slice() else { panic!("one companion") };
    assert_eq!(companion.stateful_set.metadata.name.as_deref(), Some("trial-object-store"));
    assert_eq!(companions(&service, "trial"), ["trial-object-store-0"]);
    assert_eq!(members(&service, "trial"), Vec::<String>::new());
    let labels = companion.stateful_set.metadata.labels.as_ref().unwrap();
    assert_eq!((labels[COMPONENT_LABEL].as_str(), labels[ROLE_LABEL].as_str()), (COMPANION, "object-store"));
    // The pods, their names, and who may connect are selected alike, and apart from the store's. Its owner here has no labels.
    let selected = companion.stateful_set.spec.as_ref().unwrap().selector.match_labels.clone();
    assert_eq!(companion.service.spec.as_ref().unwrap().selector, selected);
    let policy = companion.network_policy.spec.as_ref().unwrap();
    assert_eq!(policy.pod_selector.as_ref().unwrap().match_labels, selected);
    let from = policy.ingress.as_ref().unwrap()[0].from.as_ref().unwrap();
    let may = |peer: &str| from.iter().any(|one| format!("{one:?}").contains(&format!("\"{peer}\"")));
    assert!(may(LOAD) && may(STORE), "{from:?}");
    // It is asked for its path, not for its protocol.
    let pod = pod(companion);
    let meter = words(&pod.init_containers.as_ref().unwrap()[0]);
    assert!(meter.contains(&"--ready=http:7070/healthz".into()), "{meter:?}");
    let container = &pod.containers[0];
    assert!(container.env.as_ref().unwrap().iter().any(|variable| variable.name == "ROOT_ACCESS_KEY"));
    // Its bucket is a directory, which the kubelet makes.
    let mounts = container.volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().any(|mount| mount.sub_path.as_deref() == Some("storebench")), "{mounts:?}");
    assert_eq!(
        companion_addresses(&service, "trial", "benchmarks"),
        BTreeMap::from([(
            "object-store".to_owned(),
            "trial-object-store-0.trial-object-store.benchmarks.svc:7070".to_owned()
        )])
    );
}

#[test]
fn a_store_beside_the_load_is_a_sidecar_that_answers_before_the_load_starts() {
    let service = replicator();
    let beside = with(&service, beside_load).unwrap();
    let [meter, store] = beside.sidecars.as_slice() else { panic!("meter and store") };
    for sidecar in [meter, store] {
        assert_eq!(sidecar.restart_policy.as_deref(), Some("Always"), "{}", sidecar.name);
    }
    assert_eq!((meter.name.as_str(), store.name.as_str()), ("meter", STORE_CONTAINER));
    assert!(words(meter).contains(&"--executable=valkey-server".into()), "the load is in the same pod");
    let asked = store.startup_probe.as_ref().unwrap().http_get.as_ref().unwrap();
    assert_eq!(asked.port, IntOrString::Int(i32::from(METER_PORT)));
    let volumes: Vec<&str> = beside.volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(volumes, ["data", "shared"]);
    assert!(beside.volumes[0].ephemeral.is_some(), "the claim goes with the pod");
    assert!(store.volume_mounts.as_ref().unwrap().contains(&beside.mount));
    assert_eq!(command(&service, "trial", "benchmarks", false)[0], "valkey-server");
}

#[test]
fn the_load_shares_its_pod_and_its_directory_with_such_a_store() {
    let service = replicator();
    let beside = with(&service, beside_load);
    let spec = serde_json::json!({
        "run": "run", "arm": "arm", "trial": 0, "seed": 1, "endpoints": ["127.0.0.1:6379"], "workloads": [],
        "companions": companion_addresses(&service, "trial", "benchmarks"),
    });
    let built =
        fixture::load(spec, &owner(), "trial", |request| load::build(LoadRequest { beside, ..request })).unwrap();
    let pod = built.job.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.share_process_namespace, Some(true), "the meter reads the store's /proc");
    assert_eq!(pod.init_containers.as_ref().unwrap().len(), 2);
    let load = &pod.containers[0];
    assert_eq!(load.name, LOAD_CONTAINER);
    let mount = &load.volume_mounts.as_ref().unwrap()[0];
    assert_eq!(mount.mount_path, SHARED_DIRECTORY);
    assert!(pod.volumes.as_ref().unwrap().iter().any(|volume| volume.name == mount.name));
    let job = load.env.as_ref().unwrap()[0].value.as_ref().unwrap();
    let job: storebench_crds::job::JobSpec = serde_json::from_str(job).unwrap();
    assert_eq!(job.shared_directory.as_deref(), Some(SHARED_DIRECTORY));
    assert!(job.companions["object-store"].ends_with(":7070"), "{:?}", job.companions);
    let egress = format!("{:?}", built.network_policy.spec.unwrap().egress);
    assert!(egress.contains(&format!("\"{COMPANION}\"")), "{egress}");
}

/// A load without a store beside it.
fn plain_load(is_struck: bool) -> PodSpec {
    let spec = serde_json::json!({
        "run": "run", "arm": "arm", "trial": 0, "seed": 1, "endpoints": ["s:1"], "workloads": [],
    });
    let built =
        fixture::load(spec, &owner(), "trial", |request| load::build(LoadRequest { is_struck, ..request })).unwrap();
    assert!(built.files.is_none());
    built.job.spec.unwrap().template.spec.unwrap()
}

#[test]
fn a_load_without_such_a_store_is_alone_in_its_pod() {
    let pod = plain_load(false);
    assert_eq!((pod.init_containers, pod.volumes, pod.share_process_namespace), (None, None, None));
}

/// The variable of a container that comes from a Secret, and which key of which.
fn token_of(container: &Container) -> Option<[&str; 3]> {
    let mut variables = container.env.iter().flatten();
    variables.find_map(|variable| {
        let key = variable.value_from.as_ref()?.secret_key_ref.as_ref()?;
        Some([variable.name.as_str(), key.name.as_str(), key.key.as_str()])
    })
}

#[test]
fn only_the_meters_of_a_store_that_is_struck_and_its_load_have_the_token_and_only_from_a_secret() {
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let service = with_object_store(&serde_json::json!({ "engine": "Etcd", "replicas": 3 }));
    let built = with(&service, |request| build(&StoreRequest { strike_token: Some(TOKEN), ..request.clone() }));
    let store = built.store.as_ref().unwrap();
    let secret = store.strike.as_ref().unwrap();
    assert_eq!(secret.metadata.name.as_deref(), Some("trial-strike"));
    assert_eq!(secret.data.as_ref().unwrap()["token"].0, TOKEN.as_bytes());
    // Deleted with the store, and no user's pod may name it.
    let labels = secret.metadata.labels.as_ref().unwrap();
    assert_eq!((labels[COMPONENT_LABEL].as_str(), labels["app.kubernetes.io/instance"].as_str()), (STORE, "trial"));
    assert!(!labels.contains_key("storebench.dev/allowed"), "{labels:?}");
    let store_pod = pod(store);
    assert_eq!(store_pod.share_process_namespace, Some(true), "the meter signals the store's process");
    let meter = |pod: &PodSpec| pod.init_containers.as_ref().unwrap()[0].clone();
    assert_eq!(token_of(&meter(store_pod)), Some(["STORE_METER_STRIKE_TOKEN", "trial-strike", "token"]));
    assert!(token_of(&store_pod.containers[0]).is_none(), "the store itself is not told");
    let [companion] = built.companions.as_slice() else { panic!("one companion") };
    assert!(companion.strike.is_none() && token_of(&meter(pod(companion))).is_none());
    let written = format!("{:?}{:?}", store.stateful_set, companion.stateful_set);
    assert!(!written.contains(TOKEN), "who may read pods has not the token");
    // Both share a user, or a signal would be refused.
    assert!(store_pod.security_context.as_ref().unwrap().run_as_user.is_some());
    let containers = store_pod.init_containers.iter().flatten().chain(&store_pod.containers);
    let users: Vec<_> = containers.map(|one| one.security_context.as_ref().and_then(|own| own.run_as_user)).collect();
    assert_eq!(users, [None, None]);
    let told = plain_load(true).containers.remove(0);
    assert_eq!(token_of(&told), Some(["BENCH_JOB_STRIKE_TOKEN", "trial-strike", "token"]));
    assert!(told.env.as_ref().unwrap()[0].value.as_ref().unwrap().contains("\"metersStrike\":true"), "{told:?}");
    // Nobody else has one.
    let built = with(&service, build);
    let store = built.store.as_ref().unwrap();
    assert!(store.strike.is_none() && token_of(&meter(pod(store))).is_none());
    let untold = plain_load(false).containers.remove(0);
    assert!(token_of(&untold).is_none() && !format!("{untold:?}").contains("metersStrike"));
}

#[test]
fn files_of_a_plan_are_mounted_where_it_names_them() {
    let service = service(&serde_json::json!({ "engine": "Valkey" }));
    let mut plan = role::plan(&service, "trial", "benchmarks", false);
    let planned = &mut plan.roles[0];
    planned.processes[0].files.push(("/files/settings.toml".into(), "key = 1\n".into()));
    let built = with(&service, |request| build_role(request, planned));
    let files = built.files.as_ref().unwrap();
    assert_eq!(files.data.as_ref().unwrap()["settings.toml"], "key = 1\n");
    let pod = pod(&built);
    let volume = pod.volumes.as_ref().unwrap().iter().find(|volume| volume.config_map.is_some()).unwrap();
    assert_eq!(volume.config_map.as_ref().unwrap().name, files.metadata.name.clone().unwrap());
    let mounts = pod.containers[0].volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().any(|mount| mount.name == volume.name && mount.mount_path == "/files"), "{mounts:?}");
}

#[test]
fn store_and_companions_stay_on_the_nodes_of_the_first_trial() {
    let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<std::collections::BTreeSet<_>>();
    let pins = placement::Pins::from([
        (placement::STORE.to_owned(), nodes(&["n1", "n2", "n3"])),
        (COMPANION.to_owned(), nodes(&["n2"])),
        (placement::LOAD.to_owned(), nodes(&["n9"])),
    ]);
    let service = with_object_store(&serde_json::json!({ "engine": "Etcd", "replicas": 3 }));
    let place = Place { pool: Some("fast".into()), pins };
    let built = with(&service, |request| build(&StoreRequest { place: &place, ..request.clone() }));
    let nodes_of = |pod: &PodSpec| {
        let affinity = pod.affinity.clone().unwrap().node_affinity.unwrap();
        let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
        let fields = terms.into_iter().flat_map(|term| term.match_fields.unwrap());
        fields.flat_map(|field| field.values.unwrap()).collect::<Vec<_>>()
    };
    let store = pod(built.store.as_ref().unwrap());
    assert_eq!(nodes_of(store), ["n1", "n2", "n3"]);
    for pod in [store, pod(&built.companions[0])] {
        assert_eq!(pod.node_selector.as_ref().unwrap()["storebench.dev/node-pool"], "fast");
        assert_eq!(pod.tolerations.as_ref().unwrap()[0].value.as_deref(), Some("fast"));
    }
    assert!(store.topology_spread_constraints.is_some(), "one on each");
    assert_eq!(nodes_of(pod(&built.companions[0])), ["n2"]);
    assert!(pod(&built.companions[0]).topology_spread_constraints.is_none());
}

/// A store of 5 millicores beside a load of 100 got a twentieth of its share of a busy node.
#[test]
fn every_pod_of_a_trial_asks_for_the_same_of_a_processor() {
    let millicores = |pod: &PodSpec| -> u32 {
        let containers = pod.containers.iter().chain(pod.init_containers.iter().flatten());
        let asked = containers
            .map(|container| container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0.clone());
        asked.map(|cpu| cpu.strip_suffix('m').unwrap().parse::<u32>().unwrap()).sum()
    };
    let store = with(&service(&serde_json::json!({ "engine": "Etcd" })), build).store.unwrap();
    assert_eq!(millicores(pod(&store)), 50);
    assert_eq!(millicores(&plain_load(false)), 50);
}
