//! A store that is there already, which storebench neither starts nor stops.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::{Rule, Rules};

/// What an external store must be, by itself.
const EXTERNAL_RULES: &[Rule] = &[Rule {
    field: ".user",
    holds: "!has(self.user) || has(self.passwordFrom)",
    otherwise: "user needs passwordFrom, which says where the password is",
}];

/// What the place of a password must be.
const PASSWORD_RULES: &[Rule] = &[
    Rule {
        field: "",
        holds: "has(self.file) || has(self.environment) || has(self.secretKeyRef)",
        otherwise: "passwordFrom names no place: give file or environment for embedded runs, or secretKeyRef for a cluster",
    },
    Rule {
        field: ".environment",
        holds: "!has(self.file) || !has(self.environment)",
        otherwise: "file and environment are both for embedded runs: leave one of them out",
    },
];

/// What TLS to an external store must be.
const TLS_RULES: &[Rule] = &[
    Rule {
        field: "",
        holds: "has(self.caFile) || has(self.secretName)",
        otherwise: "tls does not say who has signed the store's certificate: give caFile for embedded runs, or secretName for a cluster",
    },
    Rule {
        field: ".keyFile",
        holds: "has(self.certificateFile) == has(self.keyFile)",
        otherwise: "certificateFile and keyFile go together: name both or none",
    },
    Rule {
        field: ".certificateFile",
        holds: "!has(self.certificateFile) || has(self.caFile)",
        otherwise: "certificateFile needs caFile: a store that is shown a certificate is checked, too",
    },
];

/// What a service with an external store must be; `self` is the spec of the service.
pub(crate) const SERVICE_RULES: &[Rule] = &[
    Rule {
        field: ".external",
        holds: "!has(self.external) || self.engine in ['Etcd', 'Redis']",
        otherwise: "external needs engine: Etcd or engine: Redis, which say whose protocol the store speaks, whatever it is",
    },
    Rule {
        field: ".external",
        holds: "!has(self.external) || (self.replicas == 1 && [has(self.version), has(self.image), has(self.storage), \
            has(self.resources), has(self.tls), has(self.pod), has(self.args) && self.args.size() > 0, \
            has(self.env) && self.env.size() > 0].filter(given, given).size() == 0)",
        otherwise: "external goes with engine and durability only: storebench does not start this store and cannot set anything else of it; \
            TLS to it is external.tls",
    },
    Rule {
        field: ".external.endpoints",
        holds: "!has(self.external) || self.engine != 'Redis' || self.external.endpoints.size() == 1",
        otherwise: "endpoints must be one for Redis: clients do not follow redirections of a cluster, and replicas take no writes",
    },
    Rule {
        field: ".external.user",
        holds: "!has(self.external) || self.engine != 'Etcd' || !has(self.external.passwordFrom) || has(self.external.user)",
        otherwise: "user is missing: an etcd has no password without a user",
    },
];

/// Where clients reach a store: the port is 1 to 65535.
pub(crate) const ENDPOINT_PATTERN: &str =
    r"^[^\s/@]{1,253}:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";

/// What to do about an endpoint that does not fit [`ENDPOINT_PATTERN`].
pub(crate) fn endpoint_remedy(endpoint: &str) -> String {
    let like = "write host:port, such as 10.0.0.7:6379";
    if let Some((scheme, rest)) = endpoint.split_once("://") {
        let tls =
            if ["https", "rediss"].contains(&scheme) { "; that it speaks TLS is said in external.tls" } else { "" };
        let login = if rest.contains('@') { "; who logs in, in external.user and external.passwordFrom" } else { "" };
        return format!("an endpoint is no URL: leave out {scheme}:// and what follows the port{tls}{login}; {like}");
    }
    match endpoint {
        _ if endpoint.contains('@') => {
            format!("who logs in is said in external.user and external.passwordFrom: leave it out; {like}")
        }
        _ if endpoint.contains('/') => format!("an endpoint has no path: leave out what follows the port; {like}"),
        _ if !endpoint.contains(':') || endpoint.ends_with(']') => format!("it has no port: {like}"),
        _ if is_no_port(endpoint) => format!("a port is 1 to 65535: {like}"),
        _ => like.to_owned(),
    }
}

