//! Workloads that a run takes from WorkloadTemplates. They are put into the run before anything else is asked of it, so that whatever follows,
//! the record included, has a run with workloads of its own, and knows of no template.

use std::borrow::Cow;

use serde_json::json;
use storebench_crds::benchmark_run::WorkloadRef;
use storebench_crds::document::of_template;
use storebench_crds::{BenchmarkRun, GROUP, VERSION};

use super::{Problem, Referable, named};

/// The run with the workloads of the templates that it names, or what is wrong with how it names them: nothing, where a template is wrong in itself.
pub(super) fn resolved<'a>(
    run: &'a BenchmarkRun,
    referable: &Referable<'_>,
) -> Result<Cow<'a, BenchmarkRun>, Vec<Problem>> {
    if run.spec.workload_refs.is_empty() {
        return Ok(Cow::Borrowed(run));
    }
    let name = run.metadata.name.clone().unwrap_or_default();
    let problem = |field, text| Problem { object: format!("BenchmarkRun/{name}"), field, text };
    let mut problems = Vec::new();
    let mut workloads = Vec::new();
    for (index, wanted) in run.spec.workload_refs.iter().enumerate() {
        if referable.is_refused("WorkloadTemplate", &wanted.name) {
            continue;
        }
        match named(referable.workloads, &wanted.name, "WorkloadTemplate", |workload| &workload.name) {
            Ok(workload) => workloads.push(workload.clone()),
            Err(text) => problems.push(problem(format!("spec.workloadRefs[{index}].name"), text)),
        }
    }
    if workloads.len() < run.spec.workload_refs.len() {
        return Err(problems);
    }
    let mut spec = run.spec.clone();
    spec.workload_refs.clear();
    spec.workloads = workloads;
    // What its schema could not ask of workloads that were not there.
    let whole = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "BenchmarkRun", "metadata": { "name": name }, "spec": spec,
    });
    of_template::<BenchmarkRun>("BenchmarkRun", whole)
        .map_err(|found| Vec::from_iter(found.into_iter().map(|(field, text)| problem(field, text))))?;
    Ok(Cow::Owned(BenchmarkRun { metadata: run.metadata.clone(), spec, status: None }))
}

/// The same problem said of what the user wrote: of a workload, where it is a template's.
pub(super) fn as_written(templates: &[WorkloadRef], problem: Problem) -> Problem {
    if templates.is_empty() {
        return problem;
    }
    let Some(rest) = problem.field.strip_prefix("spec.workloads") else { return problem };
    let place = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let of_template = place.and_then(|(index, field)| {
        let index: usize = index.parse().ok()?;
        Some((index, &templates.get(index)?.name, field))
    });
    let (field, text) = match of_template {
        Some((index, name, field)) => (
            format!("spec.workloadRefs[{index}].name"),
            format!("WorkloadTemplate/{name} spec{field}: {}", problem.text),
        ),
        None => ("spec.workloadRefs".to_owned(), problem.text),
    };
    Problem { field, text, ..problem }
}

#[cfg(test)]
mod tests {
    use storebench_crds::Workload;

    use super::*;
    use crate::fingerprint;
    use crate::input::load;
    use crate::validate::{ValidatedRun, of_workload};
    use std::path::Path;

    const STORE: &str = "\
apiVersion: storebench.dev/v1alpha1
kind: StorageService
metadata: { name: etcd }
spec: { engine: Etcd }
---
apiVersion: storebench.dev/v1alpha1
kind: BenchmarkRun
metadata: { name: demo }
spec:
  arms:
  - { name: etcd, serviceRef: { name: etcd } }
";

    fn read(rest: &str) -> ValidatedRun {
        let text = format!("{STORE}{rest}");
        load(&[("run.yaml".into(), text.into_bytes())], Path::new("")).unwrap().runs.remove(0)
    }

    fn by_template(value_bytes: u32) -> ValidatedRun {
        read(&format!(
            "  workloadRefs:
  - {{ name: agreed }}
---
apiVersion: storebench.dev/v1alpha1
kind: WorkloadTemplate
metadata: {{ name: agreed }}
spec: {{ etcd: {{ operation: Put, valueBytes: {value_bytes} }}, load: {{ connections: 64, duration: 5s }} }}
"
        ))
    }

    fn inline() -> ValidatedRun {
        let workload =
            "{ name: agreed, etcd: { operation: Put, valueBytes: 1024 }, load: { connections: 64, duration: 5s } }";
        read(&format!("  workloads:\n  - {workload}\n"))
    }

    #[test]
    fn a_run_by_a_template_is_the_run_with_the_workload_in_it() {
        assert_eq!(by_template(1024).spec, inline().spec);
    }

    #[test]
    fn what_is_asked_has_one_hash_wherever_it_was_written_and_whatever_it_is_called() {
        let (inline, template, other) = (inline(), by_template(1024), by_template(2048));
        let of = |run: &ValidatedRun| fingerprint::of_workload(&run.spec.workloads[0]);
        assert_eq!((of(&inline).len(), of(&inline)), (16, of(&template)));
        assert_ne!(of(&template), of(&other));
        assert_eq!(
            fingerprint::of_workload(&Workload { name: "other".into(), ..inline.spec.workloads[0].clone() }),
            of(&inline)
        );
    }

    #[test]
    fn what_one_driver_cannot_honour_of_a_workload_is_said_of_its_template() {
        let of = |run: ValidatedRun| of_workload(&run, 0, "load.fault.kind", "cannot be had here".into()).to_string();
        assert_eq!(of(inline()), "BenchmarkRun/demo spec.workloads[0].load.fault.kind: cannot be had here");
        assert_eq!(
            of(by_template(1024)),
            "BenchmarkRun/demo spec.workloadRefs[0].name: WorkloadTemplate/agreed spec.load.fault.kind: cannot be had here"
        );
    }

    #[test]
    fn what_is_wrong_with_a_workload_is_said_of_its_template() {
        let text = format!(
            "{STORE}  trials: {{ timeout: 10s }}\n  workloadRefs:\n  - {{ name: agreed }}\n---
apiVersion: storebench.dev/v1alpha1
kind: WorkloadTemplate
metadata: {{ name: agreed }}
spec: {{ redis: {{ command: Set }}, load: {{ connections: 4, duration: 5s }} }}
"
        );
        let errors = load(&[("run.yaml".into(), text.into_bytes())], Path::new("")).unwrap_err().to_string();
        assert!(
            errors.contains("BenchmarkRun/demo spec.arms[0].serviceRef.name: workload agreed speaks Redis"),
            "{errors}"
        );
        let templates = [WorkloadRef { name: "agreed".into() }];
        let said = |field: &str| {
            let problem = Problem { object: "BenchmarkRun/demo".into(), field: field.into(), text: "is wrong".into() };
            as_written(&templates, problem).to_string()
        };
        assert_eq!(
            said("spec.workloads[0].load.fault"),
            "BenchmarkRun/demo spec.workloadRefs[0].name: WorkloadTemplate/agreed spec.load.fault: is wrong"
        );
        assert_eq!(said("spec.workloads"), "BenchmarkRun/demo spec.workloadRefs: is wrong");
        assert_eq!(said("spec.arms[0]"), "BenchmarkRun/demo spec.arms[0]: is wrong");
    }
}
