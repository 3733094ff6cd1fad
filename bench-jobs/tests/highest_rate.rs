//! The highest rate that keeps to a target, looked for on a real redis-server: what is found was measured to hold, and a store that
//! stops answering holds nothing; one that breaks connections off holds only what is below that.
//!
//! Needs redis-server in the peers folder; `peers/fetch redis` puts it there. How high the rate is says nothing here: other tests share
//! the machine.

// Helpers of a test fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use storebench_crds::job::{Hindrance, JobLine, JobOutcome, LoadStep, Phase};

use support::job::{Ended, Job};
use support::redis::Redis;

fn run(redis: &Redis, target: Value, rate: u64) -> Ended {
    let load = json!({
        "connections": 8, "mode": "OpenLoop", "arrivals": "Poisson", "rate": rate, "duration": "300ms", "warmUp": "50ms",
        "highestRate": target,
    });
    let workload =
        json!({ "name": "w", "redis": { "command": "Set", "valueBytes": 40, "keySpace": 300 }, "load": load });
    let spec = json!({
        "run": "test", "arm": "redis", "trial": 0, "seed": 42, "endpoints": [redis.endpoint()], "workloads": [workload],
    });
    Job::start(&spec, &[]).end()
}

/// How often a search is repeated that a busy machine hindered, as a driver would repeat the trial.
const ATTEMPTS_MAX: usize = 5;

/// What `job` comes to on a machine that leaves the loader alone for as long.
fn unhindered(job: impl Fn() -> Ended) -> Ended {
    let mut told = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let ended = job();
        match &ended.summary.outcome {
            JobOutcome::Hindered { hindrance, detail, .. } if hindrance.is_transient() => told.push(detail.clone()),
            _ => return ended,
        }
    }
    panic!("this machine is too busy for a search: hindered {ATTEMPTS_MAX} times: {told:#?}");
}

fn steps(ended: &Ended) -> Vec<LoadStep> {
    let step = |line: &JobLine| match line {
        JobLine::LoadStep { step, .. } => Some(step.clone()),
        _ => None,
    };
    ended.lines.iter().filter_map(step).collect()
}

#[test]
fn the_rate_that_is_found_was_measured_to_hold_and_a_higher_one_to_miss() {
    let redis = Redis::start(&[]);
    // So generous that a busy machine only makes the rate lower.
    let target =
        json!({ "percentile": "P90", "atMost": "20ms", "toleranceBasisPoints": 3000, "stepDuration": "200ms" });
    let ended = unhindered(|| run(&redis, target.clone(), 2_000));
    let steps = steps(&ended);
    let summary = ended.measured();
    assert_eq!(ended.summary.outcome, JobOutcome::Completed);
    let last = steps.last().expect("steps");
    assert!(last.is_measured && last.missed.is_none(), "{last:?}");
    assert!(last.intended.p90_nanos <= 20_000_000, "{last:?}");
    // How each rate did when it was tried last is what counts.
    let counts: BTreeMap<u64, &LoadStep> = steps.iter().map(|step| (step.rate_per_second, step)).collect();
    let missed: Vec<&LoadStep> = counts.into_values().filter(|step| step.missed.is_some()).collect();
    assert!(missed.iter().all(|step| step.rate_per_second > last.rate_per_second), "{steps:?}");
    let bound = missed.iter().map(|step| step.rate_per_second).min().expect("something misses");
    let misses = steps.iter().filter(|step| step.rate_per_second == bound && step.missed.is_some()).count();
    assert_eq!(misses, 2, "what bounds the search was tried twice: {steps:?}");
    let lowest = missed.iter().map(|step| step.rate_per_second).min().expect("something misses");
    assert!(lowest as f64 <= last.rate_per_second as f64 * 1.3 + 1.0, "{lowest} and {last:?}");
    // What the summary says is of the measured phase alone.
    let due = last.rate_per_second as f64 * 0.3;
    assert!((summary.operations as f64 / due - 1.0).abs() < 0.05, "{} of {due}", summary.operations);
    assert_eq!(summary.intended.unwrap().p90_nanos, last.intended.p90_nanos);
    // A step that counts is announced when its warm-up is over, so that a driver can tell whose time it was.
    let mut announced = None;
    for line in &ended.lines {
        match line {
            JobLine::LoadStepBegins { workload, rate_per_second } => {
                assert_eq!(workload, "w");
                announced = Some(*rate_per_second);
            }
            JobLine::LoadStep { step, .. } if !step.is_measured => {
                assert_eq!(announced.take(), Some(step.rate_per_second), "{step:?}");
            }
            _ => {}
        }
    }
    let phases = ended.lines.iter().filter(|line| matches!(line, JobLine::Phase { phase: Phase::Verify, .. }));
    assert_eq!(phases.count(), 1, "what was written is read back once");
    assert!(summary.verified >= 300.min(summary.operations), "{summary:?}");
}

