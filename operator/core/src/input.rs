//! From named bytes to runs that can be planned: every check that needs no cluster, in one call.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use storebench_crds::benchmark_suite::OnFailure;
use storebench_crds::document::{InputError, Object, parse};
use storebench_crds::external::External;
use storebench_crds::{BenchmarkRun, BenchmarkSchedule, BenchmarkSuite, Workload};

use crate::control_plane::{self, ValidatedControlPlane};
use crate::recurrence::{self, Made, Recurrence};
use crate::suite::{self, Planned, Told};
use crate::validate::{self, Problem, Referable, ValidatedRun, ValidatedService};

/// What the files of one invocation hold.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The services, in the order written.
    pub services: Vec<ValidatedService>,
    /// The control planes, in the order written.
    pub control_planes: Vec<ValidatedControlPlane>,
    /// The workloads of templates, under the names of these, in the order written.
    pub workloads: Vec<Workload>,
    /// The runs, in the order written: those of a suite where it stands.
    pub runs: Vec<ValidatedRun>,
    /// The suites, in the order written.
    pub suites: Vec<SuiteOfRuns>,
    /// The baselines, in the order written: name, and that of the run that is kept, which need not be in the files.
    pub baselines: Vec<(String, String)>,
    /// Names of the schedules, in the order written. What one makes is among the runs, or is a suite, under the schedule's name.
    pub schedules: Vec<String>,
    /// Of each object that is written, as `KIND/NAME`, the file that it stands in. What a suite or a schedule makes is written nowhere.
    pub files: BTreeMap<String, String>,
}

/// Which of the runs are a suite's.
#[derive(Clone, Debug)]
pub struct SuiteOfRuns {
    /// The suite's name.
    pub name: String,
    /// The names of its parameters, in order.
    pub parameters: Vec<String>,
    /// Its runs, in order: name, and values of the parameters.
    pub runs: Vec<(String, Vec<String>)>,
    /// What becomes of the others when one has not passed.
    pub on_failure: OnFailure,
    /// Whether it is to make no runs.
    pub suspend: bool,
}

impl SuiteOfRuns {
    fn of(suite: &BenchmarkSuite, runs: &[(Planned, BenchmarkRun)]) -> Self {
        let values = |planned: &Planned| planned.values.iter().map(|(_, value)| value.to_string()).collect();
        Self {
            name: suite.metadata.name.clone().unwrap_or_default(),
            parameters: suite.spec.parameters.iter().map(|parameter| parameter.name.clone()).collect(),
            runs: runs.iter().map(|(planned, _)| (planned.name.clone(), values(planned))).collect(),
            on_failure: suite.spec.on_failure,
            suspend: suite.spec.suspend,
        }
    }
}

/// Everything that is wrong with the files of one invocation: one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InputErrors {
    /// What is wrong first.
    pub first: InputError,
    /// What else is.
    pub others: Vec<InputError>,
}

impl InputErrors {
    fn of(found: Vec<InputError>) -> Option<Self> {
        let mut found = found.into_iter();
        Some(Self { first: found.next()?, others: found.collect() })
    }

    /// All of them, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &InputError> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl fmt::Display for InputErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.iter().map(InputError::to_string).collect();
        formatter.write_str(&lines.join("\n"))
    }
}

