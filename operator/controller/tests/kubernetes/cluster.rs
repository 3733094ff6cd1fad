//! A real control plane: etcd, API server, controllers, scheduler, and a node that kwok simulates. Tests that run at the same
//! time share one; the last of them ends it.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use harness::peers::installed;
use harness::{Etcd, Process, TempDir, command, free_port, until};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::{Value, json};
use storebench_core::control_plane::{DEFAULT_VERSION, Placement, Validity, files, plan};
use tokio::runtime::Runtime;

/// What storebench defines, in the plural.
const KINDS: [&str; 7] = [
    "storageservices",
    "controlplanes",
    "workloadtemplates",
    "benchmarkruns",
    "benchmarkbaselines",
    "benchmarksuites",
    "benchmarkschedules",
];

static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());

/// A control plane, killed when dropped.
pub struct Cluster {
    // In the order in which they end.
    _processes: Vec<Process>,
    _etcd: Etcd,
    client: Client,
    runtime: Runtime,
    /// Of a cluster's administrator.
    pub kubeconfig: String,
    _folder: TempDir,
}

impl Cluster {
    /// The one that is there, or a new one that serves, with storebench's definitions.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let cluster = Arc::new(Self::start());
            *shared = Arc::downgrade(&cluster);
            cluster
        })
    }

    fn start() -> Self {
        let folder = harness::folder();
        let etcd = Etcd::start(&folder.path().join("etcd"));
        let directory = folder.path().display().to_string();
        let plan = plan(&Placement {
            bind: "127.0.0.1".into(),
            advertise: "127.0.0.1".into(),
            host: "127.0.0.1".into(),
            port: free_port(),
            scratch: format!("{directory}/scratch"),
            directory,
            store: vec![etcd.address().to_owned()],
        });
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 3600);
        for directory in &plan.directories {
            std::fs::create_dir_all(directory).unwrap();
        }
        for (path, text) in files(&plan, Validity { from: now - day, until: now + day }, KeyPair::generate).unwrap() {
            std::fs::write(path, text).unwrap();
        }
        let home = folder.path().to_owned();
        let start = |process: &storebench_core::control_plane::Process| {
            let log = std::fs::File::create(home.join(format!("{}.log", process.binary))).unwrap();
            let mut command = command(installed(&format!("kubernetes/{DEFAULT_VERSION}/{}", process.binary)));
            command.args(&process.arguments).envs(process.environment.iter().cloned());
            Process::start(command.current_dir(&home).stdout(Stdio::null()).stderr(log))
        };
        let kubeconfig = std::fs::read_to_string(&plan.administrator).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut processes = vec![start(&plan.api_server)];
        let client = runtime.block_on(async {
            let file = Kubeconfig::from_yaml(&kubeconfig).unwrap();
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            Client::try_from(config).unwrap()
        });
        let mut cluster = Self { _processes: Vec::new(), _etcd: etcd, client, runtime, kubeconfig, _folder: folder };
        until("an API server that serves", || cluster.call("GET", "/api/v1/namespaces/default", None).is_ok());
        processes.extend(plan.others.iter().map(start));
        cluster._processes = processes;
        let capacity = json!({ "cpu": "1000", "memory": "4Ti", "pods": "10000" });
        cluster.apply(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node" },
            "status": { "capacity": capacity, "allocatable": capacity },
        }));
        for name in KINDS {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../crds/yaml/{name}.yaml"));
            cluster.apply_text(&std::fs::read_to_string(path).unwrap());
        }
        let listed = |name: &str| cluster.call("GET", &format!("/apis/storebench.dev/v1alpha1/{name}"), None).is_ok();
        until("storebench's definitions", || KINDS.map(listed) == [true; KINDS.len()]);
        cluster
    }

    /// An administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for an answer.
    pub fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime.block_on(answer)
    }

    /// Asks the API server. Errors: status and message.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, (u16, String)> {
        let patch = if path.contains("fieldManager=") {
            "application/apply-patch+yaml"
        } else {
            "application/merge-patch+json"
        };
        let kind = if method == "PATCH" { patch } else { "application/json" };
        let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        match self.runtime.block_on(self.client.request::<Value>(request)) {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
            Err(error) => Err((0, error.to_string())),
        }
    }

    /// An object, if it is there.
    pub fn get(&self, path: &str) -> Option<Value> {
        match self.call("GET", path, None) {
            Ok(object) => Some(object),
            Err((404, _)) => None,
            Err((code, message)) => panic!("get {path}: {code}: {message}"),
        }
    }

    /// Applies an object, which must be taken.
    #[track_caller]
    pub fn apply(&self, object: Value) -> Value {
        let path = format!("{}?fieldManager=test&force=true", path(&object));
        self.call("PATCH", &path, Some(&object)).unwrap_or_else(|(code, message)| panic!("{path}: {code}: {message}"))
    }

    /// Applies every object of a YAML text.
    #[track_caller]
    pub fn apply_text(&self, text: &str) {
        let objects: Vec<Value> = serde_yaml::from_multiple(text).unwrap();
        objects.into_iter().filter(|object| !object.is_null()).for_each(|object| drop(self.apply(object)));
    }
}

/// Where an object is.
pub fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let version = text(&object["apiVersion"]);
    let group = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let namespace =
        object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let kind = text(&object["kind"]).to_lowercase();
    let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    format!("{group}{namespace}/{plural}/{}", text(&object["metadata"]["name"]))
}
