//! Who does a fault to a member of the store when the load asks for it, and undoes it: the driver at the other end of standard output and standard
//! input, or the meter beside the member ([`storebench_crds::meter`]). That it is not done is no fault of the store:
//! [`Control::broken`] then says so.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use storebench_crds::job::{DriverLine, JobLine, JobSpec};
use storebench_crds::meter::{RESTART_PATIENCE, STRIKE, STRUCK, Struck, check_token};
use storebench_crds::workload::FaultKind;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::net::http_client;
use crate::report::Report;

/// How long may be taken for what is done at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers of a driver that wait to be heard: a fault has two.
const ANSWERS_MAX: usize = 4;

/// The way to who strikes.
#[derive(Debug)]
pub struct Control {
    /// What is asked for is said to the driver in any case, so that it is in a load's log.
    report: Report,
    striker: Striker,
    broken: OnceLock<String>,
}

#[derive(Debug)]
enum Striker {
    /// Who started this load.
    Driver(Mutex<Receiver<Result<DriverLine, String>>>),
    /// The meters beside the members.
    Meters(Meters),
}

#[derive(Debug)]
struct Meters {
    /// Where each member's is, by the member's endpoint.
    addresses: BTreeMap<String, String>,
    token: Arc<str>,
    /// The one that was asked last.
    asked: Mutex<Option<String>>,
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
        Ok(Self::of(Striker::Driver(Mutex::new(answers))))
    }

    /// Asks the meters of a job, of which there is one for each endpoint. Errors: there is not, or the token is none.
    pub fn of_meters(job: &JobSpec, token: &str) -> io::Result<Self> {
        check_token(token).map_err(|remedy| io::Error::other(format!("--strike-token: {remedy}")))?;
        if job.meters.len() != job.endpoints.len() {
            return Err(io::Error::other("meters: give one for each of endpoints, in their order, where metersStrike"));
        }
        let addresses = job.endpoints.iter().cloned().zip(job.meters.iter().cloned()).collect();
        Ok(Self::of(Striker::Meters(Meters { addresses, token: token.into(), asked: Mutex::default() })))
    }

    fn of(striker: Striker) -> Self {
        Self { report: Report::new(false), striker, broken: OnceLock::new() }
    }

    /// Whether a member that is killed is started again by others, when they like, and not when the time of the fault is over.
    pub fn leaves_restarts_to_others(&self) -> bool {
        matches!(self.striker, Striker::Meters(_))
    }

    /// Has this done to the member at `endpoint`, for so long; returns when it is.
    pub async fn strike(
        &self,
        workload: &str,
        endpoint: &str,
        kind: FaultKind,
        duration: Duration,
    ) -> Result<(), Failure> {
        // Rounded up: what is shorter than a millisecond is not nothing.
        let millis = duration.as_micros().div_ceil(1_000) as u64;
        let line = JobLine::Strike {
            workload: workload.to_owned(),
            endpoint: endpoint.to_owned(),
            kind,
            duration_millis: millis,
        };
        let said = self.report.line(&line);
        said.map_err(|error| self.of_driver(&format!("cannot be asked to strike a member: {error}")))?;
        match &self.striker {
            Striker::Driver(answers) => self.hear(answers, &DriverLine::Struck, PATIENCE).await,
            Striker::Meters(meters) => {
                let address = meters.addresses.get(endpoint);
                let address = address.ok_or_else(|| self.fault(format!("no meter stands beside {endpoint}")))?;
                let what = format!("POST {STRIKE}?kind={kind:?}&millis={millis}");
                meters.ask(address, what).await.map_err(|why| self.fault(why))?;
                *meters.asked.lock().await = Some(address.clone());
                Ok(())
            }
        }
    }

    /// Returns when the fault that was to last so long has been undone: how long it lasted, where somebody knows better than who asked.
    pub async fn released(&self, duration: Duration) -> Result<Option<Duration>, Failure> {
        match &self.striker {
            Striker::Driver(answers) => {
                self.hear(answers, &DriverLine::Released, duration + PATIENCE).await.map(|()| None)
            }
            Striker::Meters(meters) => meters
                .released(duration.max(RESTART_PATIENCE) + PATIENCE)
                .await
                .map(Some)
                .map_err(|why| self.fault(why)),
        }
    }

    async fn hear(
        &self,
        answers: &Mutex<Receiver<Result<DriverLine, String>>>,
        wanted: &DriverLine,
        patience: Duration,
    ) -> Result<(), Failure> {
        let answer = timeout(patience, async { answers.lock().await.recv().await }).await;
        match answer {
            Ok(Some(Ok(answer))) if answer == *wanted => Ok(()),
            Ok(Some(Ok(answer))) => Err(self.of_driver(&format!("said {answer:?} instead of {wanted:?}"))),
            Ok(Some(Err(error))) => Err(self.of_driver(&error)),
            Ok(None) => Err(self.of_driver(&format!("is gone before it said {wanted:?}"))),
            Err(_) => Err(self.of_driver(&format!("has not said {wanted:?} within {patience:?}"))),
        }
    }

    /// What was not done of what was asked for; `None`: nothing.
    pub fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    fn of_driver(&self, what: &str) -> Failure {
        self.fault(format!("the driver of this load {what}"))
    }

    /// The fault could not be done, or undone, as it was asked for.
    pub fn fault(&self, why: String) -> Failure {
        // The first says why there are others.
        Failure::new(self.broken.get_or_init(|| why))
    }
}

