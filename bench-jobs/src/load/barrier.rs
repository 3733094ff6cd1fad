//! A common start for the load processes of one trial: all wait until everybody has come.
//!
//! The first process listens, the others connect to it. At a barrier each of them sends one line and is sent one:
//!
//! ```text
//! join 1 of 3 5f0c…         once, after connecting: who, of how many, of which trial (a hash)
//! ready                     I have come                  → begin 49870   everybody has: begin in so many microseconds
//! ended {"kind":"…"}        my job has ended early       → ended {…}     somebody's has: end as well, with that outcome
//!                                                        → lost …        somebody is gone: end as well, for no good reason
//! ```
//!
//! Promises: nobody waits for longer than [`JOIN_SECONDS_MAX`] for the others to appear, nor than [`WAIT_SECONDS_MAX`] at a
//! barrier; a process that dies closes its connection, which ends all others at the next barrier; a line is at most
//! [`LINE_BYTES_MAX`] bytes. The port is for a trusted network.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::{Duration, Instant};

use storebench_crds::job::{JobOutcome, JobSpec};

use crate::content::seeds::{mix, mix_text};
use crate::failure::{plain, short_line};
use crate::load::share::Share;
use crate::report::with_short_details;

/// How long processes wait for one another at first: their pods start one after the other, and names take their time to
/// resolve.
pub const JOIN_SECONDS_MAX: u64 = 60;
/// How long the fastest waits for the slowest at a barrier.
pub const WAIT_SECONDS_MAX: u64 = 600;
/// A longer line is refused.
pub const LINE_BYTES_MAX: usize = 4096;
/// Between everybody's arrival and the common start: everybody has read the line by then.
const HEAD_START: Duration = Duration::from_millis(50);
/// Between two attempts to connect, or to accept.
const PAUSE: Duration = Duration::from_millis(20);
/// A connection must be established, and say who it is, within this.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the last word of the first process is given to be fetched.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the load processes cannot go on together, in one line.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// The first process cannot listen.
    #[error("barrier: cannot listen on port {port}: {}", plain(.error))]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        error: io::Error,
    },
    /// The first process was not found in time.
    #[error("barrier: load process 0 cannot be reached at {address} within {JOIN_SECONDS_MAX} s: {reason}")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What the last attempt ended with.
        reason: String,
    },
    /// Others did not appear in time.
    #[error("barrier: load process {missing} did not appear within {JOIN_SECONDS_MAX} s")]
    Missing {
        /// The first of them.
        missing: u32,
    },
    /// A process is gone, or said what cannot be understood.
    #[error("barrier: {0}")]
    Lost(String),
}

impl From<BarrierError> for io::Error {
    fn from(error: BarrierError) -> Self {
        Self::other(error)
    }
}

/// What is to be done after a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Everybody has come and begins now.
    Open,
    /// The job of some process has ended early, and so has everybody's: its outcome.
    Over(JobOutcome),
}

/// This process's place among the others.
#[derive(Debug)]
pub struct Barrier(RefCell<Role>);

#[derive(Debug)]
enum Role {
    /// There is nobody to wait for, or nobody any more.
    Alone,
    /// The first process: the others' connections, by number; none yet, while it still listens.
    First { listener: TcpListener, trial: u64, processes: u32, deadline: Instant, others: Vec<Line> },
    /// Another one: its connection to the first.
    Other(Line),
}

impl Barrier {
    /// For a process without others.
    pub fn alone() -> Self {
        Self(RefCell::new(Role::Alone))
    }

    /// For one of the processes of a checked job: listens, or connects.
    pub fn open(spec: &JobSpec, share: Share) -> Result<Self, BarrierError> {
        let Some(address) = spec.barrier.as_deref().filter(|_| !share.is_whole()) else {
            return Ok(Self::alone());
        };
        let deadline = Instant::now() + Duration::from_secs(JOIN_SECONDS_MAX);
        let trial = trial_of(spec);
        let role = match share.is_first() {
            true => {
                let listener = listen(address)?;
                Role::First { listener, trial, processes: share.processes(), deadline, others: Vec::new() }
            }
            false => {
                let mut line = connect(address, deadline)?;
                let join = format!("join {} of {} {trial:016x}", share.process(), share.processes());
                // If it does not arrive, the first barrier tells.
                let _ = line.send(&join);
                Role::Other(line)
            }
        };
        Ok(Self(RefCell::new(role)))
    }

