//! Progress on standard error: a bar on a terminal, a plain line for each finished trial and each rate that was tried elsewhere, nothing if asked.
//! A terminal that cannot go back in a line (`TERM=dumb`) is elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use service_kit::console;
use storebench_core::record::{FailureCause, TrialRecord};
use storebench_core::validate::ValidatedRun;
use storebench_crds::job::{LoadStep, Phase};

/// What stands on the line of a terminal of so many columns; 0: not known, so that the bar's library takes it for one of 80.
fn template(columns: usize) -> &'static str {
    match columns {
        0..BAR_COLUMNS_MIN => "{pos}/{len} {wide_msg}",
        _ => "{prefix} {bar:24} {pos}/{len} {elapsed} {wide_msg}",
    }
}

/// Columns that a message has on the line of a terminal of so many, beside the name of the run and how many steps of how many are done.
fn room(columns: usize, name: &str, steps: u64) -> usize {
    // Positions have as many digits as the number of trials, and its own may grow by one; the time that went by has up to eight.
    let position = 2 * steps.to_string().len() + 3;
    let taken = if columns < BAR_COLUMNS_MIN { position } else { position + name.len() + "  ".len() + 24 + 9 };
    (if columns == 0 { 80 } else { columns }).saturating_sub(taken)
}

/// Columns of the terminal; 0: not known.
fn terminal_columns() -> usize {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col))
}

/// A latency as the line has it: as short as its digits say something.
fn latency(nanos: u64) -> String {
    match nanos {
        0..10_000_000 => format!("{} µs", nanos.div_ceil(1_000)),
        _ => format!("{} ms", nanos.div_ceil(1_000_000)),
    }
}

/// What became of a rate that was tried, or measured, in search of the highest: in parts, the first of which is always told. Why a rate missed names
/// the percentile that was asked for; of one that held the 99th is told.
fn tried(workload: &str, step: &LoadStep) -> [String; 2] {
    let measured = if step.is_measured { ", measured," } else { "" };
    let rate = format!("{workload}: {}/s{measured}", step.rate_per_second);
    match &step.missed {
        None => [format!("{rate} holds"), format!(", p99 {}", latency(step.intended.p99_nanos))],
        Some(why) => [format!("{rate} misses"), format!(": {why}")],
    }
}

/// As many of these parts as have room on so many columns, from the first on, which is always told. Half a number is another number.
fn that_fit(parts: &[&str], columns: usize) -> String {
    let mut told = String::new();
    for part in parts {
        if !told.is_empty() && told.chars().count() + part.chars().count() > columns {
            break;
        }
        told.push_str(part);
    }
    told
}

/// That a trial is a repetition, and why, behind what it is of.
fn in_brackets(repeated: Option<&str>) -> String {
    repeated.map_or_else(String::new, |why| format!(" (repeated: {why})"))
}

/// The line of a trial that has ended.
fn outcome(number: u32, trials_max: u32, trial: &TrialRecord, repeated: &str) -> String {
    let figures = trial.workloads.iter().map(|measurement| {
        let summary = &measurement.summary;
        let per_second = u128::from(summary.operations) * 1_000_000_000 / u128::from(summary.elapsed_nanos.max(1));
        format!("{} {per_second}/s p99 {} µs", summary.name, summary.service.p99_nanos / 1_000)
    });
    let figures = || figures.collect::<Vec<_>>().join(", ");
    let outcome = trial.failure.as_ref().map_or_else(figures, |failure| failure.detail.clone());
    format!("trial {number} of at most {trials_max}, {}{repeated}: {outcome}", trial.arm)
}

/// Progress of one run.
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
    name: String,
    trials_max: u32,
    arms: u64,
    /// Columns of the terminal now: whoever changes its size goes on reading.
    columns: fn() -> usize,
    /// The arm that is measured: what a reader must not lose however little fits on the line.
    arm: Mutex<String>,
}

/// On lines that are narrower than this there is no room for a bar.
const BAR_COLUMNS_MIN: usize = 90;

impl Progress {
    pub(crate) fn new(run: &ValidatedRun, quiet: bool) -> Self {
        let steps = u64::from(run.spec.trials.max) * run.arms.len() as u64;
        // Hidden by itself where a line cannot be drawn anew.
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let plain = !quiet && target.is_hidden();
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        bar.set_prefix(run.name.clone());
        let progress = Self {
            bar,
            plain,
            name: run.name.clone(),
            trials_max: run.spec.trials.max,
            arms: run.arms.len() as u64,
            columns: terminal_columns,
            arm: Mutex::default(),
        };
        progress.fit();
        progress.bar.enable_steady_tick(Duration::from_millis(250));
        progress
    }

