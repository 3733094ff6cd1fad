//! From named bytes to runs that can be planned: every check that needs no cluster, in one call.

use storebench_crds::document::{InputError, Object, parse};

use crate::control_plane::{self, ValidatedControlPlane};
use crate::validate::{self, Problem, ValidatedRun, ValidatedService};

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

/// Reads and validates files together: a run may name a service of another file.
pub fn load(files: &[(String, Vec<u8>)]) -> Result<Input, InputError> {
    let mut objects = Vec::new();
    for (file, bytes) in files {
        objects.extend(parse(file, bytes)?.into_iter().map(|object| (file.as_str(), object)));
    }
    refuse_clashes(&objects)?;
    let in_file = |file: &str, problem: Problem| InputError {
        file: file.into(),
        field: format!("{} {}", problem.object, problem.field),
        problem: problem.text,
    };
    let mut input = Input::default();
    for (file, object) in &objects {
        if let Object::StorageService(service) = object {
            input.services.push(validate::service(service).map_err(|problem| in_file(file, problem))?);
        }
    }
    for (file, object) in &objects {
        if let Object::ControlPlane(plane) = object {
            let validated = control_plane::validate(plane, &input.services);
            input.control_planes.push(validated.map_err(|problem| in_file(file, problem))?);
        }
    }
    for (file, object) in &objects {
        if let Object::BenchmarkRun(run) = object {
            input.runs.push(
                validate::run(run, &input.services, &input.control_planes).map_err(|problem| in_file(file, problem))?,
            );
        }
    }
    Ok(input)
}

fn refuse_clashes(objects: &[(&str, Object)]) -> Result<(), InputError> {
    let label = |object: &Object| match object {
        Object::StorageService(service) => ("StorageService", service.metadata.name.clone().unwrap_or_default()),
        Object::ControlPlane(plane) => ("ControlPlane", plane.metadata.name.clone().unwrap_or_default()),
        Object::BenchmarkRun(run) => ("BenchmarkRun", run.metadata.name.clone().unwrap_or_default()),
    };
    for (index, (file, object)) in objects.iter().enumerate() {
        let (kind, name) = label(object);
        if let Some((first, _)) = objects[..index].iter().find(|(_, other)| label(other) == (kind, name.clone())) {
            return Err(InputError {
                file: (*file).into(),
                field: format!("{kind}/{name} metadata.name"),
                problem: format!("is already used by a {kind} in {first}: choose another name"),
            });
        }
    }
    Ok(())
}
