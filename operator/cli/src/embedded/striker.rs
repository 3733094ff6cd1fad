//! Does to members of the store what the load process asks for, and undoes it when its time is over.

use std::io::Write as _;
use std::process::ChildStdin;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::Signal;
use storebench_crds::job::DriverLine;
use storebench_crds::workload::FaultKind;

use super::deployed::Deployed;
use super::slow_disk::SlowDisk;

/// The driver's side of faults.
pub(super) struct Striker {
    /// Where the load process hears what was done; absent where it may ask for nothing.
    answers: Option<ChildStdin>,
    struck: Option<Struck>,
}

/// What was done.
struct Struck {
    member: usize,
    how: How,
    /// When it is undone.
    due: Instant,
}

enum How {
    Killed,
    Stopped,
    CutOff,
    Slowed(SlowDisk),
}

impl Striker {
    pub(super) fn new(answers: Option<ChildStdin>) -> Self {
        Self { answers, struck: None }
    }

    /// Strikes the member at `endpoint`; `sync_delay` is that of a slow disk.
    pub(super) fn strike(
        &mut self,
        deployed: &mut Deployed,
        endpoint: &str,
        kind: FaultKind,
        duration: Duration,
        sync_delay: Duration,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(self.struck.is_none(), "the load process asks for a fault while there is one");
        let due = Instant::now() + duration;
        let store = deployed.store()?;
        let member = store.member_at(endpoint)?;
        let how = match kind {
            FaultKind::Kill => store.kill(member).map(|()| How::Killed)?,
            FaultKind::Stop => store.signal(member, Signal::STOP).map(|()| How::Stopped)?,
            FaultKind::Partition => store.cut(member).map(|()| How::CutOff)?,
            FaultKind::SlowDisk => How::Slowed(store.slow_disk(member, sync_delay)?),
        };
        self.struck = Some(Struck { member, how, due });
        self.say(&DriverLine::Struck)
    }

    /// Lets the member go that was struck, if it is time; whether its process is another one now.
    pub(super) fn releases(&mut self, deployed: &mut Deployed) -> anyhow::Result<bool> {
        let Some(Struck { member, how, .. }) = self.struck.take_if(|struck| struck.due <= Instant::now()) else {
            return Ok(false);
        };
        let store = deployed.store()?;
        let is_new = matches!(how, How::Killed);
        match how {
            How::Killed => store.restart(member)?,
            How::Stopped => store.signal(member, Signal::CONT)?,
            How::CutOff => store.heal(),
            How::Slowed(disk) => {
                let delayed = disk.end()?;
                anyhow::ensure!(
                    delayed > 0,
                    "SlowDisk: no sync of the store was delayed, so it had no slow disk: it wrote nothing meanwhile, or syncs in a way that \
                     strace does not see"
                );
            }
        }
        self.say(&DriverLine::Released)?;
        Ok(is_new)
    }

    /// How long may be waited for something else.
    pub(super) fn patience(&self, most: Duration) -> Duration {
        self.struck.as_ref().map_or(most, |struck| most.min(struck.due.saturating_duration_since(Instant::now())))
    }

    fn say(&mut self, line: &DriverLine) -> anyhow::Result<()> {
        let answers =
            self.answers.as_mut().context("the load process asks for a fault, which its job does not allow")?;
        // One that has ended needs no answer; why it ended is said elsewhere.
        let _ = writeln!(answers, "{}", line.encode());
        Ok(())
    }
}
