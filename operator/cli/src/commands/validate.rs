//! `storebench validate FILE…`: every check that needs no cluster, starting nothing.

use std::path::PathBuf;

use storebench_core::validate::for_cluster;

use crate::exit::Exit;

pub(crate) fn validate(files: &[PathBuf]) -> anyhow::Result<Exit> {
    let input = super::read_input(files)?;
    for run in &input.runs {
        let arms: Vec<&str> = run.arms.iter().map(|arm| arm.name.as_str()).collect();
        super::print(&format!(
            "BenchmarkRun/{}: valid: {} on {}, {} to {} trials\n",
            run.name,
            count(run.spec.workloads.len(), "workload"),
            arms.join(", "),
            run.spec.trials.min,
            run.spec.trials.max
        ))?;
        if let Err(problem) = for_cluster(run) {
            super::print(&format!("  but in a cluster it is refused: {problem}\n"))?;
        }
    }
    for plane in &input.control_planes {
        super::print(&format!(
            "ControlPlane/{}: valid: Kubernetes {} on {}, {}\n",
            plane.name,
            plane.kubernetes_version,
            plane.service.name,
            count(plane.nodes as usize, "node")
        ))?;
    }
    for service in &input.services {
        super::print(&format!(
            "StorageService/{}: valid: {} {}, {:?} ({})\n",
            service.name, service.engine.name, service.version, service.durability, service.durability_class.setting
        ))?;
    }
    Ok(Exit::Passed)
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
