//! `idle` and `active`: what watching costs by number of databases, in memory and processor time.

use super::application::{self, Synchronous};
use super::child::{Child, Memory};
use super::replicator::Arm;
use super::statistics::median;
use super::table::{Column, Table, Value};
use super::{Bench, Test};
use rusqlite::Connection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Litestreams at once, of some 30 MB each.
const PROCESSES_MAX: u32 = 50;

const COLUMNS: &[Column] = &[
    Column("databases", "databases", 0),
    Column("arm", "arm", 0),
    Column("processes", "processes", 0),
    Column("rss_mib", "RSS MiB", 1),
    Column("pss_mib", "PSS MiB", 1),
    Column("private_mib", "private MiB", 1),
    Column("processor_percent", "CPU %", 2),
    Column("descriptors", "descriptors", 0),
    Column("commits_per_second", "commits/s", 1),
];

/// Of one arm in one round.
struct Sample {
    processes: usize,
    memory: Memory,
    processor_percent: f64,
    commits_per_second: f64,
}

pub fn measure(bench: &mut Bench, is_active: bool) -> anyhow::Result<Table> {
    let test = if is_active { Test::Active } else { Test::Idle };
    let mut rows = Vec::new();
    for count in bench.options.databases.clone() {
        let mut arms = vec![Arm::Walsync, Arm::Litestream];
        if bench.options.litestream_each && count > 1 {
            if count <= PROCESSES_MAX {
                arms.push(Arm::LitestreamEach);
            } else {
                bench.say(format_args!("no Litestream for each of {count} databases: {PROCESSES_MAX} at most"));
            }
        }
        let what = format!("{}, databases: {count}", test.name());
        let all = bench.rounds(&what, &arms, |bench, arm, round| sample(bench, test, arm, count, round))?;
        for arm in bench.turns(&arms, 0) {
            let samples: Vec<&Sample> = all.iter().filter(|(of, _)| *of == arm).map(|(_, sample)| sample).collect();
            let middle = |figure: fn(&Sample) -> f64| {
                Value::from(median(samples.iter().copied().map(figure).collect::<Vec<f64>>()))
            };
            rows.push(vec![
                Value::Count(count.into()),
                arm.name().into(),
                Value::from(samples.first().map(|sample| sample.processes as u64)),
                middle(|sample| sample.memory.rss),
                middle(|sample| sample.memory.pss),
                middle(|sample| sample.memory.private),
                middle(|sample| sample.processor_percent),
                Value::from(samples.first().map(|sample| sample.memory.descriptors)),
                middle(|sample| sample.commits_per_second),
            ]);
        }
    }
    let options = &bench.options;
    let commits = match is_active {
        true => format!("{} commits a second into each", options.commits_per_second),
        false => "nobody writes".to_owned(),
    };
    let about = format!(
        "databases of {} KB that their application keeps open, {commits}; {:?} of each of {} rounds, medians; RSS and PSS are sums over processes",
        options.database_kilobytes, options.duration, options.rounds
    );
    Ok(Table { test, about, columns: COLUMNS, rows })
}

fn sample(bench: &Bench, test: Test, arm: Arm, count: u32, round: u32) -> anyhow::Result<Sample> {
    let run = bench.new_run(arm, &format!("{}-{count}-{round}", test.name()), count)?;
    let mut applications = Vec::new();
    for number in 0..count {
        bench.go_on()?;
        let kilobytes = bench.options.database_kilobytes;
        applications.push(application::create(&run.database(number), kilobytes, Synchronous::Normal)?);
    }
    let mut children = bench.start_durable(&run, &bench.place)?;
    let writes = test == Test::Active;
    let stop = AtomicBool::new(false);
    let pace = Duration::from_secs(1) / bench.options.commits_per_second / count;
    let sample = std::thread::scope(|scope| {
        let writer = writes.then(|| scope.spawn(|| write(&mut applications, pace, &stop)));
        let measured = (|| {
            bench.settle()?;
            let processor_seconds = || children.iter().map(Child::processor_seconds).sum::<anyhow::Result<f64>>();
            let (before, begun) = (processor_seconds()?, Instant::now());
            bench.pause(bench.options.duration)?;
            let busy = (processor_seconds()? - before) / begun.elapsed().as_secs_f64();
            let mut memory = Memory::default();
            for child in &children {
                let one = child.memory()?;
                memory.rss += one.rss;
                memory.pss += one.pss;
                memory.private += one.private;
                memory.descriptors += one.descriptors;
            }
            Ok::<_, anyhow::Error>((memory, busy * 100.0))
        })();
        stop.store(true, Ordering::Release);
        let commits_per_second = match writer.map(|writer| writer.join()) {
            None => 0.0,
            Some(written) => written.map_err(|_| anyhow::anyhow!("the writer has failed"))??,
        };
        let (memory, processor_percent) = measured?;
        Ok::<_, anyhow::Error>(Sample { processes: children.len(), memory, processor_percent, commits_per_second })
    })?;
    children.iter_mut().try_for_each(Child::must_live)?;
    children.into_iter().for_each(Child::stop);
    drop(applications);
    std::fs::remove_dir_all(&run.folder)?;
    Ok(sample)
}

/// Commits at an even pace, database after database; gives how many a second it were.
fn write(applications: &mut [Connection], pace: Duration, stop: &AtomicBool) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let (mut due, mut commits) = (begun, 0_u64);
    while !stop.load(Ordering::Acquire) {
        for application in applications.iter() {
            let sql = "UPDATE filler SET v = randomblob(500) WHERE id = 1 + abs(random()) % 50";
            application.prepare_cached(sql)?.execute([])?;
            commits += 1;
            due += pace;
            // In pieces: who wants to end waits no longer than that.
            while due > Instant::now() && !stop.load(Ordering::Acquire) {
                std::thread::sleep(due.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)));
            }
        }
    }
    Ok(commits as f64 / begun.elapsed().as_secs_f64())
}