/// Reads and validates files together: a run may name a service of another file. Each comes with its path from the folder `current`, and the
/// paths in it are meant from where it is, whoever reads it from wherever; one without a folder, such as standard input, is in `current`.
///
/// # Errors
/// [`InputErrors`]: all mistakes, as far as one does not hide another. Whoever refers to an object that is wrong in itself is not wrong in
/// that.
pub fn load(files: &[(String, Vec<u8>)], current: &Path) -> Result<Input, InputErrors> {
    let mut objects = Vec::new();
    let mut found = Vec::new();
    let mut refused = Vec::new();
    for (file, bytes) in files {
        let parsed = parse(file, bytes);
        objects.extend(parsed.objects.into_iter().map(|object| (file.as_str(), object)));
        found.extend(parsed.problems);
        refused.extend(parsed.refused);
    }
    found.extend(clashes(&objects));
    let in_file = |file: &str, problem: Problem| InputError {
        file: file.into(),
        field: format!("{} {}", problem.object, problem.field),
        problem: problem.text,
    };
    let mut input = Input::default();
    for (file, object) in &mut objects {
        if let Object::StorageService(service) = object {
            let file: &str = file;
            let folder = current.join(Path::new(file).parent().unwrap_or(Path::new("")));
            for path in service.spec.external.iter_mut().flat_map(External::paths_mut) {
                // By its parts, so that one place has one name.
                *path = folder.join(&*path).components().collect::<PathBuf>().display().to_string();
            }
            match validate::service_problems(service) {
                Ok(service) => input.services.push(service),
                Err((first, others)) => {
                    found.extend(std::iter::once(first).chain(others).map(|problem| in_file(file, problem)));
                    refused.push(("StorageService", service.metadata.name.clone().unwrap_or_default()));
                }
            }
        }
    }
    for (file, object) in &objects {
        if let Object::ControlPlane(plane) = object {
            let name = plane.metadata.name.clone().unwrap_or_default();
            let referable = Referable { refused: &refused, ..Referable::default() };
            if referable.is_refused("StorageService", &plane.spec.service_ref.name) {
                refused.push(("ControlPlane", name));
                continue;
            }
            match control_plane::validate(plane, &input.services) {
                Ok(plane) => input.control_planes.push(plane),
                Err(problem) => {
                    found.push(in_file(file, problem));
                    refused.push(("ControlPlane", name));
                }
            }
        }
    }
    input.files.extend(
        objects.iter().map(|(file, object)| (format!("{}/{}", object.kind(), object.name()), file.to_string())),
    );
    input.workloads.extend(objects.iter().filter_map(|(_, object)| match object {
        Object::WorkloadTemplate(template) => Some(template.spec.named(object.name())),
        _ => None,
    }));
    for (index, (file, object)) in objects.iter().enumerate() {
        let label = |object: &Object| (object.kind(), object.name().to_owned());
        let is_told = || objects[..index].iter().any(|(_, other)| label(other) == label(object));
        let of_name = |taken: String| Problem {
            object: format!("{}/{}", object.kind(), object.name()),
            field: "metadata.name".into(),
            text: format!("is {taken}"),
        };
        let problems = match object {
            // Of two objects of one kind and name it has been said that they are.
            Object::BenchmarkRun(run) => match input.taken("run", object.name()).filter(|_| !is_told()) {
                Some(taken) => vec![of_name(taken)],
                None => input.take_run(run, &refused),
            },
            Object::BenchmarkSuite(_) if is_told() => Vec::new(),
            Object::BenchmarkSuite(suite) => match input.taken("suite", object.name()) {
                Some(taken) => vec![of_name(taken)],
                None => input.take_suite(suite, &refused),
            },
            Object::BenchmarkSchedule(schedule) => input.take_schedule(schedule, &refused),
            Object::BenchmarkBaseline(baseline) => {
                let name = baseline.metadata.name.clone().unwrap_or_default();
                input.baselines.push((name, baseline.spec.run_ref.name.clone()));
                Vec::new()
            }
            Object::StorageService(_) | Object::ControlPlane(_) | Object::WorkloadTemplate(_) => Vec::new(),
        };
        found.extend(problems.into_iter().map(|problem| in_file(file, problem)));
    }
    InputErrors::of(found).map_or(Ok(input), Err)
}

