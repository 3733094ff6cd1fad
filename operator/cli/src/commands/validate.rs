//! `storebench validate FILE…`: every check that needs no cluster, starting nothing. All mistakes of all files are told. With `--here` stores
//! that were there already are dialled, and without it nobody; with `--strict` a warning is a failure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use bench_jobs::net::dial::dial_once;
use service_kit::console;
use storebench_core::input::{Input, InputErrors, SuiteOfRuns};
use storebench_core::record::Unavailable;
use storebench_core::validate::{
    Room, STATED_BY_USER, Target, ValidatedArm, ValidatedRun, ValidatedService, all_for_cluster, for_kubernetes,
    too_much_for,
};
use storebench_crds::document::{InputError, Object, Role, parse, role};

use super::cluster::within;
use crate::embedded::{self, peers};
use crate::exit::Exit;
use crate::output::print_lines;

/// For how long an endpoint is dialled.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// What is said of an object with which nothing is wrong.
const VALID: &str = "valid";

/// What a line begins with that tells of trouble with what is valid.
const WARNING: &str = "warning:";

pub(crate) fn validate(paths: &[PathBuf], here: bool, strict: bool) -> anyhow::Result<Exit> {
    let mut mistakes: Vec<InputError> = Vec::new();
    let mut warned = 0;
    for scope in scopes(paths)? {
        // What else there is in a directory is shown once, where it stands.
        match super::load_from_here(&scope.files) {
            Err(errors) => mistakes.extend(errors.iter().filter(|error| scope.is_own(&error.file)).cloned()),
            Ok(input) => {
                let shown = show(&input, &scope, here)?;
                mistakes.extend(shown.mistakes);
                warned += shown.warned;
            }
        }
    }
    // Files share what stands beside them, and runs a store.
    let mut told = BTreeSet::new();
    mistakes.retain(|mistake| told.insert(mistake.to_string()));
    let mut mistakes = mistakes.into_iter();
    match mistakes.next() {
        Some(first) => Err(InputErrors { first, others: mistakes.collect() }.into()),
        None if strict && warned > 0 => {
            let warnings = count(warned, "warning");
            anyhow::bail!(
                "--strict: {warnings}: mend what the lines that begin with `{WARNING}` name, or leave out --strict"
            )
        }
        None => Ok(Exit::Passed),
    }
}

/// What was said of a scope.
struct Shown {
    /// What no driver can honour, and with `--here` what this machine cannot.
    mistakes: Vec<InputError>,
    /// How many warnings were printed.
    warned: usize,
}

/// Files that are read together.
struct Scope {
    files: Vec<(String, Vec<u8>)>,
    /// How many of them, from the first on, are shown; the others may be referred to.
    own: usize,
    /// Whether somebody named the directory and not these files: then lines say where they are from.
    is_of_directory: bool,
}

impl Scope {
    fn is_own(&self, file: &str) -> bool {
        self.files[..self.own].iter().any(|(name, _)| name == file)
    }
}

/// What is named by itself is read together. A directory holds comparisons that have nothing to do with one another, so that names may
/// recur; files without a run are there for the others.
fn scopes(paths: &[PathBuf]) -> anyhow::Result<Vec<Scope>> {
    let (directories, files): (Vec<&PathBuf>, Vec<&PathBuf>) = paths.iter().partition(|path| path.is_dir());
    let mut scopes = Vec::new();
    if !files.is_empty() {
        let files = files.into_iter().map(|file| super::read_file(file)).collect::<anyhow::Result<Vec<_>>>()?;
        scopes.push(Scope { own: files.len(), files, is_of_directory: false });
    }
    for directory in directories {
        scopes.extend(scopes_below(directory)?);
    }
    Ok(scopes)
}

/// Those of a directory and of all below it, each of which is read as if it had been named: files share what is no run with those beside them.
fn scopes_below(directory: &Path) -> anyhow::Result<Vec<Scope>> {
    let mut scopes = Vec::new();
    for folder in folders(directory)? {
        let files = yaml_files(&folder)?;
        let (comparisons, shared): (Vec<_>, Vec<_>) = files.into_iter().partition(|(name, bytes)| {
            let parsed = parse(name, bytes);
            // What nobody can tell from a comparison is nothing to others, or each of them would be held against it.
            parsed.has_unknown
                || parsed.objects.iter().map(Object::kind).any(is_comparison)
                || parsed.refused.iter().any(|(kind, _)| is_comparison(kind))
                || (parsed.objects.is_empty() && parsed.refused.is_empty())
        });
        if !shared.is_empty() {
            scopes.push(Scope { own: shared.len(), files: shared.clone(), is_of_directory: true });
        }
        scopes.extend(comparisons.into_iter().map(|file| {
            let files: Vec<_> = std::iter::once(file).chain(shared.iter().cloned()).collect();
            Scope { own: 1, files, is_of_directory: true }
        }));
    }
    if scopes.is_empty() {
        let name = directory.display();
        anyhow::bail!("{name}: holds no file that ends in .yaml or .yml: pass the one that has the BenchmarkRun");
    }
    Ok(scopes)
}

