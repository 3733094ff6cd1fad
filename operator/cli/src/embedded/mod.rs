//! The embedded driver: realises plans as child processes on loopback, runs the schedule, fills the record.
//!
//! The same plans, schedule and judgement as the operator's; only this folder differs. Nothing here judges a number.
//! Children and files never outlive the process: see [`guard`].

mod control_plane;
mod deployed;
mod disturbance;
pub(crate) mod fingerprint;
pub(crate) mod first_look;
mod follower;
pub(crate) mod guard;
pub(crate) mod interrupt;
mod load;
mod load_process;
pub(crate) mod peers;
mod process;
pub(crate) mod progress;
mod quiet;
mod relay;
mod restore;
mod service;
mod slow_disk;
mod steps;
mod striker;
mod trial;
pub(crate) mod turn;
mod usage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bench_jobs::load::outside::Outside;
use bench_jobs::measure::foreign::Served;
use storebench_core::judgement::{available, stop_half_widths, worth_measuring};
use storebench_core::ledger::{Next, next, number, repeat_half_a_pair, repeat_what_lies_apart, repeats};
use storebench_core::record::{ArmRecord, ControlPlaneRecord, Driver, FailureCause, RECORD_VERSION, RunRecord};
use storebench_core::validate::{
    Problem, Room, ValidatedArm, ValidatedRun, ValidatedService, for_embedded, of_workload,
};
use storebench_crds::Workload;
use storebench_crds::workload::FaultKind;

use guard::ScratchDirectory;
use peers::Binaries;
use progress::Progress;
use quiet::{ThisMachine, Waited, WaitingRoom};
use trial::Ran;

/// What an embedded run needs besides the run itself.
pub(crate) struct Options {
    /// Where stores keep their data while they run.
    pub(crate) data_directory: PathBuf,
    /// How long the run may wait in all until other processes are quiet; zero: it does not look.
    pub(crate) wait_for_quiet: Duration,
}

/// The data directory: the one asked for, or one in the user's cache, which unlike the temporary directory is on a disk.
pub(crate) fn data_directory(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    let directory = match asked {
        // One that is not there is more likely a mistake, or a disk that is not mounted, than a wish.
        Some(directory) if !directory.is_dir() => {
            anyhow::bail!(
                "{}: there is no such directory: create it, or choose another with --data-dir",
                directory.display()
            );
        }
        Some(directory) => directory.to_path_buf(),
        None => {
            cache_directory().context("neither XDG_CACHE_HOME nor HOME is set: choose a directory with --data-dir")?
        }
    };
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("{}: cannot be created: choose another with --data-dir", directory.display()))?;
    std::path::absolute(&directory).context("the data directory has no absolute path")
}

fn cache_directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Some(cache?.join("storebench"))
}

/// What this machine has free now for a store whose data are in this directory, or where they are without `--data-dir`.
pub(crate) fn room(directory: Option<&Path>) -> Room {
    // The directory may not be there yet, and is not made for who only asks.
    let there = directory
        .map(Path::to_owned)
        .or_else(cache_directory)
        .and_then(|directory| directory.ancestors().find(|path| path.is_dir()).map(Path::to_owned));
    let disk = there.and_then(|path| rustix::fs::statvfs(&path).ok());
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    Room {
        memory_bytes: kibibytes.and_then(|number| number.trim().parse::<u64>().ok()?.checked_mul(1024)),
        disk_bytes: disk.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
    }
}

/// A run that may begin, or go on.
pub(crate) struct Prepared<'a> {
    /// What is known of it: the arms and the machine, and of a run that goes on its trials.
    pub(crate) record: RunRecord,
    binaries: Vec<Option<Binaries>>,
    /// What was asked.
    pub(crate) run: &'a ValidatedRun,
    clock: Clock,
}