    /// Waits until every process has come here, and then for the common start.
    pub fn wait(&self) -> Result<Passage, BarrierError> {
        let mut role = self.0.borrow_mut();
        let passage = match &mut *role {
            Role::Alone => return Ok(Passage::Open),
            Role::First { listener, trial, processes, deadline, others } => {
                if others.is_empty() {
                    *others = gather(listener, *trial, *processes, *deadline)?;
                }
                gather_arrivals(others)
            }
            Role::Other(line) => arrive(line),
        };
        if !matches!(passage, Ok(Passage::Open)) {
            *role = Role::Alone;
        }
        passage
    }

    /// Tells the others that the job has ended early, if they do not know.
    pub fn leave(&self, outcome: &JobOutcome) {
        let word = ended(outcome);
        // Whoever cannot be told is gone.
        match &mut *self.0.borrow_mut() {
            Role::Alone => {}
            Role::Other(line) => drop(line.send(&word)),
            Role::First { others, .. } => {
                let deadline = Instant::now() + FAREWELL_TIMEOUT;
                others.iter_mut().for_each(|line| drop(line.send(&word)));
                // What another has sent must be read: closing before would take the word back.
                others.iter_mut().for_each(|line| drop(line.receive(deadline)));
            }
        }
    }
}

/// Waits for everybody's line, and answers all at once.
fn gather_arrivals(others: &mut [Line]) -> Result<Passage, BarrierError> {
    let deadline = Instant::now() + Duration::from_secs(WAIT_SECONDS_MAX);
    let mut over = None;
    let mut lost = None;
    for (number, line) in (1..).zip(others.iter_mut()) {
        match line.receive(deadline) {
            Ok(text) if text == "ready" => {}
            Ok(text) => match outcome(&text) {
                Some(outcome) => over = over.or(Some(outcome)),
                None => lost = lost.or(Some(format!("load process {number} said {:?}", short_line(&text)))),
            },
            Err(error) => lost = lost.or(Some(format!("load process {number} is gone: {}", gone(&error)))),
        }
    }
    // An outcome explains why its process is gone, and may explain why others are.
    let word = match (&over, &lost) {
        (Some(outcome), _) => Some(ended(outcome)),
        (None, Some(lost)) => Some(format!("lost {lost}")),
        (None, None) => None,
    };
    let start = Instant::now() + HEAD_START;
    for line in others {
        let left = start.saturating_duration_since(Instant::now());
        // Whoever cannot be told is gone, which the next barrier finds.
        let _ = line.send(word.as_deref().unwrap_or(&format!("begin {}", left.as_micros())));
    }
    match (over, lost) {
        (Some(outcome), _) => Ok(Passage::Over(outcome)),
        (None, Some(lost)) => Err(BarrierError::Lost(lost)),
        (None, None) => {
            sleep(start.saturating_duration_since(Instant::now()));
            Ok(Passage::Open)
        }
    }
}

/// Says that this process has come, and waits for the answer.
fn arrive(line: &mut Line) -> Result<Passage, BarrierError> {
    // The first process may have gone and left word, so a line that cannot be sent is no reason not to read.
    let _ = line.send("ready");
    let text = line.receive(Instant::now() + Duration::from_secs(WAIT_SECONDS_MAX));
    let text = text.map_err(|error| BarrierError::Lost(format!("load process 0 is gone: {}", gone(&error))))?;
    if let Some(micros) = text.strip_prefix("begin ").and_then(|micros| micros.parse().ok()) {
        sleep(Duration::from_micros(micros).min(HEAD_START));
        return Ok(Passage::Open);
    }
    if let Some(outcome) = outcome(&text) {
        return Ok(Passage::Over(outcome));
    }
    let said = text.strip_prefix("lost ").map_or(format!("load process 0 said {text:?}"), str::to_owned);
    Err(BarrierError::Lost(short_line(&said)))
}

fn ended(outcome: &JobOutcome) -> String {
    // Serialising this plain enum cannot fail; an empty object would be refused.
    format!("ended {}", serde_json::to_string(&with_short_details(outcome)).unwrap_or_default())
}

fn outcome(text: &str) -> Option<JobOutcome> {
    serde_json::from_str(text.strip_prefix("ended ")?).ok()
}

fn gone(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => "it closed the connection".into(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("it did not come within {WAIT_SECONDS_MAX} s"),
        _ => plain(error),
    }
}

/// What all processes of a trial know, and those of another do not.
fn trial_of(spec: &JobSpec) -> u64 {
    mix(mix_text(mix_text(spec.seed, &spec.run), &spec.arm), u64::from(spec.trial))
}