/// Whether an endpoint ends in a number that no port has.
fn is_no_port(endpoint: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let port = endpoint.rsplit_once(':').map(|(_, port)| port).filter(|port| is_number(port));
    port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// What the names of all keys begin with that a load writes into such a store.
pub const NAMESPACE_NAME: &str = "storebench";

/// A store that is there already. What it uses of its machine is not measured, its durability is what you say of it, and it is ranked
/// against others only where `allowUnequal` of the run has `external`. Runs need `isolation: Shared`. Keys are written below a name that
/// no run has twice, `storebench/…` (Redis: `storebench:…`), and removed after each workload; no other key is read, written or deleted.
/// In a cluster nothing is deployed for it: the pods of a load dial it.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = Rules(EXTERNAL_RULES))]
pub struct External {
    /// Where clients reach it, `host:port`. Connections are spread over them; all must be members of one store.
    #[schemars(length(min = 1, max = 16), inner(regex(pattern = ENDPOINT_PATTERN), length(max = 260)), extend("example" = ["10.0.0.7:2379"]))]
    pub endpoints: Vec<String>,
    /// Load it although it holds keys of somebody else. They are left alone, but who uses them shares the store with a load that takes
    /// all it can. Without this, a store that holds any key is not loaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_data: bool,
    /// As whom to log in. Absent: with the password alone, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub user: Option<String>,
    /// Where the password is, which no record keeps. Absent: nobody logs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_from: Option<PasswordFrom>,
    /// How it is reached over TLS. Absent: it is spoken to in the clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExternalTls>,
}

impl External {
    /// The paths of all files that it names.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let password = self.password_from.iter_mut().flat_map(|from| &mut from.file);
        let certificates =
            self.tls.iter_mut().flat_map(|tls| [&mut tls.ca_file, &mut tls.certificate_file, &mut tls.key_file]);
        password.chain(certificates.flatten())
    }
}

/// Where a password is: for embedded runs `file` or `environment`, for a cluster `secretKeyRef`. One for each may be given, so that the same
/// file serves both.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = Rules(PASSWORD_RULES))]
pub struct PasswordFrom {
    /// The path of a file of which the first line is the password, from the folder of the file in which this stands (of standard input: from
    /// the current folder). For embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub file: Option<String>,
    /// The name of a variable in the environment of `storebench` that holds the password. For embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"), extend("example" = "STORE_PASSWORD"))]
    pub environment: Option<String>,
    /// A Secret of the same namespace, labelled `storebench.dev/allowed=true`, and the key of the password in it. For a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKey>,
}

/// A key of a Secret.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKey {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(regex(pattern = r"^[-._a-zA-Z0-9]{1,253}$"), extend("example" = "password"))]
    pub key: String,
}

/// How a store is reached over TLS: for embedded runs with files in PEM, for a cluster with a Secret. Both may be given. Its certificate is
/// always checked.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = Rules(TLS_RULES))]
pub struct ExternalTls {
    /// The path of the certificates of those who have signed the store's, from the folder of the file in which this stands (of standard
    /// input: from the current folder). Of one that a public authority has signed: the system's, such as
    /// `/etc/ssl/certs/ca-certificates.crt`. For embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub ca_file: Option<String>,
    /// The path of the certificate that clients show, where the store asks for one; from where `caFile` is. For embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub certificate_file: Option<String>,
    /// The path of that certificate's key; from where `caFile` is. For embedded runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub key_file: Option<String>,
    /// A Secret of the same namespace, labelled `storebench.dev/allowed=true`, with the key `ca.crt`, and with `tls.crt` and `tls.key` where the store asks
    /// clients for a certificate. For a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// The name that the store's certificate is for. Absent: the host of the endpoint that is dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), extend("example" = "redis.example.org"))]
    pub server_name: Option<String>,
}

impl ExternalTls {
    /// The key of a Secret with the certificates of those who have signed the store's.
    pub const CA_KEY: &str = "ca.crt";
    /// The key of a Secret with the certificate that clients show.
    pub const CERTIFICATE_KEY: &str = "tls.crt";
    /// The key of a Secret with that certificate's key.
    pub const KEY_KEY: &str = "tls.key";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_a_url_says_what_of_it_stands_elsewhere() {
        let of = endpoint_remedy;
        assert!(of("rediss://a:1").contains("external.tls") && !of("redis://a:1").contains("external.tls"));
        assert!(
            of("redis://u:p@a:1").contains("external.passwordFrom") && of("u:p@a:1").contains("external.passwordFrom")
        );
        assert!(of("a").starts_with("it has no port") && of("[::1]").starts_with("it has no port"));
        assert!(of("a:1/x").starts_with("an endpoint has no path"));
        assert!(of("a:0").starts_with("a port is") && of("[::1]:65536").starts_with("a port is"));
        for endpoint in ["a", "redis://a:1", "u:p@a:1", "a:b"] {
            assert!(of(endpoint).ends_with("write host:port, such as 10.0.0.7:6379"), "{endpoint}");
        }
    }

    #[test]
    fn a_port_that_is_none_fits_no_endpoint() {
        let pattern = regex_lite::Regex::new(ENDPOINT_PATTERN).unwrap();
        for port in [1, 9, 10, 6379, 9999, 10000, 59999, 60000, 64999, 65000, 65499, 65500, 65529, 65530, 65535] {
            assert!(pattern.is_match(&format!("store:{port}")) && pattern.is_match(&format!("[::1]:{port}")), "{port}");
        }
        for port in ["", "0", "00", "65536", "65540", "65600", "66000", "70000", "99999", "100000"] {
            let fits = pattern.is_match(&format!("store:{port}")) || pattern.is_match(&format!("[::1]:{port}"));
            assert!(!fits, "{port}");
        }
    }
}
