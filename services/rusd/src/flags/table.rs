//! All flags of etcd 3.7, and what rusd does with them; and `import-in-place`, `linearizable-reads` and
//! `values-memory-bytes`, which are its own.

/// What a flag's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Number,
    Duration,
    /// Looked at by whoever uses it.
    Text,
}

/// What a flag does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// What it does in etcd.
    Used,
    /// Nothing: it tunes what rusd does not have.
    None,
    /// It asks for what rusd does not do, and cannot be ignored.
    Refused,
}

#[derive(Debug)]
pub(super) struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub effect: Effect,
}

/// The flag of this name.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.binary_search_by(|flag| flag.name.cmp(name)).ok().map(|place| &FLAGS[place])
}

/// In alphabetical order.
#[rustfmt::skip]
const FLAGS: &[Flag] = &[
    Flag { name: "advertise-client-urls", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "auth-token", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "auth-token-ttl", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "auto-compaction-mode", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "auto-compaction-retention", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "auto-tls", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "backend-batch-interval", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "backend-batch-limit", kind: Kind::Text, effect: Effect::None },
    Flag { name: "backend-bbolt-freelist-type", kind: Kind::Text, effect: Effect::None },
    Flag { name: "bcrypt-cost", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "bootstrap-defrag-threshold-megabytes", kind: Kind::Number, effect: Effect::None },
    Flag { name: "cert-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "cipher-suites", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "client-cert-allowed-hostname", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "client-cert-auth", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "client-cert-file", kind: Kind::Text, effect: Effect::None },
    Flag { name: "client-crl-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "client-key-file", kind: Kind::Text, effect: Effect::None },
    Flag { name: "compact-hash-check-time", kind: Kind::Duration, effect: Effect::Used },
    Flag { name: "compaction-batch-limit", kind: Kind::Text, effect: Effect::None },
    Flag { name: "compaction-sleep-interval", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "config-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "corrupt-check-time", kind: Kind::Duration, effect: Effect::Used },
    Flag { name: "cors", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "data-dir", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "discovery-cacert", kind: Kind::Text, effect: Effect::None },
    Flag { name: "discovery-cert", kind: Kind::Text, effect: Effect::None },
    Flag { name: "discovery-dial-timeout", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "discovery-endpoints", kind: Kind::Text, effect: Effect::Refused },
    Flag { name: "discovery-fallback", kind: Kind::Text, effect: Effect::None },
    Flag { name: "discovery-insecure-skip-tls-verify", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "discovery-insecure-transport", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "discovery-keepalive-time", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "discovery-keepalive-timeout", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "discovery-key", kind: Kind::Text, effect: Effect::None },
    Flag { name: "discovery-password", kind: Kind::Text, effect: Effect::None },
    Flag { name: "discovery-request-timeout", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "discovery-srv", kind: Kind::Text, effect: Effect::Refused },
    Flag { name: "discovery-srv-name", kind: Kind::Text, effect: Effect::Refused },
    Flag { name: "discovery-token", kind: Kind::Text, effect: Effect::Refused },
    Flag { name: "discovery-user", kind: Kind::Text, effect: Effect::None },
    Flag { name: "distributed-tracing-address", kind: Kind::Text, effect: Effect::None },
    Flag { name: "distributed-tracing-instance-id", kind: Kind::Text, effect: Effect::None },
    Flag { name: "distributed-tracing-sampling-rate", kind: Kind::Text, effect: Effect::None },
    Flag { name: "distributed-tracing-service-name", kind: Kind::Text, effect: Effect::None },
    Flag { name: "downgrade-check-time", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "election-timeout", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "enable-distributed-tracing", kind: Kind::Bool, effect: Effect::Refused },
    Flag { name: "enable-grpc-gateway", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "enable-log-rotation", kind: Kind::Bool, effect: Effect::Refused },
    Flag { name: "enable-pprof", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "feature-gates", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "force-new-cluster", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "grpc-keepalive-interval", kind: Kind::Duration, effect: Effect::Used },
    Flag { name: "grpc-keepalive-min-time", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "grpc-keepalive-timeout", kind: Kind::Duration, effect: Effect::Used },
    Flag { name: "heartbeat-interval", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "host-whitelist", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "import-in-place", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "initial-advertise-peer-urls", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "initial-cluster", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "initial-cluster-state", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "initial-cluster-token", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "initial-election-tick-advance", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "key-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "linearizable-reads", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "listen-client-http-urls", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "listen-client-urls", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "listen-metrics-urls", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "listen-peer-urls", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "log-format", kind: Kind::Text, effect: Effect::None },
    Flag { name: "log-level", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "log-outputs", kind: Kind::Text, effect: Effect::None },
    Flag { name: "log-rotation-config-json", kind: Kind::Text, effect: Effect::None },
    Flag { name: "logger", kind: Kind::Text, effect: Effect::None },
    Flag { name: "max-concurrent-streams", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "max-learners", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "max-request-bytes", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "max-snapshots", kind: Kind::Number, effect: Effect::None },
    Flag { name: "max-txn-ops", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "max-wals", kind: Kind::Number, effect: Effect::None },
    Flag { name: "memory-mlock", kind: Kind::Bool, effect: Effect::Refused },
    Flag { name: "metrics", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "name", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-auto-tls", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "peer-cert-allowed-cn", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-cert-allowed-hostname", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-cert-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-client-cert-auth", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "peer-client-cert-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-client-key-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-crl-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-key-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "peer-skip-client-san-verification", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "peer-trusted-ca-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "pre-vote", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "quota-backend-bytes", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "raft-read-timeout", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "raft-write-timeout", kind: Kind::Duration, effect: Effect::None },
    Flag { name: "self-signed-cert-validity", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "snapshot-catchup-entries", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "snapshot-count", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "socket-reuse-address", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "socket-reuse-port", kind: Kind::Bool, effect: Effect::None },
    Flag { name: "strict-reconfig-check", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "tls-max-version", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "tls-min-version", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "trusted-ca-file", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "unsafe-no-fsync", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "v2-deprecation", kind: Kind::Text, effect: Effect::None },
    Flag { name: "values-memory-bytes", kind: Kind::Number, effect: Effect::Used },
    Flag { name: "version", kind: Kind::Bool, effect: Effect::Used },
    Flag { name: "wal-dir", kind: Kind::Text, effect: Effect::Used },
    Flag { name: "warning-apply-duration", kind: Kind::Duration, effect: Effect::Used },
    Flag { name: "warning-unary-request-duration", kind: Kind::Duration, effect: Effect::Used },
    Flag { name: "watch-progress-notify-interval", kind: Kind::Duration, effect: Effect::Used },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_found() {
        for flag in FLAGS {
            assert_eq!(find(flag.name).unwrap().name, flag.name);
        }
        assert!(find("listen-client-url").is_none());
    }
}
