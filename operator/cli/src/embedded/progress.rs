//! Progress on standard error: a bar on a terminal, a plain line for each finished trial elsewhere, nothing if asked.

use std::io::IsTerminal as _;
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

/// Progress of one run.
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
    name: String,
    trials_max: u32,
    arms: u64,
    /// Columns that a message has.
    room: usize,
    /// The arm that is measured: what a reader must not lose however little fits on the line.
    arm: Mutex<String>,
}

/// On lines that are narrower than this there is no room for a bar.
const BAR_COLUMNS_MIN: usize = 90;

impl Progress {
    pub(crate) fn new(run: &ValidatedRun, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let steps = u64::from(run.spec.trials.max) * run.arms.len() as u64;
        let target = if terminal && !quiet { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        // The template is a constant; were it wrong, the default style would do.
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        if let Ok(style) = ProgressStyle::with_template(template(columns)) {
            bar.set_style(style);
        }
        // Positions have as many digits as the number of trials, and its own may grow by one; the time that went by has up to eight.
        let position = 2 * steps.to_string().len() + 3;
        let taken = if columns < BAR_COLUMNS_MIN { position } else { position + run.name.len() + "  ".len() + 24 + 9 };
        let room = if columns == 0 { 80 } else { columns }.saturating_sub(taken);
        bar.set_prefix(run.name.clone());
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar,
            plain: !terminal && !quiet,
            name: run.name.clone(),
            trials_max: run.spec.trials.max,
            arms: run.arms.len() as u64,
            room,
            arm: Mutex::default(),
        }
    }

    /// What goes on, behind the arm's name.
    fn show(&self, what: &str) {
        let arm = self.arm.lock().unwrap_or_else(PoisonError::into_inner);
        self.bar.set_message(format!("{arm}: {what}"));
    }

    /// So many trials of an arm have been measured before.
    pub(crate) fn goes_on_after(&self, trials: usize) {
        self.bar.set_position(trials as u64);
    }

    pub(crate) fn trial_begins(&self, number: u32, arm: &str) {
        arm.clone_into(&mut self.arm.lock().unwrap_or_else(PoisonError::into_inner));
        self.show(&format!("starting, trial {number}"));
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
        let p99 = p99_nanos_max.map_or(String::new(), |nanos| match nanos {
            0..10_000_000 => format!(", p99 ≤ {} µs", nanos.div_ceil(1_000)),
            _ => format!(", p99 ≤ {} ms", nanos.div_ceil(1_000_000)),
        });
        let (rate, requests) = (format!("{workload}: {per_second}/s"), format!(", {operations} requests"));
        let arm = self.arm.lock().unwrap_or_else(PoisonError::into_inner).chars().count() + ": ".len();
        let parts = [rate.as_str(), &p99, &requests];
        self.show(&that_fit(&parts, self.room.saturating_sub(arm)));
    }

    /// A rate was tried, or measured, in search of the highest.
    pub(crate) fn rate_tried(&self, workload: &str, step: &LoadStep) {
        let came = if step.missed.is_none() { "holds" } else { "misses" };
        self.show(&format!("{workload}: {}/s {came}", step.rate_per_second));
    }

    /// `number` counts trials from 1, without those that are repeated.
    pub(crate) fn trial_ends(&self, number: u32, trial: &TrialRecord) {
        self.bar.inc(1);
        let disturbance = trial.failure.as_ref().filter(|failure| failure.cause == FailureCause::Disturbed);
        if let Some(failure) = disturbance {
            // All arms of this trial are measured once more.
            self.bar.inc_length(self.arms);
            self.tell(&format!("trial {number}, {}: does not count: {}", trial.arm, failure.detail));
        } else if self.plain {
            let figures: Vec<String> = trial
                .workloads
                .iter()
                .map(|measurement| {
                    let summary = &measurement.summary;
                    let per_second =
                        u128::from(summary.operations) * 1_000_000_000 / u128::from(summary.elapsed_nanos.max(1));
                    format!("{} {per_second}/s p99 {} µs", summary.name, summary.service.p99_nanos / 1_000)
                })
                .collect();
            let outcome = trial.failure.as_ref().map_or_else(|| figures.join(", "), |failure| failure.detail.clone());
            self.tell(&format!("trial {number} of at most {}, {}: {outcome}", self.trials_max, trial.arm));
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
            room: 90,
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
        progress.trial_begins(3, arm);
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
    fn a_number_that_would_be_cut_is_left_out_whole() {
        let figures = ["set: 25830/s", ", p99 ≤ 8389 µs", ", 1234567 requests"];
        assert_eq!(that_fit(&figures, 80), "set: 25830/s, p99 ≤ 8389 µs, 1234567 requests");
        assert_eq!(that_fit(&figures, 44), "set: 25830/s, p99 ≤ 8389 µs");
        assert_eq!(that_fit(&figures, 20), "set: 25830/s");
        assert_eq!(that_fit(&figures, 3), "set: 25830/s", "the first is cut rather than nothing told");
    }
}
