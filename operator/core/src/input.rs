//! From named bytes to runs that can be planned: every check that needs no cluster, in one call.

use std::fmt;

use storebench_crds::document::{InputError, Object, parse};

use crate::control_plane::{self, ValidatedControlPlane};
use crate::validate::{self, Problem, Referable, ValidatedRun, ValidatedService};

/// What the files of one invocation hold.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The services, in the order written.
    pub services: Vec<ValidatedService>,
    /// The control planes, in the order written.
    pub control_planes: Vec<ValidatedControlPlane>,
    /// The runs, in the order written.
    pub runs: Vec<ValidatedRun>,
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

/// Reads and validates files together: a run may name a service of another file.
///
/// # Errors
/// [`InputErrors`]: all mistakes, as far as one does not hide another. Whoever refers to an object that is wrong in itself is not wrong in
/// that.
pub fn load(files: &[(String, Vec<u8>)]) -> Result<Input, InputErrors> {
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
    for (file, object) in &objects {
        if let Object::StorageService(service) = object {
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
    for (file, object) in &objects {
        if let Object::BenchmarkRun(run) = object {
            let Input { services, control_planes, .. } = &input;
            let (validated, problems) =
                validate::all_problems(run, &Referable { services, control_planes, refused: &refused });
            found.extend(problems.into_iter().map(|problem| in_file(file, problem)));
            input.runs.extend(validated);
        }
    }
    InputErrors::of(found).map_or(Ok(input), Err)
}

fn clashes(objects: &[(&str, Object)]) -> Vec<InputError> {
    let label = |object: &Object| match object {
        Object::StorageService(service) => ("StorageService", service.metadata.name.clone().unwrap_or_default()),
        Object::ControlPlane(plane) => ("ControlPlane", plane.metadata.name.clone().unwrap_or_default()),
        Object::BenchmarkRun(run) => ("BenchmarkRun", run.metadata.name.clone().unwrap_or_default()),
    };
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