/// A directory and those below it, but for hidden ones, and for what a link leads to, which may be above.
fn folders(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = vec![directory.to_owned()];
    let entries = std::fs::read_dir(directory).with_context(|| format!("{}: cannot be read", directory.display()))?;
    let is_folder = |entry: &std::fs::DirEntry| {
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let mut below: Vec<PathBuf> = entries.flatten().filter(is_folder).map(|entry| entry.path()).collect();
    below.sort();
    for folder in below {
        found.extend(folders(&folder)?);
    }
    Ok(found)
}

/// Whether a kind refers to others and nothing to it.
fn is_comparison(kind: &str) -> bool {
    matches!(role(kind), Some(Role::Comparison | Role::NamedComparison))
}

/// The YAML files of a directory, not of those below it, as `kubectl apply` takes them, but for what only kustomize reads.
fn yaml_files(directory: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let name = directory.display();
    let entries = std::fs::read_dir(directory).with_context(|| format!("{name}: cannot be read"))?;
    let is_yaml = |path: &PathBuf| {
        let is_kustomize = path.file_stem().is_some_and(|stem| stem == "kustomization");
        path.is_file() && !is_kustomize && path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml")
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_yaml).collect();
    paths.sort();
    paths.iter().map(|path| super::read_file(path)).collect()
}

/// Shows what is valid.
fn show(input: &Input, scope: &Scope, here: bool) -> anyhow::Result<Shown> {
    let mut mistakes = Vec::new();
    let mut warned = 0;
    let file = scope.files.first().map(|(name, _)| name.clone()).unwrap_or_default();
    // What a suite or a schedule makes is of the scope's own file.
    let file_of = |object: &str| input.files.get(object).unwrap_or(&file).clone();
    let mistake = |field: String, problem: String| {
        let file = file_of(field.split(' ').next().unwrap_or_default());
        InputError { file, field, problem }
    };
    for service in &input.services {
        // What a cluster alone cannot is told of the run.
        if let Err(problem) = for_kubernetes(service)
            && service.spec.tls.is_some()
        {
            mistakes.push(mistake(format!("{} {}", problem.object, problem.field), problem.text));
        }
    }
    if !mistakes.is_empty() {
        return Ok(Shown { mistakes, warned });
    }
    // What a file shares with others of its directory is shown by itself.
    let is_own = |kind: &str, name: &str| scope.is_own(&file_of(&format!("{kind}/{name}")));
    let is_loaded = |service: &ValidatedService| {
        let mut stores = input.runs.iter().flat_map(|run| &run.arms).filter_map(ValidatedArm::external);
        stores.any(|store| store.name == service.name)
    };
    let dialled = input.services.iter().filter(|one| here && (is_own("StorageService", &one.name) || is_loaded(one)));
    let silent = silent(dialled)?;
    // Asked once: what is free changes, and what several runs lack would be told of each.
    let room = embedded::room(None);
    let lacking = |run: &ValidatedRun| {
        let stores = run.arms.iter().filter_map(ValidatedArm::external);
        let stores: Vec<String> = stores.map(|store| format!("StorageService/{}", store.name)).collect();
        let is_its = |(field, _): &&(String, String)| stores.iter().any(|store| is_in(field, store));
        let silent = silent.iter().filter(is_its).cloned();
        not_here(run, &room).into_iter().chain(silent).collect::<Lacking>()
    };
    let runs: Vec<_> = input.runs.iter().map(|run| (run, lacking(run))).collect();
    let outcome = |object: &str| outcome(object, here, &runs, &silent);
    // Before what is said of an object stands where it is written.
    let place = |object: &str| {
        let named = if scope.is_of_directory { format!("{}: ", file_of(object)) } else { String::new() };
        named + object
    };
    for suite in &input.suites {
        let mut outcomes = suite.runs.iter().map(|(name, _)| outcome(&format!("BenchmarkRun/{name}")));
        print_lines(&format!(
            "{}: {}: {} of {}, the first of which is {}\n",
            place(&format!("BenchmarkSuite/{}", suite.name)),
            outcomes.find(|outcome| *outcome != VALID).unwrap_or(VALID),
            count(suite.runs.len(), "run"),
            suite.parameters.join(" × "),
            suite.runs.first().map_or("none", |(name, _)| name.as_str())
        ))?;
    }
    for (baseline, run) in &input.baselines {
        print_lines(&format!(
            "{}: valid: in a cluster it keeps what BenchmarkRun/{run} measured\n",
            place(&format!("BenchmarkBaseline/{baseline}"))
        ))?;
    }
    for schedule in &input.schedules {
        let place = place(&format!("BenchmarkSchedule/{schedule}"));
        let is_suite = input.suites.iter().any(|suite| suite.name == *schedule);
        let kind = if is_suite { "BenchmarkSuite" } else { "BenchmarkRun" };
        print_lines(&format!("{place}: valid: what it makes is shown as {kind}/{schedule}\n"))?;
    }
    // Of each suite, and of each run by itself, what was told.
    let mut told = BTreeSet::new();
    for (run, lacking) in &runs {
        let object = format!("BenchmarkRun/{}", run.name);
        let position = |suite: &SuiteOfRuns| suite.runs.iter().position(|(name, _)| *name == run.name);
        let suite =
            input.suites.iter().find_map(|suite| Some((format!("BenchmarkSuite/{}", suite.name), position(suite)?)));
        let whose = suite.as_ref().map_or_else(|| object.clone(), |(suite, _)| suite.clone());
        // A problem names its run, and what several runs of a suite share is one.
        let mut is_new = |line: &str| told.insert((whose.clone(), line.replace(&object, "")));
        let mut lines = remarks(run);
        lines.retain(|line| is_new(line));
        warned += lines.iter().filter(|line| line.starts_with(WARNING)).count();
        let lack = |(field, problem): &(String, String)| format!("not on this machine as it is: {field}: {problem}");
        let lacks = if here { Vec::new() } else { lacking.iter().map(lack).filter(|line| is_new(line)).collect() };
        let head = format!("{}: {}", place(&object), outcome(&object));
        match &suite {
            Some((suite, position)) if *position > 0 => {
                if !lines.is_empty() || !lacks.is_empty() {
                    print_lines(&format!("{head}: run {} of {suite}\n", position + 1))?;
                }
            }
            Some(_) | None => print_lines(&format!("{head}: {}", described(run)))?,
        }
        for line in lines {
            print_lines(&format!("  {line}\n"))?;
        }
        // They end with what is to be typed.
        for line in lacks {
            console::print(format!("  {line}\n"))?;
        }
        if here {
            let new = lacking.iter().filter(|(field, problem)| is_new(&format!("{field}: {problem}")));
            mistakes.extend(new.map(|(field, problem)| mistake(field.clone(), problem.clone())));
        }
    }
    for plane in input.control_planes.iter().filter(|plane| is_own("ControlPlane", &plane.name)) {
        print_lines(&format!(
            "{}: valid: Kubernetes {} on {}, {}\n",
            place(&format!("ControlPlane/{}", plane.name)),
            plane.kubernetes_version,
            plane.service.name,
            count(plane.nodes as usize, "node")
        ))?;
    }
    for workload in input.workloads.iter().filter(|workload| is_own("WorkloadTemplate", &workload.name)) {
        let family = workload.family().field();
        let connections = count(workload.load.connections as usize, "connection");
        let place = place(&format!("WorkloadTemplate/{}", workload.name));
        print_lines(&format!("{place}: valid: {family} on {connections}\n"))?;
    }
    for service in input.services.iter().filter(|service| is_own("StorageService", &service.name)) {
        let stated = match Target::of(service.clone()) {
            Target::External(store) => {
                format!(
                    "a store that speaks {} at {}, {:?} ({STATED_BY_USER})",
                    store.engine.name,
                    store.place(),
                    store.durability
                )
            }
            Target::Service(_) | Target::ControlPlane(_) | Target::Cluster(_) => {
                let setting = service.durability_class.setting;
                format!("{} {}, {:?} ({setting})", service.engine.name, service.version, service.durability)
            }
        };
        let object = format!("StorageService/{}", service.name);
        print_lines(&format!("{}: {}: {stated}\n", place(&object), outcome(&object)))?;
    }
    mistakes.extend(silent.iter().map(|(field, problem)| mistake(field.clone(), problem.clone())));
    Ok(Shown { mistakes, warned })
}

/// What a run is, in a line and those below it.
fn described(run: &ValidatedRun) -> String {
    let arms: Vec<&str> = run.arms.iter().map(|arm| arm.name.as_str()).collect();
    let (min, max) = (run.spec.trials.min as usize, run.spec.trials.max as usize);
    let trials = if min == max { count(max, "trial") } else { format!("{min} to {max} trials") };
    let mut lines = vec![format!("{} on {}, {trials}", count(run.spec.workloads.len(), "workload"), arms.join(", "))];
    lines.push(run.how_long().unwrap_or_else(|| run.how_often()));
    lines.extend(run.gates_in_words());
    if let Some(baseline) = &run.spec.baseline_ref {
        let name = &baseline.name;
        lines.push(format!(
            "held against BenchmarkBaseline/{name} of the cluster; an embedded run wants --baseline PATH instead"
        ));
    }
    lines.join("\n  ") + "\n"
}

/// What whoever is about to start a run should know before. Warnings are of what the run may not tell; that it is large, or for one driver alone,
/// may be as it was meant.
fn remarks(run: &ValidatedRun) -> Vec<String> {
    let mut lines: Vec<String> = super::warnings(run).iter().map(|trouble| format!("{WARNING} {trouble}")).collect();
    lines.extend(run.how_much());
    let refused = all_for_cluster(run).into_iter();
    lines.extend(refused.map(|problem| format!("but in a cluster it is refused: {problem}")));
    lines
}

/// What an embedded run would refuse here, or could not measure: field and problem.
type Lacking = Vec<(String, String)>;

/// What is said of an object that is right: with `here`, nobody calls valid what is refused in the same breath. The runs have what this machine lacks
/// for them; of the stores that no run loads it is known where nothing answers.
fn outcome(object: &str, here: bool, runs: &[(&ValidatedRun, Lacking)], silent: &[(String, String)]) -> &'static str {
    let is_refused = |(run, lacking): &(&ValidatedRun, Lacking)| {
        let is_run = object.strip_prefix("BenchmarkRun/") == Some(run.name.as_str());
        lacking.iter().any(|(field, _)| is_run || is_in(field, object))
    };
    let is_silent = || silent.iter().any(|(field, _)| is_in(field, object));
    if here && (runs.iter().any(is_refused) || is_silent()) { "refused on this machine" } else { VALID }
}

