//! `sync`: how long it is from a commit to an object in the store that has it.
//!
//! Each commit is one row of its own content. The store is listed until there is something new, and what is new is read: it is durable when it has
//! the row. So the figure is that of nobody's log. Between two commits is a time drawn anew, so that they fall anywhere between two uploads.

use super::application::{self, Synchronous, insert, marker};
use super::child::Child;
use super::replicator::{Arm, Objects};
use super::statistics::Times;
use super::table::{Column, Table, Value};
use super::{Bench, PATIENCE, Test};
use rand::random_range;
use std::time::{Duration, Instant};

/// Between two looks at a folder, and at a bucket.
const LOOK: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];

const COLUMNS: &[Column] = &[
    Column("arm", "arm", 0),
    Column("interval_millis", "interval ms", 0),
    Column("samples", "samples", 0),
    Column("p50_millis", "p50 ms", 0),
    Column("p95_millis", "p95 ms", 0),
    Column("p99_millis", "p99 ms", 0),
    Column("max_millis", "max ms", 0),
];

pub fn measure(bench: &mut Bench) -> anyhow::Result<Table> {
    let arms = [Arm::Walsync, Arm::Litestream];
    let all = bench.rounds("sync", &arms, |bench, arm, round| samples(bench, arm, round))?;
    let interval = bench.options.interval.as_millis() as u64;
    let row = |arm: Arm| {
        let millis = all.iter().filter(|(of, _)| *of == arm).flat_map(|(_, millis)| millis.iter().copied());
        let times = Times::new(millis.collect());
        let mut row = vec![arm.name().into(), Value::Count(interval), Value::Count(times.count() as u64)];
        row.extend([0.5, 0.95, 0.99].map(|part| times.at(part).into()));
        row.push(times.max().into());
        row
    };
    let rows = bench.turns(&arms, 0).into_iter().map(row).collect();
    let about = format!(
        "from the return of a commit into a database of {} KB to an object that has its row, by looking every {} ms; {:?} in each of {} \
         rounds, synchronous=NORMAL",
        bench.options.database_kilobytes,
        look(bench).as_millis(),
        bench.options.duration,
        bench.options.rounds
    );
    Ok(Table { test: Test::Sync, about, columns: COLUMNS, rows })
}

fn look(bench: &Bench) -> Duration {
    LOOK[usize::from(bench.place.is_s3())]
}

fn samples(bench: &Bench, arm: Arm, round: u32) -> anyhow::Result<Vec<f64>> {
    let run = bench.new_run(arm, &format!("sync-{round}"), 1)?;
    let kilobytes = bench.options.database_kilobytes;
    let application = application::create(&run.database(0), kilobytes, Synchronous::Normal)?;
    let mut children = bench.start_durable(&run, &bench.place)?;
    bench.settle()?;
    let mut objects = Objects::behind(bench.place.replica(&run.name, "0.db")?, false)?;
    let (mut millis, look) = (Vec::new(), look(bench));
    let end = Instant::now() + bench.options.duration;
    // One at least, however short it is.
    while millis.is_empty() || Instant::now() < end {
        let id = millis.len() as i64;
        insert(&application, id)?;
        let committed = Instant::now();
        let row = marker(id);
        loop {
            bench.go_on()?;
            if objects.have(&row)? {
                break;
            }
            children.iter_mut().try_for_each(Child::must_live)?;
            anyhow::ensure!(
                committed.elapsed() < PATIENCE,
                "{}: a commit was not in the store after {PATIENCE:?}",
                run.name
            );
            std::thread::sleep(look);
        }
        millis.push(committed.elapsed().as_secs_f64() * 1000.0);
        bench.pause(bench.options.interval.mul_f64(random_range(0.0..1.0)))?;
    }
    children.into_iter().for_each(|child| child.stop());
    Ok(millis)
}
