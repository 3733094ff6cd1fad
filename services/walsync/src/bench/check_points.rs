//! `checkpoint`: how long commits take while another connection makes a TRUNCATE check point ten times a second, and how long those take.

use super::application::{self, Synchronous, insert};
use super::child::Child;
use super::replicator::Arm;
use super::statistics::Times;
use super::table::{Column, Table, Value};
use super::{Bench, Test};
use rusqlite::Connection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two commits, and between two check points.
const COMMIT: Duration = Duration::from_millis(1);
const CHECK_POINT: Duration = Duration::from_millis(100);

const COLUMNS: &[Column] = &[
    Column("arm", "arm", 0),
    Column("commits", "commits", 0),
    Column("commit_p50_millis", "p50 ms", 3),
    Column("commit_p99_millis", "p99 ms", 2),
    Column("commit_max_millis", "max ms", 1),
    Column("commits_busy", "busy", 0),
    Column("check_points", "check points", 0),
    Column("check_point_p50_millis", "p50 ms", 2),
    Column("check_point_p99_millis", "p99 ms", 1),
    Column("check_point_max_millis", "max ms", 1),
    Column("check_points_busy", "busy", 0),
];

/// Times of one arm, and how many were given up as busy.
#[derive(Default)]
struct Sample {
    commits: Vec<f64>,
    commits_busy: u64,
    check_points: Vec<f64>,
    check_points_busy: u64,
}

pub fn measure(bench: &mut Bench) -> anyhow::Result<Table> {
    let arms = [Arm::Alone, Arm::Walsync, Arm::Litestream];
    let mut samples = bench.rounds("checkpoint", &arms, |bench, arm, round| sample(bench, arm, round))?;
    let row = |arm: Arm| {
        let mut all = Sample::default();
        for (_, sample) in samples.iter_mut().filter(|(of, _)| *of == arm) {
            all.commits.append(&mut sample.commits);
            all.commits_busy += sample.commits_busy;
            all.check_points.append(&mut sample.check_points);
            all.check_points_busy += sample.check_points_busy;
        }
        let mut row = vec![arm.name().into()];
        for (times, busy) in [(all.commits, all.commits_busy), (all.check_points, all.check_points_busy)] {
            let times = Times::new(times);
            row.push(Value::Count(times.count() as u64));
            row.extend([times.at(0.5), times.at(0.99), times.max()].map(Value::from));
            row.push(Value::Count(busy));
        }
        row
    };
    let rows = bench.turns(&arms, 0).into_iter().map(row).collect();
    let about = format!(
        "a commit of one row every {} ms, and another connection's TRUNCATE every {} ms; busy: given up after SQLite's timeout of 5 s, or told so; \
         {:?} in each of {} rounds, synchronous=NORMAL",
        COMMIT.as_millis(),
        CHECK_POINT.as_millis(),
        bench.options.duration,
        bench.options.rounds
    );
    Ok(Table { test: Test::Checkpoint, about, columns: COLUMNS, rows })
}

fn sample(bench: &Bench, arm: Arm, round: u32) -> anyhow::Result<Sample> {
    let run = bench.new_run(arm, &format!("checkpoint-{round}"), 1)?;
    let database = run.database(0);
    let application = application::create(&database, bench.options.database_kilobytes, Synchronous::Normal)?;
    let other = application::connect(&database, Synchronous::Normal)?;
    let mut children = bench.start_durable(&run, &bench.place)?;
    bench.settle()?;
    let stop = AtomicBool::new(false);
    let mut sample = Sample::default();
    std::thread::scope(|scope| {
        let stop = &stop;
        let checker = scope.spawn(move || check_points(&other, stop));
        let written = write(bench, &application, &mut sample);
        stop.store(true, Ordering::Release);
        let made = checker.join().map_err(|_| anyhow::anyhow!("the other connection has failed"))?;
        written?;
        (sample.check_points, sample.check_points_busy) = made?;
        Ok::<_, anyhow::Error>(())
    })?;
    children.iter_mut().try_for_each(Child::must_live)?;
    children.into_iter().for_each(Child::stop);
    Ok(sample)
}

fn write(bench: &Bench, application: &Connection, sample: &mut Sample) -> anyhow::Result<()> {
    let end = Instant::now() + bench.options.duration;
    let mut id = 0;
    while Instant::now() < end {
        bench.go_on()?;
        let begun = Instant::now();
        match insert(application, id) {
            Ok(()) => id += 1,
            Err(error) if is_busy(&error) => sample.commits_busy += 1,
            Err(error) => return Err(error.into()),
        }
        sample.commits.push(begun.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(COMMIT);
    }
    Ok(())
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Check points of another connection until `stop`: how long each took, and how many could not be made.
fn check_points(connection: &Connection, stop: &AtomicBool) -> anyhow::Result<(Vec<f64>, u64)> {
    let (mut millis, mut busy) = (Vec::new(), 0);
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        let said = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        millis.push(begun.elapsed().as_secs_f64() * 1000.0);
        match said {
            Ok(0) => {}
            Ok(_) => busy += 1,
            Err(error) if is_busy(&error) => busy += 1,
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(CHECK_POINT);
    }
    Ok((millis, busy))
}
