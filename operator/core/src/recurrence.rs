//! When a schedule is due, and what is done about it: cron and the policies of a CronJob, as pure functions of the time.
//!
//! Promises: a time is made up for once, the latest that was missed; nothing begins later than the starting deadline; the name of what is
//! made follows from the schedule's name and the time alone, so that a second attempt finds the first one's; what names its hours is due once
//! at each of them, also where the clock goes back and an hour comes twice.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp, Zoned};
use sha2::{Digest as _, Sha256};
use storebench_crds::benchmark_schedule::{BenchmarkSchedule, BenchmarkScheduleSpec, ConcurrencyPolicy};
use storebench_crds::document::of_template;
use storebench_crds::template::TemplateMetadata;
use storebench_crds::{BenchmarkRun, BenchmarkSuite};

use crate::suite::{cut, expand, object_value};
use crate::validate::Problem;

/// The schedule that an object was made by.
pub const SCHEDULE_LABEL: &str = "storebench.dev/schedule";
/// The time that it was made for, RFC 3339, UTC.
pub const SCHEDULED_ANNOTATION: &str = "storebench.dev/scheduled-at";

/// Characters of a name at most.
const NAME_CHARACTERS_MAX: usize = 63;
/// The first stretch before now in which the latest time is looked for; each further one is four times as long.
const STRETCH_FIRST: SignedDuration = SignedDuration::from_hours(1);

/// A schedule in cron's five fields and a time zone.
#[derive(Clone, Debug)]
pub struct Recurrence {
    crontab: cronexpr::Crontab,
    /// Whether it names hours, and hence times of a day; else it means every so many hours that pass.
    names_hours: bool,
}

/// Why a schedule cannot be read, with the remedy: the field, and the text.
pub type RecurrenceProblem = (&'static str, String);

/// What other programs take for five fields, and these.
const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl Recurrence {
    /// Reads a schedule; without a time zone it is in UTC.
    ///
    /// # Errors
    /// [`RecurrenceProblem`].
    pub fn new(spec: &BenchmarkScheduleSpec) -> Result<Self, RecurrenceProblem> {
        let zone = spec.time_zone.as_deref().unwrap_or("UTC");
        if k8s_openapi::jiff::tz::TimeZone::get(zone).is_err() {
            let text = format!("`{zone}` is not a time zone: write it as in Europe/Vienna, or leave it out for UTC");
            return Err(("spec.timeZone", text));
        }
        let fields = spec.schedule.split_whitespace().count();
        let remedy = "write minute, hour, day of the month, month and day of the week, as in `30 2 * * 1-5`";
        if let Some((name, fields)) = NICKNAMES.iter().find(|(name, _)| *name == spec.schedule.trim()) {
            return Err(("spec.schedule", format!("`{name}` is not taken here: write `{fields}`")));
        }
        if fields != 5 {
            let noun = if fields == 1 { "field" } else { "fields" };
            let text = format!("`{}` has {fields} {noun}, and cron has five: {remedy}", spec.schedule);
            return Err(("spec.schedule", text));
        }
        let names_hours = spec.schedule.split_whitespace().nth(1).is_some_and(|hours| !hours.starts_with('*'));
        let crontab = cronexpr::parse_crontab(&format!("{} {zone}", spec.schedule.trim()));
        let read = crontab.map(|crontab| Self { crontab, names_hours });
        read.map_err(|_| ("spec.schedule", format!("`{}` is not cron's: {remedy}", spec.schedule)))
    }

    /// The first time after this one; `None`: there is none, as on 30 February.
    pub fn next_after(&self, mut time: Timestamp) -> Option<Timestamp> {
        loop {
            let next = self.crontab.find_next(cronexpr::MakeTimestamp(time)).ok()?;
            time = next.timestamp();
            // At most the minutes of an hour, once a year.
            if !self.names_hours || !is_second(&next) {
                return Some(time);
            }
        }
    }

    /// Whether any time fits.
    pub fn is_ever(&self) -> bool {
        self.next_after(Timestamp::UNIX_EPOCH).is_some()
    }

    /// The latest time after `from` that is not after `until`.
    pub fn latest(&self, from: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let mut stretch = STRETCH_FIRST;
        loop {
            let begin = until.checked_sub(stretch).map_or(from, |begin| begin.max(from));
            let mut latest = None;
            let mut time = begin;
            while let Some(next) = self.next_after(time).filter(|next| *next <= until) {
                latest = Some(next);
                time = next;
            }
            if latest.is_some() || begin <= from {
                return latest;
            }
            stretch = stretch.saturating_mul(4);
        }
    }
}

/// Whether a clock that went back shows this time for the second time.
fn is_second(time: &Zoned) -> bool {
    // Of two such times this is the first.
    let first = time.datetime().to_zoned(time.time_zone().clone());
    first.is_ok_and(|first| first.timestamp() < time.timestamp())
}

/// What a schedule's past says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// When the schedule was created.
    pub created: Timestamp,
    /// The latest time for which something was made.
    pub last: Option<Timestamp>,
    /// How many of what was made are not over.
    pub active: usize,
}