/// Listens on the port of `host:port`, on all interfaces, of both versions of the protocol if the system has both.
fn listen(address: &str) -> Result<TcpListener, BarrierError> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
    let any: [SocketAddr; 2] = [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
    let listener = TcpListener::bind(&any[..]).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| BarrierError::Listen { port, error })
}

/// Waits until every other process has connected and said who it is.
fn gather(listener: &TcpListener, trial: u64, processes: u32, deadline: Instant) -> Result<Vec<Line>, BarrierError> {
    let mut others: Vec<Option<Line>> = (1..processes).map(|_| None).collect();
    while let Some(missing) = others.iter().position(Option::is_none) {
        let Ok((stream, _)) = listener.accept() else {
            if Instant::now() > deadline {
                return Err(BarrierError::Missing { missing: missing as u32 + 1 });
            }
            sleep(PAUSE);
            continue;
        };
        let Ok(mut line) = Line::new(stream) else { continue };
        let Ok(text) = line.receive(Instant::now() + GREETING_TIMEOUT) else { continue };
        let number = number_of(&text, trial, processes);
        match number.and_then(|number| others.get_mut(number as usize - 1)) {
            Some(free @ None) => *free = Some(line),
            Some(_) => drop(line.send("lost another load process has this number: give each its own --process")),
            None => drop(line.send("lost load process 0 belongs to another trial, or to another number of processes")),
        }
    }
    Ok(others.into_iter().flatten().collect())
}

/// The number of the process that says `join 1 of 3 <trial>`, if it is one of this trial's.
fn number_of(text: &str, trial: u64, processes: u32) -> Option<u32> {
    let (number, rest) = text.strip_prefix("join ")?.split_once(" of ")?;
    let number = number.parse().ok().filter(|number| (1..processes).contains(number))?;
    (rest == format!("{processes} {trial:016x}")).then_some(number)
}

/// Connects to the first process, whose name may not resolve and which may not listen yet.
fn connect(address: &str, deadline: Instant) -> Result<Line, BarrierError> {
    loop {
        let attempt = address.to_socket_addrs().and_then(|mut addresses| {
            let address = addresses.next().ok_or_else(|| io::Error::other("the name has no address"))?;
            Line::new(TcpStream::connect_timeout(&address, GREETING_TIMEOUT)?)
        });
        match attempt {
            Ok(line) => return Ok(line),
            Err(error) if Instant::now() > deadline => {
                let reason = plain(&error);
                return Err(BarrierError::Unreachable { address: address.into(), reason });
            }
            Err(_) => sleep(PAUSE),
        }
    }
}

/// A connection on which lines are exchanged.
#[derive(Debug)]
struct Line(BufReader<TcpStream>);

