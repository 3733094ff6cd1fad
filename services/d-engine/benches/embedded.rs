//! What an engine within a program does: three members in this one process, on the loopback and one disk, every acknowledged write synced by a
//! majority; tasks of one more thread of the process ask the leader, by `Engine::client`, and each waits for its answer before it asks again.
//!
//! `cargo bench --profile published -p d-engine --bench embedded`: a line for each row, median of `TRIALS` phases of `PHASE`, with the processor time of the
//! whole process, members and tasks together. Numbers for documents only from a quiet machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use d_engine::{Address, Engine, Options};
use d_engine_client::{Client, ReadLevel};
use harness::{Random, processor_time};

const TRIALS: usize = 5;
const PHASE: Duration = Duration::from_secs(3);
const KEYS: u64 = 10_000;
const VALUE: [u8; 256] = [7; 256];
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
enum Asked {
    Put,
    Get(ReadLevel),
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let root = harness::folder_on_disk();
    let peers = (0..3).map(|_| Address { client: String::new(), peer: harness::free_address().to_string() });
    let members: BTreeMap<u64, Address> = (1..).zip(peers).collect();
    let start = |id| {
        let options = Options { id, members: members.clone(), ..Options::alone(root.path().join(id.to_string())) };
        Engine::start(options).unwrap()
    };
    let engines: Vec<Engine> = (1..=3).map(start).collect();
    for engine in &engines {
        engine.wait_ready(PATIENCE).await.unwrap();
    }
    let mut leadership = engines[0].leadership();
    let leader = leadership.wait_for(|now| now.leader.is_some()).await.unwrap().leader.unwrap();
    let client = engines[leader as usize - 1].client();
    for number in 0..KEYS {
        client.put(key(number), VALUE.to_vec()).await.unwrap();
    }
    println!("asked\ttasks\tanswers a second\tprocessor time of each, microseconds");
    let (linearizable, lease) = (Asked::Get(ReadLevel::Linearizable), Asked::Get(ReadLevel::Lease));
    let rows = [
        ("put", Asked::Put, 1),
        ("put", Asked::Put, 100),
        ("put", Asked::Put, 1000),
        ("get, linearizable", linearizable, 1),
        ("get, linearizable", linearizable, 1000),
        ("get, lease", lease, 1),
        ("get, lease", lease, 1000),
        ("get, eventual", Asked::Get(ReadLevel::Eventual), 1000),
    ];
    for (name, asked, tasks) in rows {
        let mut trials = Vec::with_capacity(TRIALS);
        for trial in 0..TRIALS {
            trials.push(phase(&client, asked, tasks, trial as u64).await);
        }
        trials.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (per_second, micros) = trials[TRIALS / 2];
        println!("{name}\t{tasks}\t{per_second:.0}\t{micros:.1}");
    }
    let now = leadership.borrow().leader;
    assert_eq!(now, Some(leader), "another member leads: what was measured is not what is said");
    for engine in engines {
        engine.stop().unwrap();
    }
}

fn key(number: u64) -> String {
    format!("key/{number:08}")
}

/// Answers a second, and processor time of each in microseconds.
async fn phase(client: &Client, asked: Asked, tasks: u64, trial: u64) -> (f64, f64) {
    let (begun, used) = (Instant::now(), processor_time::of_process());
    let tasks = (0..tasks).map(|task| {
        let (client, mut random) = (client.clone(), Random::new(trial << 32 | task));
        tokio::spawn(async move {
            let mut answered = 0_u64;
            while begun.elapsed() < PHASE {
                let key = key(random.below(KEYS));
                match asked {
                    Asked::Put => assert!(client.put(key, VALUE.to_vec()).await.unwrap() > 0),
                    Asked::Get(level) => assert!(client.get_with(key, level).await.unwrap().value.is_some()),
                }
                answered += 1;
            }
            answered
        })
    });
    let mut answered = 0;
    for task in tasks.collect::<Vec<_>>() {
        answered += task.await.unwrap();
    }
    let (took, used) = (begun.elapsed().as_secs_f64(), processor_time::of_process() - used);
    (answered as f64 / took, used.as_secs_f64() * 1e6 / answered as f64)
}
