//! Plans: how each store is started. One file for each [`Dialect`]; what a store is stands in the table of
//! [`storebench_crds::engine`].
//!
//! A plan is a pure function from a validated service and a [`Placement`] to a [`ServicePlan`], which has *roles*: the store
//! itself, and before it the companions that it needs. Drivers realise plans: the operator with StatefulSets (where a member's
//! own name and host are Kubernetes' `$(VARIABLE)` references) and sidecars of the load, the embedded run with child
//! processes on loopback.

mod block_node;
mod d_engine;
mod d_engine_original;
mod etcd;
mod hiero_block_node;
mod litestream;
mod redis;
mod versitygw;
mod walsync;

use std::collections::BTreeMap;

use storebench_crds::engine::object_store;
pub use storebench_crds::engine::{CLIENT, Dialect, ENGINES, Engine, METRICS, PEER, Protocol, Readiness, STORE};
use storebench_crds::job::RestoreTool;

use crate::validated::ValidatedService;

/// Where a driver puts the processes: it decides names, addresses, ports and directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The members of every role, by its name; [`roles`] says which there are. One for each replica.
    pub roles: BTreeMap<&'static str, Vec<Member>>,
    /// Where the files of the application are that the store works on; exists. For engines that share a directory.
    pub shared_directory: Option<String>,
    /// Where the load listens for requests to the object store, `host:port`, which it lets fail. Absent: the store sends them there itself.
    pub fault_proxy: Option<String>,
}

/// Where one process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Unique in the service.
    pub name: String,
    /// The host that clients and peers use.
    pub host: String,
    /// The name and the host as the member itself is told them: the same, or references such as `$(POD_NAME)` where one
    /// command line must serve all members.
    pub own_name: String,
    /// See [`Self::own_name`].
    pub own_host: String,
    /// The address the server binds.
    pub bind: String,
    /// Every port of the engine, by name.
    pub ports: BTreeMap<&'static str, u16>,
    /// Where data may be written; exists and is empty at first start.
    pub data_directory: String,
    /// Where the plan's files are before the process starts.
    pub files_directory: String,
    /// Where the engine's executables are, and what is installed with them, such as a program's libraries.
    pub programs_directory: String,
}

impl Placement {
    /// The members of a role.
    pub fn members(&self, role: &str) -> &[Member] {
        self.roles.get(role).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Member {
    /// A port that its engine has.
    pub fn port(&self, name: &str) -> u16 {
        match self.ports.get(name) {
            Some(port) => *port,
            None => unreachable!("{} has no port {name}: drivers place every port of a row", self.name),
        }
    }
}

/// A role of a service: what plays it, and where.
#[derive(Clone, Copy, Debug)]
pub struct Role<'a> {
    /// [`STORE`], or a companion's.
    pub name: &'static str,
    /// What plays it.
    pub service: &'a ValidatedService,
    /// Whether its processes run beside the load, which is the application whose files they work on.
    pub is_beside_load: bool,
}

impl Role<'_> {
    /// Whether it is the store, which is measured.
    pub fn is_store(&self) -> bool {
        self.name == STORE
    }
}

/// The roles of a service, in the order in which they are started: a role begins when those before it are ready.
pub fn roles(service: &ValidatedService) -> Vec<Role<'_>> {
    let companions = service.companions.iter();
    let companions = companions.map(|(name, service)| Role { name, service, is_beside_load: false });
    let store = Role { name: STORE, service, is_beside_load: service.engine.shares_directory };
    companions.chain([store]).collect()
}

/// How to run a service.
#[derive(Clone, Debug)]
pub struct ServicePlan<'a> {
    /// In the order in which they are started; the store is the last.
    pub roles: Vec<RolePlan<'a>>,
    /// What store and load have in common; absent where they have nothing.
    pub shared_directory: Option<String>,
}

/// How to run one role.
#[derive(Clone, Debug)]
pub struct RolePlan<'a> {
    /// Which role.
    pub role: Role<'a>,
    /// One for each member.
    pub processes: Vec<ProcessPlan>,
}