    /// Fits the line to the terminal as wide as it is now. Returns how many columns a message has.
    fn fit(&self) -> usize {
        let columns = (self.columns)();
        // The template is a constant; were it wrong, the default style would do.
        if let Ok(style) = ProgressStyle::with_template(template(columns)) {
            self.bar.set_style(style);
        }
        room(columns, &self.name, self.bar.length().unwrap_or_default())
    }

    /// What goes on, behind the arm's name.
    fn show(&self, what: &str) {
        self.show_parts(&[what]);
    }

    /// The same, as far as there is room.
    fn show_parts(&self, parts: &[&str]) {
        let room = self.fit();
        let arm = self.arm.lock().unwrap_or_else(PoisonError::into_inner);
        let what = that_fit(parts, room.saturating_sub(arm.chars().count() + ": ".len()));
        self.bar.set_message(format!("{arm}: {what}"));
    }

    /// So many trials of an arm have been measured before.
    pub(crate) fn goes_on_after(&self, trials: usize) {
        self.bar.set_position(trials as u64);
    }

    /// `repeated` says why the trial is one that was measured before, if it is.
    pub(crate) fn trial_begins(&self, number: u32, arm: &str, repeated: Option<&str>) {
        arm.clone_into(&mut self.arm.lock().unwrap_or_else(PoisonError::into_inner));
        self.show_parts(&[&format!("starting, trial {number}"), &in_brackets(repeated)]);
    }

    /// What the run waits for, while it does: stays in sight on a terminal.
    pub(crate) fn waits(&self, what: &str) {
        self.bar.set_message(format!("waiting {what}"));
    }

    /// Who measures on this machine before this run may.
    pub(crate) fn waits_for_turn(&self, holder: &str) {
        self.bar.set_message(format!("waiting for {holder} to be done"));
        self.tell(&format!(
            "waiting for {holder} to be done: two would disturb each other; to fail instead: --no-wait"
        ));
    }

    /// A line that stays: above the bar on a terminal.
    pub(crate) fn tell(&self, line: &str) {
        let line = format!("{}: {line}", self.name);
        if self.plain { console::tell(line) } else { self.bar.println(line) }
    }

    pub(crate) fn phase_begins(&self, workload: &str, phase: Phase) {
        let phase = match phase {
            Phase::Prepare => "preparing",
            Phase::WarmUp => "warming up",
            Phase::Measure => "measuring",
            Phase::Verify => "verifying",
            Phase::Done => "done",
        };
        self.show(&format!("{workload}: {phase}"));
    }

    /// What the last second was like: requests, and a bound of the 99th percentile of their latencies; and how many there have been in all.
    pub(crate) fn workload_goes_on(
        &self,
        workload: &str,
        per_second: u64,
        p99_nanos_max: Option<u64>,
        operations: u64,
    ) {
        let p99 = p99_nanos_max.map_or(String::new(), |nanos| format!(", p99 ≤ {}", latency(nanos)));
        let (rate, requests) = (format!("{workload}: {per_second}/s"), format!(", {operations} requests"));
        self.show_parts(&[&rate, &p99, &requests]);
    }

    /// A rate was tried, or measured, in search of the highest.
    pub(crate) fn rate_tried(&self, workload: &str, step: &LoadStep) {
        let [came, why] = tried(workload, step);
        if self.plain {
            let arm = self.arm.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.tell(&format!("{arm}: {came}{why}"));
        }
        self.show_parts(&[&came, &why]);
    }