/// What is to be done for a schedule now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing, before this time; `None`: never.
    Nothing(Option<Timestamp>),
    /// Nothing, before what is under way is over.
    Held,
    /// One for this time.
    Make(Timestamp),
    /// One for this time, in the place of those that are not over.
    Replace(Timestamp),
}

/// What is to be done now.
pub fn due(recurrence: &Recurrence, spec: &BenchmarkScheduleSpec, past: Past, now: Timestamp) -> Due {
    if spec.suspend {
        return Due::Nothing(None);
    }
    let deadline = SignedDuration::try_from(spec.starting_deadline.duration()).unwrap_or(SignedDuration::MAX);
    let in_time = now.checked_sub(deadline).unwrap_or(Timestamp::MIN);
    // A time that is exactly as old as the deadline is still in time.
    let in_time = in_time.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(in_time);
    let from = past.last.unwrap_or(past.created).max(past.created).max(in_time);
    let Some(time) = recurrence.latest(from, now) else { return Due::Nothing(recurrence.next_after(now)) };
    match spec.concurrency_policy {
        _ if past.active == 0 => Due::Make(time),
        ConcurrencyPolicy::Allow => Due::Make(time),
        ConcurrencyPolicy::Replace => Due::Replace(time),
        ConcurrencyPolicy::Forbid => Due::Held,
    }
}

/// What a schedule makes.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Made {
    /// A run.
    Run(BenchmarkRun),
    /// A suite.
    Suite(BenchmarkSuite),
}

/// What a schedule makes under this name, held to every rule that it must fulfil by itself.
///
/// # Errors
/// All that is wrong with the template, or with the schedule.
pub fn made(schedule: &BenchmarkSchedule, name: &str) -> Result<Made, Vec<Problem>> {
    let own = schedule.metadata.name.as_deref().unwrap_or_default();
    let labelled = |metadata: Option<&TemplateMetadata>| {
        let mut labels = metadata.map(|metadata| metadata.labels.clone()).unwrap_or_default();
        labels.insert(SCHEDULE_LABEL.into(), own.into());
        labels
    };
    let problem = |field: String, text| Problem { object: format!("BenchmarkSchedule/{own}"), field, text };
    let of_run = |(field, text): (String, String)| problem(format!("spec.runTemplate.{field}"), text);
    let of_suite = |(field, text): (String, String)| problem(format!("spec.suiteTemplate.{field}"), text);
    if let Some(template) = &schedule.spec.run_template {
        let value = object_value("BenchmarkRun", name, &labelled(template.metadata.as_ref()), &template.spec);
        return of_template("BenchmarkRun", value).map(Made::Run).map_err(|all| all.into_iter().map(of_run).collect());
    }
    // The schema wants one of the two.
    let Some(template) = &schedule.spec.suite_template else {
        let text = "has neither runTemplate nor suiteTemplate: give one of them".to_owned();
        return Err(vec![problem("spec".into(), text)]);
    };
    let value = object_value("BenchmarkSuite", name, &labelled(template.metadata.as_ref()), &template.spec);
    let suite: BenchmarkSuite =
        of_template("BenchmarkSuite", value).map_err(|all| all.into_iter().map(of_suite).collect::<Vec<_>>())?;
    match expand(&suite) {
        Ok(_) => Ok(Made::Suite(suite)),
        Err(problems) => Err(problems.into_iter().map(|one| of_suite((one.field, one.text))).collect()),
    }
}

/// The name of what is made for a time, such as `nightly-202611230200`.
pub fn name_at(schedule: &str, time: Timestamp) -> String {
    let time = time.strftime("%Y%m%d%H%M").to_string();
    if schedule.len() + 1 + time.len() <= NAME_CHARACTERS_MAX {
        return format!("{schedule}-{time}");
    }
    let hash: String = Sha256::digest(schedule)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{hash}-{time}", cut(schedule, NAME_CHARACTERS_MAX - hash.len() - time.len() - 2))
}

/// How long to wait for a time: not for ever, for clocks are set.
pub fn until(time: Timestamp, now: Timestamp) -> Duration {
    const LONGEST: Duration = Duration::from_secs(3600);
    time.duration_since(now).try_into().unwrap_or(Duration::ZERO).min(LONGEST)
}

/// Of what is over, which is not kept: names, from what is given as name, time made for, and whether it passed.
pub fn beyond_limits<'a>(over: &[(&'a str, Timestamp, bool)], spec: &BenchmarkScheduleSpec) -> Vec<&'a str> {
    let mut newest_first = over.to_vec();
    newest_first.sort_by(|one, other| (other.1, other.0).cmp(&(one.1, one.0)));
    let of = |passed: bool, limit: u32| {
        newest_first.iter().filter(move |one| one.2 == passed).skip(limit as usize).map(|one| one.0).collect::<Vec<_>>()
    };
    [of(true, spec.successful_history_limit), of(false, spec.failed_history_limit)].concat()
}

#[cfg(test)]
mod tests;