impl<'a> Prepared<'a> {
    /// Looks for the executable of every arm, and at the machine.
    pub(crate) fn new(run: &'a ValidatedRun, options: &Options) -> Self {
        let clock = Clock::start();
        let (record, binaries) = prepare(run, &clock, &options.data_directory);
        Self { record, binaries, run, clock }
    }

    /// The run begins now, and did not when it was looked at.
    pub(crate) fn begins(mut self) -> Self {
        self.clock = Clock::start();
        self.record.started_at.clone_from(&self.clock.started_at);
        self
    }

    /// What went by until it was this run's turn is no part of it.
    pub(crate) fn waited(&mut self, waited: Duration) {
        self.clock.started = self.clock.started.checked_add(waited).unwrap_or(self.clock.started);
    }

    /// The same run, with what it measured before it ended; `how` says in what way that was.
    pub(crate) fn resumed(mut self, kept: RunRecord, how: &str) -> Self {
        let now = std::mem::replace(&mut self.record, kept);
        let trials = self.record.trials_in_words();
        let arms = available(&self.record).len();
        repeat_half_a_pair(arms, &mut self.record.trials);
        let caveat = format!("{how} after {trials}, and resumed at {}", now.started_at);
        self.record.caveats.push(caveat);
        self.clock.go_on_after(Duration::from_millis(self.record.duration_millis));
        self
    }
}

/// Runs the schedule to its end, or until a trial ends it, or until a signal does. `keep` is told what there is after each trial. Fails only
/// where storebench itself cannot go on; whatever a store does is in the record.
pub(crate) fn run(
    prepared: Prepared<'_>,
    options: &Options,
    progress: &Progress,
    mut keep: impl FnMut(&RunRecord),
) -> anyhow::Result<RunRecord> {
    let Prepared { mut record, binaries, run, clock } = prepared;
    let scratch = ScratchDirectory::create(&options.data_directory)?;
    if slows_a_disk(run).is_some() {
        slow_disk::try_out(scratch.path())?;
    }
    let mut stage = trial::Stage::new(run, scratch.path(), clock.started);
    progress.goes_on_after(record.trials.len());
    let mut room = WaitingRoom::new(options.wait_for_quiet);
    // A run that has nothing to compare has nothing to wait for.
    if !worth_measuring(&record).is_empty() {
        room.before_the_first_trial(&mut ThisMachine::new(external_processes(run), progress));
    }
    loop {
        if interrupt::requested() {
            // What is kept may go on.
            keep(&record);
            record.aborted = Some(format!("interrupted after {}", record.trials_in_words()));
            break;
        }
        let arms = worth_measuring(&record);
        let Next::Run { index, arm } = next(&run.spec, &arms, &record.trials, || stop_half_widths(&record)) else {
            break;
        };
        let position = run.arms.iter().position(|candidate| candidate.name == arm);
        let (arm, found) = position
            .and_then(|position| Some((&run.arms[position], binaries[position].as_ref()?)))
            .context("the schedule names an arm that the run does not have")?;
        let number = number(&record.trials, index);
        let repeated = repeats(&record.trials, index);
        progress.trial_begins(number, &arm.name, repeated.as_deref());
        let ran = stage.run(arm, found, index, progress)?;
        record.left_behind.append(&mut stage.left_behind);
        let Some(Ran { trial, command, version }) = ran else { continue };
        if let Some(arm) = record.arms.iter_mut().find(|candidate| candidate.name == arm.name) {
            arm.command = command;
            arm.version = version.or(arm.version.take());
        }
        progress.trial_ends(number, &trial, repeated.as_deref());
        let is_disturbed = trial.failure.as_ref().is_some_and(|failure| failure.cause == FailureCause::Disturbed);
        record.trials.push(trial);
        if is_disturbed
            && let Waited::UntilQuiet(waited) =
                room.after_a_disturbance(&mut ThisMachine::new(external_processes(run), progress))
            && let Some(trial) = record.trials.last_mut()
        {
            trial.waited_millis = Some(waited.as_millis() as u64);
        }
        // A process that was stopped, as by Ctrl-Z, knows it by the time alone.
        repeat_what_lies_apart(&mut record, false);
        record.duration_millis = clock.elapsed_millis();
        keep(&record);
    }
    record.caveats.extend(room.caveat());
    record.duration_millis = clock.elapsed_millis();
    Ok(record)
}

