//! All flags of etcd 3.7, and what rusd does with them; and `import-in-place`, `linearizable-reads` and
//! `values-memory-bytes`, which are its own. What `--help` prints is made of them.
//!
//! `rusd import` has two more, of `etcdutl snapshot restore`; what its `--help` prints is here, too.

use service_kit::command_line;

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

/// What `--help` shows together, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Member,
    Clustering,
    Security,
    Auth,
    Monitoring,
    Features,
    Own,
}

impl Group {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Member, "Member"),
        (Self::Clustering, "Clustering"),
        (Self::Security, "Security"),
        (Self::Auth, "Users"),
        (Self::Monitoring, "Logs and metrics"),
        (Self::Features, "Checks and features"),
        (Self::Own, "What etcd has not"),
    ];
}

#[derive(Debug)]
pub(super) struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub effect: Effect,
    /// Where `--help` has it, and its words there; behind a colon stands the default. `None` of a flag that does nothing.
    help: Option<(Group, &'static str)>,
}

const fn used(name: &'static str, kind: Kind, group: Group, words: &'static str) -> Flag {
    Flag { name, kind, effect: Effect::Used, help: Some((group, words)) }
}

const fn idle(name: &'static str, kind: Kind) -> Flag {
    Flag { name, kind, effect: Effect::None, help: None }
}

const fn refused(name: &'static str, kind: Kind) -> Flag {
    Flag { name, kind, effect: Effect::Refused, help: None }
}

/// The flag of this name.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.binary_search_by(|flag| flag.name.cmp(name)).ok().map(|place| &FLAGS[place])
}

/// Whether etcd has had a setting of this name, before 3.7: those of API v2, of its proxy and of discovery by it, and what was tried out.
pub(super) fn was_in_etcd(name: &str) -> bool {
    const DROPPED: [&str; 8] = [
        "debug",
        "discovery",
        "discovery-proxy",
        "enable-v2",
        "enable-v2v3",
        "log-output",
        "log-package-levels",
        "proxy",
    ];
    DROPPED.contains(&name) || ["experimental-", "proxy-"].iter().any(|prefix| name.starts_with(prefix))
}

/// The flag of this name, of a program that has its own beside the server's.
pub(super) fn find_among(own: &'static [Flag], name: &str) -> Option<&'static Flag> {
    own.iter().find(|flag| flag.name == name).or_else(|| find(name))
}

/// The flag that was probably meant, of such a program.
pub(super) fn nearest(own: &[Flag], name: &str) -> Option<&'static str> {
    command_line::nearest(name, own.iter().chain(FLAGS).map(|flag| flag.name))
}

/// What `--help` prints.
pub(super) fn help() -> String {
    let mut text = String::from(
        "rusd: a server of etcd's API. Usage:\n  rusd [FLAGS]                                   run a member\n  \
         rusd import SOURCE --data-dir=NEW [FLAGS]      make a data directory of what etcd wrote: rusd import --help\n\n\
         Flags are etcd's, and come from the command line, from variables (--data-dir is ETCD_DATA_DIR) or from --config-file.\n",
    );
    for (group, title) in Group::ALL {
        text += &format!("\n{title}:\n");
        for flag in FLAGS {
            let Some((_, words)) = flag.help.filter(|(of, _)| *of == group) else { continue };
            text += &flag_row(flag, words);
        }
    }
    for (effect, title) in
        [(Effect::None, "Taken, and without effect in rusd"), (Effect::Refused, "Refused, for rusd does not do it")]
    {
        text += &format!("\n{title}:\n");
        let mut line = String::from(" ");
        for flag in FLAGS.iter().filter(|flag| flag.effect == effect) {
            if line.len() + flag.name.len() > LINE_COLUMNS {
                text += &format!("{line}\n");
                line = String::from(" ");
            }
            line += &format!(" --{}", flag.name);
        }
        text += &format!("{line}\n");
    }
    text
}

/// What `rusd import --help` prints.
pub(super) fn help_of_import() -> String {
    format!(
        "rusd import: makes a data directory of what etcd wrote. Usage:\n  rusd import SOURCE --data-dir=NEW [FLAGS]\n\n\
         {}{}{}\nAs of etcdutl snapshot restore, for clients that may have seen later revisions than SOURCE has:\n{}\n\
         Of etcd's flags these matter, and are those of the start that follows. Each member of a group is made of the same\n\
         SOURCE, with the same --initial-cluster and the same of the two flags above:\n{}\n\
         etcd's other flags are taken and checked, and change nothing here. Variables are not looked at.\n",
        row("SOURCE", "a data directory of etcd that was stopped gently, or a snapshot that"),
        row("", "etcdctl snapshot save has written"),
        row("--data-dir NEW", "where the new member's data shall be; no member's are there"),
        rows(OF_IMPORT.iter()),
        rows(FOR_IMPORT.iter().filter_map(|name| find(name))),
    )
}

