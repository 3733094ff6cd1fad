//! Two reports of the same stores, one of the stores themselves and one of Kubernetes on them: how much of a difference between
//! stores reaches who uses the cluster.
//!
//! Promises: only runs of the same stores under the same arm names are put side by side; a share of a difference is given only
//! where both levels differ beyond noise.

use storebench_crds::Metric;
use storebench_crds::status::{Comparison, Verdict, WorkloadResult};
use storebench_crds::workload::etcd::EtcdOperation;
use storebench_crds::workload::{Family, Workload};

use super::document::{Document, Section};
use super::lookup::{self, api_word, comparison, result};
use super::table::{Cell, Column, Table};
use super::wording::finding;
use super::{Report, resources, units, wording};
use crate::judgement::{PARITY, Standing};
use crate::record::ArmRecord;

/// Two reports that may be put side by side.
#[derive(Clone, Copy, Debug)]
pub struct TwoLevels<'a> {
    store: &'a Report,
    kubernetes: &'a Report,
}

/// Why two reports are not two levels of one comparison, with the remedy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelsError {
    /// Both are of one level, or of none.
    #[error("{first} and {second} are not two levels: give one run of etcd workloads and one of kubernetes workloads")]
    NotTwoLevels {
        /// A run.
        first: String,
        /// The other.
        second: String,
    },
    /// The arms are not the same.
    #[error("arm {arm}: {what} in {store} and {kubernetes} differ: measure the same stores under the same arm names")]
    Differs {
        /// The arm.
        arm: String,
        /// What differs.
        what: &'static str,
        /// The run of the stores.
        store: String,
        /// The run on Kubernetes.
        kubernetes: String,
    },
    /// Nothing is compared.
    #[error("{run} compares nothing: two arms are needed, one with baseline: true, and three trials")]
    NothingCompared {
        /// The run.
        run: String,
    },
}

impl<'a> TwoLevels<'a> {
    /// Puts two reports side by side, in whatever order they come.
    ///
    /// # Errors
    /// [`LevelsError`] where they are not two levels of the same comparison.
    pub fn of(first: &'a Report, second: &'a Report) -> Result<Self, LevelsError> {
        let all_of = |report: &Report, family| report.record.spec.workloads.iter().all(|one| one.family() == family);
        let is_kubernetes = |report: &Report| all_of(report, Family::Kubernetes);
        let is_store = |report: &Report| all_of(report, Family::Etcd);
        let levels = match (is_store(first), is_kubernetes(second)) {
            (true, true) => Self { store: first, kubernetes: second },
            _ if is_store(second) && is_kubernetes(first) => Self { store: second, kubernetes: first },
            _ => {
                let (first, second) = (first.record.name.clone(), second.record.name.clone());
                return Err(LevelsError::NotTwoLevels { first, second });
            }
        };
        levels.check()?;
        Ok(levels)
    }

    fn check(&self) -> Result<(), LevelsError> {
        let (store, kubernetes) = (&self.store.record, &self.kubernetes.record);
        let differs = |arm: &ArmRecord, what| LevelsError::Differs {
            arm: arm.name.clone(),
            what,
            store: store.name.clone(),
            kubernetes: kubernetes.name.clone(),
        };
        let named = |arms: &'a [ArmRecord], name: &str| arms.iter().find(|arm| arm.name == name);
        for arm in &kubernetes.arms {
            let other = named(&store.arms, &arm.name).ok_or_else(|| differs(arm, "the arms"))?;
            // A cluster that was there already does not tell what its store is.
            let is_known = arm.engine.is_some();
            let differences = [
                ("which is the baseline", arm.baseline != other.baseline),
                ("the store", is_known && (arm.engine != other.engine || arm.version != other.version)),
                ("durability", arm.durability.is_some() && arm.durability != other.durability),
                ("replicas", is_known && arm.replicas != other.replicas),
            ];
            if let Some((what, _)) = differences.iter().find(|(_, differ)| *differ) {
                return Err(differs(arm, what));
            }
        }
        if let Some(arm) = store.arms.iter().find(|arm| named(&kubernetes.arms, &arm.name).is_none()) {
            return Err(differs(arm, "the arms"));
        }
        match [self.store, self.kubernetes].into_iter().find(|report| report.judgement.comparisons.is_empty()) {
            Some(report) => Err(LevelsError::NothingCompared { run: report.record.name.clone() }),
            None => Ok(()),
        }
    }

