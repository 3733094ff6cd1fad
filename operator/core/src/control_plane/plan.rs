//! How a control plane is run: certificates, kubeconfigs and processes, with the same flags for every arm.
//!
//! Flags: `--help` of Kubernetes 1.34. What is not the store's business is lifted, so that the store is measured and not the
//! API server: no limits on requests in flight, no priority and fairness, no limits on how fast controllers and scheduler
//! ask. Admission, authorization and audit are as in any cluster.

/// Where a driver puts a control plane. Its processes reach the API server on loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The address that the API server binds.
    pub bind: String,
    /// The address that it tells the cluster: an IP address, or a reference such as `$(POD_IP)`.
    pub advertise: String,
    /// The host name or address that clients elsewhere use.
    pub host: String,
    /// The API server's port.
    pub port: u16,
    /// Where certificates and kubeconfigs are.
    pub directory: String,
    /// Where processes may write.
    pub scratch: String,
    /// Where the store is, `host:port` for each member.
    pub store: Vec<String>,
}

/// How to run a control plane. Certificates, keys and kubeconfigs are written first; then the API server is started; when it
/// is ready, the others are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlanePlan {
    /// What is certified, the authority first, which signs the others.
    pub certificates: Vec<Certificate>,
    /// Where the keys go with which tokens of service accounts are signed and checked: `<path>.key` and `<path>.pub`, PEM.
    pub service_account: String,
    /// Who reaches the API server how.
    pub kubeconfigs: Vec<Kubeconfig>,
    /// Directories that processes expect, empty.
    pub directories: Vec<String>,
    /// The API server.
    pub api_server: Process,
    /// Controller manager, scheduler, and the simulator of nodes.
    pub others: Vec<Process>,
    /// The kubeconfig of whoever makes load: a cluster administrator's.
    pub administrator: String,
}

/// A certificate with its key: `<path>.crt` and `<path>.key`, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The path of both files, without their ends.
    pub path: String,
    /// The user, for Kubernetes.
    pub common_name: &'static str,
    /// The group, for Kubernetes.
    pub organization: Option<&'static str>,
    /// What it is for.
    pub purpose: Purpose,
}

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Signs the others.
    Authority,
    /// Serves under these names and addresses.
    Server(Vec<String>),
    /// Says who a client is.
    Client,
}

/// A kubeconfig file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubeconfig {
    /// Its path.
    pub path: String,
    /// The user's name in it, and the path of the user's certificate without its end.
    pub user: &'static str,
    /// See [`Self::user`].
    pub certificate: String,
    /// The API server's URL.
    pub server: String,
}

/// A process of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The executable's file name.
    pub binary: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, besides an empty one.
    pub environment: Vec<(String, String)>,
}

/// Where the API server's own neighbours reach it.
const LOOPBACK: &str = "127.0.0.1";
/// Requests per second that a part of Kubernetes may send: more than it ever does.
const QUERIES_PER_SECOND: &str = "100000";
/// The client that is not a part of the control plane, and may be elsewhere.
const ADMINISTRATOR: &str = "administrator";
/// The clients of the API server: file, user, group.
const CLIENTS: [(&str, &str, Option<&str>); 4] = [
    (ADMINISTRATOR, "storebench", Some("system:masters")),
    ("controller-manager", "system:kube-controller-manager", None),
    ("scheduler", "system:kube-scheduler", None),
    // kwok has no role that Kubernetes brings along.
    ("kwok", "kwok", Some("system:masters")),
];

/// How to run a control plane in a placement.
///
/// The control plane itself says nothing here: its version decides which executables, its nodes are created afterwards.
pub fn plan(placement: &Placement) -> ControlPlanePlan {
    let path = |name: &str| format!("{}/{name}", placement.directory);
    let mut certificates = vec![
        certificate(&path("authority"), "kubernetes", None, Purpose::Authority),
        certificate(&path("server"), "kube-apiserver", None, Purpose::Server(server_names(placement))),
    ];
    certificates.extend(CLIENTS.map(|(name, user, group)| certificate(&path(name), user, group, Purpose::Client)));
    ControlPlanePlan {
        certificates,
        service_account: path("service-account"),
        kubeconfigs: CLIENTS.map(|(name, ..)| kubeconfig(placement, name)).into(),
        directories: vec![volume_plugins(placement), home(placement)],
        api_server: api_server(placement),
        others: vec![controller_manager(placement), scheduler(placement), kwok(placement)],
        administrator: path(&format!("{ADMINISTRATOR}.kubeconfig")),
    }
}

fn certificate(
    path: &str,
    common_name: &'static str,
    organization: Option<&'static str>,
    purpose: Purpose,
) -> Certificate {
    Certificate { path: path.into(), common_name, organization, purpose }
}

fn server_names(placement: &Placement) -> Vec<String> {
    // 10.96.0.1 is the first of the service addresses below: the service `kubernetes` in the cluster.
    let names = [placement.host.as_str(), LOOPBACK, "10.96.0.1", "localhost", "kubernetes", "kubernetes.default.svc"];
    let mut names: Vec<String> = names.map(str::to_owned).into();
    names.dedup();
    names
}

fn kubeconfig(placement: &Placement, name: &'static str) -> Kubeconfig {
    let host = if name == ADMINISTRATOR { &placement.host } else { LOOPBACK };
    Kubeconfig {
        path: format!("{}/{name}.kubeconfig", placement.directory),
        user: name,
        certificate: format!("{}/{name}", placement.directory),
        server: format!("https://{host}:{}", placement.port),
    }
}

fn volume_plugins(placement: &Placement) -> String {
    format!("{}/volume-plugins", placement.scratch)
}

