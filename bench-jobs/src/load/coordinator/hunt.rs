//! How the coordinator looks for the highest rate that keeps to a target: it makes the load that the [`Hunt`] asks for, and tells it what
//! came of that. Which rate is next, and what a miss is, the hunt knows alone.

use std::io;
use std::time::Duration;

use storebench_crds::job::{Hindrance, JobLine, JobOutcome, LoadStep, Phase};

use super::{Coordinator, Measured};
use crate::load::audit::Auditor;
use crate::load::contract::Ending;
use crate::load::highest_rate::{Became, Hunt};
use crate::load::search::Next;

impl Coordinator<'_> {
    /// Looks for the rate that is to be measured next, all in the phase WarmUp. What ends the workload, if something does.
    pub(super) fn look_for_rate(&self, hunt: &mut Hunt, auditor: &Auditor) -> io::Result<Option<Ending>> {
        let mut last = None;
        self.announce(Phase::WarmUp)?;
        loop {
            let rate = match hunt.next() {
                Next::Try(rate) => rate,
                Next::Measure(rate) | Next::Found(rate) => {
                    self.rate.set(Some(rate));
                    // What came before the workload began anew has warmed up nothing of this one.
                    let is_cold = hunt.take_cold() && !self.context.warm_up.is_zero();
                    let warm = is_cold.then(|| self.load_for(self.context.warm_up, rate, hunt, auditor)).transpose()?;
                    return Ok(warm.and_then(Result::err));
                }
                Next::NeverHeld(rate) => return Ok(Some(self.out_of_reach(hunt.never_held(rate, last.as_ref())))),
                Next::AlwaysHeld(rate) => return Ok(Some(self.out_of_reach(hunt.always_held(rate)))),
            };
            self.rate.set(Some(rate));
            hunt.take_cold();
            // What the rate before left behind is not this one's.
            if !self.context.warm_up.is_zero()
                && let Err(ending) = self.load_for(self.context.warm_up, rate, hunt, auditor)?
            {
                return Ok(Some(ending));
            }
            let workload = self.context.workload.clone();
            self.around.report.line(&JobLine::LoadStepBegins { workload, rate_per_second: rate })?;
            let measured = match self.load_for(hunt.step_duration(), rate, hunt, auditor)? {
                Ok(measured) => measured,
                Err(ending) => return Ok(Some(ending)),
            };
            let (audit, figures) = self.audit(&measured);
            if let Became::Step(step) = hunt.tried(rate, &measured.record, &audit, &figures) {
                self.report_step(&step)?;
                last = Some(step);
            }
        }
    }

    /// Loads for so long within the phase WarmUp, at a rate that is not measured yet. The inner error is what ends the workload: a wrong answer, or a
    /// request that failed, of which the hunt knows whether that is a miss.
    fn load_for(
        &self,
        length: Duration,
        rate: u64,
        hunt: &mut Hunt,
        auditor: &Auditor,
    ) -> io::Result<Result<Measured, Ending>> {
        let before = auditor.snapshot();
        let start = self.release_for(Phase::WarmUp, None, Some(length));
        let record = self.finished(Phase::WarmUp, start)?;
        if let Some(first) = record.first_wrong.clone() {
            return Ok(Err(Ending { summary: None, outcome: self.wrong_answer(record.wrong, first) }));
        }
        let failure = record.first_failure.clone();
        let measured = Measured {
            started_unix_nanos: 0,
            elapsed: Duration::from_nanos(record.last_answer_nanos),
            record,
            before,
            after: auditor.snapshot(),
            usage: None,
            control_plane: None,
            machines: Vec::new(),
        };
        let Some(failure) = failure else { return Ok(Ok(measured)) };
        let (audit, figures) = self.audit(&measured);
        if let Some(step) = hunt.failed(rate, &measured.record, &audit, &figures) {
            self.report_step(&step)?;
        }
        Ok(Err(self.store_failed(&format!("at {rate}/s: {failure}"), &failure)))
    }

    /// Whether a rate that was measured is the highest that holds; else the hunt goes on below it.
    pub(super) fn is_found(&self, hunt: &mut Hunt, rate: u64, measured: &Measured) -> io::Result<bool> {
        let (audit, figures) = self.audit(measured);
        self.report_step(&hunt.measured(rate, &measured.record, &audit, &figures))?;
        Ok(matches!(hunt.next(), Next::Found(_)))
    }

    fn report_step(&self, step: &LoadStep) -> io::Result<()> {
        let workload = self.context.workload.clone();
        self.around.report.tell(|| {
            let came = step.missed.as_deref().unwrap_or("holds");
            format!("{workload}: {}/s: {came}", step.rate_per_second)
        });
        self.around.report.line(&JobLine::LoadStep { workload, step: step.clone() })
    }

    fn out_of_reach(&self, detail: String) -> Ending {
        let (workload, hindrance) = (self.context.workload.clone(), Hindrance::RateNotReached);
        Ending { summary: None, outcome: JobOutcome::Hindered { workload, hindrance, detail } }
    }
}
