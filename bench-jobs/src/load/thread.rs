//! One load thread: its runtime, its clients, its watchdog.
//!
//! Promises that a phase ends: when all clients have returned, or when the first failure anywhere stopped it and the
//! clients of this thread were dropped. A client that waits for an answer for longer than the timeout is such a failure; in the load of
//! a store that has a fault clients give up by themselves, and say whether that is one.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use storebench_crds::job::Phase;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::failure::Failure;
use crate::load::alarm::Alarm;
use crate::load::contract::{Family, Seat};
use crate::load::pace::{Timetable, Turns};
use crate::load::session::{Session, Source, ThreadPhase};
use crate::net::dial::PATIENCE;
use crate::report::board::{Live, Publisher};
use crate::report::record::Record;

/// How often a thread looks for overdue answers and shows its counts.
const TICK: Duration = Duration::from_millis(50);

/// What the threads answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Connected(Result<(), Failure>),
    Finished(Box<Record>),
    /// The loader itself is broken.
    Broken(String),
}

/// One phase for one thread.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) phase: Phase,
    /// From here its time counts.
    pub(crate) start: Instant,
    /// Open loop: this thread's timetable.
    pub(crate) timetable: Option<Timetable>,
    /// Closed loop: requests left over all threads.
    pub(crate) budget: Option<Arc<AtomicU64>>,
    /// Closed loop: the end.
    pub(crate) deadline: Option<Instant>,
    /// Set by the first failure on any thread.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Tells the coordinator when the thread unwinds: it would wait for an answer that never comes.
struct LastWords(SyncSender<Answer>);

impl Drop for LastWords {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Answer::Broken("a load thread crashed".into()));
        }
    }
}

/// The body of a load thread: connects, then carries out orders until there can be no more.
pub(crate) fn thread_main<F: Family>(
    plan: Arc<F::Plan>,
    seat: Seat,
    orders: mpsc::Receiver<Order>,
    answers: SyncSender<Answer>,
    live: Arc<Live>,
) {
    let _last_words = LastWords(answers.clone());
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let result = match runtime {
        Ok(runtime) => runtime.block_on(serve::<F>(plan, Rc::new(seat), orders, &answers, live)),
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        // If the coordinator is gone, so is the need to tell it.
        let _ = answers.send(Answer::Broken(format!("a load thread could not run: {error}")));
    }
}

async fn serve<F: Family>(
    plan: Arc<F::Plan>,
    seat: Rc<Seat>,
    mut orders: mpsc::Receiver<Order>,
    answers: &SyncSender<Answer>,
    live: Arc<Live>,
) -> io::Result<()> {
    let alarm = Rc::new(Alarm::new()?);
    let ringing = Rc::clone(&alarm);
    spawn_local(async move { ringing.ring().await });
    // Each connection is patient by itself; this is for a family that forgets to be bounded.
    let bound = PATIENCE + seat.context.timeout + seat.connections.len() as u32 * Duration::from_millis(10);
    let connected = match timeout(bound, F::connect(plan, Rc::clone(&seat))).await {
        Ok(connected) => connected,
        Err(_) => Err(Failure::new(format_args!("connections were not ready within {bound:?}"))),
    };
    let (family, connected) = match connected {
        Ok(family) => (Some(Rc::new(family)), Ok(())),
        Err(failure) => (None, Err(failure)),
    };
    let _ = answers.send(Answer::Connected(connected));
    let Some(family) = family else {
        return Ok(());
    };
    let mut publisher = Publisher::new(live);
    while let Some(order) = orders.recv().await {
        let load_phase = matches!(order.phase, Phase::WarmUp | Phase::Measure);
        let record = run_phase(&family, &seat, order, &alarm, &publisher).await?;
        if load_phase {
            publisher.settle(&record);
        }
        let _ = answers.send(Answer::Finished(Box::new(record)));
    }
    Ok(())
}

async fn run_phase<F: Family>(
    family: &Rc<F>,
    seat: &Rc<Seat>,
    order: Order,
    alarm: &Rc<Alarm>,
    publisher: &Publisher,
) -> io::Result<Record> {
    let phase = order.phase;
    let shared = Rc::new(ThreadPhase {
        phase,
        start: order.start,
        timeout: seat.context.patience(phase),
        source: match (phase, order.timetable) {
            (Phase::WarmUp | Phase::Measure, Some(timetable)) => Source::Open { turns: Turns::new(timetable) },
            (Phase::WarmUp | Phase::Measure, None) => Source::Closed { budget: order.budget, deadline: order.deadline },
            _ => Source::Client,
        },
        alarm: Some(Rc::clone(alarm)),
        in_hand: Cell::new(0),
        stop: order.stop,
        stopped: Notify::new(),
        record: RefCell::default(),
        in_flight: vec![(Cell::new(0), Cell::new(order.start)); seat.clients.len()],
    });
    let mut clients = JoinSet::new();
    for (place, &client) in seat.clients.iter().enumerate() {
        let family = Rc::clone(family);
        let session =
            Session { shared: Rc::clone(&shared), client, place: place as u32, connection: seat.connection_of(client) };
        clients.spawn_local(async move {
            match phase {
                Phase::Prepare => family.prepare(session).await,
                Phase::WarmUp | Phase::Measure => family.load(session).await,
                Phase::Verify => family.verify(session).await,
                Phase::Done => Ok(()),
            }
        });
    }
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            joined = clients.join_next() => match joined {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(failure))) => shared.fail(&failure),
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(_)) => return Err(io::Error::other("a client crashed")),
            },
            () = shared.stopped.notified() => clients.abort_all(),
            _ = tick.tick() => {
                shared.check_timeouts(Instant::now());
                if shared.stop.load(Ordering::Relaxed) {
                    clients.abort_all();
                }
                if matches!(phase, Phase::WarmUp | Phase::Measure) {
                    publisher.publish(&shared.record.borrow());
                }
            }
        }
    }
    let mut record = shared.record.take();
    if let Source::Open { turns } = &shared.source {
        record.scheduled = turns.timetable().tickets();
        record.unsent = turns.left();
    }
    Ok(record)
}