fn home(placement: &Placement) -> String {
    format!("{}/home", placement.scratch)
}

fn api_server(placement: &Placement) -> Process {
    let path = |name: &str| format!("{}/{name}", placement.directory);
    let store: Vec<String> = placement.store.iter().map(|address| format!("http://{address}")).collect();
    Process {
        binary: "kube-apiserver",
        arguments: vec![
            format!("--etcd-servers={}", store.join(",")),
            format!("--bind-address={}", placement.bind),
            format!("--advertise-address={}", placement.advertise),
            format!("--secure-port={}", placement.port),
            // It is the only one, and what it would write about itself is not the load's.
            "--endpoint-reconciler-type=none".into(),
            format!("--client-ca-file={}", path("authority.crt")),
            format!("--tls-cert-file={}", path("server.crt")),
            format!("--tls-private-key-file={}", path("server.key")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", path("service-account.pub")),
            format!("--service-account-signing-key-file={}", path("service-account.key")),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-priority-and-fairness=false".into(),
            "--max-requests-inflight=0".into(),
            "--max-mutating-requests-inflight=0".into(),
            "--profiling=false".into(),
        ],
        environment: Vec::new(),
    }
}

fn controller_manager(placement: &Placement) -> Process {
    let path = |name: &str| format!("{}/{name}", placement.directory);
    let mut arguments = vec![
        format!("--kubeconfig={}", path("controller-manager.kubeconfig")),
        // Each controller under its own name, as its role in the cluster is.
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={}", path("service-account.key")),
        format!("--root-ca-file={}", path("authority.crt")),
        // Otherwise it makes a directory of the system's.
        format!("--flex-volume-plugin-dir={}", volume_plugins(placement)),
    ];
    arguments.extend(alone());
    Process { binary: "kube-controller-manager", arguments, environment: Vec::new() }
}

fn scheduler(placement: &Placement) -> Process {
    let mut arguments = vec![format!("--kubeconfig={}/scheduler.kubeconfig", placement.directory)];
    arguments.extend(alone());
    Process { binary: "kube-scheduler", arguments, environment: Vec::new() }
}

/// One of its kind, which serves nobody and asks as fast as it can.
fn alone() -> [String; 4] {
    [
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        format!("--kube-api-qps={QUERIES_PER_SECOND}"),
        format!("--kube-api-burst={QUERIES_PER_SECOND}"),
    ]
}

/// A kubelet renews its lease of 40 s every 10 s; so does this for each node.
fn kwok(placement: &Placement) -> Process {
    Process {
        binary: "kwok",
        arguments: vec![
            format!("--kubeconfig={}/kwok.kubeconfig", placement.directory),
            "--manage-all-nodes=true".into(),
            "--node-lease-duration-seconds=40".into(),
        ],
        // It reads settings from the home directory: an empty one.
        environment: vec![("HOME".into(), home(placement))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(store: &str) -> ControlPlanePlan {
        let placement = Placement {
            bind: "0.0.0.0".into(),
            advertise: "$(POD_IP)".into(),
            host: "plane.benchmarks.svc".into(),
            port: 6443,
            directory: "/plane".into(),
            scratch: "/plane/scratch".into(),
            store: vec![store.into()],
        };
        plan(&placement)
    }

    #[test]
    fn arms_differ_in_the_stores_address_and_in_nothing_else() {
        let (one, mut other) = (planned("127.0.0.1:1"), planned("127.0.0.1:2"));
        assert_ne!(one, other);
        other.api_server.arguments[0] = "--etcd-servers=http://127.0.0.1:1".into();
        assert_eq!(one, other);
    }

    #[test]
    fn the_store_is_measured_and_not_the_limits_of_the_api_server() {
        let arguments = planned("s:1").api_server.arguments;
        for flag in
            ["--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0"]
        {
            assert!(arguments.iter().any(|argument| argument == flag), "{flag}");
        }
    }

    #[test]
    fn every_file_that_a_process_is_given_is_made() {
        let plan = planned("s:1");
        let mut made: Vec<String> = plan.kubeconfigs.iter().map(|kubeconfig| kubeconfig.path.clone()).collect();
        for certificate in &plan.certificates {
            made.extend(["crt", "key"].map(|end| format!("{}.{end}", certificate.path)));
        }
        made.extend(plan.directories.clone());
        made.extend(["key", "pub"].map(|end| format!("{}.{end}", plan.service_account)));
        assert!(made.contains(&plan.administrator));
        let processes = std::iter::once(&plan.api_server).chain(&plan.others);
        let arguments = processes.flat_map(|process| &process.arguments);
        let files: Vec<&str> = arguments
            .filter_map(|argument| argument.split_once('='))
            .map(|(_, value)| value)
            .filter(|value| value.starts_with("/plane"))
            .collect();
        assert!(files.len() > 8, "{files:?}");
        for file in files {
            assert!(made.iter().any(|path| path == file), "{file} is not made");
        }
        for kubeconfig in &plan.kubeconfigs {
            let file = format!("{}.crt", kubeconfig.certificate);
            assert!(made.contains(&file), "{file} is not made");
        }
    }

    #[test]
    fn only_the_administrator_comes_from_elsewhere() {
        let plan = planned("s:1");
        for kubeconfig in &plan.kubeconfigs {
            let is_administrator = kubeconfig.path == plan.administrator;
            let host = if is_administrator { "plane.benchmarks.svc" } else { "127.0.0.1" };
            assert_eq!(kubeconfig.server, format!("https://{host}:6443"), "{}", kubeconfig.path);
        }
    }
}
