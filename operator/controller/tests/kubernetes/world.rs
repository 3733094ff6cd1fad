//! A namespace with an operator that looks after it, with the permissions of `manifests/install` and no others.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::{Process, TempDir, command, free_address, until};
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// What a run waits for at most that others hold up for nothing.
pub const TURN_SECONDS_MAX: u64 = 30;

/// A namespace and its operator, killed when dropped.
pub struct World {
    operator: Option<Process>,
    pub cluster: Arc<Cluster>,
    pub namespace: String,
    folder: TempDir,
}

impl World {
    /// A namespace of this name, with the manifests applied, and an operator.
    pub fn new(namespace: &str) -> Self {
        let mut world = Self::without_operator(namespace);
        world.start_operator(&[]);
        world
    }

    /// The same without an operator.
    pub fn without_operator(namespace: &str) -> Self {
        let world =
            Self { operator: None, cluster: Cluster::shared(), namespace: namespace.into(), folder: harness::folder() };
        let system = world.system();
        for name in [namespace, &system] {
            world.cluster.apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        }
        let access = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/install/access.yaml");
        let access = std::fs::read_to_string(access).unwrap();
        world.cluster.apply_text(
            &access.replace("storebench-system", &system).replace(": benchmarks", &format!(": {namespace}")),
        );
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        until("the namespace's account", || world.cluster.get(&account).is_some());
        world
    }

    /// The operator's own namespace.
    pub fn system(&self) -> String {
        format!("{}-system", self.namespace)
    }

    /// Starts the operator, with further arguments, in the place of the one that runs.
    pub fn start_operator(&mut self, arguments: &[&str]) {
        self.operator = None;
        let system = self.system();
        let mut kubeconfig: Value = serde_yaml::from_str(&self.cluster.kubeconfig).unwrap();
        kubeconfig["users"][0]["user"]["as"] = format!("system:serviceaccount:{system}:storebench-operator").into();
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let log = std::fs::File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = command(env!("CARGO_BIN_EXE_storebench-operator"));
        command.env("KUBECONFIG", path).env("RUST_LOG", "info,storebench_operator=debug,kube_client=error");
        command.args(["--namespace", &self.namespace, "--operator-namespace", &system]);
        command.args(["--listen", &free_address().to_string(), "--metrics-access", "none"]).args(arguments);
        self.operator = Some(Process::start(command.stdout(Stdio::null()).stderr(log)));
    }

    /// Ends the operator at once.
    pub fn stop_operator(&mut self) {
        self.operator = None;
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("operator.log")
    }

    /// What is wrong, with the operator's last words.
    pub fn panic(&self, what: &str) -> ! {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        panic!("{what}\n{}", lines[lines.len().saturating_sub(25)..].join("\n"));
    }

    /// Waits until there is a value, for at most so long.
    pub fn within<T>(&self, seconds: u64, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            if let Some(value) = attempt() {
                return value;
            }
            if Instant::now() > deadline {
                self.panic(&format!("{}: waited {seconds} s in vain for {what}", self.namespace));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where objects of this namespace are: `("", "configmaps")`, `("apps/v1", "statefulsets")`.
    pub fn path(&self, version: &str, plural: &str, name: &str) -> String {
        let group = if version.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let path = format!("{group}/namespaces/{}/{plural}/{name}", self.namespace);
        path.trim_end_matches('/').to_owned()
    }

    /// The objects of a kind.
    pub fn list(&self, version: &str, plural: &str) -> Vec<Value> {
        let list = self.cluster.get(&self.path(version, plural, "")).unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// Applies an object in this namespace.
    #[track_caller]
    pub fn apply(&self, mut object: Value) -> Value {
        object["metadata"]["namespace"] = self.namespace.clone().into();
        self.cluster.apply(object)
    }

    /// An etcd that needs next to nothing, and more of its spec.
    #[track_caller]
    pub fn service(&self, name: &str, more: &Value) {
        let mut spec = json!({ "engine": "Etcd", "replicas": 1 });
        more.as_object().into_iter().flatten().for_each(|(key, value)| spec[key] = value.clone());
        self.apply(json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "StorageService",
            "metadata": { "name": name }, "spec": spec,
        }));
    }

    /// A run on one service.
    #[track_caller]
    pub fn run(&self, name: &str, service: &str) {
        self.run_with(name, service, &json!({}));
    }

    /// A run on one service, and more of its spec.
    #[track_caller]
    pub fn run_with(&self, name: &str, service: &str, more: &Value) {
        let mut spec = json!({
            "arms": [{ "name": "store", "serviceRef": { "name": service } }],
            "workloads": [{ "name": "put", "etcd": { "operation": "Put" }, "load": { "connections": 1, "duration": "1s" } }],
            "trials": { "min": 3, "max": 3, "retries": 0 },
        });
        more.as_object().into_iter().flatten().for_each(|(key, value)| spec[key] = value.clone());
        self.apply(json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkRun", "metadata": { "name": name }, "spec": spec,
        }));
    }

    /// A run's status.
    pub fn status(&self, run: &str) -> Value {
        let run = self.cluster.get(&self.path("storebench.dev/v1alpha1", "benchmarkruns", run));
        run.map(|run| run["status"].clone()).unwrap_or_default()
    }

    /// Waits until a run is over, or waits for its user; returns its message.
    #[track_caller]
    pub fn ends(&self, run: &str) -> String {
        self.within(60, &format!("the end of {run}"), || {
            let status = self.status(run);
            let message = || status["message"].as_str().unwrap_or_default().to_owned();
            (is_true(&status, "Complete") || is_true(&status, "Stalled")).then(message)
        })
    }

    /// Whether anything was made for trials of a run.
    pub fn has_store(&self, run: &str) -> bool {
        let of_run = |set: &Value| set["metadata"]["labels"]["storebench.dev/run"] == run;
        self.list("apps/v1", "statefulsets").iter().any(of_run)
    }

    /// Waits until the turn has come to a run.
    #[track_caller]
    pub fn begins(&self, run: &str) {
        self.within(TURN_SECONDS_MAX, &format!("the turn of {run}"), || self.has_store(run).then_some(()));
    }

    /// Deletes an object.
    #[track_caller]
    pub fn delete(&self, path: &str) {
        self.cluster.call("DELETE", path, None).unwrap();
    }
}

/// Whether a condition is true.
pub fn is_true(status: &Value, type_: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == type_ && one["status"] == "True")
}