#[test]
fn a_target_that_nothing_keeps_is_out_of_reach_and_says_why() {
    let redis = Redis::start(&[]);
    let target = json!({ "percentile": "P50", "atMost": "1ms", "stepDuration": "300ms" });
    // A server that sleeps half of the time answers no median in a millisecond.
    let sleeper = redis.endpoint();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (stopped, pid) = (std::sync::Arc::clone(&stop), redis.pid());
    let thread = std::thread::spawn(move || {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            for signal in [rustix::process::Signal::STOP, rustix::process::Signal::CONT] {
                let _ = rustix::process::kill_process(pid, signal);
                let stopped = signal == rustix::process::Signal::STOP;
                std::thread::sleep(std::time::Duration::from_millis(if stopped { 40 } else { 5 }));
            }
        }
    });
    let ended = run(&redis, target, 2_000);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    thread.join().unwrap();
    let JobOutcome::Hindered { hindrance, detail, .. } = &ended.summary.outcome else {
        panic!("{sleeper}: {:?}", ended.summary.outcome)
    };
    assert_eq!(*hindrance, Hindrance::RateNotReached);
    assert!(detail.starts_with("p50 at most 1ms did not hold even at "), "{detail}");
    assert!(steps(&ended).iter().all(|step| step.missed.is_some()));
}

/// Passes connections on to a store for as long as no more than so many bytes come within a window, and breaks off all that are
/// there when more come. Windows are best a little shorter than a step of the search, so that each step has one of its own.
fn breaking_above(store: u16, bytes_max: usize, window: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let passed: Arc<Mutex<(Instant, usize, Vec<TcpStream>)>> = Arc::new(Mutex::new((Instant::now(), 0, Vec::new())));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", store)) else { return };
            let ends = [&client, &server].map(|end| end.try_clone().unwrap());
            passed.lock().unwrap().2.extend(ends.each_ref().map(|end| end.try_clone().unwrap()));
            let [mut to_client, mut from_server] = ends;
            thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
            let (mut client, mut server, passed) = (client, server, Arc::clone(&passed));
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    let mut passed = passed.lock().unwrap();
                    if passed.0.elapsed() > window {
                        (passed.0, passed.1) = (Instant::now(), 0);
                    }
                    passed.1 += count;
                    if passed.1 > bytes_max {
                        for end in passed.2.drain(..) {
                            let _ = end.shutdown(Shutdown::Both);
                        }
                        passed.1 = 0;
                    }
                    drop(passed);
                    if server.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_store_that_breaks_connections_above_its_capacity_has_a_highest_rate_below_that() {
    let redis = Redis::start(&[]);
    // A SET of this workload is 83 bytes, so that this is about 1,515 requests a second. The search tries 1,237 and 1,855 about it: what a
    // machine that stands still for a fifth of a second makes up for afterwards does not break what holds.
    let endpoint = breaking_above(redis.port, 124_500, Duration::from_millis(990));
    let target = json!({ "percentile": "P90", "atMost": "500ms", "toleranceBasisPoints": 5000, "stepDuration": "1s" });
    let load = json!({
        "connections": 8, "mode": "OpenLoop", "rate": 5000, "duration": "1s", "warmUp": "0s", "timeout": "1s", "highestRate": target,
    });
    let workload =
        json!({ "name": "w", "redis": { "command": "Set", "valueBytes": 40, "keySpace": 16 }, "load": load });
    let spec = json!({
        "run": "test", "arm": "redis", "trial": 0, "seed": 42, "endpoints": [endpoint], "workloads": [workload],
    });
    // That the loader was late now and then changes nothing of what breaks; where it found no rate that held, it is tried again.
    let is_of_use = |ended: &Ended| match &ended.summary.outcome {
        JobOutcome::Completed => true,
        JobOutcome::Hindered { hindrance, .. } => {
            let held = |step: &LoadStep| step.is_measured && step.missed.is_none();
            hindrance.is_transient() && steps(ended).last().is_some_and(held)
        }
        _ => false,
    };
    let attempts = std::iter::repeat_with(|| Job::start(&spec, &[]).end()).take(2 * ATTEMPTS_MAX);
    let ended = attempts.into_iter().find(is_of_use).expect("a search that finds a rate");
    let steps = steps(&ended);
    let broken: Vec<&LoadStep> = steps.iter().filter(|step| step.failed > 0).collect();
    assert!(!broken.is_empty(), "{:?}: {steps:?}", ended.summary.outcome);
    for step in broken {
        let missed = step.missed.as_deref().unwrap();
        assert!(missed.contains(" failed, the first: ") && !step.is_measured, "{step:?}");
    }
    let last = steps.last().unwrap();
    assert!(last.is_measured && last.missed.is_none() && last.failed == 0, "{last:?}");
    assert!((20..4_000).contains(&last.rate_per_second), "{last:?}");
}

#[test]
fn a_store_that_breaks_connections_at_any_rate_has_failed() {
    let redis = Redis::start(&[]);
    let endpoint = breaking_above(redis.port, 100, Duration::from_millis(290));
    let target = json!({ "percentile": "P50", "atMost": "50ms", "stepDuration": "300ms" });
    let load = json!({
        "connections": 8, "mode": "OpenLoop", "rate": 400, "duration": "300ms", "warmUp": "0s", "timeout": "300ms", "highestRate": target,
    });
    let workload = json!({ "name": "w", "redis": { "command": "Set", "valueBytes": 400 }, "load": load });
    let spec = json!({
        "run": "test", "arm": "redis", "trial": 0, "seed": 42, "endpoints": [endpoint], "workloads": [workload],
    });
    let ended = Job::start(&spec, &[]).end();
    let detail = ended.store_failed();
    assert!(detail.starts_with("at 7/s: "), "the lowest rate that has a median in a step: {detail}");
}
