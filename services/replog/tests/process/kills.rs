//! Three processes under load: one or all are killed, one is stopped for longer than its lease, again and again. Nothing that was
//! acknowledged is lost, and no strong read is old.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use harness::LONG;

use crate::children::{Children, Connection};
use crate::clients::Load;
use crate::history;

const CLIENTS: usize = 8;

#[test]
fn nothing_acknowledged_is_lost_when_processes_are_killed_and_stopped() {
    let seconds = std::env::var("REPLOG_SECONDS").map_or(20, |text| text.parse().unwrap());
    let scratch = harness::folder();
    let children = Children::new(scratch.path(), 3);
    (1..=3).for_each(|id| children.start(id));
    let load = Load::new(&children);
    let mut failovers = Vec::new();
    thread::scope(|scope| {
        (0..CLIENTS).for_each(|client| {
            drop(scope.spawn({
                let load = &load;
                move || load.client(client)
            }))
        });
        wait_for_acknowledgement(&load, load.now());
        let end = Instant::now() + Duration::from_secs(seconds);
        for round in 0_u64.. {
            if Instant::now() >= end {
                break;
            }
            failovers.extend(trouble(&load, round));
            wait_for_acknowledgement(&load, load.now());
            thread::sleep(Duration::from_millis(300));
        }
        load.ends.store(true, Ordering::Relaxed);
    });
    load.look_at_everything();
    let history = std::mem::take(&mut *load.history.lock().unwrap());
    if let Ok(path) = std::env::var("REPLOG_HISTORY") {
        history::write(&PathBuf::from(path), &history);
    }
    let acknowledged = history.iter().filter(|one| one.level.is_none() && one.end_nanos.is_some()).count();
    let unknown = history.iter().filter(|one| one.end_nanos.is_none()).count();
    let gets = history.iter().filter(|one| one.level.is_some()).count();
    failovers.sort_unstable();
    println!("{acknowledged} puts acknowledged, {unknown} of unknown outcome, {gets} gets");
    println!("killed leaders: without an acknowledged write for {failovers:?}");
    let violations = history::violations(&history);
    assert_eq!(violations, Vec::<String>::new());
    assert!(acknowledged > 0 && gets > 0 && !failovers.is_empty());
}

/// Something bad, by turns. The time without an acknowledged write, if a leader was killed.
fn trouble(load: &Load<'_>, round: u64) -> Option<Duration> {
    let children = load.children;
    let leader = children.leader();
    match round % 4 {
        0 => {
            let leader = leader?;
            let killed = load.now();
            children.kill(leader);
            let lasted = wait_for_acknowledgement(load, killed);
            children.start(leader);
            Some(lasted)
        }
        1 => {
            let any = round / 4 % 3 + 1;
            children.kill(any);
            thread::sleep(Duration::from_millis(200));
            children.start(any);
            None
        }
        2 => {
            let stopped = leader?;
            stop_and_ask(load, stopped, round);
            None
        }
        _ => {
            (1..=3).for_each(|id| children.kill(id));
            (1..=3).for_each(|id| children.start(id));
            None
        }
    }
}

/// Stops a leader until another one has acknowledged a put of every key, and asks it for those, before it goes on: it has the
/// questions in front of it when it wakes, and does not know yet that it leads no more.
fn stop_and_ask(load: &Load<'_>, stopped: u64, round: u64) {
    const DRIVER: usize = 2_000;
    let asking: Vec<_> = load.keys().filter_map(|key| Some((key, load.children.connect(stopped)?))).collect();
    load.children.signal(stopped, Signal::STOP);
    let mut connections: Vec<Option<Connection>> = (0..load.children.members).map(|_| None).collect();
    let deadline = Instant::now() + LONG;
    for (key, _) in &asking {
        for attempt in 0_u64.. {
            if load.put(DRIVER, key.clone(), format!("driver-{round}-{key}-{attempt}"), &mut connections) {
                break;
            }
            assert!(Instant::now() < deadline, "two of three do not go on");
            thread::sleep(Duration::from_millis(5));
        }
    }
    let asked: Vec<_> = asking
        .into_iter()
        .filter_map(|(key, mut connection)| {
            let start = load.now();
            connection.send(&format!("get lease {key}"))?;
            Some((key, connection, start))
        })
        .collect();
    load.children.signal(stopped, Signal::CONT);
    for (key, mut connection, start) in asked {
        let answer = connection.receive();
        load.note_get(DRIVER, key, "lease", start, answer);
    }
}

/// Waits until a put that was sent or answered after then is acknowledged. How long after.
fn wait_for_acknowledgement(load: &Load<'_>, after: u64) -> Duration {
    let deadline = Instant::now() + LONG;
    loop {
        // What was acknowledged in the same moment may have been on its way.
        let last = load.last_acknowledged.load(Ordering::Relaxed);
        if last > after + 1_000_000 {
            return Duration::from_nanos(last - after);
        }
        assert!(Instant::now() < deadline, "nothing is acknowledged any more");
        thread::sleep(Duration::from_millis(1));
    }
}
