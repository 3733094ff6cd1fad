//! Files, environments and flags, right and wrong.

use super::*;

/// As the original's documents have it, as far as it is offered here.
const FILE: &str = r#"
[cluster]
node_id = 2
listen_address = "127.0.0.1:9082"
db_root_dir = "/tmp/db"
initial_cluster = [
    { id = 1, name = "n1", address = "127.0.0.1:9081", role = 1, status = 3 },
    { id = 2, name = "n2", address = "127.0.0.1:9082", role = 1, status = 3 },
    { id = 3, name = "n3", address = "127.0.0.1:9083", peer_address = "127.0.0.1:7083" },
]

[raft]
general_raft_timeout_duration_in_ms = 700

[raft.election]
election_timeout_min = 600
election_timeout_max = 1200

[raft.persistence]
strategy = "MemFirst"
flush_policy = { Batch = { idle_flush_interval_ms = 1000 } }

[raft.read_consistency]
default_policy = "LinearizableRead"
lease_duration_ms = 250
"#;

fn of(text: &str, environment: &[(&str, &str)], flags: Flags) -> Result<Settings, Mistake> {
    let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
    Settings::of(Some(("d.toml", text)), environment, flags)
}

fn refused(text: &str, environment: &[(&str, &str)], flags: Flags) -> String {
    match of(text, environment, flags) {
        Err(Mistake(text)) => text,
        Ok(_) => panic!("it is taken"),
    }
}

#[test]
fn a_pod_knows_its_number_by_its_name() {
    assert_eq!(node_id("3"), Ok(3));
    assert_eq!(node_id("store-0"), Ok(1));
    assert_eq!(node_id("my-store-4"), Ok(5));
    for other in ["", "store", "store-", "-1x", "store-x", "store-18446744073709551615"] {
        assert!(node_id(other).is_err(), "{other}");
    }
}

#[test]
fn the_originals_words_are_understood() {
    let settings = of(FILE, &[], Flags::default()).unwrap();
    let engine = &settings.engine;
    assert_eq!((engine.id, engine.members.len(), engine.durability), (2, 3, Durability::None));
    assert_eq!(engine.members[&1].peer, "127.0.0.1:10081");
    assert_eq!(engine.members[&3].peer, "127.0.0.1:7083");
    assert_eq!((engine.election, engine.heartbeat), (Duration::from_millis(600), Duration::from_millis(100)));
    assert_eq!(settings.patience, Duration::from_millis(700));
    assert_eq!(settings.listen, "127.0.0.1:9082");
    assert_eq!(settings.warnings.len(), 4, "{:?}", settings.warnings);
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let environment = [("RAFT__CLUSTER__NODE_ID", "3"), ("RAFT__CLUSTER__DB_ROOT_DIR", "/tmp/other"), ("PATH", "x")];
    let settings = of(FILE, &environment, Flags::default()).unwrap();
    assert_eq!((settings.engine.id, settings.engine.directory.to_str()), (3, Some("/tmp/other")));
    let flags = Flags { node_id: Some(1), durability: Some("fsync".into()), ..Flags::default() };
    let settings = of(FILE, &environment, flags).unwrap();
    assert_eq!((settings.engine.id, settings.engine.durability), (1, Durability::Fsync));
}