impl Line {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(GREETING_TIMEOUT))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.0.get_mut().write_all(format!("{text}\n").as_bytes())
    }

    fn receive(&mut self, deadline: Instant) -> io::Result<String> {
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.0.get_mut().set_read_timeout(Some(left))?;
            let received = match self.0.fill_buf() {
                // So ends a wait that is bounded when the process was stopped and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                received => received?,
            };
            let end = received.iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(&received[..end.unwrap_or(received.len())]);
            let taken = end.map_or(received.len(), |end| end + 1);
            self.0.consume(taken);
            match end {
                Some(_) => return Ok(String::from_utf8_lossy(&line).into_owned()),
                None if taken == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                None if line.len() > LINE_BYTES_MAX => return Err(io::Error::other("its line has no end")),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::thread;

    fn spec() -> JobSpec {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        JobSpec {
            run: "r".into(),
            arm: "a".into(),
            trial: 3,
            seed: 7,
            endpoints: Vec::new(),
            kubeconfig: None,
            sync_counters: Vec::new(),
            meters: Vec::new(),
            control_plane_meter: None,
            external: None,
            is_namespaced: false,
            durability: None,
            store_settings: std::collections::BTreeMap::new(),
            restore_tool: None,
            fault_proxy: None,
            shared_directory: None,
            companions: std::collections::BTreeMap::new(),
            strikes_members: false,
            meters_strike: false,
            processes: 3,
            barrier: Some(format!("localhost:{port}")),
            workloads: Vec::new(),
        }
    }

    fn open(spec: &JobSpec, process: u32) -> Barrier {
        Barrier::open(spec, Share::new(process, spec.processes).unwrap()).unwrap()
    }

    fn failed() -> JobOutcome {
        JobOutcome::StoreFailed { workload: "w".into(), detail: "first\nsecond \"quoted\"".into() }
    }

    fn failed_in_one_line() -> JobOutcome {
        JobOutcome::StoreFailed { workload: "w".into(), detail: "first second \"quoted\"".into() }
    }

    /// What each process does with its barrier, each on a thread of its own; what came of it.
    fn all<T: Send>(spec: &JobSpec, part: impl Fn(u32, Barrier) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let part = &part;
            let threads: Vec<_> =
                (0..spec.processes).map(|process| scope.spawn(move || part(process, open(spec, process)))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn nobody_begins_before_the_last_has_come_and_all_begin_at_once() {
        let begun = Instant::now();
        let passed = all(&spec(), |process, barrier| {
            let mut passed = Vec::new();
            for late in 0..3 {
                if process == late {
                    sleep(Duration::from_millis(100));
                }
                assert_eq!(barrier.wait().unwrap(), Passage::Open);
                passed.push(begun.elapsed());
            }
            passed
        });
        for time in 0..3 {
            let at: Vec<Duration> = passed.iter().map(|passed| passed[time]).collect();
            let (first, last) = (at.iter().min().unwrap(), at.iter().max().unwrap());
            assert!(*first >= (time as u32 + 1) * (Duration::from_millis(100) + HEAD_START), "{at:?}");
            assert!(*last - *first < Duration::from_millis(500), "{at:?}");
        }
    }

    #[test]
    fn an_early_end_of_anyone_is_the_end_of_all() {
        for leaver in 0..3 {
            let ended = all(&spec(), |process, barrier| {
                assert_eq!(barrier.wait().unwrap(), Passage::Open);
                if process == leaver {
                    barrier.leave(&failed());
                    return Passage::Over(failed_in_one_line());
                }
                // When the other is gone already.
                sleep(FAREWELL_TIMEOUT + Duration::from_millis(200));
                barrier.wait().unwrap()
            });
            assert_eq!(ended, vec![Passage::Over(failed_in_one_line()); 3], "{leaver} left");
        }
    }

    #[test]
    fn a_process_that_is_gone_is_named_to_all() {
        for gone in 0..3 {
            let said = all(&spec(), |process, barrier| {
                assert_eq!(barrier.wait().unwrap(), Passage::Open);
                match process == gone {
                    true => String::new(),
                    false => barrier.wait().unwrap_err().to_string(),
                }
            });
            let expected = format!("barrier: load process {gone} is gone: it closed the connection");
            assert!(said.iter().zip(0..).all(|(said, process)| process == gone || *said == expected), "{said:?}");
        }
    }

    #[test]
    fn who_does_not_belong_does_not_get_in_and_does_no_harm() {
        let spec = spec();
        let first = open(&spec, 0);
        let address = spec.barrier.clone().unwrap();
        let said_to = |line: &str| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            stream
        };
        let trial = trial_of(&spec);
        let strangers = [
            said_to("GET / HTTP/1.1\r\n\r\n"),
            said_to(&"x".repeat(3 * LINE_BYTES_MAX)),
            said_to("join 0 of 3 0\n"),
            said_to(&format!("join 1 of 4 {trial:016x}\n")),
            said_to(&format!("join 1 of 3 {:016x}\n", trial ^ 1)),
        ];
        let others = [1, 2].map(|process| open(&spec, process));
        let twin = said_to(&format!("join 2 of 3 {trial:016x}\n"));
        thread::scope(|scope| {
            for other in others {
                scope.spawn(move || assert_eq!(other.wait().unwrap(), Passage::Open));
            }
            assert_eq!(first.wait().unwrap(), Passage::Open);
        });
        for mut stranger in strangers {
            let mut answer = String::new();
            let _ = stranger.read_to_string(&mut answer);
            assert!(!answer.contains("begin"), "{answer}");
        }
        drop((first, twin));
    }

    #[test]
    fn a_process_that_never_appears_is_not_waited_for_forever() {
        let listener = listen("localhost:0").unwrap();
        let error = gather(&listener, 7, 3, Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "barrier: load process 1 did not appear within 60 s");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = connect(&format!("localhost:{port}"), Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().ends_with("within 60 s: Connection refused"), "{error}");
        let error = connect("no-such-name.invalid:1", Instant::now()).unwrap_err();
        assert!(matches!(error, BarrierError::Unreachable { .. }), "{error}");
    }

    #[test]
    fn a_process_alone_waits_for_nobody() {
        let spec = JobSpec { processes: 1, ..spec() };
        let alone = Barrier::open(&spec, Share::WHOLE).unwrap();
        assert_eq!(alone.wait().unwrap(), Passage::Open);
        alone.leave(&failed());
    }
}