/// Wall clock for the reader, monotonic clock for everything else.
struct Clock {
    started: Instant,
    started_at: String,
}

impl Clock {
    fn start() -> Self {
        let now = jiff::Timestamp::now();
        let now = now.round(jiff::Unit::Second).unwrap_or(now);
        Self { started: Instant::now(), started_at: now.to_string() }
    }

    /// Begins so long ago; where the machine has not been up for as long, now.
    fn go_on_after(&mut self, elapsed: Duration) {
        self.started = self.started.checked_sub(elapsed).unwrap_or(self.started);
    }

    fn elapsed_millis(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// An empty record, and the executable of every arm that has one here.
fn prepare(run: &ValidatedRun, clock: &Clock, data: &Path) -> (RunRecord, Vec<Option<Binaries>>) {
    let found: Vec<_> = run.arms.iter().map(peers::find_all).collect();
    let external: Vec<_> = run
        .arms
        .iter()
        .filter_map(|arm| arm.external().map(|store| (arm, store, Served::at(&store.external.endpoints))))
        .collect();
    let mut caveats = Vec::new();
    let is_elsewhere = |(_, _, served): &(_, _, Served)| served.processes.is_empty() && served.unseen.is_empty();
    if external.len() < run.arms.len() || !external.iter().all(is_elsewhere) {
        let text =
            "loader and stores share this machine: compare arms with each other, not with figures from elsewhere";
        caveats.push(text.to_owned());
    }
    if run.arms.iter().filter_map(ValidatedArm::service).any(|service| service.spec.resources.is_some()) {
        caveats.push("spec.resources of the services are not enforced in an embedded run".into());
    }
    caveats.extend(run.arms.iter().filter_map(ValidatedArm::service).flat_map(ValidatedService::companions_caveat));
    for (arm, store, served) in &external {
        caveats.push(store.caveat(&arm.name));
        caveats.extend(whose_use(&arm.name, served));
    }
    caveats.extend(fingerprint::file_system_caveat(data));
    let binaries: Vec<Option<Binaries>> = found.iter().map(|found| found.as_ref().ok().cloned()).collect();
    caveats.extend(fingerprint::build_caveat(run, &binaries));
    let restored = run.arms.iter().zip(&binaries).filter_map(|(arm, found)| restore::caveat(run, arm, found.as_ref()));
    caveats.extend(restored);
    let arms = run.arms.iter().zip(&found).map(|(arm, found)| arm_record(arm, found.as_ref())).collect();
    let record = RunRecord {
        record_version: RECORD_VERSION,
        name: run.name.clone(),
        storebench_version: env!("CARGO_PKG_VERSION").into(),
        started_at: clock.started_at.clone(),
        duration_millis: 0,
        driver: Driver::Embedded,
        spec: run.spec.clone(),
        arms,
        trials: Vec::new(),
        fingerprint: fingerprint::take(run, &binaries, data),
        caveats,
        aborted: None,
        left_behind: Vec::new(),
    };
    (record, binaries)
}

/// The processes of all stores of the run that were there already and are on this machine, as far as they can be seen.
fn external_processes(run: &ValidatedRun) -> BTreeSet<i32> {
    let stores = run.arms.iter().filter_map(ValidatedArm::external);
    stores.flat_map(|store| Served::at(&store.external.endpoints).ids()).collect()
}

/// What a reader must know of who else used this machine in trials of an arm whose store was there already. `None`: the store is elsewhere.
fn whose_use(arm: &str, served: &Served) -> Option<String> {
    if !served.unseen.is_empty() {
        let places = served.unseen.join(", ");
        return Some(format!(
            "whether other programs disturbed the trials of {arm} is not known: who serves {places} on this machine cannot be seen (another \
             user's program, or one in a container or a virtual machine), so that its use cannot be told from theirs; if it is another \
             user's, run storebench as that user"
        ));
    }
    let programs: Vec<String> = served.processes.iter().map(|(id, program)| format!("{program} ({id})")).collect();
    (!programs.is_empty()).then(|| {
        format!(
            "{arm} is served on this machine by {}: what that and its children use is the store's; what others use disturbs as everywhere",
            programs.join(", ")
        )
    })
}

/// The first workload that makes a disk slow.
fn slows_a_disk(run: &ValidatedRun) -> Option<usize> {
    let slows = |workload: &Workload| workload.fault().is_some_and(|fault| fault.kind == FaultKind::SlowDisk);
    run.spec.workloads.iter().position(slows)
}

/// Where a problem is, and what is wrong there.
pub(crate) fn place_and_text(problem: Problem) -> (String, String) {
    (format!("{} {}", problem.object, problem.field), problem.text)
}

/// What an embedded run cannot honour, what it lacks here, and what it cannot read here of passwords and certificates: field and problem, told
/// before anything is measured.
pub(crate) fn refused(run: &ValidatedRun) -> Vec<(String, String)> {
    let problems = for_embedded(run);
    if !problems.is_empty() {
        return problems.into_iter().map(place_and_text).collect();
    }
    if let Some((index, error)) = slows_a_disk(run).zip(slow_disk::program().err()) {
        return vec![place_and_text(of_workload(run, index, "load.fault.kind", error.to_string()))];
    }
    let mut unreadable: Vec<(String, String)> = Vec::new();
    for store in run.arms.iter().filter_map(ValidatedArm::external) {
        for error in Outside::problems(&store.external) {
            let error = error.to_string();
            let (field, problem) = error.split_once(": ").unwrap_or(("external", &error));
            let found = (format!("StorageService/{} spec.{field}", store.name), problem.to_owned());
            // Several arms may load one store.
            if !unreadable.contains(&found) {
                unreadable.push(found);
            }
        }
    }
    unreadable
}

fn arm_record(arm: &ValidatedArm, found: Result<&Binaries, &storebench_core::record::Unavailable>) -> ArmRecord {
    let binary = found.ok().and_then(|found| Some(&found.store.as_ref()?.store));
    let version = arm.service().and_then(|service| peers::reported_version(service.engine, &binary?.path));
    let folder_version = binary.map(|binary| binary.version.clone());
    ArmRecord {
        folder_version: folder_version.filter(|folder| version.as_ref().is_some_and(|version| version != folder)),
        version,
        control_plane: arm.control_plane().map(|plane| ControlPlaneRecord {
            name: plane.name.clone(),
            kubernetes_version: found
                .ok()
                .and_then(|binaries| binaries.control_plane.as_ref())
                .map_or_else(|| plane.kubernetes_version.clone(), |found| found.version.clone()),
            nodes: plane.nodes,
        }),
        unavailable: found.err().cloned(),
        ..ArmRecord::of(arm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_use_is_the_stores_is_said_and_so_is_that_nobody_knows() {
        let elsewhere = Served::default();
        assert_eq!(whose_use("mine", &elsewhere), None);
        let seen = Served { processes: [(7, "redis-server".to_owned())].into(), unseen: Vec::new() };
        let said = whose_use("mine", &seen).unwrap();
        assert!(said.starts_with("mine is served on this machine by redis-server (7): "), "{said}");
        let unseen = Served { unseen: vec!["127.0.0.1:6379".into()], ..seen };
        let said = whose_use("mine", &unseen).unwrap();
        assert!(said.contains("is not known: who serves 127.0.0.1:6379 on this machine cannot be seen"), "{said}");
    }
}