#[test]
fn what_nobody_knows_or_offers_is_refused_in_one_line() {
    let mistakes = [
        (FILE.replace("node_id", "nodeid"), "d.toml: line 3: unknown field `nodeid`"),
        (FILE.replace("\"MemFirst\"", "\"Fast\""), "d.toml: strategy of [raft.persistence], \"Fast\""),
        (
            FILE.replace("LinearizableRead", "LeaseRead"),
            "d.toml: default_policy of [raft.read_consistency], \"LeaseRead\"",
        ),
        (FILE.replace("node_id = 2", "node_id = 4"), "member 4 is not among the members [1, 2, 3]"),
        (FILE.replace("id = 3", "id = 2"), "member 2 is named twice"),
        (FILE.replace("id = 3", "id = 4294967296"), "member 4294967296: numbers"),
        (FILE.replace("node_id = 2", "node_id = 4294967296"), "node_id of [cluster]: 4294967296: numbers"),
        (FILE.replace("node_id = 2", "node_id = 0"), "node_id of [cluster]: 0: numbers"),
        (FILE.replace(":9082\", role", ":9081\", role"), "members 1 and 2 are at one address, 127.0.0.1:9081"),
        (FILE.replace(":7083", ":10081"), "members 1 and 3 are at one address"),
        (format!("{FILE}[raft.replication]\nrpc_append_entries_clock_in_ms = 0\n"), "rpc_append_entries_clock_in_ms"),
        (FILE.replace(":9083", ":65000"), ""),
        (FILE.replace("127.0.0.1:9081", "here"), "\"here\" is not an address"),
        (FILE.replace("= 600", "= 200"), "three heartbeats"),
        (FILE.replace("= 1200", "= 300"), "d.toml: election_timeout_max of [raft.election], 300"),
        (FILE.replace("= 700", "= 0"), "general_raft_timeout_duration_in_ms"),
        (FILE.replacen("role = 1", "role = 4", 1), "member 1 of initial_cluster: role 4: a learner"),
        (FILE.replace("db_root_dir = \"/tmp/db\"", ""), "--db-root-dir"),
        (FILE.replace("[raft]", "[raft"), "d.toml: line"),
        (format!("{FILE}[tls]\ncertificate = \"a\"\n"), "both a certificate and its key"),
        (format!("{FILE}[monitoring]\nprometheus_port = 1\n"), "unknown field `monitoring`"),
    ];
    for (text, expected) in mistakes.iter().filter(|(_, expected)| !expected.is_empty()) {
        let said = refused(text, &[], Flags::default());
        assert!(said.contains(expected) && !said.contains('\n'), "{said:?} does not say {expected:?}");
    }
    assert!(refused(FILE, &[("RAFT__CLUSTER__NAME", "a")], Flags::default()).contains("unknown field `name`"));
    assert!(refused(FILE, &[("RAFT__CLUSTER", "a")], Flags::default()).contains("RAFT__CLUSTER=a: "));
    let flags = |durability: &str| Flags { durability: Some(durability.into()), ..Flags::default() };
    assert!(refused(FILE, &[], flags("interval")).contains("does not sync by the clock"));
    assert!(refused(FILE, &[], flags("sometimes")).contains("expected fsync or none"));
    let flags = Flags { members: vec!["1:a".into()], ..Flags::default() };
    assert!(refused(FILE, &[], flags).contains("--member 1:a: expected"));
}

/// Each cost a start.
#[test]
fn all_words_that_nobody_knows_are_named_at_once() {
    let text = FILE.replace("node_id", "nodeid").replace("name = \"n2\"", "nmae = \"n2\"");
    let said = refused(&format!("{text}[monitoring]\nnodeid = 1\n"), &[], Flags::default());
    for expected in
        ["d.toml: line 3: unknown field `nodeid`", "; line 8: unknown field `nmae`", "; line 26: unknown field"]
    {
        assert!(said.contains(expected), "{said:?} does not say {expected:?}");
    }
    // What is wrong besides is told when these are known.
    let said = refused(&text.replace("= 600", "= \"x\""), &[], Flags::default());
    assert!(said.contains("`nodeid`") && said.contains("`nmae`") && !said.contains("invalid type"), "{said}");
}

#[test]
fn what_is_wrong_with_a_value_is_said_of_who_has_said_it() {
    let environment = [("RAFT__RAFT__PERSISTENCE__STRATEGY", "Fast")];
    let said = refused(FILE, &environment, Flags::default());
    assert!(
        said.starts_with("d.toml, or the environment (RAFT__…): strategy of [raft.persistence], \"Fast\""),
        "{said}"
    );
}

/// Clients on other machines would ask themselves.
#[test]
fn a_member_is_not_where_everybody_is() {
    let flags = |member: &str| Flags { members: vec![member.into()], node_id: Some(1), ..Flags::default() };
    for anywhere in ["0.0.0.0:1", "[::]:1", "a:1,0.0.0.0:2", "a:1,[::]:2"] {
        let said = refused(FILE, &[], flags(&format!("1={anywhere}")));
        assert!(said.contains("name the address where others do"), "{said}");
    }
    let said = refused(&FILE.replace("127.0.0.1:9081", "0.0.0.0:9081"), &[], Flags::default());
    assert!(said.starts_with("member 1 of initial_cluster of [cluster]: 0.0.0.0:9081: nobody on another"), "{said}");
}

/// It was ignored, so that a member joined a group that nobody meant.
#[test]
fn who_joins_does_not_say_which_group_it_is() {
    let flags = |group: Option<&str>| Flags {
        members: vec!["2=127.0.0.1:9082".into()],
        join: vec!["127.0.0.1:10081".into()],
        group: group.map(str::to_owned),
        ..Flags::default()
    };
    let said = refused(FILE, &[], flags(Some("other")));
    assert!(said.starts_with("--group other, or D_ENGINE_GROUP") && said.contains("leave --group out"), "{said}");
    let of_file = FILE.replace("[cluster]", "[cluster]\ngroup = \"other\"");
    let warned = |text: &str| of(text, &[], flags(None)).unwrap().warnings.iter().any(|line| line.contains("--join"));
    assert_eq!((warned(FILE), warned(&of_file)), (false, true));
}

