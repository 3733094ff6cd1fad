//! `throughput`: commits of one writer as fast as it can, with nobody beside it, walsync, or Litestream; and whether they all come back.

use super::application::{self, Synchronous, insert, marker};
use super::child::Child;
use super::replicator::{Arm, Objects};
use super::statistics::{Times, median};
use super::table::{Column, Table, Value};
use super::{Bench, PATIENCE, Test};
use std::time::Instant;
use walsync::database::with_suffix;

/// Commits between two looks at the WAL and the time.
const BATCH: i64 = 64;

const COLUMNS: &[Column] = &[
    Column("synchronous", "synchronous", 0),
    Column("arm", "arm", 0),
    Column("commits_per_second", "commits/s", 0),
    Column("commit_p50_millis", "p50 ms", 3),
    Column("commit_p99_millis", "p99 ms", 3),
    Column("wal_max_mib", "largest WAL MiB", 1),
    Column("lag_seconds", "lag at end s", 2),
    Column("rows", "rows", 0),
    Column("rows_lost", "rows lost", 0),
];

/// Of one arm in one round.
struct Sample {
    commits_per_second: f64,
    millis: Vec<f64>,
    wal_max_mib: f64,
    lag_seconds: Option<f64>,
    rows: u64,
    lost: Option<u64>,
}

pub fn measure(bench: &mut Bench) -> anyhow::Result<Table> {
    let arms = [Arm::Alone, Arm::Walsync, Arm::Litestream];
    let mut rows = Vec::new();
    for synchronous in [Synchronous::Normal, Synchronous::Full] {
        let what = format!("throughput, {}", synchronous.name());
        let samples = bench.rounds(&what, &arms, |bench, arm, round| sample(bench, arm, synchronous, round))?;
        for arm in bench.turns(&arms, 0) {
            let of = || samples.iter().filter(|(of, _)| *of == arm).map(|(_, sample)| sample);
            let times = Times::new(of().flat_map(|sample| sample.millis.iter().copied()).collect());
            let most = |figure: fn(&Sample) -> Option<f64>| of().filter_map(figure).max_by(f64::total_cmp);
            rows.push(vec![
                synchronous.name().into(),
                arm.name().into(),
                median(of().map(|sample| sample.commits_per_second).collect()).into(),
                times.at(0.5).into(),
                times.at(0.99).into(),
                most(|sample| Some(sample.wal_max_mib)).into(),
                most(|sample| sample.lag_seconds).into(),
                Value::Count(of().map(|sample| sample.rows).sum()),
                of().map(|sample| sample.lost).sum::<Option<u64>>().into(),
            ]);
        }
    }
    let about = format!(
        "one writer, a commit for each row of {} bytes, {:?} in each of {} rounds; NORMAL syncs at check points alone, FULL each commit; the most of \
         all rounds of WAL and lag; rows lost after a restore by the arm itself",
        application::ROW,
        bench.options.duration,
        bench.options.rounds
    );
    Ok(Table { test: Test::Throughput, about, columns: COLUMNS, rows })
}

fn sample(bench: &mut Bench, arm: Arm, synchronous: Synchronous, round: u32) -> anyhow::Result<Sample> {
    let what = format!("throughput-{}-{round}", synchronous.name().to_lowercase());
    let run = bench.new_run(arm, &what, 1)?;
    let database = run.database(0);
    let application = application::create(&database, bench.options.database_kilobytes, synchronous)?;
    let mut children = bench.start_durable(&run, &bench.place)?;
    bench.settle()?;
    let wal = with_suffix(&database, "-wal");
    let (mut millis, mut wal_max, mut rows) = (Vec::new(), 0, 0);
    let begun = Instant::now();
    let mut last = begun;
    while last.duration_since(begun) < bench.options.duration {
        bench.go_on()?;
        for _ in 0..BATCH {
            rows += 1;
            insert(&application, rows)?;
            let now = Instant::now();
            millis.push(now.duration_since(last).as_secs_f64() * 1000.0);
            last = now;
        }
        wal_max = wal_max.max(std::fs::metadata(&wal)?.len());
    }
    let commits_per_second = rows as f64 / last.duration_since(begun).as_secs_f64();
    let (mut lag_seconds, mut lost) = (None, Some(0));
    if arm != Arm::Alone {
        let mut objects = Objects::behind(bench.place.replica(&run.name, "0.db")?, true)?;
        let row = marker(rows);
        let patience = PATIENCE + bench.options.duration * 10;
        let is_durable = bench.comes(patience, || {
            children.iter_mut().try_for_each(Child::must_live)?;
            objects.have(&row)
        })?;
        lag_seconds = is_durable.then(|| last.elapsed().as_secs_f64());
        children.into_iter().for_each(Child::stop);
        lost = bench.lost(arm, &run, &application, &format!("throughput, {}, {}", synchronous.name(), arm.name()))?;
        if !is_durable {
            bench.failures.push(format!("{}: the last commit was not in the store after {patience:?}", run.name));
        }
    }
    drop(application);
    std::fs::remove_dir_all(&run.folder)?;
    Ok(Sample {
        commits_per_second,
        millis,
        wal_max_mib: wal_max as f64 / 1_048_576.0,
        lag_seconds,
        rows: rows as u64,
        lost,
    })
}

impl Bench {
    /// Rows that a restore lacks, or has otherwise; none where there is no restore. Either is a failure of the whole.
    pub(super) fn lost(
        &mut self,
        by: Arm,
        run: &super::replicator::Run,
        application: &rusqlite::Connection,
        what: &str,
    ) -> anyhow::Result<Option<u64>> {
        let output = run.folder.join("restored");
        if let Err(why) = self.restore(by, run, 0, &output)? {
            self.failures.push(format!("{what}: LOST ALL: the restore by {} failed: {why}", by.name()));
            return Ok(None);
        }
        match application::difference(application, &output) {
            Ok(lost) => {
                if lost > 0 {
                    self.failures.push(format!("{what}: LOST {lost} rows, as restored by {}", by.name()));
                }
                Ok(Some(lost))
            }
            Err(error) => {
                self.failures.push(format!("{what}: LOST ALL: what {} restored cannot be read: {error}", by.name()));
                Ok(None)
            }
        }
    }
}
