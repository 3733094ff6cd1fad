//! What the operator is told when it starts: every flag is also an environment variable.

use std::net::SocketAddr;

use clap::{Args, Parser, ValueEnum};
use storebench_core::validate::ValidatedService;

/// Deploys storage services, runs benchmark trials as Jobs, and writes results and verdict into the status.
#[derive(Parser, Clone, Debug)]
#[command(name = "storebench-operator", version, max_term_width = 100)]
pub struct Settings {
    /// The namespace whose objects are looked after
    #[arg(long, env = "STOREBENCH_NAMESPACE")]
    pub namespace: Option<String>,
    /// Look after all namespaces instead, which takes a ClusterRole
    #[arg(long, env = "STOREBENCH_ALL_NAMESPACES")]
    pub all_namespaces: bool,
    /// The longest that the trials of a run may take in all, hours; then it ends, and the others go on
    #[arg(long, env = "STOREBENCH_RUN_HOURS_MAX", default_value_t = 24)]
    pub run_hours_max: u32,
    /// The operator's own namespace, where the leader's Lease is
    #[arg(long, env = "POD_NAMESPACE", default_value = "storebench-system")]
    pub operator_namespace: String,
    /// The operator's own name among its replicas
    #[arg(long, env = "POD_NAME", default_value = "storebench-operator")]
    pub operator_name: String,
    /// Where livez, readyz and metrics are served
    #[arg(long, env = "STOREBENCH_LISTEN", default_value = "127.0.0.1:9463")]
    pub listen: SocketAddr,
    /// Who may read the metrics; `None` only where --listen is on loopback
    #[arg(long, value_enum, env = "STOREBENCH_METRICS_ACCESS", default_value_t = MetricsAccess::Token)]
    pub metrics_access: MetricsAccess,
    /// The form of the log
    #[arg(long, value_enum, env = "STOREBENCH_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// The most memory of a load pod
    #[arg(long, env = "STOREBENCH_LOAD_MEMORY_LIMIT", default_value = "1Gi")]
    pub load_memory_limit: String,
    /// The platform's own images
    #[command(flatten)]
    pub images: Images,
}

/// The platform's own images.
#[derive(Args, Clone, Debug)]
pub struct Images {
    /// The image with bench-job, store-meter and control-plane-meter
    #[arg(long = "bench-job-image", env = "STOREBENCH_BENCH_JOB_IMAGE", default_value = concat!("storebench/bench-job:", env!("CARGO_PKG_VERSION")))]
    pub bench_job: String,
    /// What stands before the engines' own images, such as registry.example for registry.example/storebench/etcd:3.7.3; an image
    /// that a StorageService names stays as it is
    #[arg(long, env = "STOREBENCH_ENGINE_REGISTRY")]
    pub engine_registry: Option<String>,
    /// Where the images of Kubernetes are, which control planes are made of: kube-apiserver, kube-controller-manager,
    /// kube-scheduler, kwok/kwok
    #[arg(long, env = "STOREBENCH_KUBERNETES_REGISTRY", default_value = "registry.k8s.io")]
    pub kubernetes_registry: String,
    /// Secrets with which images are pulled, in the namespace of the stores, with commas between them
    #[arg(long, env = "STOREBENCH_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    pub image_pull_secrets: Vec<String>,
}

impl Images {
    /// The image of a store: the one that its user names, else its engine's own, in the registry of engines.
    pub fn of_store(&self, service: &ValidatedService) -> String {
        match (&service.spec.image, &self.engine_registry) {
            (None, Some(registry)) => format!("{}/{}", registry.trim_end_matches('/'), service.image),
            _ => service.image.clone(),
        }
    }
}

/// Who may read the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricsAccess {
    /// Whoever has a token that may `get` the non-resource URL /metrics
    Token,
    /// Everyone who can connect
    None,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// For machines
    Json,
}

impl Settings {
    /// What cannot be served safely, in one line.
    pub fn check(&self) -> Result<(), String> {
        if self.namespace.is_some() == self.all_namespaces {
            return Err("give either --namespace or --all-namespaces".into());
        }
        if self.metrics_access == MetricsAccess::None && !self.listen.ip().is_loopback() {
            return Err(format!(
                "--metrics-access none would show metrics to everyone who reaches {}: listen on 127.0.0.1 or use token",
                self.listen
            ));
        }
        Ok(())
    }
}