#[test]
fn a_variable_has_members_between_any_white_space_and_none_where_it_is_empty() {
    let of_variable =
        |text: &str| Flags { members: vec![text.into()], members_of_environment: true, ..Flags::default() };
    let members = |text: &str| of(FILE, &[], of_variable(text)).unwrap().engine.members.len();
    assert_eq!(members(" 2=b:1  3=c:1\n4=d:1\t5=e:1 \n"), 4);
    for empty in ["", " ", "\n"] {
        assert_eq!(members(empty), 3, "those of the file");
    }
    for wrong in ["2", "2=b", "2=b:1 2=c:1", "2=b:1,3=c:1"] {
        let said = refused(FILE, &[], of_variable(wrong));
        assert!(said.starts_with("D_ENGINE_MEMBERS 2"), "{said}");
    }
    // So has the one of those who are joined.
    let settings = of(FILE, &[], Flags { join: vec![String::new()], ..Flags::default() }).unwrap();
    assert!(settings.engine.join.is_empty());
}

#[test]
fn the_state_lies_where_the_file_or_a_flag_says() {
    let file = format!("{FILE}[raft.state_machine]\nstorage = \"disk\"\ncache_mib = 2\n");
    let storage = |text: &str, flags| of(text, &[], flags).unwrap().engine.storage;
    assert_eq!(storage(FILE, Flags::default()), StateStorage::Memory);
    assert_eq!(storage(&file, Flags::default()), StateStorage::Disk { cache_bytes: 2 << 20 });
    let flags = || Flags { storage: Some("disk".into()), ..Flags::default() };
    assert_eq!(storage(FILE, flags()), StateStorage::Disk { cache_bytes: 64 << 20 });
    let mistakes = [
        (Flags { storage: Some("tape".into()), ..flags() }, "expected memory or disk"),
        (Flags { storage_cache_mib: Some(0), ..flags() }, "from 1 to 1048576"),
        (Flags { storage_cache_mib: Some(1), ..Flags::default() }, "only with storage disk"),
    ];
    for (flags, expected) in mistakes {
        let said = refused(FILE, &[], flags);
        assert!(said.contains(expected), "{said:?} does not say {expected:?}");
    }
}

#[test]
fn a_member_alone_needs_a_number_and_a_directory() {
    let flags = Flags { node_id: Some(1), db_root_dir: Some("/tmp/a".into()), ..Flags::default() };
    let settings = Settings::of(None, [], flags.clone()).unwrap();
    assert_eq!((settings.listen.as_str(), settings.engine.members.len()), ("127.0.0.1:9081", 1));
    let Err(Mistake(said)) = Settings::of(None, [], Flags { node_id: Some(4_294_967_296), ..flags }) else {
        panic!("it is taken");
    };
    assert!(said.starts_with("--node-id, or node_id of [cluster]: 4294967296"), "{said}");
    assert_eq!(settings.engine.durability, Durability::Fsync);
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_file_or_a_line_that_says_why(text in "(\\[[a-z.]{0,8}\\]|[a-z_]{1,8} ?= ?[0-9a-z\"\\[\\]{}]{0,6}|\n){0,8}") {
        if let Err(Mistake(said)) = of(&text, &[], Flags::default()) {
            proptest::prop_assert!(!said.contains('\n'), "{:?}", said);
        }
    }
}

#[test]
fn a_longest_election_timeout_that_is_not_kept_is_told() {
    let warned = |text: &str| {
        let settings = of(text, &[], Flags::default()).unwrap();
        settings.warnings.iter().any(|warning| warning.contains("election_timeout_max = 60000"))
    };
    assert!(warned(&FILE.replace("= 1200", "= 60000")));
    let settings = of(FILE, &[], Flags::default()).unwrap();
    assert!(!settings.warnings.iter().any(|warning| warning.contains("election_timeout_max")));
}

#[test]
fn the_readme_has_a_file_with_all_words() {
    let readme = include_str!("../../README.md");
    let file = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let settings = of(file, &[], Flags::default()).unwrap();
    assert_eq!((settings.engine.members.len(), settings.listen.as_str()), (3, "0.0.0.0:9081"));
    assert_eq!(settings.warnings.len(), 3, "{:?}", settings.warnings);
}