/// Whether a field, which is told with its object, is of this one.
fn is_in(field: &str, object: &str) -> bool {
    field.split(' ').next() == Some(object)
}

/// Endpoints of stores that were there already at which nothing answers. All are dialled at once, and nothing is said to them.
fn silent<'a>(services: impl Iterator<Item = &'a ValidatedService>) -> anyhow::Result<Lacking> {
    let mut places: Vec<(String, String)> = Vec::new();
    for service in services {
        let endpoints = service.spec.external.iter().flat_map(|external| &external.endpoints);
        let field = |index: usize| format!("StorageService/{} spec.external.endpoints[{index}]", service.name);
        places.extend(endpoints.enumerate().map(|(index, endpoint)| (field(index), endpoint.clone())));
    }
    if places.is_empty() {
        return Ok(Lacking::new());
    }
    let dialled = within(2 * DIAL_TIMEOUT, async move {
        let dial = |(field, endpoint): (String, String)| {
            tokio::spawn(async move {
                let is_silent = dial_once(&endpoint, DIAL_TIMEOUT).await.is_err();
                let problem = format!("nothing answers at {endpoint}: start it, or mend spec.external.endpoints");
                is_silent.then_some((field, problem))
            })
        };
        let dials: Vec<_> = places.into_iter().map(dial).collect();
        let mut found = Lacking::new();
        for dial in dials {
            found.extend(dial.await?);
        }
        anyhow::Ok(found)
    })?;
    dialled.context("the endpoints of external stores could not be dialled: try again")
}

/// What this machine lacks for a run.
fn not_here(run: &ValidatedRun, room: &Room) -> Lacking {
    let mut found = embedded::refused(run);
    let asked = run.arms.iter().enumerate().take(run.spec.arms.len());
    for (index, arm) in asked.filter(|(_, arm)| arm.service().is_some()) {
        if let Err(Unavailable { reason, install }) = peers::find_all(arm) {
            found.push((place(run, index, arm), format!("{reason}: {install}")));
        }
    }
    found.extend(too_much_for(run, room).map(embedded::place_and_text));
    found
}

/// Where the version is written, or would be.
fn place(run: &ValidatedRun, index: usize, arm: &ValidatedArm) -> String {
    match arm.service().filter(|service| service.version_is_pinned && arm.control_plane().is_none()) {
        Some(service) => format!("StorageService/{} spec.version", service.name),
        None => format!("BenchmarkRun/{} spec.arms[{index}]", run.name),
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
