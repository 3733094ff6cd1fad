//! The delay that is asked for is the delay that a client sees.
//!
//! The one test here that measures time: the instrument is worth nothing if it does not slow by what it says. What is
//! compared are ratios of interleaved blocks, and an attempt that the machine spoilt may be repeated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faulty;

use std::time::Instant;

use faulty::{Faulty, Redis};

const BLOCKS: usize = 20;
const REQUESTS_PER_BLOCK: usize = 100;

/// Takes about 170 µs, asleep and not at work, so that it takes as long on a busy machine.
const REQUEST: &str = "DEBUG SLEEP 0.0001";

/// Median latency in nanoseconds of requests one after another. On a new connection, because the cores that its threads
/// happen to run on make more of a difference than anything else.
fn block(faulty: &Faulty) -> f64 {
    let mut redis = Redis::connect(faulty);
    let mut latencies: Vec<f64> = (0..REQUESTS_PER_BLOCK)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(redis.call(REQUEST), "+OK");
            start.elapsed().as_nanos() as f64
        })
        .collect();
    median(&mut latencies)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median over interleaved pairs of blocks of how much longer a request takes.
fn ratio(fair: &Faulty, slow: &Faulty) -> f64 {
    let pair = |n| {
        if n % 2 == 0 {
            let fair = block(fair);
            block(slow) / fair
        } else {
            let slow = block(slow);
            slow / block(fair)
        }
    };
    median(&mut (0..BLOCKS).map(pair).collect::<Vec<_>>())
}

#[test]
fn a_quarter_slower_is_a_quarter_slower() {
    let more = ["--enable-debug-command", "local"];
    let (fair, slow) = (Faulty::redis(&[], &more), Faulty::redis(&["delay-percent=25"], &more));
    let mut attempts = vec![];
    for _ in 0..4 {
        attempts.push(ratio(&fair, &slow));
        if attempts.last().is_some_and(|ratio| (1.20..=1.35).contains(ratio)) {
            println!("{attempts:.3?}");
            return;
        }
    }
    panic!("25 % more should be 1.20 to 1.35 as much, not {attempts:.3?}");
}

#[test]
fn sixty_four_connections_at_once_get_their_own_answers() {
    let faulty = Faulty::redis(&["delay-percent=25"], &[]);
    std::thread::scope(|scope| {
        for client in 0..64 {
            let faulty = &faulty;
            scope.spawn(move || {
                let mut redis = Redis::connect(faulty);
                for n in 0..30 {
                    assert_eq!(redis.call(&format!("ECHO {client}:{n}")), format!("${client}:{n}"));
                }
                let pipeline: String = (0..30).map(|n| format!("ECHO {client}:{n}\r\n")).collect();
                redis.send(pipeline.as_bytes());
                for n in 0..30 {
                    assert_eq!(redis.reply(), format!("${client}:{n}"));
                }
            });
        }
    });
}
