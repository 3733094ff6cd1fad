//! Runs one workload: threads, phases, stop conditions, results.
//!
//! A workload family implements [`Family`]; everything else is here. Each of `load.threads` operating-system threads has
//! its own runtime, its own share of connections, clients and keys, and its own [`Record`]; they share nothing but what
//! the family puts into its plan. This thread, the coordinator, announces each phase on standard output, releases the
//! threads, waits until all have finished it, and merges what they recorded. Phases in order:
//!
//! | phase | what happens | ends |
//! | --- | --- | --- |
//! | Prepare | [`Family::prepare`] for every client | when all have returned |
//! | WarmUp (if not 0) | [`Family::load`], counted nowhere but in `/metrics` | after `load.warmUp`; where the highest rate is looked for, when it is found ([`super::search`]) |
//! | Measure | [`Family::load`] | after `load.total` requests or `load.duration`; back to WarmUp where a rate that was found misses its target |
//! | Verify | [`Family::verify`] for every client | when all have returned |
//! | Done | | |
//!
//! Where several processes make the load together, they begin the first load phase together, and Verify when the last has
//! finished the load ([`super::barrier`]).
//!
//! Requests in flight at the end of a phase are answered before the next begins, so a warm-up leaves nothing behind and
//! the timetable of an open loop starts afresh. The first failure on any thread ends the workload; where it is one of a rate that is only tried,
//! the workload begins anew ([`super::highest_rate`]).

mod hunt;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use hdrhistogram::Histogram;
use storebench_crds::Arrivals;
use storebench_crds::job::{
    ControlPlaneUsage, Hindrance, JobLine, JobOutcome, LatencyKind, MachineUse, Phase, Usage, WorkloadSummary,
    encode_histogram,
};
use storebench_crds::measure::{FSYNCS, Reading};
use storebench_crds::status::LatencySummary;
use storebench_crds::workload::syncs::fewest_writes;
use tokio::sync::mpsc;

use crate::content::seeds::mix;
use crate::failure::Failure;
use crate::load::audit::{self, Auditor, Figures, Snapshot};
use crate::load::barrier::Passage;
use crate::load::contract::{Context, Ending, Family, Onlooker, Seat, Surroundings};
use crate::load::durability;
use crate::load::pace::Timetable;
use crate::load::pulse::Pulse;
use crate::load::thread::{Answer, Order, thread_main};
use crate::measure::machine;
use crate::measure::meters::{Sampler, Samplers};
use crate::report::board::{Live, Totals};
use crate::report::measures::Measures;
use crate::report::record::Record;

/// Whoever is there takes a connection within this, or may stand still.
const GONE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a workload to its end. Errors are the loader's own; everything about the store is in the [`Ending`].
pub fn run<F: Family>(context: Context, plan: F::Plan, around: &Surroundings<'_>) -> io::Result<Ending> {
    let context = Arc::new(context);
    let plan = Arc::new(plan);
    // A thread has one order at a time and answers it once; when it crashes it says so besides.
    let (answers, answered) = sync_channel(2 * context.threads as usize);
    let mut threads = Vec::new();
    let mut orders = Vec::new();
    let mut lives = Vec::new();
    for number in 0..context.threads {
        let (sender, receiver) = mpsc::channel(1);
        let (seat, plan, answers) = (Seat::new(&context, number), Arc::clone(&plan), answers.clone());
        let live = Arc::new(Live::default());
        lives.push(Arc::clone(&live));
        orders.push(sender);
        threads.push(
            thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || thread_main::<F>(plan, seat, receiver, answers, live))?,
        );
    }
    around.board.begin(&context.workload, lives);
    let rate = Cell::new(context.rate);
    let pulse = Pulse::begin()?;
    let coordinator = Coordinator { context, around, orders, answered, rate, releases: Cell::new(0), pulse };
    let ending = coordinator.run();
    coordinator.announce(Phase::Done)?;
    // Threads end when nobody can give orders any more.
    drop(coordinator);
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a load thread crashed"))?;
    }
    ending
}

struct Coordinator<'a> {
    context: Arc<Context>,
    around: &'a Surroundings<'a>,
    orders: Vec<mpsc::Sender<Order>>,
    answered: Receiver<Answer>,
    /// At which rate an open loop loads next.
    rate: Cell<Option<u64>>,
    /// How often threads were released: chance differs each time.
    releases: Cell<u64>,
    pulse: Pulse,
}