    /// The workload of the store that does what an API server does to create or change an object: a transaction of one put,
    /// or else a put, or else the first.
    fn counterpart(&self) -> Option<&'a Workload> {
        let workloads = &self.store.record.spec.workloads;
        let of = |operation| {
            workloads.iter().find(|one| one.parameters.etcd().is_some_and(|etcd| etcd.operation == operation))
        };
        of(EtcdOperation::TxnPut).or_else(|| of(EtcdOperation::Put)).or(workloads.first())
    }

    /// The verdicts of the run of the stores and of the run on Kubernetes.
    pub fn verdicts(&self) -> [Verdict; 2] {
        [self.store, self.kubernetes].map(|report| report.judgement.verdict)
    }

    /// Everything that is said, for every medium.
    pub(super) fn document(&self) -> Document {
        let baseline = lookup::baseline(self.store).map_or("", |arm| &arm.name);
        let names = [self.store, self.kubernetes].map(|report| report.record.name.as_str());
        let mut sections = vec![self.reaches(), self.stores(), self.objects()];
        for (title, report) in
            [("Cost: the stores themselves", self.store), ("Cost: under Kubernetes", self.kubernetes)]
        {
            sections
                .extend(resources::table(report).map(|table| Section { table: Some(table), ..Section::new(title) }));
        }
        sections.push(self.doubts());
        Document {
            title: format!("Two levels: {} and {}", names[0], names[1]),
            summary: format!(
                "How much of a difference between stores, against {baseline}, reaches who uses a cluster on them"
            ),
            sections,
        }
    }

    /// How the arms differ at both levels, and what of it is left.
    fn reaches(&self) -> Section {
        let mut rows = Vec::new();
        let mut statements = Vec::new();
        let counterpart = self.counterpart();
        let metric = Metric::LATENCY_MEAN;
        for workload in &self.kubernetes.record.spec.workloads {
            for (position, arm) in lookup::compared_arms(self.kubernetes, &workload.name) {
                let of_store = counterpart.and_then(|one| comparison(self.store, &one.name, &arm.name, metric));
                let of_user = comparison(self.kubernetes, &workload.name, &arm.name, metric);
                let (Some(of_store), Some(of_user)) = (of_store, of_user) else { continue };
                let reach = self.reach(of_store, of_user);
                statements.push(format!("{}, {}: {}", workload.name, arm.name, reach.sentence()));
                let cell = |report, compared| {
                    let finding = finding(report, compared);
                    Cell::toned(finding.sentence, finding.tone)
                };
                rows.push(vec![
                    Cell::plain(&workload.name),
                    Cell::arm(&arm.name, position),
                    cell(self.store, of_store),
                    cell(self.kubernetes, of_user),
                    Cell::plain(reach.in_short()),
                ]);
            }
        }
        let of_store = counterpart.map_or_else(String::new, |one| format!("mean latency, store: {}", one.name));
        let columns = vec![
            Column::words("workload"),
            Column::words("arm"),
            Column::words(of_store),
            Column::words("mean latency, user"),
            Column::words("reaches the user"),
        ];
        let table = (!rows.is_empty()).then_some(Table { columns, rows });
        Section { statements, table, ..Section::new("What reaches the user") }
    }

    fn reach(&self, of_store: &Comparison, of_user: &Comparison) -> Reach {
        let standings = [(self.store, of_store), (self.kubernetes, of_user)]
            .map(|(report, compared)| lookup::standing(report, compared));
        if standings.contains(&Standing::NotRanked) {
            return Reach::NotRanked;
        }
        match standings.map(Standing::is_difference) {
            [false, _] => Reach::StoresAlike,
            [true, false] => Reach::WithinNoise,
            [true, true] => {
                let change = |compared: &Comparison| compared.ratio_basis_points as f64 - PARITY as f64;
                let share = change(of_user) / change(of_store);
                if share < 0.0 {
                    return Reach::Reversed;
                }
                // The ends of both intervals, none of which crosses 1: at least as wide as an interval of the quotient.
                let ends = |compared: &Comparison| {
                    let [one, other] =
                        [compared.low_basis_points, compared.high_basis_points].map(|end| end.abs_diff(PARITY) as f64);
                    (one.min(other), one.max(other))
                };
                let (user, store) = (ends(of_user), ends(of_store));
                let percent = |share: f64| (share * 100.0).round() as u64;
                Reach::Percent {
                    share: percent(share),
                    low: percent(user.0 / store.1),
                    high: percent(user.1 / store.0),
                }
            }
        }
    }

    /// What each store does by itself.
    fn stores(&self) -> Section {
        let columns = vec![
            Column::words("workload"),
            Column::words("arm"),
            Column::numbers("throughput"),
            Column::numbers("mean"),
            Column::numbers("p99"),
            Column::numbers("CPU/op"),
            Column::numbers("written/op").dispensable(1),
            Column::numbers("fsyncs/op").dispensable(1),
        ];
        let row = |result: &WorkloadResult| {
            let latency = result.intended_latency.as_ref().unwrap_or(&result.service_latency);
            vec![
                Cell::plain(units::rate_milli(result.throughput_milli)),
                Cell::plain(units::duration_nanos(latency.mean_nanos)),
                Cell::plain(units::duration_nanos(latency.p99_nanos)),
                Cell::or_absent(result.cpu_nanos_per_operation.map(units::duration_nanos)),
                Cell::or_absent(result.write_bytes_per_operation.map(units::bytes)),
                Cell::or_absent(result.fsyncs_per_thousand_operations.map(units::per_operation_milli)),
            ]
        };
        Section { table: table(self.store, columns, row), ..Section::new("The stores themselves") }
    }

    /// What an object costs a user, the store and its disk.
    fn objects(&self) -> Section {
        let columns = vec![
            Column::words("workload"),
            Column::words("arm"),
            Column::numbers("mean"),
            Column::numbers("p99"),
            Column::numbers("store writes"),
            Column::numbers("each takes"),
            Column::numbers("together").dispensable(1),
            Column::numbers("written").dispensable(2),
            Column::numbers("fsyncs").dispensable(2),
            Column::numbers("store CPU").dispensable(2),
        ];
        let row = |result: &WorkloadResult| {
            let latency = result.intended_latency.as_ref().unwrap_or(&result.service_latency);
            let writes = result.api_server.and_then(|server| server.store_writes);
            let of_one = |total: u128| (total / u128::from(result.operations.max(1))) as u64;
            let count = writes.map(|writes| of_one(u128::from(writes.requests) * 1_000));
            let together = writes.map(|writes| of_one(u128::from(writes.requests) * u128::from(writes.mean_nanos)));
            vec![
                Cell::plain(units::duration_nanos(latency.mean_nanos)),
                Cell::plain(units::duration_nanos(latency.p99_nanos)),
                Cell::or_absent(count.map(units::per_operation_milli)),
                Cell::or_absent(writes.map(|writes| units::duration_nanos(writes.mean_nanos))),
                Cell::or_absent(together.map(units::duration_nanos)),
                Cell::or_absent(result.write_bytes_per_operation.map(units::bytes)),
                Cell::or_absent(result.fsyncs_per_thousand_operations.map(units::per_operation_milli)),
                Cell::or_absent(result.cpu_nanos_per_operation.map(units::duration_nanos)),
            ]
        };
        let notes = vec![
            "for each object: how long its user waits; how many writes the API server sends to the store because of it, of the resources that the workload changes; how long the store takes for each, as the API server sees it, and for all; what is written to its disk, what it syncs and computes, all else that goes on included".to_owned(),
        ];
        Section { table: table(self.kubernetes, columns, row), notes, ..Section::new("An object under Kubernetes") }
    }

    /// What a reader must know before believing a number.
    fn doubts(&self) -> Section {
        let mut notes = Vec::new();
        for report in [self.store, self.kubernetes] {
            let (_, word, _) = wording::verdict(report.judgement.verdict);
            let name = &report.record.name;
            notes.push(format!(
                "{name}: {word}, {} trials of an arm, {}",
                report.record.trials.len(),
                report.record.started_at
            ));
            notes.extend(report.judgement.caveats.iter().map(|caveat| format!("{name}: {caveat}")));
        }
        let facts = [self.store, self.kubernetes].map(|report| &report.record.fingerprint.facts);
        for (name, value) in facts[0] {
            if let Some(other) = facts[1].get(name).filter(|other| *other != value) {
                notes.push(format!(
                    "the levels were not measured under the same conditions: {name} was {value}, then {other}"
                ));
            }
        }
        if self.store.record.driver != self.kubernetes.record.driver {
            notes.push(
                "one level was measured in a cluster and one was not: their latencies differ by more than the level"
                    .into(),
            );
        }
        notes.push("the share that reaches the user is that of the change of mean latency, its interval from the ends of both intervals, so that it contains the share at least as often; one client that waits for each answer gives the clearest answer, since waiting for one another blurs both levels".into());
        Section { notes, ..Section::new("Before you believe a number") }
    }
}

