//! What must hold of every page, whatever is in the report.

use storebench_crds::status::TrialState;

use super::super::fixture;
use super::*;

/// Elements that have no end.
const VOID: [&str; 2] = ["meta", "use"];

/// The tags of a page in order, as `div` and `/div`; panics where one is not closed by its own end.
fn check_balance(name: &str, page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = page.strip_prefix("<!DOCTYPE html>").unwrap();
    for tag in body.split('<').skip(1) {
        let (inside, text) = tag.split_once('>').unwrap_or_else(|| panic!("{name}: <{tag} does not end"));
        let element = inside.split([' ', '\n']).next().unwrap();
        if let Some(closed) = element.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{name}: </{closed}> closes another element");
        } else if !inside.ends_with('/') && !VOID.contains(&element) {
            open.push(element);
        }
        // Only the style sheet may use the sign itself.
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{name}: stray > in {text}");
    }
    assert!(open.is_empty(), "{name}: never closed: {open:?}");
}

#[test]
fn pages_are_well_formed_and_complete() {
    for (name, report) in fixture::all() {
        let page = html(&report).unwrap();
        check_balance(name, &page);
        for expected in [
            "<html lang=\"en\">",
            "id=\"workload-0\"",
            "id=\"gates\"",
            "id=\"resources\"",
            "id=\"trials\"",
            "id=\"arms\"",
            "id=\"fingerprint\"",
            "id=\"spec\"",
            "id=\"guide\"",
            "<desc>",
            "serviceRef:",
        ] {
            assert!(page.contains(expected), "{name}: {expected}");
        }
        let has_summary = !["unavailable_arm", "wrong_answer"].contains(&name);
        assert_eq!(page.contains("<section id=\"summary\""), has_summary, "{name}");
        check_links(name, &page);
    }
}

/// Every anchor leads somewhere.
#[track_caller]
fn check_links(name: &str, page: &str) {
    for link in page.split("href=\"#").skip(1) {
        let target = link.split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{target}\"")), "{name}: #{target}");
    }
}

/// As of a run whose first trial was disturbed: nothing was measured, and nothing may be said of numbers that are not there.
#[test]
fn where_nothing_was_measured_no_link_leads_to_it_and_no_sentence_is_about_it() {
    let mut report = fixture::wrong_answer();
    report.judgement.results.clear();
    report.judgement.resources.clear();
    report.judgement.comparisons.clear();
    report.judgement.intervals.clear();
    report.judgement.points.clear();
    let page = html(&report).unwrap();
    check_links("nothing measured", &page);
    assert!(!page.contains("these numbers are for diagnosis"), "there are none");
    assert!(!page.contains("#resources"));
}

/// While a run goes on its trials are counted from 1, and those that are repeated keep their number.
#[test]
fn trials_have_the_numbers_that_were_shown_while_the_run_went_on() {
    let mut report = fixture::two_arms();
    let first = report.record.trials[0].index;
    for trial in report.record.trials.iter_mut().filter(|trial| trial.index == first) {
        trial.state = TrialState::Invalid;
    }
    let lost = ledger::lost_trials(&report);
    let lost: Vec<&str> = lost.iter().map(|(which, _)| which.as_str()).collect();
    // The fixture has lost one of its own, the fifth by index.
    assert!(
        matches!(lost.as_slice(), [one, other, "trial 4, valkey"] if [one, other].iter().all(|lost| lost.starts_with("trial 1, "))),
        "{lost:?}"
    );
    let numbers: Vec<_> = ledger::trials(&report).rows.iter().take(4).map(|row| row[0].text.clone()).collect();
    assert_eq!(numbers, ["1", "1", "1", "1"], "the second is the first, again");
}

#[test]
fn several_reports_are_one_page_on_which_every_link_leads_to_its_own_run() {
    let reports: Vec<_> = fixture::all().into_iter().map(|(_, report)| report).collect();
    let page = html_of_several(&reports).unwrap();
    check_balance("several", &page);
    assert_eq!(page.matches("<!DOCTYPE html>").count(), 1);
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for link in page.split("href=\"#").skip(1) {
        let target = link.split('"').next().unwrap();
        assert!(ids.binary_search(&target).is_ok(), "#{target}");
    }
    for (number, article) in page.split("<article ").skip(1).enumerate() {
        let links = article.split("href=\"#").skip(1).filter(|link| !link.starts_with("mark-"));
        links.for_each(|link| assert!(link.starts_with(&format!("run-{number}-")), "{number}: {link:.40}"));
        assert!(article.contains("aria-labelledby=\"run-"));
    }
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    for (name, report) in fixture::all() {
        let page = html(&report).unwrap();
        for forbidden in [
            "<script",
            "<link",
            "<img",
            "<iframe",
            "src=",
            "url(",
            "@import",
            "http://www",
            "https:",
            "onload",
            "onclick",
        ] {
            assert!(!page.contains(forbidden), "{name}: {forbidden}");
        }
    }
}

#[test]
fn ids_are_unique() {
    for (name, report) in fixture::all() {
        let page = html(&report).unwrap();
        let mut ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "{name}");
    }
}

