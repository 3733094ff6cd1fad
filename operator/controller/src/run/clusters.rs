//! Clusters that are there already: how they are reached, and whether they are alike.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ObjectList;
use kube::{Api, Client, Config};
use serde::de::DeserializeOwned;
use storebench_core::address::is_for_pods;
use storebench_core::reason::Reason;

use super::references::References;
use crate::context::Context;
use crate::error::{Error, Tried as _};
use crate::health::Trouble;
use crate::objects::control_plane::KUBECONFIG_KEY;
use crate::secrets;

/// No answer from a cluster for this long means that it cannot be reached.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// As much as is read of an answer, and of a Secret.
const ANSWER_BYTES_MAX: usize = 32 << 20;
const KUBECONFIG_BYTES_MAX: usize = 64 << 10;
/// More nodes are not compared.
const NODES_MAX: u32 = 1_000;

/// How a cluster is reached.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The Secret's name.
    pub secret: String,
    /// The API server's host.
    pub host: String,
    /// The API server's port.
    pub port: u16,
    kubeconfig: Kubeconfig,
}

/// How the cluster of an arm is reached, from its Secret. Errors: what is wrong with that, for its user to mend.
pub fn read(arm: &str, name: &str, secret: &Secret) -> Result<Cluster, Trouble> {
    if !secrets::is_allowed(&secret.metadata) {
        return Err(Trouble {
            reason: Reason::SecretNotAllowed,
            message: format!("arm {arm}: {}", secrets::not_allowed(name)),
        });
    }
    let trouble = |text: &str| Trouble {
        reason: Reason::InvalidSecret,
        message: format!("arm {arm}: Secret/{name}, key {KUBECONFIG_KEY}: {text}"),
    };
    let data = secret.data.as_ref().and_then(|data| data.get(KUBECONFIG_KEY));
    let data = data.ok_or_else(|| trouble("is missing: put a kubeconfig there"))?;
    if data.0.len() > KUBECONFIG_BYTES_MAX {
        return Err(trouble("is larger than 64 KiB: put one cluster and one user there"));
    }
    let text = std::str::from_utf8(&data.0).map_err(|_| trouble("is not text: put a kubeconfig there"))?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| trouble(&format!("is no kubeconfig: {error}")))?;
    if !is_self_contained(&kubeconfig) {
        return Err(trouble(
            "names files, programs or a proxy, which a pod has not: write certificates and tokens into it",
        ));
    }
    let server = server(&kubeconfig).ok_or_else(|| trouble("its current context names no cluster with a server"))?;
    let uri: http::Uri = server.parse().map_err(|_| trouble(&format!("`{server}` is no URL")))?;
    let host = uri.host().ok_or_else(|| trouble(&format!("`{server}` names no host")))?.to_owned();
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    if let Some(address) = literal.filter(|address| !is_for_pods(*address)) {
        return Err(trouble(&format!("`{server}`: {}", not_allowed(address))));
    }
    Ok(Cluster { secret: name.into(), host, port: uri.port_u16().unwrap_or(443), kubeconfig })
}

fn is_self_contained(kubeconfig: &Kubeconfig) -> bool {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    clusters.into_iter().all(|cluster| cluster.certificate_authority.is_none() && cluster.proxy_url.is_none())
        && users.into_iter().all(|user| {
            user.client_certificate.is_none()
                && user.client_key.is_none()
                && user.token_file.is_none()
                && user.exec.is_none()
                && user.auth_provider.is_none()
        })
}

fn server(kubeconfig: &Kubeconfig) -> Option<String> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?;
    cluster.cluster.as_ref()?.server.clone()
}

/// What clusters must have in common to be compared for their stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The version of Kubernetes.
    pub version: String,
    /// Processors and memory of each node, sorted.
    pub nodes: Vec<String>,
}

impl std::fmt::Display for Facts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Kubernetes {}, nodes: {}", self.version, self.nodes.join("; "))
    }
}