/// A second member was told that the first one is at an address where nobody listens.
#[test]
fn a_member_alone_is_where_it_listens() {
    let of = |listen: Option<&str>, listen_peer: Option<&str>| {
        let flags = Flags {
            node_id: Some(1),
            db_root_dir: Some("/tmp/a".into()),
            listen_address: listen.map(str::to_owned),
            listen_peer_address: listen_peer.map(str::to_owned),
            ..Flags::default()
        };
        Settings::of(None, [], flags).map(|settings| settings.engine.members[&1].clone())
    };
    let at = |client: &str, peer: &str| Address { client: client.into(), peer: peer.into() };
    let peer = Some("127.0.0.1:18011");
    assert_eq!(of(Some("127.0.0.1:18001"), peer), Ok(at("127.0.0.1:18001", "127.0.0.1:18011")));
    assert_eq!(of(None, peer), Ok(at("127.0.0.1:9081", "127.0.0.1:18011")));
    // Nobody joins these.
    assert_eq!(of(Some("0.0.0.0:65000"), None).map(|own| own.client), Ok("127.0.0.1:65000".into()));
    assert_eq!(of(None, None), Ok(at("127.0.0.1:9081", "127.0.0.1:10081")));
    for (listen, listen_peer) in [("0.0.0.0:18001", "a:18011"), ("a:18001", "0.0.0.0:18011"), ("a:1", "[::]:2")] {
        let said = of(Some(listen), Some(listen_peer)).unwrap_err().0;
        assert!(said.contains("say with --member 1=HOST:PORT,HOST:PORT"), "{said}");
    }
}

#[test]
fn a_variable_that_nobody_reads_may_be_anything_and_ours_may_not() {
    use std::os::unix::ffi::OsStringExt as _;
    let odd = || OsString::from_vec(vec![b'a', 0xff]);
    let of = |name: OsString| {
        let flags = Flags { node_id: Some(1), db_root_dir: Some("/tmp/a".into()), ..Flags::default() };
        Settings::of(None, [(name, odd())], flags).map(drop)
    };
    assert_eq!((of("LESS".into()), of(odd())), (Ok(()), Ok(())));
    assert!(of("RAFT__CLUSTER__GROUP".into()).unwrap_err().0.starts_with("RAFT__CLUSTER__GROUP: "));
    let said = refused(FILE, &[("RAFT__CLUSTER__NODE_ID", "foo")], Flags::default());
    assert!(said.starts_with("RAFT__CLUSTER__NODE_ID=foo: invalid type"), "{said}");

    let check = |name: &str| check_variables([odd(), name.into()], |name| name == "D_ENGINE_NODE_ID");
    for known in ["D_ENGINE_NODE_ID", "PATH", "D_ENGINE_SERVICE_HOST", "D_ENGINE_PORT_9081_TCP_ADDR", "D_ENGINE_PORT"] {
        assert_eq!(check(known), Ok(()), "{known}");
    }
    assert!(check("D_ENGINE_NODEID").unwrap_err().0.starts_with("D_ENGINE_NODEID: there is no such variable"));
}

#[test]
fn what_is_wrong_with_times_and_addresses_is_said_of_the_flag() {
    let with = |flags: Flags| refused(FILE, &[], flags);
    let times = |heartbeat, election| Flags {
        heartbeat_ms: Some(heartbeat),
        election_timeout_ms: Some(election),
        ..Flags::default()
    };
    let said = with(times(1, 50));
    assert!(
        said.starts_with("--election-timeout-ms, or") && said.contains(", 50, with") && said.contains("at least 60 ms"),
        "{said}"
    );
    assert!(with(times(100, 299)).contains("at least 300 ms"));
    let longer = refused(&FILE.replace("election_timeout_max = 1200", ""), &[], times(100, 60_001));
    assert!(longer.contains("60000 ms at most"), "{longer}");
    assert!(of(FILE, &[], times(1, 60)).is_ok());
    let listen = |address: &str| Flags { listen_address: Some(address.into()), ..Flags::default() };
    assert!(with(listen("127.0.0.1")).starts_with("--listen-address, or listen_address of [cluster]: \"127.0.0.1\""));
    let peer = Flags { listen_peer_address: Some("a".into()), ..Flags::default() };
    assert!(with(peer).starts_with("--listen-peer-address: \"a\""));
    let members = |member: &str| Flags { members: vec![member.into()], node_id: Some(1), ..Flags::default() };
    assert!(with(members("1=h:18001,2=h:18002")).contains("separated by spaces"));
    assert!(with(members("1=h")).starts_with("--member 1=h: \"h\" is not an address"));
    assert!(with(Flags { clock_drift_ppm: Some(200_001), ..Flags::default() }).starts_with("--clock-drift-ppm"));
    assert!(with(Flags { tls_key: Some("k".into()), ..Flags::default() }).contains("--tls-certificate and --tls-key"));
}
