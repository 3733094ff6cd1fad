//! The driver at the other end of standard output and standard input: what a load process may ask of it while it runs. It kills a member of
//! the store, and starts it again. That it does not is no fault of the store: [`Control::broken`] then says so.

use std::io::{self, BufRead};
use std::sync::OnceLock;
use std::time::Duration;

use storebench_crds::job::{DriverLine, JobLine};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::report::Report;

/// How long the driver may take for what it does at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers that wait to be heard: a kill has two.
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

    /// Has the member at `endpoint` killed, and started again after `restart_after`; returns when it is dead.
    pub async fn kill(&self, workload: &str, endpoint: &str, restart_after: Duration) -> Result<(), Failure> {
        let line = JobLine::Kill {
            workload: workload.to_owned(),
            endpoint: endpoint.to_owned(),
            restart_after_millis: restart_after.as_millis() as u64,
        };
        self.report.line(&line).map_err(|error| self.fault(format!("cannot be asked to kill a member: {error}")))?;
        self.hear(&DriverLine::Killed, PATIENCE).await
    }

    /// Returns when the member that was killed has been started again.
    pub async fn restarted(&self, restart_after: Duration) -> Result<(), Failure> {
        self.hear(&DriverLine::Restarted, restart_after + PATIENCE).await
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
        let both = format!("{}\n{}\n", DriverLine::Killed.encode(), DriverLine::Restarted.encode());
        let good = control(&both);
        good.kill("w", "127.0.0.1:1", Duration::ZERO).await.unwrap();
        good.restarted(Duration::ZERO).await.unwrap();
        assert_eq!(good.broken(), None);
        for (said, expected) in [
            ("", "is gone before it said Killed"),
            ("killed\n", "unreadable driver line"),
            (&format!("{}\n", DriverLine::Restarted.encode()), "said Restarted instead of Killed"),
        ] {
            let bad = control(said);
            let failure = bad.kill("w", "127.0.0.1:1", Duration::ZERO).await.unwrap_err();
            assert!(failure.text().contains(expected), "{failure}");
            assert!(bad.broken().unwrap().contains(expected), "{:?}", bad.broken());
        }
    }
}
