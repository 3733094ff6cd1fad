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

/// A run whose second arm moves from trial to trial by more than it differs from the first.
fn noisy(gates: serde_json::Value) -> RunRecord {
    let mut record = record(1.0, gates);
    for trial in record.trials.iter_mut().filter(|trial| trial.arm == "new") {
        let factor = [0.6, 1.0, 1.7][trial.index as usize % 3];
        let elapsed_nanos = &mut trial.workloads[0].summary.elapsed_nanos;
        *elapsed_nanos = (*elapsed_nanos as f64 * factor) as u64;
    }
    record
}

#[test]
fn what_the_trials_cannot_tell_is_undecided_and_no_equality() {
    let judgement = judge(&noisy(serde_json::json!([])));
    let message = &judgement.message;
    assert!(message.contains("undecided whether new and old differ, throughput "), "{message}");
    assert!(
        message.contains("a difference of less than ") && message.contains(" % would have gone unseen"),
        "{message}"
    );
    assert!(!message.contains("no difference"), "{message}");
    let equal = judge(&record(1.0, serde_json::json!([]))).message;
    assert!(equal.contains("no difference larger than ") && !equal.contains("unseen"), "{equal}");
    let report = Report { judgement, record: noisy(serde_json::json!([])) };
    for page in [text(&report, 60, false), text(&report, 80, false), markdown(&report), html(&report).unwrap()] {
        assert!(page.replace('\u{a0}', " ").contains("would see"), "{page}");
    }
}

#[test]
fn a_run_that_nothing_could_fail_says_so_beside_its_verdict() {
    let page = |gates: serde_json::Value| {
        let record = record(1.0, gates);
        text(&Report { judgement: judge(&record), record }, 80, false)
    };
    assert!(page(serde_json::json!([])).starts_with("○ Passed (no gates)  "), "{}", page(serde_json::json!([])));
    assert!(page(throughput_gate(9_000, "Fail")).starts_with("✓ Passed  "));
}

#[test]
fn of_what_was_disturbed_it_is_said_what_counts() {
    let mut record = record(1.0, serde_json::json!([]));
    for position in [7, 12, 15] {
        super::failed(&mut record, position, crate::record::FailureCause::Disturbed);
    }
    let message = judge(&record).message;
    assert!(message.starts_with("3 trials were disturbed, more than trials.retries allows (1); "), "{message}");
    record.trials[7].waited_millis = Some(0);
    let message = judge(&record).message;
    assert!(
        message.starts_with("3 trials were disturbed; 2 count towards trials.retries (1); the last: "),
        "{message}"
    );
    assert_eq!(record.trials_in_words(), "20 trials (old 10, new 10)");
}

#[test]
fn nothing_but_the_remedy_is_said_of_a_run_without_a_trial() {
    let mut record = record(1.0, serde_json::json!([]));
    record.trials.clear();
    let unavailable =
        || crate::record::Unavailable { reason: "etcd is not here".into(), install: "peers/fetch etcd".into() };
    record.arms.iter_mut().for_each(|arm| arm.unavailable = Some(unavailable()));
    let report = Report { judgement: judge(&record), record };
    for page in [text(&report, 80, false), markdown(&report)] {
        assert!(page.contains("peers/fetch etcd") && !page.contains("trials valid"), "{page}");
        assert!(page.lines().count() < 20, "{page}");
    }
}

#[test]
fn a_run_in_which_no_trial_counts_has_no_table_of_nothing_and_its_verdict_once() {
    let mut record = workloads(&["put", "get"], 1.0, serde_json::json!([]));
    for position in 0..record.trials.len() {
        super::failed(&mut record, position, crate::record::FailureCause::Disturbed);
    }
    let report = Report { judgement: judge(&record), record };
    let in_text = text(&report, 80, false);
    assert_eq!(in_text.matches("! Invalid").count(), 1, "{in_text}");
    for page in [in_text, markdown(&report), html(&report).unwrap()] {
        assert_eq!(page.matches("no trial that counts has measured this workload").count(), 2, "{page}");
        for of_tables in ["throughput", "p99.9", "memory (RSS)"] {
            assert!(!page.contains(of_tables), "{of_tables}: {page}");
        }
    }
}

#[test]
fn of_two_trials_the_figure_is_their_mean_and_not_the_lower() {
    let mut record = record(1.0, serde_json::json!([]));
    record.trials.retain(|trial| trial.index < 2);
    let of_old = record.trials.iter().filter(|trial| trial.arm == "old");
    let rates: Vec<f64> =
        of_old.map(|trial| trial.workloads[0].per_second(trial.workloads[0].summary.operations)).collect();
    let result = judge(&record).results.into_iter().find(|result| result.arm == "old").unwrap();
    assert_ne!(rates[0], rates[1]);
    assert_eq!(result.throughput_milli, ((rates[0] + rates[1]) * 500.0).round() as u64);
}
