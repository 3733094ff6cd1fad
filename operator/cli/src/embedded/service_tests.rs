//! Services with several roles, made of real stores: Valkey stands for a replicator, Redis for what it replicates to.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bench_jobs::family::probe;
use harness::TempDir;
use storebench_core::engine::Protocol;
use storebench_core::validate;
use storebench_crds::EngineKind;
use storebench_crds::StorageService;
use storebench_crds::engine::{Companion, object_store};

use super::super::peers::find_store;
use super::*;

fn validated(spec: &serde_json::Value) -> ValidatedService {
    let service = StorageService::new("store", serde_json::from_value(spec.clone()).unwrap());
    validate::service(&service).unwrap()
}

/// A store that needs another, and shares a directory with the load.
fn replicator() -> ValidatedService {
    let mut service = validated(&serde_json::json!({ "engine": "Valkey" }));
    let companions = &[Companion { role: "object-store", engine: EngineKind::Redis }];
    service.engine = Box::leak(Box::new(Engine { companions, shares_directory: true, ..*service.engine }));
    service.companions = validate::companions(service.engine, &service.name);
    service
}

fn start(service: &ValidatedService, binaries: &StoreBinaries, directory: &TempDir) -> Result<Service, NeverReady> {
    let place = directory.path().join("trial");
    std::fs::create_dir(&place).unwrap();
    Service::start(service, binaries, &place, Between::default()).unwrap()
}

#[test]
fn a_companion_answers_before_the_store_starts_and_is_not_measured_as_the_store() {
    let (service, directory) = (replicator(), TempDir::new().unwrap());
    let binaries = find_store(&service).expect("run peers/fetch redis valkey");
    let mut running = start(&service, &binaries, &directory).unwrap();
    let companions = running.companions();
    let address = companions["object-store"].parse().unwrap();
    assert_eq!(probe::version(Protocol::Redis, address).unwrap(), binaries.companions[0].1.version);
    let own = running.addresses();
    assert_eq!(probe::version(Protocol::Redis, own[0]).unwrap(), binaries.store.version);
    assert_eq!(
        running.processes(),
        [running.store[0].process.as_ref().unwrap().id()],
        "the companion is not the store"
    );
    assert!(running.command[0].ends_with("valkey-server"), "{:?}", running.command);
    // What is weighed is the store's alone, and what it shares is neither's.
    let weighed = running.data();
    let names: Vec<_> = std::fs::read_dir(&weighed).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["store-0"]);
    let shared = running.shared_directory().unwrap().to_path_buf();
    assert!(shared.is_dir() && !shared.starts_with(&weighed), "{}", shared.display());
    assert_eq!(running.death(), None);
    drop(running);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    assert!(probe::answers(Protocol::Redis, address).is_err(), "nor a process");
}

#[test]
fn a_companion_that_does_not_start_is_named_and_the_store_is_not_started() {
    let (service, directory) = (replicator(), TempDir::new().unwrap());
    let mut binaries = find_store(&service).expect("run peers/fetch redis valkey");
    binaries.companions[0].1.path = "/bin/false".into();
    // A store that was started would say so.
    binaries.store.path = "/nowhere/valkey-server".into();
    let NeverReady(said) = start(&service, &binaries, &directory).unwrap_err();
    assert_eq!(said, "never became ready: store-object-store-0 exited with status 1");
}

#[test]
fn a_companion_that_dies_is_named() {
    let (service, directory) = (replicator(), TempDir::new().unwrap());
    let binaries = find_store(&service).expect("run peers/fetch redis valkey");
    let mut running = start(&service, &binaries, &directory).unwrap();
    let process = running.companions[0].1.process.as_ref().unwrap().id();
    let process = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while running.death().is_none() && Instant::now() < deadline {
        std::thread::sleep(PROBE_INTERVAL);
    }
    let said = running.death().unwrap();
    assert!(said.starts_with("store-object-store-0 was killed by signal 9"), "{said}");
}

#[test]
fn a_member_that_was_killed_because_somebody_asked_is_no_death_and_starts_again_with_its_data() {
    let (service, directory) = (validated(&serde_json::json!({ "engine": "Valkey" })), TempDir::new().unwrap());
    let binaries = find_store(&service).expect("run peers/fetch valkey");
    let mut running = start(&service, &binaries, &directory).unwrap();
    let (before, address) = (running.processes(), running.addresses()[0]);
    let member = running.member_at(&address.to_string()).unwrap();
    running.kill(member).unwrap();
    assert_eq!((running.processes(), running.death()), (Vec::new(), None));
    assert!(probe::answers(Protocol::Redis, address).is_err(), "it is dead");
    assert!(running.kill(member).unwrap_err().to_string().contains("is killed already"));
    assert!(running.signal(member, Signal::STOP).unwrap_err().to_string().contains("is not running"));
    assert!(running.member_at("127.0.0.1:1").unwrap_err().to_string().contains("no member of the store is at"));
    running.restart(member).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while probe::answers(Protocol::Redis, address).is_err() && Instant::now() < deadline {
        std::thread::sleep(PROBE_INTERVAL);
    }
    probe::answers(Protocol::Redis, address).unwrap();
    assert_ne!(running.processes(), before);
    assert_eq!(running.death(), None);
    // From here on it is like any other.
    let process = rustix::process::Pid::from_raw(running.processes()[0].cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    while running.death().is_none() && Instant::now() < deadline {
        std::thread::sleep(PROBE_INTERVAL);
    }
    assert!(running.death().unwrap().starts_with("store-0 was killed by signal 9"));
    assert!(running.kill(member).unwrap_err().to_string().starts_with("store-0 was killed by signal 9"));
    assert!(running.death().is_some(), "it died by itself, and who would kill it afterwards does not hide that");
}

#[test]
fn files_and_directories_are_there_before_the_process() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let process = ProcessPlan {
        name: "one".into(),
        binary: "one",
        arguments: Vec::new(),
        environment: Vec::new(),
        files: vec![(path("settings"), "key = 1\n".into())],
        directories: vec![path("a/b")],
        host: String::new(),
        ports: BTreeMap::new(),
        data_directory: path("a"),
    };
    write(&process).unwrap();
    assert_eq!(std::fs::read_to_string(path("settings")).unwrap(), "key = 1\n");
    assert!(Path::new(&path("a/b")).is_dir());
    let again = write(&process).unwrap_err();
    assert_eq!(again.to_string(), format!("{}: cannot be written", path("settings")), "no file is written over");
}

#[test]
#[ignore = "needs peers/fetch versitygw, which takes two minutes: run by hand"]
fn versitygw_is_ready_when_it_says_so_and_has_its_bucket() {
    let directory = TempDir::new().unwrap();
    let service = validated(&serde_json::json!({ "engine": "Versitygw", "durability": "None" }));
    let binaries = find_store(&service).expect("run peers/fetch versitygw");
    let running = start(&service, &binaries, &directory).unwrap();
    let address = running.addresses()[0];
    let checks = probe::surface(Protocol::S3, address);
    assert!(checks.iter().all(|check| check.ok), "{checks:?}");
    assert!(running.data().join("store-0").join(object_store::BUCKET).is_dir());
    assert_eq!(running.sync_counters(), Vec::new());
}