impl Meters {
    /// Asks a meter, on a thread that may wait.
    async fn ask(&self, address: &str, what: String) -> Result<Struck, String> {
        let (token, at) = (Arc::clone(&self.token), address.to_owned());
        let asked = what.split('?').next().unwrap_or_default().to_owned();
        let answer = spawn_blocking(move || http_client::ask(&at, &what, Some(&token), PATIENCE)).await;
        let answer = answer.map_err(|error| error.to_string()).and_then(|answer| answer.map_err(|e| e.to_string()));
        let struck = answer.and_then(|answer| serde_json::from_str(&answer).map_err(|error| error.to_string()));
        struck.map_err(|why| format!("the meter at {address} does not strike the store beside it: {asked}: {why}"))
    }

    /// How long the last strike lasted, when it is over.
    async fn released(&self, patience: Duration) -> Result<Duration, String> {
        let address = self.asked.lock().await.clone().ok_or("nothing was struck")?;
        let deadline = Instant::now() + patience;
        loop {
            // Held back by the meter for a while where it is not over.
            let struck = self.ask(&address, format!("GET {STRUCK}")).await?;
            match struck {
                Struck { problem: Some(problem), .. } => return Err(format!("the meter at {address}: {problem}")),
                Struck { is_over: true, lasted_nanos, .. } => return Ok(Duration::from_nanos(lasted_nanos)),
                Struck { .. } if Instant::now() > deadline => {
                    return Err(format!("the meter at {address} has not said within {patience:?} that it is over"));
                }
                Struck { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::http_server::{Answer, serve_with_posts};
    use serde_json::json;
    use std::io::Cursor;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn control(said: &str) -> Control {
        Control::listen(Cursor::new(said.to_owned().into_bytes())).unwrap()
    }

    #[tokio::test]
    async fn what_was_asked_for_is_done_or_the_driver_is_at_fault() {
        let both = format!("{}\n{}\n", DriverLine::Struck.encode(), DriverLine::Released.encode());
        let good = control(&both);
        good.strike("w", "127.0.0.1:1", FaultKind::Kill, Duration::ZERO).await.unwrap();
        assert_eq!(good.released(Duration::ZERO).await.unwrap(), None);
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

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    /// A meter that says of a strike that it is not over, as often, and then this.
    fn meter(not_over: u32, then: Struck) -> String {
        let asked = AtomicU32::new(0);
        let address = serve_with_posts("127.0.0.1:0".parse().unwrap(), "test", 1, &[STRIKE], move |request| {
            if request.token.as_deref() != Some(TOKEN) {
                return Answer::line("401 Unauthorized", "no");
            }
            match request.path.as_str() {
                STRIKE if request.query == "kind=Kill&millis=1500" => Answer::json(&Struck::default()),
                STRUCK if asked.fetch_add(1, Ordering::Relaxed) < not_over => Answer::json(&Struck::default()),
                STRUCK => Answer::json(&then),
                _ => Answer::not_found(&request.query),
            }
        });
        address.unwrap().to_string()
    }

    fn of_meters(meters: &[&str], token: &str) -> io::Result<Control> {
        let job = json!({
            "run": "r", "arm": "a", "trial": 0, "seed": 7, "endpoints": ["a:1", "b:1"], "meters": meters, "workloads": [],
        });
        Control::of_meters(&serde_json::from_value(job).unwrap(), token)
    }

    #[tokio::test]
    async fn the_meter_beside_the_member_is_asked_and_says_how_long_it_lasted() {
        let over = Struck { is_over: true, lasted_nanos: 5, problem: None };
        let control = of_meters(&["127.0.0.1:1", &meter(2, over)], TOKEN).unwrap();
        assert!(control.leaves_restarts_to_others());
        control.strike("w", "b:1", FaultKind::Kill, Duration::from_millis(1_500)).await.unwrap();
        assert_eq!(control.released(Duration::ZERO).await.unwrap(), Some(Duration::from_nanos(5)));
        assert_eq!(control.broken(), None);
    }

    #[tokio::test]
    async fn a_fault_of_half_a_millisecond_is_not_cut_to_none() {
        let control = of_meters(&["127.0.0.1:1", &meter(0, Struck::default())], TOKEN).unwrap();
        // This meter takes 1500 ms and nothing else.
        control.strike("w", "b:1", FaultKind::Kill, Duration::from_micros(1_499_500)).await.unwrap();
    }

    #[tokio::test]
    async fn a_meter_that_does_not_strike_is_at_fault_and_not_the_store() {
        let over = Struck { is_over: true, lasted_nanos: 5, problem: Some("it was not started again".into()) };
        let address = meter(0, over);
        for (endpoint, meter, token, millis, expected) in [
            ("c:1", &address, TOKEN, 1_500, "no meter stands beside c:1"),
            (
                "a:1",
                &address,
                &TOKEN.replace('f', "e"),
                1_500,
                "does not strike the store beside it: POST /strike: HTTP status 401: no",
            ),
            ("a:1", &address, TOKEN, 1_501, "HTTP status 404"),
            (
                "a:1",
                &"127.0.0.1:1".to_owned(),
                TOKEN,
                1_500,
                "does not strike the store beside it: POST /strike: Connection refused",
            ),
        ] {
            let control = of_meters(&[meter, meter], token).unwrap();
            let failure =
                control.strike("w", endpoint, FaultKind::Kill, Duration::from_millis(millis)).await.unwrap_err();
            assert!(failure.text().contains(expected), "{failure}");
            assert!(!failure.text().contains(token), "a token is in no message");
            assert!(control.broken().is_some());
        }
        let control = of_meters(&[&address, &address], TOKEN).unwrap();
        control.strike("w", "a:1", FaultKind::Kill, Duration::from_millis(1_500)).await.unwrap();
        let failure = control.released(Duration::ZERO).await.unwrap_err();
        assert!(failure.text().ends_with("it was not started again"), "{failure}");
    }

    #[test]
    fn a_job_needs_a_meter_for_each_member_and_a_token() {
        let said = |meters: &[&str], token: &str| of_meters(meters, token).unwrap_err().to_string();
        assert!(said(&["a:2"], TOKEN).starts_with("meters: give one for each of endpoints"));
        assert!(said(&["a:2", "b:2"], "").starts_with("--strike-token: "));
    }
}
