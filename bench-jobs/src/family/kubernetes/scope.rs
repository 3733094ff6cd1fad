//! Under which names a workload creates: nobody else's, so that runs, trials and workloads can share a cluster and what was
//! left behind can be found.
//!
//! Pure. Every object carries the labels, by which all of it is found again, by the loader and by people:
//! `kubectl get namespaces -l storebench.dev/run=NAME`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use storebench_crds::job::{JobSpec, Phase};

use crate::content::seeds::mix_text;

/// The label with the scope's identifier.
pub const SCOPE_LABEL: &str = "storebench.dev/scope";

/// The names of one workload of one trial of one arm of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    id: String,
    labels: BTreeMap<String, String>,
}

impl Scope {
    /// The scope of a job's workload. The same job has the same scope whenever it runs, so that a second attempt finds what
    /// the first left.
    pub fn new(job: &JobSpec, workload: &str) -> Self {
        let trial = job.trial.to_string();
        let parts = [&job.run, &job.arm, &trial, workload];
        let id = parts.iter().fold(job.seed, |seed, part| mix_text(seed, part));
        let id = format!("{id:016x}");
        let labels = [
            (SCOPE_LABEL, id.as_str()),
            ("storebench.dev/run", &job.run),
            ("storebench.dev/arm", &job.arm),
            ("storebench.dev/trial", &trial),
            ("storebench.dev/workload", workload),
        ];
        Self { labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(), id }
    }

    /// What finds every object of the scope.
    pub fn selector(&self) -> String {
        format!("{SCOPE_LABEL}={}", self.id)
    }

    /// The namespace of all objects that are in one.
    pub fn namespace(&self) -> String {
        format!("storebench-{}", self.id)
    }

    /// The API group of the scope's custom resources.
    pub fn group(&self) -> String {
        format!("s{}.storebench.dev", self.id)
    }

    /// The name of the *number*-th object that a phase creates.
    pub fn object(&self, phase: Phase, number: u64) -> String {
        match phase {
            Phase::WarmUp => format!("warm-up-{number}"),
            _ => format!("load-{number}"),
        }
    }

    /// The name of the *number*-th namespace that a phase creates: unique in the cluster.
    pub fn created_namespace(&self, phase: Phase, number: u64) -> String {
        format!("{}-{}", self.namespace(), self.object(phase, number))
    }

    /// Name and labels of an object.
    pub fn metadata(&self, name: &str) -> ObjectMeta {
        ObjectMeta { name: Some(name.into()), labels: Some(self.labels.clone()), ..ObjectMeta::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::specification;

    fn job(run: &str, arm: &str, trial: u32) -> JobSpec {
        let job = serde_json::json!({
            "run": run, "arm": arm, "trial": trial, "seed": 7, "endpoints": ["127.0.0.1:6443"], "kubeconfig": "config",
            "workloads": [{ "name": "w", "kubernetes": { "operation": "CreateNamespaces" }, "load": { "total": 1 } }],
        });
        specification::parse(&job.to_string()).unwrap()
    }

    #[test]
    fn no_two_workloads_trials_arms_or_runs_share_a_name() {
        let scopes = [
            Scope::new(&job("r", "a", 0), "w"),
            Scope::new(&job("r", "a", 0), "v"),
            Scope::new(&job("r", "a", 1), "w"),
            Scope::new(&job("r", "b", 0), "w"),
            Scope::new(&job("s", "a", 0), "w"),
        ];
        for (index, scope) in scopes.iter().enumerate() {
            for other in &scopes[..index] {
                assert_ne!(scope.namespace(), other.namespace());
            }
        }
        assert_eq!(Scope::new(&job("r", "a", 0), "w"), scopes[0], "a second attempt finds what the first left");
    }

    #[test]
    fn names_are_names_that_kubernetes_takes() {
        let long = "x".repeat(63);
        let scope = Scope::new(&job(&long, &"a".repeat(32), 29), &"w".repeat(40));
        for name in
            [scope.namespace(), scope.created_namespace(Phase::WarmUp, 999_999_999), scope.object(Phase::Measure, 5)]
        {
            let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(name.len() <= 63 && name.bytes().all(fits) && !name.ends_with('-'), "{name}");
        }
        for value in scope.metadata("x").labels.unwrap().values() {
            assert!(value.len() <= 63, "{value}");
        }
    }
}
