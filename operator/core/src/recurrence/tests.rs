use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn schedule(spec: Value) -> BenchmarkSchedule {
    let mut spec = spec;
    if spec.get("suiteTemplate").is_none() && spec.get("runTemplate").is_none() {
        spec["runTemplate"] = json!({ "spec": {} });
    }
    of_template(
        "BenchmarkSchedule",
        json!({
            "apiVersion": "storebench.dev/v1alpha1", "kind": "BenchmarkSchedule", "metadata": { "name": "nightly" },
            "spec": spec,
        }),
    )
    .unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn spec(schedule: &str, more: Value) -> BenchmarkScheduleSpec {
    let mut spec = json!({ "schedule": schedule });
    more.as_object().unwrap().iter().for_each(|(name, value)| spec[name] = value.clone());
    super::tests::schedule(spec).spec
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn next(spec: &BenchmarkScheduleSpec, after: &str) -> String {
    Recurrence::new(spec).unwrap().next_after(at(after)).map_or("never".into(), |time| time.to_string())
}

#[test]
fn cron_is_read_as_cron_reads_it() {
    for (text, after, expected) in [
        ("30 2 * * *", "2026-11-23T02:29:59Z", "2026-11-23T02:30:00Z"),
        ("30 2 * * *", "2026-11-23T02:30:00Z", "2026-11-24T02:30:00Z"),
        ("*/15 * * * *", "2026-11-23T02:31:00Z", "2026-11-23T02:45:00Z"),
        ("0 3 * * 1-5", "2026-11-27T04:00:00Z", "2026-11-30T03:00:00Z"),
        ("0 0 29 2 *", "2026-11-23T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 1,15 * SUN", "2026-11-16T00:00:00Z", "2026-11-22T00:00:00Z"),
    ] {
        assert_eq!(next(&spec(text, json!({})), after), expected, "{text}");
    }
}

#[test]
fn a_time_zone_is_kept_when_its_clock_is_set() {
    let vienna = |text| spec(text, json!({ "timeZone": "Europe/Vienna" }));
    assert_eq!(next(&vienna("0 2 * * *"), "2026-07-01T12:00:00Z"), "2026-07-02T00:00:00Z", "summer");
    assert_eq!(next(&vienna("0 2 * * *"), "2026-12-01T12:00:00Z"), "2026-12-02T01:00:00Z", "winter");
    // On 29 March 2026 there is no half past two; on 25 October there are two of them.
    let recurrence = Recurrence::new(&vienna("30 2 * * *")).unwrap();
    let all = |from: &str, until: &str| {
        let times = std::iter::successors(recurrence.next_after(at(from)), |time| recurrence.next_after(*time));
        times.take_while(|time| *time < at(until)).count()
    };
    assert_eq!(all("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z"), 0, "an hour that is skipped");
    assert_eq!(all("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z"), 1, "an hour that is there twice");
    assert_eq!(all("2026-03-29T12:00:00Z", "2026-04-05T12:00:00Z"), 7);
}

/// The library of cron finds both half past twos, so that a nightly run was made twice.
#[test]
fn a_named_time_is_due_once_when_the_clock_goes_back_and_not_when_it_is_skipped() {
    let berlin = |text: &str| spec(text, json!({ "timeZone": "Europe/Berlin" }));
    let nightly = berlin("30 2 * * *");
    // On 25 October it is half past two at 00:30 UTC and at 01:30 UTC; on 29 March never.
    assert_eq!(next(&nightly, "2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z");
    assert_eq!(next(&nightly, "2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z");
    assert_eq!(next(&nightly, "2026-03-28T12:00:00Z"), "2026-03-30T00:30:00Z");
    let recurrence = Recurrence::new(&nightly).unwrap();
    assert_eq!(recurrence.latest(at("2026-10-25T00:30:00Z"), at("2026-10-25T12:00:00Z")), None, "nothing was missed");
    assert_eq!(next(&berlin("*/30 2-3 * * *"), "2026-10-25T00:30:00Z"), "2026-10-25T02:00:00Z", "three o'clock");
    // Whoever names no hours means each one that passes.
    assert_eq!(next(&berlin("30 * * * *"), "2026-10-25T00:30:00Z"), "2026-10-25T01:30:00Z");
    assert_eq!(next(&berlin("30 * * * *"), "2026-03-29T00:30:00Z"), "2026-03-29T01:30:00Z");
}

#[test]
fn what_is_no_schedule_is_refused_with_the_remedy() {
    for (text, part) in [
        ("30 2 * * * *", "has 6 fields"),
        ("@daily and so", "has 3 fields"),
        ("30 2 * *", "has 4 fields"),
        ("nightly", "has 1 field,"),
        ("61 2 * * *", "is not cron's"),
        ("x 2 * * *", "is not cron's"),
    ] {
        let (field, said) = Recurrence::new(&spec(text, json!({}))).unwrap_err();
        assert_eq!(field, "spec.schedule");
        assert!(said.contains(part) && said.contains("`30 2 * * 1-5`"), "{said}");
    }
    let (field, said) = Recurrence::new(&spec("@daily", json!({}))).unwrap_err();
    assert!(field == "spec.schedule" && said == "`@daily` is not taken here: write `0 0 * * *`", "{said}");
    for (_, fields) in super::NICKNAMES {
        assert!(Recurrence::new(&spec(fields, json!({}))).is_ok(), "{fields}");
    }
    let (field, said) = Recurrence::new(&spec("30 2 * * *", json!({ "timeZone": "Vienna" }))).unwrap_err();
    assert!(field == "spec.timeZone" && said.contains("Europe/Vienna"), "{said}");
}

#[test]
fn a_day_that_never_comes_is_due_never() {
    let spec = spec("0 0 30 2 *", json!({}));
    let recurrence = Recurrence::new(&spec).unwrap();
    let past = Past { created: at("2026-01-01T00:00:00Z"), last: None, active: 0 };
    assert_eq!(due(&recurrence, &spec, past, at("2026-11-23T00:00:00Z")), Due::Nothing(None));
}

/// What is due at a time for a schedule that was created on the first of the month.
fn due_at(now: &str, last: Option<&str>, active: usize, more: Value) -> Due {
    let spec = spec("0 2 * * *", more);
    let recurrence = Recurrence::new(&spec).unwrap();
    let past = Past { created: at("2026-11-01T00:00:00Z"), last: last.map(at), active };
    due(&recurrence, &spec, past, at(now))
}

#[test]
fn a_time_is_due_once_and_within_its_deadline() {
    let time = at("2026-11-23T02:00:00Z");
    let next = Due::Nothing(Some(at("2026-11-24T02:00:00Z")));
    assert_eq!(due_at("2026-11-23T01:59:59Z", None, 0, json!({})), Due::Nothing(Some(time)));
    assert_eq!(due_at("2026-11-23T02:00:00Z", None, 0, json!({})), Due::Make(time));
    assert_eq!(due_at("2026-11-23T02:00:01Z", Some("2026-11-23T02:00:00Z"), 0, json!({})), next);
    assert_eq!(due_at("2026-11-23T03:00:00Z", None, 0, json!({})), Due::Make(time), "just in time");
    assert_eq!(due_at("2026-11-23T03:00:01Z", None, 0, json!({})), next, "too late");
    assert_eq!(due_at("2026-11-23T09:00:00Z", None, 0, json!({ "startingDeadline": "8h" })), Due::Make(time));
    assert_eq!(due_at("2026-11-23T02:00:00Z", None, 0, json!({ "suspend": true })), Due::Nothing(None), "suspended");
}

#[test]
fn of_many_missed_times_the_latest_is_made_up_for() {
    let due = due_at("2026-11-23T09:00:00Z", Some("2026-11-03T02:00:00Z"), 0, json!({ "startingDeadline": "9999h" }));
    assert_eq!(due, Due::Make(at("2026-11-23T02:00:00Z")));
}

#[test]
fn nothing_is_made_for_a_time_before_the_schedule_was() {
    let spec = spec("0 2 * * *", json!({ "startingDeadline": "999h" }));
    let recurrence = Recurrence::new(&spec).unwrap();
    let past = Past { created: at("2026-11-23T02:00:30Z"), last: None, active: 0 };
    assert_eq!(
        due(&recurrence, &spec, past, at("2026-11-23T02:01:00Z")),
        Due::Nothing(Some(at("2026-11-24T02:00:00Z")))
    );
}

#[test]
fn policies_say_what_becomes_of_one_that_is_not_over() {
    let time = at("2026-11-23T02:00:00Z");
    for (policy, expected) in [("Forbid", Due::Held), ("Replace", Due::Replace(time)), ("Allow", Due::Make(time))] {
        assert_eq!(due_at("2026-11-23T02:00:00Z", None, 1, json!({ "concurrencyPolicy": policy })), expected);
        assert_eq!(due_at("2026-11-23T02:00:00Z", None, 0, json!({ "concurrencyPolicy": policy })), Due::Make(time));
    }
}

#[test]
fn names_tell_the_time_and_fit() {
    let time = at("2026-11-23T02:00:00Z");
    assert_eq!(name_at("nightly", time), "nightly-202611230200");
    let (one, other) = (name_at(&"n".repeat(63), time), name_at(&"n".repeat(62), time));
    assert!(one.len() <= 63 && other.len() <= 63 && one != other, "{one} {other}");
}

#[test]
fn the_newest_are_kept_of_each_kind() {
    let spec = spec("0 2 * * *", json!({ "successfulHistoryLimit": 2, "failedHistoryLimit": 1 }));
    let day = |day: u32| at(&format!("2026-11-{day:02}T02:00:00Z"));
    let over =
        [("a", day(1), true), ("b", day(2), false), ("c", day(3), true), ("d", day(4), false), ("e", day(5), true)];
    assert_eq!(beyond_limits(&over, &spec), ["a", "b"]);
}

#[test]
fn mistakes_of_a_template_are_told_where_they_stand() {
    let said = |spec: Value| made(&schedule(spec), "nightly").unwrap_err()[0].to_string();
    let one = said(json!({ "schedule": "0 2 * * *", "runTemplate": { "spec": { "arms": [] } } }));
    assert!(one.starts_with("BenchmarkSchedule/nightly spec.runTemplate.spec.arms: holds 0 items"), "{one}");
    let other = said(json!({ "schedule": "0 2 * * *", "suiteTemplate": { "spec": {
        "parameters": [{ "name": "a", "values": [1] }], "template": { "spec": { "arms": [], "a": "$(a)" } },
    } } }));
    assert!(other.starts_with("BenchmarkSchedule/nightly spec.suiteTemplate.spec.template.spec."), "{other}");
}

proptest! {
    #[test]
    fn the_latest_is_what_going_through_all_times_finds(minute in 0..60_u32, hour in 0..24_u32, hours in 1..2_000_i64) {
        let spec = spec(&format!("{minute} {hour} * * 1,4"), json!({}));
        let recurrence = Recurrence::new(&spec).unwrap();
        let until = at("2026-11-23T02:17:00Z");
        let from = until - SignedDuration::from_hours(hours);
        let times = std::iter::successors(recurrence.next_after(from), |time| recurrence.next_after(*time));
        prop_assert_eq!(recurrence.latest(from, until), times.take_while(|time| *time <= until).last());
    }
}
