//! A scratch world with its own peers and data directory, in which stores can be faulty.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use harness::peer;
use harness::peers::version;

use crate::finished::Finished;

/// A peers directory, a data directory, and files, all temporary.
pub struct World {
    root: harness::TempDir,
    /// One world at a time: two loads on two cores would disturb each other, and the loaders would rightly say so.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// The instrument that plants faults, built once, as the tests themselves are: in their profile, and with the features that its
/// dependencies have in the whole workspace, so that nothing is compiled a second time for it. Of one run of nextest the first test that asks
/// has it built: to look at every crate takes cargo a second, and each test is a process of its own.
fn faulty_store() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let built = Path::new(env!("CARGO_BIN_EXE_storebench")).with_file_name("faulty-store");
        let folder = built.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
        let profile = if folder == "debug" { "dev" } else { folder };
        let (run, mark) = (std::env::var("NEXTEST_RUN_ID").ok(), built.with_extension("built"));
        if run.is_some() && std::fs::read_to_string(&mark).ok() == run {
            return built;
        }
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--bin", "faulty-store", "--profile", profile])
            .current_dir(&root)
            .status()
            .unwrap();
        assert!(status.success(), "faulty-store cannot be built");
        if let Some(run) = run {
            std::fs::write(mark, run).unwrap();
        }
        built
    })
}

impl World {
    pub fn new() -> Self {
        // A test that failed has poisoned the lock, not the world.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let world = Self { root: harness::folder(), _alone: alone };
        std::fs::create_dir(world.data()).unwrap();
        for (name, binary) in [("redis", "redis-server"), ("valkey", "valkey-server"), ("etcd", "etcd")] {
            world.install(name, binary);
        }
        world
    }

    /// Puts a peer's program into the world.
    pub fn install(&self, name: &str, binary: &str) {
        let directory = self.peers().join(name).join(version(name));
        std::fs::create_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink(peer(name, binary), directory.join(binary)).unwrap();
    }

    pub fn peers(&self) -> PathBuf {
        self.root.path().join("peers")
    }

    pub fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// Installs a version `faulty` of Redis or etcd: the real one behind a proxy with these faults.
    pub fn install_faulty(&self, engine: &str, faults: &[&str]) {
        let binary = match engine {
            "redis" => "redis-server",
            "etcd" => "etcd",
            other => panic!("no faulty {other}"),
        };
        let directory = self.peers().join(engine).join("faulty");
        std::fs::create_dir_all(&directory).unwrap();
        let faults: Vec<String> = faults.iter().map(|fault| format!("--fault {fault}")).collect();
        let script = format!(
            "#!/bin/sh\nexec {} --store {engine} --upstream {} {} -- \"$@\"\n",
            faulty_store().display(),
            peer(engine, binary).display(),
            faults.join(" ")
        );
        let path = directory.join(binary);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Installs a version `faulty` of a store: a script that has the real one in `$REAL`, and as arguments what storebench says.
    pub fn install_wrapper(&self, engine: &str, binary: &str, script: &str) {
        let directory = self.peers().join(engine).join("faulty");
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join(binary);
        let real = peer(engine, binary);
        std::fs::write(&path, format!("#!/bin/sh\nREAL={}\n{script}\n", real.display())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn storebench(&self) -> Command {
        let mut command = harness::command(env!("CARGO_BIN_EXE_storebench"));
        command.env("STOREBENCH_PEERS", self.peers()).env("STOREBENCH_DATA_DIR", self.data());
        // Where runs of one machine see each other: no test waits for what else is measured here.
        command.env("TMPDIR", self.root.path());
        // Long enough for the end of what ran before; a test is not to wait for a machine that is never quiet.
        command.env("STOREBENCH_WAIT_FOR_QUIET", "20s").stdin(Stdio::null());
        command
    }

    /// Runs a file; afterwards nothing may be left of it.
    pub fn run(&self, text: &str) -> Finished {
        let file = self.write("run.yaml", text);
        let output = self.storebench().arg("run").arg(file).args(["-o", "json"]).output().unwrap();
        self.assert_nothing_is_left();
        Finished::of(output)
    }

    /// Within a minute, on a machine that stands still for a while, no file is in the data directory and no process names it.
    #[track_caller]
    pub fn assert_nothing_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let files: Vec<_> = std::fs::read_dir(self.data()).unwrap().flatten().map(|entry| entry.path()).collect();
            let processes = self.processes();
            if files.is_empty() && processes.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind: files {files:?}, processes {processes:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Command lines of the processes that were given a path in the data directory.
    pub fn processes(&self) -> Vec<String> {
        let data = self.data().display().to_string();
        let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let bytes = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
        });
        lines.filter(|line| line.contains(&data)).collect()
    }
}

/// A StorageService and a BenchmarkRun of one arm. `load` and `workload` are YAML flow mappings.
pub fn one_arm(engine: &str, version: &str, workload: &str, load: &str) -> String {
    one_store(
        &format!("engine: {engine}, version: {version}"),
        &format!("  - name: load\n    {workload}\n    load: {load}"),
        "min: 3, max: 3, retries: 5, timeout: 20s",
    )
}

/// The same with any service. `store` and `trials` are what stands in their YAML flow mappings, `workloads` the elements of a list, indented
/// by two.
pub fn one_store(store: &str, workloads: &str, trials: &str) -> String {
    format!(
        "apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: {{ name: store }}
spec: {{ {store} }}
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: {{ name: run }}
spec:
  arms:
  - {{ name: store, serviceRef: {{ name: store }} }}
  workloads:
{workloads}
  trials: {{ {trials} }}
"
    )
}

/// Redis, which is the baseline, and Valkey, in a run of this name. `workloads` are the elements of a YAML list, indented by two.
pub fn two_arms(name: &str, workloads: &str) -> String {
    format!(
        "apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: {{ name: redis }}
spec: {{ engine: Redis }}
---
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: {{ name: valkey }}
spec: {{ engine: Valkey }}
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: {{ name: {name} }}
spec:
  arms:
  - {{ name: redis, baseline: true, serviceRef: {{ name: redis }} }}
  - {{ name: valkey, serviceRef: {{ name: valkey }} }}
  workloads:
{workloads}
  trials: {{ min: 3, max: 3, retries: 10 }}
"
    )
}