/// What the clusters of a run are, by arm. Errors: one cannot be reached, or is unlike the first.
pub async fn facts(references: &References) -> Result<BTreeMap<String, Facts>, Trouble> {
    let mut found: BTreeMap<String, Facts> = BTreeMap::new();
    let mut first: Option<(&str, Facts)> = None;
    for (arm, cluster) in &references.clusters {
        let asked = async { ask(cluster, resolve(cluster).await?).await };
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
        let facts = asked.unwrap_or_else(|_| Err("it does not answer in time".into())).map_err(|error| Trouble {
            reason: Reason::ClusterUnreachable,
            message: format!("arm {arm}: the cluster of Secret/{} cannot be reached: {error}", cluster.secret),
        })?;
        if let Some((other, first)) = first.as_ref().filter(|(_, first)| *first != facts) {
            return Err(Trouble {
                reason: Reason::ClustersUnlike,
                message: format!(
                    "arm {arm} is {facts}, but arm {other} is {first}: make them alike, so that stores are compared"
                ),
            });
        }
        first.get_or_insert((arm, facts.clone()));
        found.insert(arm.clone(), facts);
    }
    Ok(found)
}

/// Asks at this address, whatever the name means by now; the certificate is still held against the name.
async fn ask(cluster: &Cluster, address: SocketAddr) -> Result<Facts, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let config = Config::from_custom_kubeconfig(cluster.kubeconfig.clone(), &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| said(&error))?;
    let mut url = config.cluster_url.into_parts();
    url.authority = Some(address.to_string().parse().map_err(|error: http::uri::InvalidUri| said(&error))?);
    config.cluster_url = http::Uri::from_parts(url).map_err(|error| said(&error))?;
    let host = cluster.host.trim_matches(['[', ']']);
    config.tls_server_name.get_or_insert_with(|| host.to_owned());
    let client = Client::try_from(config).map_err(|error| said(&error))?;
    let version: Info = get(&client, "/version").await?;
    let nodes: ObjectList<Node> = get(&client, &format!("/api/v1/nodes?limit={NODES_MAX}")).await?;
    if nodes.metadata.continue_.is_some_and(|rest| !rest.is_empty()) {
        return Err(format!("it has more than {NODES_MAX} nodes, which nobody compares"));
    }
    let mut nodes: Vec<String> = nodes.items.iter().map(resources).collect();
    nodes.sort();
    Ok(Facts { version: version.git_version, nodes })
}

/// An answer of a bounded size: nobody knows who is at that address.
async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, String> {
    let request = http::Request::get(path).body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| format!("its answer to {path}: {error}"))?.to_bytes();
    if !status.is_success() {
        return Err(format!("it answers {path} with {status}"));
    }
    serde_json::from_slice(&body).map_err(|error| format!("its answer to {path} is no Kubernetes API's: {error}"))
}

/// Where a name leads, unless one of its addresses is where no cluster is. Looked up once: a name may mean another address a moment later.
async fn resolve(cluster: &Cluster) -> Result<SocketAddr, String> {
    let host = cluster.host.trim_matches(['[', ']']);
    let found = tokio::net::lookup_host((host, cluster.port)).await.map_err(|error| error.to_string())?;
    let found: Vec<SocketAddr> = found.collect();
    match found.iter().find(|address| !is_for_pods(address.ip())) {
        Some(address) => Err(format!("{host} is {}", not_allowed(address.ip()))),
        None => found.first().copied().ok_or_else(|| format!("{host} has no address")),
    }
}

fn not_allowed(address: IpAddr) -> String {
    format!("{address}, where pods reach no cluster: name an address that they reach")
}

fn resources(node: &Node) -> String {
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let amount = |name: &str| capacity.and_then(|capacity| Some(capacity.get(name)?.0.clone())).unwrap_or_default();
    format!("{} processors, {}", amount("cpu"), amount("memory"))
}