/// Rows of a table, workload by workload and arm by arm. `None` of nothing.
fn table(report: &Report, columns: Vec<Column>, row: impl Fn(&WorkloadResult) -> Vec<Cell>) -> Option<Table> {
    let mut rows = Vec::new();
    for workload in &report.record.spec.workloads {
        for (position, arm) in lookup::started_arms(report) {
            let Some(result) = result(report, &workload.name, &arm.name) else { continue };
            let name = match workload.parameters.etcd().map(|etcd| etcd.operation) {
                Some(operation) => format!("{} ({})", workload.name, api_word(&operation)),
                None => workload.name.clone(),
            };
            let mut cells = vec![Cell::plain(name), Cell::arm(&arm.name, position)];
            cells.extend(row(result));
            rows.push(cells);
        }
    }
    (!rows.is_empty()).then_some(Table { columns, rows })
}

/// What is left of a difference between stores for who uses a cluster on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// So many percent of it, and between which many.
    Percent { share: u64, low: u64, high: u64 },
    /// The stores differ, and users cannot tell.
    WithinNoise,
    /// The stores do not differ beyond noise.
    StoresAlike,
    /// Users see the opposite.
    Reversed,
    /// One of the comparisons may not be ranked.
    NotRanked,
}

impl Reach {
    fn in_short(self) -> String {
        match self {
            Self::Percent { share, low, high } => format!("{share} % ({low}–{high} %)"),
            Self::WithinNoise => "within noise".into(),
            Self::StoresAlike => "stores alike".into(),
            Self::Reversed => "the opposite".into(),
            Self::NotRanked => "not ranked".into(),
        }
    }