impl Input {
    /// Why no other run or suite may have this name, under which it would be saved; `None`: none has it.
    fn taken(&self, kind: &str, name: &str) -> Option<String> {
        let is_run = self.runs.iter().any(|run| run.name == name);
        let is_suite = self.suites.iter().any(|suite| suite.name == name);
        let has_it = if is_run { "run" } else { is_suite.then_some("suite")? };
        Some(match has_it == kind {
            true => format!("a {kind} {name}, of which name there is one already: rename one of them"),
            false => format!(
                "a {kind} {name}, and there is a {has_it} of that name, with which it would share a folder: rename one of them"
            ),
        })
    }

    fn take_run(&mut self, run: &BenchmarkRun, refused: &[(&'static str, String)]) -> Vec<Problem> {
        let Self { services, control_planes, workloads, .. } = &*self;
        let (validated, problems) =
            validate::all_problems(run, &Referable { services, control_planes, workloads, refused });
        self.runs.extend(validated);
        problems
    }

    fn take_suite(&mut self, suite: &BenchmarkSuite, refused: &[(&'static str, String)]) -> Vec<Problem> {
        let runs = match suite::expand(suite) {
            Ok(runs) => runs,
            Err(problems) => return problems,
        };
        let object = format!("BenchmarkSuite/{}", suite.metadata.name.as_deref().unwrap_or_default());
        let mut told = Told::default();
        for (planned, run) in &runs {
            if let Some(taken) = self.taken("run", &planned.name) {
                return vec![Problem { object, field: "metadata.name".into(), text: format!("makes {taken}") }];
            }
            for problem in self.take_run(run, refused) {
                told.add(planned, &problem.field, problem.text);
            }
        }
        self.suites.push(SuiteOfRuns::of(suite, &runs));
        let problem = |(field, text)| Problem { object: object.clone(), field, text };
        told.problems().into_iter().map(problem).collect()
    }

    /// What a schedule would make, under its own name: a schedule in a file is what is measured each time, too.
    fn take_schedule(&mut self, schedule: &BenchmarkSchedule, refused: &[(&'static str, String)]) -> Vec<Problem> {
        let name = schedule.metadata.name.clone().unwrap_or_default();
        let problem = |field: String, text| Problem { object: format!("BenchmarkSchedule/{name}"), field, text };
        let mut problems = Vec::new();
        match Recurrence::new(&schedule.spec) {
            Err((field, text)) => problems.push(problem(field.into(), text)),
            Ok(recurrence) if !recurrence.is_ever() => {
                let text = format!("`{}`: no day fits it: name a day that its month has", schedule.spec.schedule);
                problems.push(problem("spec.schedule".into(), text));
            }
            Ok(_) => {}
        }
        match recurrence::made(schedule, &name) {
            Err(others) => problems.extend(others),
            Ok(Made::Run(run)) => {
                if let Some(taken) = self.taken("run", &name) {
                    problems.push(problem("metadata.name".into(), format!("makes {taken}")));
                    return problems;
                }
                let found = self.take_run(&run, refused).into_iter();
                problems.extend(found.map(|one| problem(format!("spec.runTemplate.{}", one.field), one.text)));
            }
            Ok(Made::Suite(suite)) => {
                if let Some(taken) = self.taken("suite", &name) {
                    problems.push(problem("metadata.name".into(), format!("makes {taken}")));
                    return problems;
                }
                let found = self.take_suite(&suite, refused).into_iter();
                problems.extend(found.map(|one| problem(format!("spec.suiteTemplate.{}", one.field), one.text)));
            }
        }
        self.schedules.push(name);
        problems
    }
}

fn clashes(objects: &[(&str, Object)]) -> Vec<InputError> {
    let label = |object: &Object| (object.kind(), object.name().to_owned());
    let mut found = Vec::new();
    for (index, (file, object)) in objects.iter().enumerate() {
        let (kind, name) = label(object);
        if let Some((first, _)) = objects[..index].iter().find(|(_, other)| label(other) == (kind, name.clone())) {
            found.push(InputError {
                file: (*file).into(),
                field: format!("{kind}/{name} metadata.name"),
                problem: format!("is already used by a {kind} in {first}: choose another name"),
            });
        }
    }
    found
}