/// How to run one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPlan {
    /// The member's name.
    pub name: String,
    /// The executable's file name.
    pub binary: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, besides an empty one.
    pub environment: Vec<(String, String)>,
    /// What must be there before it starts: paths below the member's directory of files, and their content, which is the same
    /// for all members.
    pub files: Vec<(String, String)>,
    /// Directories that must be there before it starts: paths below the member's data directory.
    pub directories: Vec<String>,
    /// Where it is reached.
    pub host: String,
    /// What it listens on, by name.
    pub ports: BTreeMap<&'static str, u16>,
    /// Where it keeps its data.
    pub data_directory: String,
}

impl ProcessPlan {
    /// Where a port is reached, `host:port`, if it has that port.
    pub fn address(&self, port: &str) -> Option<String> {
        Some(format!("{}:{}", self.host, self.ports.get(port)?))
    }
}

/// One process to start, as its dialect sees it: its own place, and those of all others in the service.
struct Start<'a> {
    service: &'a ValidatedService,
    role: &'static str,
    member: &'a Member,
    placement: &'a Placement,
}

impl Start<'_> {
    /// Its role's members, itself among them.
    fn members(&self) -> &[Member] {
        self.placement.members(self.role)
    }

    /// Where the object store beside it is reached, of an engine that has one as a companion.
    fn object_store(&self) -> String {
        if let Some(proxy) = &self.placement.fault_proxy {
            return format!("http://{proxy}");
        }
        match self.placement.members(object_store::ROLE).first() {
            Some(store) => format!("http://{}:{}", store.host, store.port(CLIENT)),
            None => unreachable!("no object store was placed: the row of an engine that asks for one names it"),
        }
    }

    /// The directory that it shares with the load, of an engine that does.
    fn shared_directory(&self) -> &str {
        match self.placement.shared_directory.as_deref() {
            Some(directory) => directory,
            None => unreachable!("no shared directory was placed: the row of an engine that asks for one says so"),
        }
    }
}

/// What a dialect decides of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Launch {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    files: Vec<(String, String)>,
    directories: Vec<String>,
}

/// What a running store must say of its own settings, by name: what its durability class rests on, as far as its protocol has a request
/// that tells.
pub fn stated_settings(service: &ValidatedService) -> BTreeMap<String, String> {
    match states_settings(service.engine) {
        true => redis::stated_settings(service.durability_class),
        false => BTreeMap::new(),
    }
}

/// Whether a store of this engine is asked for its settings before it is loaded ([`stated_settings`]).
pub fn states_settings(engine: &Engine) -> bool {
    match engine.dialect {
        Dialect::Redis => true,
        Dialect::Etcd | Dialect::DEngine | Dialect::DEngineOriginal | Dialect::Versitygw => false,
        Dialect::BlockNode | Dialect::HieroBlockNode | Dialect::Walsync | Dialect::Litestream => false,
    }
}

/// How an engine's own tool restores a database from the object store at this address, `host:port`; `None` where it has none. For what
/// `program` may be see [`RestoreTool`].
pub fn restore_tool(engine: &Engine, version: &str, program: String, object_store: &str) -> Option<RestoreTool> {
    let (arguments, environment) = match engine.dialect {
        Dialect::Walsync => walsync::restore(object_store),
        Dialect::Litestream => litestream::restore(object_store),
        Dialect::Etcd
        | Dialect::DEngine
        | Dialect::DEngineOriginal
        | Dialect::Redis
        | Dialect::Versitygw
        | Dialect::BlockNode
        | Dialect::HieroBlockNode => return None,
    };
    Some(RestoreTool { name: format!("{} {version}", engine.name), program, arguments, environment })
}

/// The flag or setting that an argument gives a value, if it gives one, as the program itself takes arguments apart. Errors: what is wrong
/// with the argument.
pub(crate) fn flag_of(dialect: Dialect, argument: &str, is_first: bool) -> Result<Option<&str>, String> {
    match dialect {
        Dialect::Redis => redis::directive(argument, is_first),
        Dialect::Etcd
        | Dialect::DEngine
        | Dialect::DEngineOriginal
        | Dialect::Versitygw
        | Dialect::BlockNode
        | Dialect::HieroBlockNode
        | Dialect::Walsync
        | Dialect::Litestream => {
            let flag = argument.split(['=', ' ', '\t']).next().unwrap_or(argument);
            Ok(Some(flag.trim_start_matches('-')).filter(|_| flag.starts_with('-')))
        }
    }
}