    /// `number` counts trials from 1, without those that are repeated; `repeated` says why this one is such a repetition, if it is.
    pub(crate) fn trial_ends(&self, number: u32, trial: &TrialRecord, repeated: Option<&str>) {
        self.bar.inc(1);
        let repeated = in_brackets(repeated);
        let disturbance = trial.failure.as_ref().filter(|failure| failure.cause == FailureCause::Disturbed);
        if let Some(failure) = disturbance {
            // All arms of this trial are measured once more.
            self.bar.inc_length(self.arms);
            self.tell(&format!("trial {number}, {}{repeated}: does not count: {}", trial.arm, failure.detail));
        } else if self.plain {
            self.tell(&outcome(number, self.trials_max, trial, &repeated));
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
impl Progress {
    /// Of a run of two arms, for tests: nobody sees it.
    pub(super) fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            plain: false,
            name: "a-comparison-of-some-length".into(),
            trials_max: 30,
            arms: 2,
            columns: || BAR_COLUMNS_MIN - 1,
            arm: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_named_first_and_on_sixty_columns_nothing_takes_its_place() {
        let progress = Progress::hidden();
        let arm = "an-arm-of-thirty-two-characters-x";
        progress.trial_begins(3, arm, None);
        assert_eq!(progress.bar.message(), format!("{arm}: starting, trial 3"));
        progress.phase_begins("mixed", Phase::Measure);
        assert_eq!(progress.bar.message(), format!("{arm}: mixed: measuring"));
        progress.workload_goes_on("mixed", 500, Some(1 << 19), 1_500);
        assert_eq!(progress.bar.message(), format!("{arm}: mixed: 500/s, p99 ≤ 525 µs, 1500 requests"));
        progress.workload_goes_on("mixed", 500, Some(1 << 25), 2_000);
        assert_eq!(progress.bar.message(), format!("{arm}: mixed: 500/s, p99 ≤ 34 ms, 2000 requests"));
        progress.workload_goes_on("mixed", 0, None, 2_000);
        assert_eq!(progress.bar.message(), format!("{arm}: mixed: 0/s, 2000 requests"));
        assert_eq!(template(60), "{pos}/{len} {wide_msg}");
        assert!(template(120).contains("{bar:24}"));
        assert_eq!(template(0), template(60), "a terminal that does not say is taken for one of 80");
    }

    #[test]
    fn a_line_is_as_long_as_its_terminal_is_wide_now() {
        assert_eq!(room(60, "run", 60), 60 - 7);
        assert_eq!(room(0, "run", 60), 80 - 7, "one that does not say is taken for one of 80");
        assert_eq!(room(200, "run", 60), 200 - 7 - 3 - 2 - 24 - 9);
        assert_eq!(room(5, "run", 60), 0);
    }

    #[test]
    fn a_rate_that_was_tried_is_told_with_what_came_of_it() {
        let intended = storebench_crds::status::LatencySummary { p99_nanos: 812_000, ..Default::default() };
        let held = LoadStep {
            rate_per_second: 2_000,
            is_measured: false,
            missed: None,
            is_loader: false,
            failed: 0,
            intended,
        };
        assert_eq!(tried("set", &held).concat(), "set: 2000/s holds, p99 812 µs");
        let missed = LoadStep { missed: Some("p99 was 7.1ms, above 5ms".into()), is_measured: true, ..held };
        assert_eq!(tried("set", &missed).concat(), "set: 2000/s, measured, misses: p99 was 7.1ms, above 5ms");
        let progress = Progress::hidden();
        progress.trial_begins(1, "redis", None);
        progress.rate_tried("set", &missed);
        assert_eq!(progress.bar.message(), "redis: set: 2000/s, measured, misses: p99 was 7.1ms, above 5ms");
    }

    #[test]
    fn a_trial_that_is_repeated_says_so_and_why() {
        let trial: TrialRecord = serde_json::from_value(serde_json::json!({
            "index": 3, "arm": "valkey", "state": "Valid", "startedMillis": 0, "durationMillis": 1, "workloads": [],
        }))
        .unwrap();
        let repeated = in_brackets(Some("redis was disturbed"));
        assert_eq!(
            outcome(3, 20, &trial, &repeated),
            "trial 3 of at most 20, valkey (repeated: redis was disturbed): "
        );
        assert_eq!(outcome(3, 20, &trial, &in_brackets(None)), "trial 3 of at most 20, valkey: ");
        let progress = Progress::hidden();
        progress.trial_begins(3, "valkey", Some("redis was disturbed"));
        assert_eq!(progress.bar.message(), "valkey: starting, trial 3 (repeated: redis was disturbed)");
    }

    #[test]
    fn a_number_that_would_be_cut_is_left_out_whole() {
        let figures = ["set: 25830/s", ", p99 ≤ 8389 µs", ", 1234567 requests"];
        assert_eq!(that_fit(&figures, 80), "set: 25830/s, p99 ≤ 8389 µs, 1234567 requests");
        assert_eq!(that_fit(&figures, 44), "set: 25830/s, p99 ≤ 8389 µs");
        assert_eq!(that_fit(&figures, 20), "set: 25830/s");
        assert_eq!(that_fit(&figures, 3), "set: 25830/s", "the first is cut rather than nothing told");
    }
}
