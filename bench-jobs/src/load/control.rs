//! The driver at the other end of standard output and standard input: what a load process may ask of it while it runs. It does a fault to a member of
//! the store, and undoes it. That it does not is no fault of the store: [`Control::broken`] then says so.

use std::io::{self, BufRead};
use std::sync::OnceLock;
use std::time::Duration;

use storebench_crds::job::{DriverLine, JobLine};
use storebench_crds::workload::FaultKind;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::report::Report;

/// How long the driver may take for what it does at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers that wait to be heard: a fault has two.
const ANSWERS_MAX: usize = 4;

/// The way to the driver.
#[derive(Debug)]
pub struct Control {
    report: Report,
    answers: Mutex<Receiver<Result<DriverLine, String>>>,
    broken: OnceLock<String>,
}

impl Control {
    /// Listens to a driver that answers on `input`, on a thread of its own that ends with it.
    pub fn listen(input: impl BufRead + Send + 'static) -> io::Result<Self> {
        let (sender, answers) = channel(ANSWERS_MAX);
        std::thread::Builder::new().name("driver-lines".into()).spawn(move || {
            for line in input.lines() {
                let answer = line.map_err(|error| error.to_string());
                let answer = answer.and_then(|line| DriverLine::decode(&line).map_err(|error| error.to_string()));
                if sender.blocking_send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { report: Report::new(false), answers: Mutex::new(answers), broken: OnceLock::new() })
    }

    /// Has this done to the member at `endpoint`, for so long; returns when it is.
    pub async fn strike(
        &self,
        workload: &str,
        endpoint: &str,
        kind: FaultKind,
        duration: Duration,
    ) -> Result<(), Failure> {
        let line = JobLine::Strike {
            workload: workload.to_owned(),
            endpoint: endpoint.to_owned(),
            kind,
            duration_millis: duration.as_millis() as u64,
        };
        self.report.line(&line).map_err(|error| self.fault(format!("cannot be asked to strike a member: {error}")))?;
        self.hear(&DriverLine::Struck, PATIENCE).await
    }

    /// Returns when the fault that was to last so long has been undone.
    pub async fn released(&self, duration: Duration) -> Result<(), Failure> {
        self.hear(&DriverLine::Released, duration + PATIENCE).await
    }

    async fn hear(&self, wanted: &DriverLine, patience: Duration) -> Result<(), Failure> {
        let answer = timeout(patience, async { self.answers.lock().await.recv().await }).await;
        match answer {
            Ok(Some(Ok(answer))) if answer == *wanted => Ok(()),
            Ok(Some(Ok(answer))) => Err(self.fault(format!("said {answer:?} instead of {wanted:?}"))),
            Ok(Some(Err(error))) => Err(self.fault(error)),
            Ok(None) => Err(self.fault(format!("is gone before it said {wanted:?}"))),
            Err(_) => Err(self.fault(format!("has not said {wanted:?} within {patience:?}"))),
        }
    }

    /// What the driver did not do of what it was asked for; `None`: nothing.
    pub fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    fn fault(&self, what: String) -> Failure {
        // The first says why there are others.
        let said = self.broken.get_or_init(|| format!("the driver of this load {what}"));
        Failure::new(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn control(said: &str) -> Control {
        Control::listen(Cursor::new(said.to_owned().into_bytes())).unwrap()
    }

    #[tokio::test]
    async fn what_was_asked_for_is_done_or_the_driver_is_at_fault() {
        let both = format!("{}\n{}\n", DriverLine::Struck.encode(), DriverLine::Released.encode());
        let good = control(&both);
        good.strike("w", "127.0.0.1:1", FaultKind::Kill, Duration::ZERO).await.unwrap();
        good.released(Duration::ZERO).await.unwrap();
        assert_eq!(good.broken(), None);
        for (said, expected) in [
            ("", "is gone before it said Struck"),
            ("struck\n", "unreadable driver line"),
            (&format!("{}\n", DriverLine::Released.encode()), "said Released instead of Struck"),
        ] {
            let bad = control(said);
            let failure = bad.strike("w", "127.0.0.1:1", FaultKind::Stop, Duration::ZERO).await.unwrap_err();
            assert!(failure.text().contains(expected), "{failure}");
            assert!(bad.broken().unwrap().contains(expected), "{:?}", bad.broken());
        }
    }
}