#[test]
fn the_largest_run_stays_small() {
    let bytes = html(&fixture::four_arms_eight_workloads_thirty_trials()).unwrap().len();
    assert!(bytes < 500_000, "{bytes} bytes");
}

#[test]
fn hostile_text_is_shown_not_obeyed() {
    let page = html(&fixture::hostile()).unwrap();
    check_balance("hostile", &page);
    for forbidden in ["<script", "<img", "'><", "\u{1b}", "\u{202E}", "</style>&"] {
        assert!(!page.contains(forbidden), "{forbidden:?}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn an_invalid_run_ranks_nobody() {
    let page = html(&fixture::wrong_answer()).unwrap();
    for claim in ["faster", "slower", "better →", "lower", "higher"] {
        // The stylesheet and the guide may use the words.
        let (_, body) = page.split_once("<body>").unwrap();
        let (body, _) = body.split_once("<section id=\"guide\"").unwrap();
        assert!(!body.contains(claim), "{claim}");
    }
    assert!(page.contains("not ranked") && page.contains("for diagnosis, not for quoting"));
}

#[test]
fn arms_of_unequal_durability_are_not_ranked() {
    let page = html(&fixture::unequal_durability()).unwrap();
    for claim in ["faster", "slower", ", better"] {
        assert!(!page.contains(claim), "{claim}");
    }
    assert!(page.contains("not ranked") && page.contains("unequal durability"));
}

#[test]
fn a_damaged_histogram_is_named() {
    let mut report = fixture::two_arms();
    report.record.trials[0].workloads[0].histograms[0].data = "AAAA".into();
    let error = html(&report).unwrap_err().to_string();
    assert!(error.contains("trial 1 ") && error.contains("set"), "{error}");
}

#[test]
fn a_run_that_ended_before_it_began_has_a_report() {
    let mut report = fixture::four_arms_eight_workloads();
    report.record.trials.clear();
    report.record.aborted = Some("interrupted".into());
    let judgement = &mut report.judgement;
    judgement.verdict = Verdict::Inconclusive;
    judgement.message.clear();
    judgement.results.clear();
    judgement.points.clear();
    judgement.intervals.clear();
    judgement.comparisons.clear();
    judgement.resources.clear();
    judgement.gates.clear();
    judgement.caveats.clear();
    let page = html(&report).unwrap();
    check_balance("nothing", &page);
    assert!(page.contains("no trial that counts has measured this workload"));
    for text in [page, super::super::markdown(&report), super::super::text(&report, 80, false)] {
        assert!(text.contains("interrupted"));
    }
}

#[test]
fn numbers_at_their_limits_are_drawn() {
    for (milli, basis_points) in [(0, 0), (1, 1), (u64::MAX, u64::MAX)] {
        let mut report = fixture::two_arms();
        report.judgement.results.iter_mut().for_each(|result| result.throughput_milli = milli);
        report.judgement.points.iter_mut().for_each(|point| point.throughput_milli = milli);
        report.judgement.points.iter_mut().for_each(|point| point.started_millis = milli);
        report.judgement.intervals.iter_mut().for_each(|interval| interval.high_milli = milli);
        report.judgement.comparisons.iter_mut().for_each(|compared| compared.high_basis_points = basis_points);
        let page = html(&report).unwrap();
        check_balance("limits", &page);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{milli}");
        let _ = (super::super::markdown(&report), super::super::text(&report, 80, true));
    }
}

/// For eyes: `STOREBENCH_REPORT_DIRECTORY=/tmp/report cargo test -p storebench-core --lib fixtures_for_eyes`.
#[test]
fn fixtures_for_eyes() {
    let Some(directory) = std::env::var_os("STOREBENCH_REPORT_DIRECTORY") else {
        return;
    };
    let directory = std::path::Path::new(&directory);
    std::fs::create_dir_all(directory).unwrap();
    let hostile = ("hostile", fixture::hostile());
    for (name, report) in fixture::all().into_iter().chain([hostile]) {
        std::fs::write(directory.join(format!("{name}.html")), html(&report).unwrap()).unwrap();
        std::fs::write(directory.join(format!("{name}.md")), super::super::markdown(&report)).unwrap();
        for width in [80, 120] {
            let text = super::super::text(&report, width, true);
            std::fs::write(directory.join(format!("{name}-{width}.ansi")), text).unwrap();
        }
    }
}

#[test]
fn a_page_of_two_levels_is_well_formed_and_says_it_all() {
    let (store, kubernetes) = fixture::two_levels();
    let page = levels_html(&TwoLevels::of(&store, &kubernetes).unwrap());
    check_balance("two levels", &page);
    for expected in
        ["reaches the user", "store writes", "fsyncs/op", "API server CPU, average", "What reaches the user"]
    {
        assert!(page.contains(expected), "{expected}");
    }
    for link in page.split("href=\"#").skip(1).filter(|link| link.starts_with("level")) {
        let target = link.split('"').next().unwrap();
        assert!(page.contains(&format!("id=\"{target}\"")), "#{target}");
    }
}