fn rows<'a>(flags: impl Iterator<Item = &'a Flag>) -> String {
    flags.filter_map(|flag| flag.help.map(|(_, words)| flag_row(flag, words))).collect()
}

fn flag_row(flag: &Flag, words: &str) -> String {
    let value = match flag.kind {
        Kind::Bool => "",
        Kind::Number => " NUMBER",
        Kind::Duration => " DURATION",
        Kind::Text => " TEXT",
    };
    row(&format!("--{}{value}", flag.name), words)
}

fn row(name: &str, words: &str) -> String {
    format!("  {name:<NAME_COLUMNS$} {words}\n")
}

/// What a flag does stands behind so many columns.
const NAME_COLUMNS: usize = 42;

/// Lines of names are not longer.
const LINE_COLUMNS: usize = 110;

/// What `rusd import` has beside the flags of the server.
#[rustfmt::skip]
pub(super) const OF_IMPORT: &[Flag] = &[
    used("bump-revision", Kind::Number, Group::Own, "how much higher than in SOURCE the revision begins: 0"),
    used("mark-compacted", Kind::Bool, Group::Own, "what is before that is compacted, so that watches from there end"),
];

/// Flags of the server that `rusd import` does something with, in the order of its `--help`.
const FOR_IMPORT: [&str; 7] = [
    "name",
    "initial-cluster",
    "initial-cluster-token",
    "initial-advertise-peer-urls",
    "wal-dir",
    "unsafe-no-fsync",
    "config-file",
];