    fn sentence(self) -> String {
        match self {
            Self::Percent { .. } => format!("{} of the stores' difference reaches the user", self.in_short()),
            Self::WithinNoise => "the stores differ; what a user sees of it is within noise".into(),
            Self::StoresAlike => "the stores themselves do not differ beyond noise".into(),
            Self::Reversed => "a user sees the opposite of what the stores do by themselves".into(),
            Self::NotRanked => "not ranked".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use storebench_crds::status::NoiseFloor;

    fn with_ratios(store: [u64; 3], user: [u64; 3]) -> String {
        let (mut first, mut second) = fixture::two_levels();
        for (report, [ratio, low, high]) in [(&mut first, store), (&mut second, user)] {
            for compared in &mut report.judgement.comparisons {
                compared.ratio_basis_points = ratio;
                compared.low_basis_points = low;
                compared.high_basis_points = high;
            }
        }
        let section = TwoLevels::of(&first, &second).unwrap().reaches();
        section.statements[0].clone()
    }

    #[test]
    fn a_share_is_given_only_where_both_levels_differ_beyond_noise() {
        let better = [6_000, 5_800, 6_200];
        let said = with_ratios(better, [8_000, 7_800, 8_200]);
        assert_eq!(said, "create, rusd: 50 % (43–58 %) of the stores' difference reaches the user");
        // As published once: 45 %, of intervals that are far from both.
        let said = with_ratios([6_000, 5_500, 9_000], [8_200, 7_300, 9_900]);
        assert!(said.starts_with("create, rusd: 45 % (2–270 %)"), "{said}");
        assert!(with_ratios(better, [9_900, 9_700, 10_100]).ends_with("within noise"));
        assert!(with_ratios([9_900, 9_700, 10_100], better).ends_with("do not differ beyond noise"));
        assert!(with_ratios(better, [12_000, 11_000, 13_000]).contains("the opposite"));
    }

    #[test]
    fn a_difference_that_the_baseline_has_from_itself_is_none_at_either_level() {
        let said = |store: Option<u64>, user: Option<u64>| {
            let (mut first, mut second) = fixture::two_levels();
            for (report, ratio, floor) in [(&mut first, 6_000, store), (&mut second, 8_000, user)] {
                for compared in &mut report.judgement.comparisons {
                    (compared.ratio_basis_points, compared.low_basis_points) = (ratio, ratio - 200);
                    compared.high_basis_points = ratio + 200;
                    compared.noise_floor = floor.map(|high| NoiseFloor {
                        ratio_basis_points: 10_000,
                        low_basis_points: 9_900,
                        high_basis_points: high,
                    });
                }
            }
            TwoLevels::of(&first, &second).unwrap().reaches().statements[0].clone()
        };
        assert!(said(Some(10_100), Some(10_100)).contains("50 % (43–58 %)"));
        assert!(said(Some(18_000), None).ends_with("do not differ beyond noise"));
        assert!(said(None, Some(13_000)).ends_with("within noise"));
    }

    #[test]
    fn the_order_of_the_reports_does_not_matter_and_an_invalid_run_says_nothing() {
        let (mut store, kubernetes) = fixture::two_levels();
        let document = TwoLevels::of(&store, &kubernetes).unwrap().document();
        assert_eq!(TwoLevels::of(&kubernetes, &store).unwrap().document(), document);
        store.judgement.verdict = Verdict::Invalid;
        let section = TwoLevels::of(&store, &kubernetes).unwrap().reaches();
        assert!(section.statements.iter().all(|said| said.ends_with("not ranked")), "{:?}", section.statements);
    }

    #[test]
    fn what_is_not_two_levels_of_the_same_stores_is_refused() {
        let (store, kubernetes) = fixture::two_levels();
        let refused = |first: &Report, second: &Report| TwoLevels::of(first, second).unwrap_err().to_string();
        assert!(refused(&store, &store).contains("are not two levels"));
        assert!(refused(&fixture::two_arms(), &kubernetes).contains("give one run of etcd workloads"));
        let mut other = store.clone();
        other.record.arms[0].version = Some("0.0.1".into());
        assert!(refused(&other, &kubernetes).contains("the store in"), "{}", refused(&other, &kubernetes));
        other.record.arms[0].name = "another".into();
        assert!(refused(&other, &kubernetes).contains("the arms in"));
        let mut nothing = store.clone();
        nothing.judgement.comparisons.clear();
        assert!(refused(&nothing, &kubernetes).contains("compares nothing"));
    }
}
