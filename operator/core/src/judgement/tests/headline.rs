//! What a report says first: a message of all workloads and gates, and what is left in somebody's store; and how it says to read the rest.

use storebench_crds::Workload;
use storebench_crds::status::Verdict;

use super::{record, throughput_gate};
use crate::judgement::judge;
use crate::record::{LeftBehind, RunRecord};
use crate::report::{Report, from_json, html, json, markdown, text};

/// A run of so many workloads, which all measured the same.
fn workloads(names: &[&str], ratio: f64, gates: serde_json::Value) -> RunRecord {
    let mut record = record(ratio, gates);
    let first = record.spec.workloads[0].clone();
    record.spec.workloads = names.iter().map(|name| Workload { name: (*name).into(), ..first.clone() }).collect();
    for trial in &mut record.trials {
        let measured = trial.workloads[0].clone();
        trial.workloads = names.iter().map(|_| measured.clone()).collect();
        names.iter().zip(&mut trial.workloads).for_each(|(name, one)| one.summary.name = (*name).into());
    }
    record
}

#[test]
fn the_headline_has_every_workload_and_not_the_first_alone() {
    let message = judge(&workloads(&["put", "get"], 1.5, serde_json::json!([]))).message;
    assert!(message.contains("; put: new has 1.") && message.contains("; get: new has 1."), "{message}");
    let mut five = workloads(&["a", "b", "c", "d", "e"], 1.5, serde_json::json!([]));
    for trial in five.trials.iter_mut().filter(|trial| trial.arm == "new") {
        // 0.5 of the baseline, which is farther from a tie than 1.5.
        trial.workloads[3].summary.elapsed_nanos *= 3;
    }
    let message = judge(&five).message;
    let expected = "throughput, 5 comparisons: 4 higher, 1 lower; farthest from a tie: d: new has 0.";
    assert!(message.contains(expected), "{message}");
    // Of gates that were missed, too.
    let missed = judge(&workloads(&["a", "b", "c"], 0.5, throughput_gate(9_000, "Fail")));
    assert_eq!(missed.verdict, Verdict::Regressed);
    assert!(missed.message.ends_with("; 2 more of 3 gates were missed"), "{}", missed.message);
    assert!(missed.message.contains(" as one of 3 decisions"), "{}", missed.message);
}

#[test]
fn what_one_of_several_decisions_is_stands_where_the_report_says_how_it_is_read() {
    for (names, is_told) in [(&["a", "b"][..], true), (&["a"][..], false)] {
        let record = workloads(names, 0.5, throughput_gate(9_000, "Fail"));
        let report = Report { judgement: judge(&record), record };
        for page in [text(&report, 400, false), markdown(&report), html(&report).unwrap()] {
            assert_eq!(page.contains("As one of 2 decisions: "), is_told, "{page}");
        }
    }
}

#[test]
fn what_a_load_left_in_somebody_s_store_stands_above_every_number() {
    let mut record = record(1.0, serde_json::json!([]));
    record.left_behind.push(LeftBehind {
        arm: "new".into(),
        workload: "put".into(),
        prefix: "storebench/1a2b3c4d/".into(),
        removal: "etcdctl --endpoints http://a:2379 del --prefix storebench/1a2b3c4d/".into(),
    });
    let removal = record.left_behind[0].removal.clone();
    let report = Report { judgement: judge(&record), record };
    for page in [text(&report, 60, false), markdown(&report), html(&report).unwrap()] {
        let at = page.find(&removal).unwrap_or_else(|| panic!("a command stays whole: {page}"));
        assert!(at < page.find("trials valid").unwrap(), "{page}");
    }
    assert_eq!(from_json(&json(&report).unwrap()).unwrap(), report);
}