/// In alphabetical order.
#[rustfmt::skip]
const FLAGS: &[Flag] = &[
    used("advertise-client-urls", Kind::Text, Group::Clustering, "where clients find it: http://localhost:2379"),
    used("auth-token", Kind::Text, Group::Auth, "tokens of users, simple or jwt,OPTIONS: simple"),
    used("auth-token-ttl", Kind::Number, Group::Auth, "seconds that a token lives: 300"),
    used("auto-compaction-mode", Kind::Text, Group::Clustering, "whether that is a time or a count: periodic, or revision"),
    used("auto-compaction-retention", Kind::Text, Group::Clustering, "what compaction by itself keeps: 0, so there is none"),
    used("auto-tls", Kind::Bool, Group::Security, "make the certificate for clients"),
    idle("backend-batch-interval", Kind::Duration),
    idle("backend-batch-limit", Kind::Text),
    idle("backend-bbolt-freelist-type", Kind::Text),
    used("bcrypt-cost", Kind::Number, Group::Auth, "how dear a password is to guess: 10"),
    idle("bootstrap-defrag-threshold-megabytes", Kind::Number),
    used("cert-file", Kind::Text, Group::Security, "the certificate for clients"),
    used("cipher-suites", Kind::Text, Group::Security, "cipher suites of TLS 1.2, with commas between them"),
    used("client-cert-allowed-hostname", Kind::Text, Group::Security, "hosts of which clients' certificates are taken"),
    used("client-cert-auth", Kind::Bool, Group::Security, "a client's certificate names its user"),
    idle("client-cert-file", Kind::Text),
    used("client-crl-file", Kind::Text, Group::Security, "revoked certificates of clients"),
    idle("client-key-file", Kind::Text),
    used("compact-hash-check-time", Kind::Duration, Group::Features, "how often compactions are compared, with CompactHashCheck: 1m"),
    idle("compaction-batch-limit", Kind::Text),
    idle("compaction-sleep-interval", Kind::Duration),
    used("config-file", Kind::Text, Group::Member, "a file with these settings, which overrules all others"),
    used("corrupt-check-time", Kind::Duration, Group::Features, "how often members are compared: 0s, so never"),
    used("cors", Kind::Text, Group::Security, "origins whose pages may ask: *"),
    used("data-dir", Kind::Text, Group::Member, "where its data are: NAME.etcd"),
    idle("discovery-cacert", Kind::Text),
    idle("discovery-cert", Kind::Text),
    idle("discovery-dial-timeout", Kind::Duration),
    refused("discovery-endpoints", Kind::Text),
    idle("discovery-fallback", Kind::Text),
    idle("discovery-insecure-skip-tls-verify", Kind::Bool),
    idle("discovery-insecure-transport", Kind::Bool),
    idle("discovery-keepalive-time", Kind::Duration),
    idle("discovery-keepalive-timeout", Kind::Duration),
    idle("discovery-key", Kind::Text),
    idle("discovery-password", Kind::Text),
    idle("discovery-request-timeout", Kind::Duration),
    refused("discovery-srv", Kind::Text),
    refused("discovery-srv-name", Kind::Text),
    refused("discovery-token", Kind::Text),
    idle("discovery-user", Kind::Text),
    idle("distributed-tracing-address", Kind::Text),
    idle("distributed-tracing-instance-id", Kind::Text),
    idle("distributed-tracing-sampling-rate", Kind::Text),
    idle("distributed-tracing-service-name", Kind::Text),
    idle("downgrade-check-time", Kind::Duration),
    used("election-timeout", Kind::Number, Group::Member, "milliseconds without a leader before a vote: 1000"),
    refused("enable-distributed-tracing", Kind::Bool),
    used("enable-grpc-gateway", Kind::Bool, Group::Features, "serve the API as JSON, too: true"),
    refused("enable-log-rotation", Kind::Bool),
    idle("enable-pprof", Kind::Bool),
    used("feature-gates", Kind::Text, Group::Features, "features that are tried out, as NAME=true,NAME=false"),
    used("force-new-cluster", Kind::Bool, Group::Clustering, "go on as the only member: the others are lost for good"),
    used("grpc-keepalive-interval", Kind::Duration, Group::Member, "silence after which a client is asked: 2h; 0s: never"),
    idle("grpc-keepalive-min-time", Kind::Duration),
    used("grpc-keepalive-timeout", Kind::Duration, Group::Member, "how long it may take to answer: 20s"),
    used("heartbeat-interval", Kind::Number, Group::Member, "milliseconds between a leader's heartbeats: 100"),
    used("help", Kind::Bool, Group::Member, "print this"),
    used("host-whitelist", Kind::Text, Group::Security, "hosts that HTTP without TLS may be for: *"),
    used("import-in-place", Kind::Bool, Group::Own, "take over what an etcd left in --data-dir"),
    used("initial-advertise-peer-urls", Kind::Text, Group::Clustering, "where other members find it: http://localhost:2380"),
    used("initial-cluster", Kind::Text, Group::Clustering, "the founders, as NAME=URL,NAME=URL"),
    used("initial-cluster-state", Kind::Text, Group::Clustering, "new, or existing for a member that was added: new"),
    used("initial-cluster-token", Kind::Text, Group::Clustering, "what tells groups of the same members apart: etcd-cluster"),
    idle("initial-election-tick-advance", Kind::Bool),
    used("key-file", Kind::Text, Group::Security, "its key"),
    used("linearizable-reads", Kind::Text, Group::Own, "how they are kept from being stale, lease or round: lease"),
    used("listen-client-http-urls", Kind::Text, Group::Member, "where HTTP alone is served, and then on these only"),
    used("listen-client-urls", Kind::Text, Group::Member, "where clients are served: http://localhost:2379; also unix://FILE"),
    used("listen-metrics-urls", Kind::Text, Group::Monitoring, "where health and metrics are served as well"),
    used("listen-peer-urls", Kind::Text, Group::Member, "where members are served: http://localhost:2380"),
    idle("log-format", Kind::Text),
    used("log-level", Kind::Text, Group::Monitoring, "debug, info, warn, error, panic or fatal: info"),
    idle("log-outputs", Kind::Text),
    idle("log-rotation-config-json", Kind::Text),
    idle("logger", Kind::Text),
    used("max-concurrent-streams", Kind::Number, Group::Member, "calls of a connection at a time, at most"),
    used("max-learners", Kind::Number, Group::Clustering, "learners in the group, at most: 1"),
    used("max-request-bytes", Kind::Number, Group::Member, "bytes of a request, at most: 1572864"),
    idle("max-snapshots", Kind::Number),
    used("max-txn-ops", Kind::Number, Group::Member, "operations in a transaction, at most: 128"),
    idle("max-wals", Kind::Number),
    refused("memory-mlock", Kind::Bool),
    used("metrics", Kind::Text, Group::Monitoring, "basic or extensive: basic"),
    used("name", Kind::Text, Group::Member, "this member's name: default"),
    used("peer-auto-tls", Kind::Bool, Group::Security, "make the certificate between members"),
    used("peer-cert-allowed-cn", Kind::Text, Group::Security, "common names of which members' certificates are taken"),
    used("peer-cert-allowed-hostname", Kind::Text, Group::Security, "hosts of which members' certificates are taken"),
    used("peer-cert-file", Kind::Text, Group::Security, "the certificate between members"),
    used("peer-client-cert-auth", Kind::Bool, Group::Security, "members must show certificates"),
    used("peer-client-cert-file", Kind::Text, Group::Security, "what is shown to members that are called: that of --peer-cert-file"),
    used("peer-client-key-file", Kind::Text, Group::Security, "its key"),
    used("peer-crl-file", Kind::Text, Group::Security, "revoked certificates of members"),
    used("peer-key-file", Kind::Text, Group::Security, "its key"),
    idle("peer-skip-client-san-verification", Kind::Bool),
    used("peer-trusted-ca-file", Kind::Text, Group::Security, "who signs members' certificates"),
    idle("pre-vote", Kind::Bool),
    used("quota-backend-bytes", Kind::Text, Group::Member, "bytes above which writes are refused: 2 GiB; negative: none"),
    idle("raft-read-timeout", Kind::Duration),
    idle("raft-write-timeout", Kind::Duration),
    used("self-signed-cert-validity", Kind::Number, Group::Security, "years that a made certificate is valid: 1"),
    used("snapshot-catchup-entries", Kind::Number, Group::Member, "entries kept behind a snapshot: 5000"),
    used("snapshot-count", Kind::Number, Group::Member, "a snapshot after so many entries; less than 100000 means that"),
    idle("socket-reuse-address", Kind::Bool),
    idle("socket-reuse-port", Kind::Bool),
    used("strict-reconfig-check", Kind::Bool, Group::Clustering, "refuse changes of members that could cost the majority: true"),
    used("tls-max-version", Kind::Text, Group::Security, "TLS1.2 or TLS1.3: TLS1.3"),
    used("tls-min-version", Kind::Text, Group::Security, "TLS1.2 or TLS1.3: TLS1.2"),
    used("trusted-ca-file", Kind::Text, Group::Security, "who signs clients' certificates"),
    used("unsafe-no-fsync", Kind::Bool, Group::Features, "do not sync what is acknowledged: a power cut loses it"),
    idle("v2-deprecation", Kind::Text),
    used("values-memory-bytes", Kind::Number, Group::Own, "values in memory, bytes; the rest is in scratch files: 67108864"),
    used("version", Kind::Bool, Group::Member, "print the version"),
    used("wal-dir", Kind::Text, Group::Member, "where its log is, if not in there"),
    used("warning-apply-duration", Kind::Duration, Group::Member, "commands that take longer are logged: 100ms"),
    used("warning-unary-request-duration", Kind::Duration, Group::Member, "calls that take longer are logged: 300ms"),
    used("watch-progress-notify-interval", Kind::Duration, Group::Member, "how often idle watches hear of it: 10m"),
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

    #[test]
    fn the_help_has_every_flag_once_and_no_line_is_too_long() {
        let help = help();
        for flag in FLAGS {
            let name = format!("--{}", flag.name);
            let lines = help.lines().skip_while(|line| !line.starts_with("Member")).flat_map(str::split_whitespace);
            assert_eq!(
                lines.filter(|word| *word == name).count(),
                1 + usize::from(is_named(flag.name)),
                "{name}\n{help}"
            );
        }
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    }

    #[test]
    fn the_help_of_an_import_has_its_own_flags_and_those_that_matter() {
        let help = help_of_import();
        let names = OF_IMPORT.iter().map(|flag| flag.name).chain(FOR_IMPORT).chain(["data-dir"]);
        for name in names {
            let flag = find_among(OF_IMPORT, name).unwrap();
            assert_eq!(flag.effect, Effect::Used, "{name}");
            assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("--{name}"))), "{name}\n{help}");
        }
        assert!(help.contains("rusd import SOURCE --data-dir=NEW"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
        // They are nothing to the server.
        assert!(OF_IMPORT.iter().all(|flag| find(flag.name).is_none()));
    }

    /// Whether the words of another flag name it.
    fn is_named(name: &str) -> bool {
        let name = format!("--{name}");
        FLAGS.iter().filter_map(|flag| flag.help).any(|(_, words)| words.split_whitespace().any(|word| word == name))
    }
}