/// How to run a service in a placement.
pub fn plan<'a>(service: &'a ValidatedService, placement: &Placement) -> ServicePlan<'a> {
    debug_assert_eq!(service.engine.shares_directory, placement.shared_directory.is_some());
    let roles = roles(service).into_iter().map(|role| {
        let members = placement.members(role.name);
        debug_assert_eq!(members.len(), role.service.replicas as usize, "{}", role.name);
        let start = |member| Start { service: role.service, role: role.name, member, placement };
        RolePlan { role, processes: members.iter().map(|member| process(&start(member))).collect() }
    });
    ServicePlan { roles: roles.collect(), shared_directory: placement.shared_directory.clone() }
}

fn process(start: &Start) -> ProcessPlan {
    let Start { service, member, .. } = start;
    let launch = match service.engine.dialect {
        Dialect::Etcd => etcd::launch(start),
        Dialect::DEngine => d_engine::launch(start),
        Dialect::DEngineOriginal => d_engine_original::launch(start),
        Dialect::Redis => redis::launch(start),
        Dialect::Versitygw => versitygw::launch(start),
        Dialect::BlockNode => block_node::launch(start),
        Dialect::HieroBlockNode => hiero_block_node::launch(start),
        Dialect::Walsync => walsync::launch(start),
        Dialect::Litestream => litestream::launch(start),
    };
    let Launch { arguments, environment, files, directories } = launch;
    ProcessPlan {
        name: member.name.clone(),
        binary: service.engine.binary(),
        // What the user adds comes last, where most programs let the last one count.
        arguments: arguments.into_iter().chain(service.args.iter().cloned()).collect(),
        environment: environment.into_iter().chain(service.env.iter().cloned()).collect(),
        files,
        directories,
        host: member.host.clone(),
        ports: member.ports.clone(),
        data_directory: member.data_directory.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate;
    use storebench_crds::StorageService;
    use storebench_crds::engine::{Companion, EngineKind};
    use storebench_crds::storage_service::Durability;

    /// A service of this engine with the first class that it honours.
    fn service(engine: &Engine) -> ValidatedService {
        let spec = serde_json::json!({ "engine": engine.kind, "durability": engine.durability[0].class });
        let mut service = StorageService::new(engine.name, serde_json::from_value(spec).unwrap());
        service.metadata.name = Some(engine.name.into());
        validate::service(&service).unwrap()
    }

    fn placed(service: &ValidatedService) -> Placement {
        let member = |role: &Role| Member {
            name: format!("{}-{}", service.name, role.name),
            host: "host".into(),
            own_name: "own".into(),
            own_host: "own-host".into(),
            bind: "0.0.0.0".into(),
            ports: role.service.engine.ports.iter().map(|port| (port.name, port.number)).collect(),
            data_directory: "/data".into(),
            files_directory: "/files".into(),
            programs_directory: "/programs".into(),
        };
        Placement {
            roles: roles(service).iter().map(|role| (role.name, vec![member(role)])).collect(),
            shared_directory: service.engine.shares_directory.then(|| "/shared".into()),
            fault_proxy: None,
        }
    }

    #[test]
    fn a_replicator_reaches_its_object_store_through_the_proxy_and_its_tool_does_not() {
        for engine in ENGINES.iter().filter(|engine| engine.shares_directory) {
            let service = service(engine);
            let words = |placement: &Placement| {
                let plan = plan(&service, placement);
                let process = &plan.roles.last().unwrap().processes[0];
                format!("{:?} {:?}", process.arguments, process.files)
            };
            let direct = words(&placed(&service));
            assert!(direct.contains("http://host:7070"), "{direct}");
            let proxied = words(&Placement { fault_proxy: Some("127.0.0.1:9".into()), ..placed(&service) });
            assert!(proxied.contains("http://127.0.0.1:9") && !proxied.contains("host:7070"), "{proxied}");
            let tool = restore_tool(engine, "1.2.3", engine.binary().into(), "host:7070").unwrap();
            assert_eq!(tool.name, format!("{} 1.2.3", engine.name));
            let said = tool.arguments.join(" ");
            for word in ["restore", "http://host:7070", RestoreTool::DATABASE, RestoreTool::OUTPUT] {
                assert!(said.contains(word), "{word} is not in {said}");
            }
        }
    }

    #[test]
    fn every_engine_is_told_its_ports_its_data_and_its_durability() {
        for engine in ENGINES {
            let service = service(engine);
            for class in engine.durability {
                let service = ValidatedService { durability_class: class, ..service.clone() };
                let plan = plan(&service, &placed(&service));
                let RolePlan { role, processes } = plan.roles.last().unwrap();
                assert!(role.is_store());
                let [process] = processes.as_slice() else { panic!("{}: one member", engine.name) };
                assert_eq!(process.binary, engine.binary());
                let words = format!("{:?} {:?} {:?}", process.arguments, process.environment, process.files);
                for port in engine.ports {
                    assert!(
                        words.contains(&port.number.to_string()),
                        "{}: {} is not in {words}",
                        engine.name,
                        port.name
                    );
                }
                assert!(words.contains("/data"), "{}: its data directory is not in {words}", engine.name);
                let flags = class.flags.iter().map(ToString::to_string).collect::<Vec<_>>();
                let has = flags.is_empty() || process.arguments.windows(flags.len()).any(|window| *window == flags);
                assert!(has, "{}: {flags:?} are not in {words}", engine.name);
            }
        }
    }

    /// Redis and Valkey do not know the setting, and do not start with it.
    #[test]
    fn of_all_that_speak_redis_words_rsedis_alone_is_told_where_to_serve_metrics() {
        let told = ENGINES.iter().filter(|engine| engine.dialect == Dialect::Redis).filter_map(|engine| {
            let service = service(engine);
            let arguments = plan(&service, &placed(&service)).roles.pop()?.processes.pop()?.arguments;
            let at = arguments.iter().position(|argument| argument == "--metrics-listen")?;
            Some((engine.name, arguments[at + 1].clone()))
        });
        assert_eq!(told.collect::<Vec<_>>(), [("rsedis", "0.0.0.0:9121".to_owned())]);
    }

    /// Flags and variables that a plan sets are not the user's to set again.
    #[test]
    fn what_places_a_store_is_reserved() {
        for engine in ENGINES {
            let service = service(engine);
            let plan = plan(&service, &placed(&service));
            let process = &plan.roles.last().unwrap().processes[0];
            let places =
                |argument: &&String| ["/data", "0.0.0.0", "own-host"].iter().any(|told| argument.contains(told));
            for argument in process.arguments.iter().filter(|argument| argument.starts_with('-')).filter(places) {
                let flag = argument.split('=').next().unwrap();
                assert!(engine.reserved_flags.contains(&flag), "{}: {flag} is not reserved", engine.name);
            }
        }
    }

    #[test]
    fn companions_come_before_the_store_and_are_told_apart_from_it() {
        let companions = &[Companion { role: "object-store", engine: EngineKind::Versitygw }];
        let mut replicator = service(EngineKind::Valkey.engine());
        replicator.engine = Box::leak(Box::new(Engine { companions, shares_directory: true, ..*replicator.engine }));
        replicator.companions = validate::companions(replicator.engine, &replicator.name);
        let plan = plan(&replicator, &placed(&replicator));
        let names: Vec<_> = plan.roles.iter().map(|planned| planned.role.name).collect();
        assert_eq!(names, ["object-store", STORE]);
        let [companion, store] = plan.roles.as_slice() else { panic!("two roles") };
        assert!(!companion.role.is_store() && !companion.role.is_beside_load);
        assert!(store.role.is_store() && store.role.is_beside_load);
        assert_eq!(companion.processes[0].binary, "versitygw");
        assert_eq!(companion.role.service.durability, Durability::None, "the strictest that it honours");
        assert_eq!(plan.shared_directory.as_deref(), Some("/shared"));
    }
}
