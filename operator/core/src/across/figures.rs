//! What a run is compared by: its circumstances, and what was measured in each trial that counts. Nothing else of its record is needed, so
//! that a BenchmarkBaseline keeps this and no trials: some kilobytes where those are megabytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use storebench_crds::Metric;
use storebench_crds::status::Verdict;

use crate::judgement::{Report, counted_trials, limited_by_loader, paired_values};
use crate::record::RunRecord;

/// What a run is compared by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// The run's record, without its trials.
    pub record: RunRecord,
    /// What it was judged by itself.
    pub verdict: Verdict,
    /// Why, in one line.
    pub message: String,
    /// How many trials count, by arm.
    pub trials: BTreeMap<String, u32>,
    /// What was measured in them.
    pub series: Vec<Measured>,
    /// Where the loader had no time left, so that nothing is decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited: Vec<Limited>,
    /// Which percentiles are of too few to be told. Absent where nobody looked: storebench before 28 November 2026 kept them among the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Vec<Withheld>>,
}

/// A percentile of an arm in a workload that is not told, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Withheld {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// The metric.
    pub metric: Metric,
    /// Of how few it would be.
    pub reason: String,
}

/// An arm in a workload, and why the loader was the limit there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limited {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// Why it was the loader that limited it.
    pub reason: String,
}

/// One metric of one arm in one workload, in every trial that counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// The workload's name.
    pub workload: String,
    /// The arm's name.
    pub arm: String,
    /// The metric.
    pub metric: Metric,
    /// Its values in the metric's unit, in the order of the trials' indexes, which is the same for every arm.
    pub values: Vec<f64>,
}

impl Figures {
    /// The figures of a run.
    pub fn of(report: &Report) -> Self {
        let record = &report.record;
        let (mut series, mut limited, mut withheld) = (Vec::new(), Vec::new(), Vec::new());
        for workload in record.spec.workloads.iter().map(|workload| &workload.name) {
            for arm in record.arms.iter().map(|arm| &arm.name) {
                for metric in Metric::all() {
                    let (workload, arm) = (workload.clone(), arm.clone());
                    match paired_values(record, &arm, &workload, metric) {
                        Ok(Some(values)) if !values.is_empty() => {
                            series.push(Measured { workload, arm, metric, values });
                        }
                        Ok(_) => {}
                        Err(reason) => withheld.push(Withheld { workload, arm, metric, reason }),
                    }
                }
                let reason = limited_by_loader(record, arm, workload);
                limited.extend(reason.map(|reason| Limited { workload: workload.clone(), arm: arm.clone(), reason }));
            }
        }
        let trials = record.arms.iter().map(|arm| (arm.name.clone(), counted_trials(record, &arm.name) as u32));
        Self {
            trials: trials.collect(),
            series,
            limited,
            withheld: Some(withheld),
            verdict: report.judgement.verdict,
            message: report.judgement.message.clone(),
            record: RunRecord { trials: Vec::new(), ..record.clone() },
        }
    }

    /// Why the loader was the limit of an arm in a workload; `None`: it had time to spare.
    pub(super) fn limited(&self, arm: &str, workload: &str) -> Option<&str> {
        let found = self.limited.iter().find(|one| one.arm == arm && one.workload == workload)?;
        Some(&found.reason)
    }

    /// Why a percentile of an arm in a workload is not told; `None`: it is, or nobody looked.
    pub(super) fn withheld(&self, arm: &str, workload: &str, metric: Metric) -> Option<&str> {
        let is_it = |one: &&Withheld| one.metric == metric && one.arm == arm && one.workload == workload;
        Some(&self.withheld.iter().flatten().find(is_it)?.reason)
    }

    /// Whether an arm has a figure.
    pub(super) fn has(&self, arm: &str, workload: &str, metric: Metric) -> bool {
        self.logarithms(arm, None, workload, metric).is_some()
    }

    /// How many trials of an arm count.
    pub(super) fn counted(&self, arm: &str) -> u32 {
        self.trials.get(arm).copied().unwrap_or_default()
    }

    /// Logarithms of a metric of an arm, trial by trial, or of its ratio to another arm in the same trial; `None` where any trial lacks it.
    pub(super) fn logarithms(&self, arm: &str, to: Option<&str>, workload: &str, metric: Metric) -> Option<Vec<f64>> {
        let values = |arm: &str| {
            let is_it = |one: &&Measured| one.metric == metric && one.arm == arm && one.workload == workload;
            Some(self.series.iter().find(is_it)?.values.iter().copied())
        };
        let own = values(arm)?.map(f64::ln);
        Some(match to {
            None => own.collect(),
            Some(control) => own.zip(values(control)?).map(|(own, control)| own - control.ln()).collect(),
        })
    }
}