/// The measured phase: what was recorded and the loader's state around it.
struct Measured {
    record: Record,
    before: Snapshot,
    after: Snapshot,
    started_unix_nanos: u64,
    elapsed: Duration,
    /// What the store used.
    usage: Option<Usage>,
    /// What the API server and the rest of its control plane used.
    control_plane: Option<ControlPlaneUsage>,
    /// What the machines of the loader and of what it loads went through.
    machines: Vec<MachineUse>,
}

impl Coordinator<'_> {
    fn run(&self) -> io::Result<Ending> {
        if let Some(failure) = self.connected()? {
            return Ok(self.store_failed(failure.text(), &failure));
        }
        let auditor = Auditor::new();
        let (mut verified, mut wrong) = (0, 0);
        let mut first_wrong = None;
        let mut measured = None;
        let (mut fsyncs_before, mut fsyncs) = (None, None);
        let mut measures = Measures::default();
        let mut phases = VecDeque::from([Phase::Prepare, Phase::WarmUp, Phase::Measure, Phase::Verify]);
        while let Some(phase) = phases.pop_front() {
            if phase == Phase::WarmUp
                && let Some(hunt) = self.around.hunt
            {
                match self.look_for_rate(&mut hunt.borrow_mut(), &auditor)? {
                    None => continue,
                    Some(ending) => return Ok(ending),
                }
            }
            if phase == Phase::WarmUp && self.context.warm_up.is_zero() {
                continue;
            }
            if phase == Phase::Measure {
                measures = Measures::default();
                // Before all processes begin together, which this would delay.
                if let Some(onlooker) = self.around.onlooker {
                    onlooker.before();
                }
                // A member that starts anew counts anew.
                fsyncs_before = if self.context.restarts_members { None } else { self.around.meters.fsyncs() };
            }
            if self.begins_together(phase)
                && let Passage::Over(outcome) = self.around.barrier.wait()?
            {
                return Ok(Ending { summary: None, outcome });
            }
            self.announce(phase)?;
            if phase == Phase::Verify {
                fsyncs = self.report_growth(fsyncs_before.take())?;
            }
            let sampler = (phase == Phase::Measure).then(|| self.around.meters.sample());
            let machine_before = machine::reading(machine::boot_identifier().unwrap_or_default());
            let before = auditor.snapshot();
            let start = self.release(phase);
            if let (Phase::Verify, Some(measured)) = (phase, &measured) {
                // Now, while threads are reading back, so that encoding is not within any phase that is sampled.
                self.report_measured(measured)?;
            }
            let record = self.finished(phase, start)?;
            wrong += record.wrong;
            first_wrong = first_wrong.or_else(|| record.first_wrong.clone());
            if let Some(failure) = &record.first_failure {
                // A wrong answer may be why no more could be done, and says more than that.
                return Ok(match first_wrong {
                    Some(first) => Ending { summary: None, outcome: self.wrong_answer(wrong, first) },
                    None => self.store_failed(failure.text(), failure),
                });
            }
            if matches!(phase, Phase::Measure | Phase::Verify) {
                verified += record.verified;
                measures.merge(record.measures.clone());
            }
            if let Some(Samplers { store, api_server, others }) = sampler {
                let after = auditor.snapshot();
                let machine_now = machine::reading(machine_before.machine.clone());
                let own = format!("load-{}", self.context.share.process());
                let own = MachineUse {
                    own_nanos: audit::account(&before, &after).cpu_nanos,
                    ..machine_before.machine_until(&machine_now, own)
                };
                let mut machines = vec![own];
                let usage = self.used("the store", store, &mut machines);
                let api_server = self.used("the API server", api_server, &mut machines);
                let others = self.used("the control plane", others, &mut machines);
                measured = Some(Measured {
                    started_unix_nanos: unix_nanos(&before, start),
                    elapsed: Duration::from_nanos(record.last_answer_nanos),
                    record,
                    before,
                    after,
                    usage,
                    control_plane: api_server
                        .zip(others)
                        .map(|(api_server, others)| ControlPlaneUsage { api_server, others }),
                    machines: MachineUse::together(machines),
                });
            }
            if let (Phase::Measure, Some(hunt), Some(measured), Some(rate)) =
                (phase, self.around.hunt, &measured, self.rate.get())
                && !self.is_found(&mut hunt.borrow_mut(), rate, measured)?
            {
                phases.push_front(Phase::Measure);
                phases.push_front(Phase::WarmUp);
            }
        }
        self.report_measures(&measures)?;
        let measured = measured.ok_or_else(|| io::Error::other("nothing was measured"))?;
        let summary = self.summary(&measured, verified);
        let outcome = match first_wrong {
            Some(first) => self.wrong_answer(wrong, first),
            None => match self.broken_word(&measured, fsyncs.as_deref()) {
                Some(detail) => JobOutcome::StoreFailed { workload: self.context.workload.clone(), detail },
                None => self.judge(&measured),
            },
        };
        Ok(Ending { summary: Some(summary), outcome })
    }

    fn wrong_answer(&self, count: u64, (key, detail): (String, String)) -> JobOutcome {
        JobOutcome::WrongAnswer { workload: self.context.workload.clone(), count, key, detail }
    }

    /// Whether all processes must have finished the phase before, or begin this one at the same time.
    fn begins_together(&self, phase: Phase) -> bool {
        match phase {
            Phase::WarmUp | Phase::Verify => true,
            Phase::Measure => self.context.warm_up.is_zero(),
            Phase::Prepare | Phase::Done => false,
        }
    }

    /// What was used since the sampler began, `None` if nobody measured it; what its machines went through is put with the others.
    fn used(&self, whose: &str, sampler: Sampler, machines: &mut Vec<MachineUse>) -> Option<Usage> {
        let sampled = sampler.finish().unwrap_or_else(|error| {
            let workload = &self.context.workload;
            self.around.report.warn(&format!("{workload}: what {whose} used is not known: {error}"));
            None
        })?;
        machines.extend(sampled.machines);
        Some(sampled.usage)
    }

    /// Tells what grew during the measured phase: syncs of the store's disk since `fsyncs_before`, and what the onlooker saw.
    /// Nothing where that is not known. Returns the syncs of each member.
    fn report_growth(&self, fsyncs_before: Option<Vec<u64>>) -> io::Result<Option<Vec<u64>>> {
        let fsyncs_now = fsyncs_before.as_ref().and_then(|_| self.around.meters.fsyncs());
        // A member that was restarted meanwhile counts anew.
        let growth = |(before, now): (Vec<u64>, Vec<u64>)| {
            before.into_iter().zip(now).map(|(before, now)| now.checked_sub(before)).collect::<Option<Vec<u64>>>()
        };
        let fsyncs = fsyncs_before.zip(fsyncs_now).and_then(growth);
        if let Some(fsyncs) = &fsyncs {
            self.report_measure(FSYNCS.0, Reading::Total(fsyncs.iter().sum()))?;
        }
        if let Some(line) = self.around.onlooker.and_then(Onlooker::after) {
            self.around.report.line(&line)?;
        }
        Ok(fsyncs)
    }

    /// What is wrong, if the store acknowledged writes that it cannot have synced as it was told to.
    fn broken_word(&self, measured: &Measured, fsyncs: Option<&[u64]>) -> Option<String> {
        let writes = fewest_writes(measured.record.operations, self.context.synced_writes_percent);
        durability::broken_word(fsyncs?, writes, self.context.in_flight_max)
    }

    /// Tells what the family measured.
    fn report_measures(&self, measures: &Measures) -> io::Result<()> {
        let readings = measures.readings().map_err(io::Error::other)?;
        readings.into_iter().try_for_each(|(measure, reading)| self.report_measure(measure, reading))
    }

    fn report_measure(&self, measure: &str, reading: Reading) -> io::Result<()> {
        let (workload, measure) = (self.context.workload.clone(), measure.to_owned());
        self.around.report.line(&JobLine::Measure { workload, measure, reading })
    }

    fn announce(&self, phase: Phase) -> io::Result<()> {
        let workload = self.context.workload.clone();
        self.around.board.enter(phase);
        self.around.report.tell(|| format!("{workload}: {phase:?}"));
        self.around.report.line(&JobLine::Phase { workload, phase })
    }

    /// Waits until every thread has its connections; the first failure, if any.
    fn connected(&self) -> io::Result<Option<Failure>> {
        let mut first = None;
        for _ in &self.orders {
            match self.answered.recv().map_err(|_| crashed())? {
                Answer::Connected(connected) => first = first.or(connected.err()),
                Answer::Broken(what) => return Err(io::Error::other(what)),
                Answer::Finished(_) => return Err(crashed()),
            }
        }
        Ok(first)
    }

    /// Starts a phase on all threads; the instant from which its time counts.
    fn release(&self, phase: Phase) -> Instant {
        let context = &self.context;
        let (requests, length) = match phase {
            Phase::WarmUp => (None, Some(context.warm_up)),
            Phase::Measure => (context.total, context.duration),
            _ => (None, None),
        };
        self.release_for(phase, requests, length)
    }

    /// The same for so many requests, or for so long.
    fn release_for(&self, phase: Phase, requests: Option<u64>, length: Option<Duration>) -> Instant {
        let context = &self.context;
        let rate = self.rate.get().filter(|_| matches!(phase, Phase::WarmUp | Phase::Measure));
        self.releases.set(self.releases.get() + 1);
        let timetable = |thread: usize, rate: u64| {
            let requests = requests.unwrap_or_else(|| Timetable::requests_in(rate, length.unwrap_or_default()));
            let (seat, seats) = context.share.seat(thread as u32, context.threads);
            match context.arrivals {
                Arrivals::Constant => Timetable::new(Instant::now(), rate, requests, seat, seats),
                Arrivals::Poisson => {
                    // The same for every arm of a trial.
                    let seed = mix(mix(context.seed, self.releases.get()), u64::from(seat));
                    Timetable::by_chance(rate, requests, seat, seats, seed)
                }
            }
        };
        // Before the start, which they would delay.
        let mut timetables: VecDeque<Option<Timetable>> =
            (0..self.orders.len()).map(|thread| rate.map(|rate| timetable(thread, rate))).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let budget = requests.map(|requests| Arc::new(AtomicU64::new(context.share.of(requests))));
        let start = Instant::now();
        for orders in &self.orders {
            let timetable = timetables.pop_front().flatten().map(|timetable| timetable.starting(start));
            // A thread that is gone is noticed when its answer does not come.
            let _ = orders.try_send(Order {
                phase,
                start,
                timetable,
                budget: budget.clone(),
                deadline: length.map(|length| start + length),
                stop: Arc::clone(&stop),
            });
        }
        start
    }

    /// Waits until every thread has finished the phase; says how it goes meanwhile.
    fn finished(&self, phase: Phase, start: Instant) -> io::Result<Record> {
        let counts_before = self.around.board.totals();
        let mut told = (start, counts_before);
        let mut next_progress = start + Duration::from_secs(1);
        let mut merged = Record::default();
        let mut waiting = self.orders.len();
        while waiting > 0 {
            let patience = next_progress.saturating_duration_since(Instant::now());
            match self.answered.recv_timeout(patience) {
                Ok(Answer::Finished(record)) => {
                    merged.merge(*record);
                    waiting -= 1;
                }
                Ok(Answer::Broken(what)) => return Err(io::Error::other(what)),
                Ok(Answer::Connected(_)) | Err(RecvTimeoutError::Disconnected) => return Err(crashed()),
                Err(RecvTimeoutError::Timeout) => {
                    if phase == Phase::Measure {
                        self.progress(start, &counts_before, &mut told)?;
                    }
                    next_progress += Duration::from_secs(1);
                }
            }
        }
        Ok(merged)
    }

    /// `told` is what was told last, and when.
    fn progress(&self, start: Instant, before: &Totals, told: &mut (Instant, Totals)) -> io::Result<()> {
        let now = self.around.board.totals();
        let (told_at, told) = std::mem::replace(told, (Instant::now(), now));
        let recent_millis = told_at.elapsed().as_millis() as u64;
        let operations = now.operations.saturating_sub(before.operations);
        let elapsed_millis = start.elapsed().as_millis() as u64;
        let workload = self.context.workload.clone();
        self.around.report.tell(|| {
            let rate = operations * 1_000 / elapsed_millis.max(1);
            let seconds = elapsed_millis / 1_000;
            format!("{workload}: {operations} requests in {seconds} s, {rate} a second")
        });
        self.around.report.line(&JobLine::Progress {
            workload,
            operations,
            errors: now.errors.saturating_sub(before.errors),
            elapsed_millis,
            recent_per_second: now.operations.saturating_sub(told.operations) * 1_000 / recent_millis.max(1),
            recent_p99_nanos_max: now.p99_nanos_max(&told),
        })
    }

    fn report_measured(&self, measured: &Measured) -> io::Result<()> {
        let workload = &self.context.workload;
        self.tell_latency("service latency", &measured.record.service);
        let mut histograms = vec![(LatencyKind::Service, &measured.record.service)];
        if self.context.rate.is_some() {
            histograms.push((LatencyKind::Intended, &measured.record.intended));
            self.tell_latency("intended latency", &measured.record.intended);
            self.tell_latency("lag while a client was free", &measured.record.lag);
        }
        for (latency, histogram) in histograms {
            self.around.report.line(&JobLine::Histogram {
                workload: workload.clone(),
                latency,
                data: encode_histogram(histogram).map_err(io::Error::other)?,
            })?;
        }
        let (audit, _) = self.audit(measured);
        self.around.report.line(&JobLine::Audit { workload: workload.clone(), audit })?;
        if let Some(usage) = measured.usage {
            self.around.report.line(&JobLine::Usage { workload: workload.clone(), usage })?;
        }
        for machine in &measured.machines {
            let (workload, machine) = (workload.clone(), machine.clone());
            self.around.report.line(&JobLine::Machine { workload, machine })?;
        }
        match measured.control_plane {
            Some(usage) => self.around.report.line(&JobLine::ControlPlaneUsage { workload: workload.clone(), usage }),
            None => Ok(()),
        }
    }

    fn tell_latency(&self, what: &str, histogram: &Histogram<u64>) {
        self.around.report.tell(|| {
            let at = |quantile| Duration::from_nanos(histogram.value_at_quantile(quantile));
            let (half, most, all) = (at(0.5), at(0.99), at(1.0));
            format!("{}: {what}: median {half:.1?}, 99 % {most:.1?}, largest {all:.1?}", self.context.workload)
        });
    }

    fn audit(&self, measured: &Measured) -> (storebench_crds::job::LoaderAudit, Figures) {
        let record = &measured.record;
        let mut audit = audit::account(&measured.before, &measured.after);
        audit.started_unix_nanos = measured.started_unix_nanos;
        audit.lag_max_nanos = record.lag.max();
        audit.scheduled = record.scheduled;
        // Requests that found no free client have no lag of the loader's; they count as punctual.
        let held = record.lag.len();
        let late = record.lag.len() - record.lag.count_between(0, audit::LATE.as_nanos() as u64);
        let punctual = record.operations.saturating_sub(held);
        let quantile = 0.99 * (held + punctual) as f64 - punctual as f64;
        let lag_p99_nanos = match held {
            0 => 0,
            held if quantile > 0.0 => record.lag.value_at_quantile(quantile / held as f64),
            _ => 0,
        };
        let figures = Figures {
            elapsed: measured.elapsed,
            unsent: record.unsent,
            due_beside: record.due_beside,
            unsent_beside: record.unsent_beside,
            late,
            lag_p99_nanos,
            intended_p99_nanos: record.intended.value_at_quantile(0.99),
        };
        (audit, figures)
    }

    fn judge(&self, measured: &Measured) -> JobOutcome {
        let (audit, figures) = self.audit(measured);
        match audit::judge(&audit, &figures) {
            Some((hindrance, detail)) => {
                JobOutcome::Hindered { workload: self.context.workload.clone(), hindrance, detail }
            }
            None => JobOutcome::Completed,
        }
    }

    /// Whether nobody listens where the store is to be, though nobody was asked to kill it: it has died, which is more than to stand still.
    fn is_anybody_gone(&self) -> bool {
        let mut endpoints =
            self.context.endpoints.iter().filter_map(|endpoint| endpoint.to_socket_addrs().ok()?.next());
        let refuses = |address: SocketAddr| {
            let connected = TcpStream::connect_timeout(&address, GONE_TIMEOUT);
            connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        !self.context.restarts_members && endpoints.any(refuses)
    }

    fn summary(&self, measured: &Measured, verified: u64) -> WorkloadSummary {
        let record = &measured.record;
        WorkloadSummary {
            name: self.context.workload.clone(),
            operations: record.operations,
            errors: record.errors,
            elapsed_nanos: record.last_answer_nanos,
            verified,
            service: LatencySummary::of(&record.service),
            intended: self.context.rate.map(|_| LatencySummary::of(&record.intended)),
        }
    }

    /// A request failed; that of a loader which stood still says nothing of the store, unless what failed did not come of time.
    fn store_failed(&self, detail: &str, failure: &Failure) -> Ending {
        let workload = self.context.workload.clone();
        let outcome = match self.pulse.excuse(failure, || self.is_anybody_gone()) {
            Some(standstill) => {
                let detail =
                    format!("for {standstill:.1?}, and the store may have been, too, before it failed: {detail}");
                JobOutcome::Hindered { workload, hindrance: Hindrance::ProcessorWithheld, detail }
            }
            None => JobOutcome::StoreFailed { workload, detail: detail.to_owned() },
        };
        Ending { summary: None, outcome }
    }
}

/// The instant by the wall clock, which was read in the snapshot shortly before.
fn unix_nanos(before: &Snapshot, instant: Instant) -> u64 {
    let wall = before.wall() + instant.saturating_duration_since(before.at());
    wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

fn crashed() -> io::Error {
    io::Error::other("a load thread crashed")
}