/// The Secret of an arm's cluster. The inner error is the user's to mend.
pub async fn secret(
    arm: &str,
    name: &str,
    namespace: &str,
    context: &Context,
) -> Result<Result<Secret, Trouble>, Error> {
    let secrets = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let secret = secrets.get_opt(name).await.tried(|| format!("get Secret {name}"))?;
    Ok(secret.ok_or_else(|| Trouble {
        reason: Reason::SecretMissing,
        message: format!(
            "arm {arm}: there is no Secret/{name} in namespace {namespace}: create it with the key {KUBECONFIG_KEY}"
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn allowed() -> Secret {
        let labels = [(secrets::ALLOWED_LABEL.to_owned(), "true".to_owned())];
        let metadata = kube::api::ObjectMeta { labels: Some(labels.into()), ..kube::api::ObjectMeta::default() };
        Secret { metadata, ..Secret::default() }
    }

    #[test]
    fn a_secret_that_was_not_meant_for_it_is_not_read() {
        let mut secret = secret(&kubeconfig("https://k:6443", "{ token: t }"));
        secret.metadata.labels = None;
        let trouble = read("a", "s", &secret).unwrap_err();
        assert_eq!(trouble.reason, Reason::SecretNotAllowed);
        assert!(trouble.message.ends_with("kubectl label secret s storebench.dev/allowed=true"), "{}", trouble.message);
    }

    fn secret(text: &str) -> Secret {
        let data = [(KUBECONFIG_KEY.to_owned(), ByteString(text.into()))];
        Secret { data: Some(data.into()), ..allowed() }
    }

    fn kubeconfig(server: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{ name: c, context: {{ cluster: k, user: u }} }}]\n\
             clusters: [{{ name: k, cluster: {{ server: '{server}' }} }}]\nusers: [{{ name: u, user: {user} }}]\n"
        )
    }

    #[test]
    fn the_operator_asks_nobody_where_no_cluster_is() {
        for host in
            ["127.0.0.1", "169.254.169.254", "0.0.0.0", "[::1]", "[fe80::1]", "[::ffff:127.0.0.1]", "[fd00:ec2::254]"]
        {
            let trouble =
                read("a", "s", &secret(&kubeconfig(&format!("https://{host}:6443"), "{ token: t }"))).unwrap_err();
            assert!(trouble.message.contains("where pods reach no cluster"), "{host}: {}", trouble.message);
        }
        for host in ["10.96.0.1", "192.168.1.2", "[fd00:10::1]", "203.0.113.1"] {
            assert!(
                read("a", "s", &secret(&kubeconfig(&format!("https://{host}:6443"), "{ token: t }"))).is_ok(),
                "{host}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_the_operators_own_machine_is_not_asked() {
        let cluster = read("a", "s", &secret(&kubeconfig("https://localhost:6443", "{ token: t }"))).unwrap();
        assert!(resolve(&cluster).await.unwrap_err().contains("where pods reach no cluster"));
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_not_read_to_its_end() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = format!("http://{address}");
        let endless = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n").await.unwrap();
            // Until the other side has had enough.
            while connection.write_all(&[b' '; 65_536]).await.is_ok() {}
        };
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig(&server, "{ token: t }")).unwrap();
        let cluster = Cluster { secret: "s".into(), host: "127.0.0.1".into(), port: 1, kubeconfig };
        let (answer, ()) = tokio::join!(ask(&cluster, address), endless);
        assert!(answer.unwrap_err().contains("length limit exceeded"));
    }

    /// The name is looked up once, and what was looked at is what is asked, whatever the name means by then.
    #[tokio::test]
    async fn who_was_looked_up_is_who_is_asked() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig("http://nowhere.invalid:1", "{ token: t }")).unwrap();
        let cluster = Cluster { secret: "s".into(), host: "nowhere.invalid".into(), port: 1, kubeconfig };
        let server = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            connection.write_all(b"HTTP/1.1 418 I'm a teapot\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        };
        let (answer, ()) = tokio::join!(ask(&cluster, address), server);
        assert!(answer.unwrap_err().contains("418"));
    }

    #[test]
    fn the_servers_address_is_found() {
        let cluster = read("a", "pair-etcd", &secret(&kubeconfig("https://pair-etcd:6443", "{ token: t }"))).unwrap();
        assert_eq!((cluster.host.as_str(), cluster.port), ("pair-etcd", 6443));
        let cluster = read("a", "s", &secret(&kubeconfig("https://example.test", "{ token: t }"))).unwrap();
        assert_eq!(cluster.port, 443);
    }

    #[test]
    fn what_a_pod_cannot_use_is_refused_with_the_remedy() {
        let said = |secret: &Secret| read("a", "s", secret).unwrap_err().message;
        assert_eq!(said(&allowed()), "arm a: Secret/s, key kubeconfig: is missing: put a kubeconfig there");
        let file = kubeconfig("https://k:6443", "{ client-key: /home/me/key }");
        assert!(said(&secret(&file)).contains("names files, programs or a proxy, which a pod has not"));
        let program = kubeconfig("https://k:6443", "{ exec: { command: login } }");
        assert!(said(&secret(&program)).contains("names files, programs or a proxy"));
        let proxy = kubeconfig("https://k:6443', 'proxy-url': 'http://elsewhere", "{ token: t }");
        assert!(said(&secret(&proxy)).contains("names files, programs or a proxy"));
        assert!(said(&secret(&"x".repeat(1 << 17))).contains("larger than 64 KiB"));
        assert!(said(&secret("apiVersion: v1\nkind: Config\n")).contains("names no cluster"));
    }
}
