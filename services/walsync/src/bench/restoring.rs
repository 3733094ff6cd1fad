//! `restore`: how fast a database comes back by its size, and beside it a plain copy of as many bytes out of the same store.
//!
//! walsync writes one replica: a snapshot, and uploads after it. Both programs restore that one, and what they make is compared with the database
//! byte for byte.

use super::application::{self, Synchronous};
use super::child::{self, Child, Usage};
use super::replicator::{Arm, Objects, Run};
use super::statistics::median;
use super::table::{Column, Table, Value};
use super::{Bench, PATIENCE, Test};
use rusqlite::Connection;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;
use walsync::store::Attributes;

/// Uploads after the snapshot.
const UPLOADS: usize = 10;
/// What a row holds: half of it noise, half of it zeros.
const HALF: usize = 4000;
/// The arm that copies.
const PLAIN: usize = 2;

const COLUMNS: &[Column] = &[
    Column("database_mb", "MB", 0),
    Column("arm", "arm", 0),
    Column("seconds", "s", 3),
    Column("mb_per_second", "MB/s", 0),
    Column("processor_seconds", "CPU s", 3),
    Column("peak_mib", "peak MiB", 1),
    Column("speed_against_plain", "x plain", 2),
    Column("replica_mb", "replica MB", 1),
];

pub fn measure(bench: &mut Bench) -> anyhow::Result<Table> {
    let mut rows = Vec::new();
    for megabytes in bench.options.megabytes.clone() {
        bench.say(format_args!("restore, {megabytes} MB: writing the replica"));
        let run = bench.new_run(Arm::Walsync, &format!("restore-{megabytes}"), 1)?;
        let run = Run { interval: Duration::from_millis(25), ..run };
        replicate(bench, &run, megabytes)?;
        let bytes = fs::metadata(run.database(0))?.len();
        let replica = bench.place.replica(&run.name, "0.db")?.files()?.iter().map(|file| file.size).sum::<u64>();
        // As an object, for whoever reads it as it is.
        let plain = format!("{}-plain", run.name);
        put(bench, &plain, &run.database(0))?;
        let mut samples: [Vec<Usage>; 3] = Default::default();
        for round in 0..bench.options.rounds {
            let mut arms = vec![0, 1, PLAIN];
            if round % 2 == 1 {
                arms.reverse();
            }
            for arm in arms {
                let usage = match arm {
                    PLAIN => Some(get(bench, &plain, &run)?),
                    1 if bench.litestream.is_none() => None,
                    1 => Some(restored(bench, Arm::Litestream, &run, round)?),
                    _ => Some(restored(bench, Arm::Walsync, &run, round)?),
                };
                samples[arm].extend(usage);
            }
        }
        let seconds = |arm: usize| median(samples[arm].iter().map(|usage| usage.seconds).collect());
        for (arm, name) in ["walsync", "litestream", "plain copy"].into_iter().enumerate() {
            let Some(taken) = seconds(arm) else { continue };
            // Of one round with another: what the machine does besides befalls both.
            let pairs = samples[arm].iter().zip(&samples[PLAIN]).map(|(usage, plain)| plain.seconds / usage.seconds);
            rows.push(vec![
                Value::Count(megabytes.into()),
                name.into(),
                Value::Number(taken),
                Value::Number(bytes as f64 / 1e6 / taken),
                median(samples[arm].iter().map(|usage| usage.processor_seconds).collect()).into(),
                samples[arm].iter().filter_map(|usage| usage.peak_mib).max_by(f64::total_cmp).into(),
                median(pairs.collect()).into(),
                Value::Number(if arm == PLAIN { bytes } else { replica } as f64 / 1e6),
            ]);
        }
        fs::remove_dir_all(&run.folder)?;
    }
    let about = format!(
        "a replica of a snapshot and {UPLOADS} uploads, of a database half of which is noise; medians of {} rounds, peak of all; each output is \
         synced, and compared byte for byte; a plain copy is one {} of as many bytes",
        bench.options.rounds,
        if bench.place.is_s3() { "GET" } else { "read of a file" }
    );
    Ok(Table { test: Test::Restore, about, columns: COLUMNS, rows })
}

/// Writes the database, and its replica, and closes both.
fn replicate(bench: &Bench, run: &Run, megabytes: u32) -> anyhow::Result<()> {
    let application = application::create(&run.database(0), 0, Synchronous::Normal)?;
    fill(bench, &application, megabytes)?;
    let mut children = bench.start(run, &bench.place)?;
    let mut objects = Objects::behind(bench.place.replica(&run.name, "0.db")?, true)?;
    for upload in 0..=UPLOADS {
        let patience = PATIENCE + Duration::from_millis(100) * megabytes;
        let has_come = bench.comes(patience, || {
            children.iter_mut().try_for_each(Child::must_live)?;
            objects.are_new()
        })?;
        anyhow::ensure!(has_come, "{}: upload {upload} was not in the store after {patience:?}", run.name);
        if upload < UPLOADS {
            let sql = "UPDATE filler SET v = randomblob(4000) || zeroblob(4000) WHERE id % 50 = ?1 AND id <= 2000";
            application.execute(sql, [upload as i64])?;
        }
    }
    children.into_iter().for_each(Child::stop);
    application.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

fn fill(bench: &Bench, application: &Connection, megabytes: u32) -> anyhow::Result<()> {
    let sql = format!("INSERT INTO filler(v) VALUES (randomblob({HALF}) || zeroblob({HALF}))");
    let mut insert = application.prepare(&sql)?;
    // Two pages a row. In pieces, so that the WAL stays small, and who wants to end need not wait.
    let rows = u64::from(megabytes) * 1_000_000 / 8192;
    for from in (0..=rows).step_by(1000) {
        bench.go_on()?;
        application.execute_batch("BEGIN")?;
        for _ in from..(from + 1000).min(rows.max(50)) {
            insert.execute([])?;
        }
        application.execute_batch("COMMIT")?;
    }
    application.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

fn restored(bench: &mut Bench, by: Arm, run: &Run, round: u32) -> anyhow::Result<Usage> {
    bench.say(format_args!("{}, round {} of {}: {}", run.name, round + 1, bench.options.rounds, by.name()));
    let output = run.folder.join("restored");
    let usage = bench.restore(by, run, 0, &output)?.map_err(|why| anyhow::anyhow!("{}: {why}", run.name))?;
    if !same(bench, &run.database(0), &output)? {
        bench.failures.push(format!("{}: what {} restored is not the database", run.name, by.name()));
    }
    fs::remove_file(&output)?;
    Ok(usage)
}

fn same(bench: &Bench, one: &Path, other: &Path) -> anyhow::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        bench.go_on()?;
        let read = one.read(&mut left)?;
        other.read_exact(&mut right[..read])?;
        if left[..read] != right[..read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
    }
}

/// Stores a file as it is.
fn put(bench: &Bench, name: &str, path: &Path) -> anyhow::Result<()> {
    let location = bench.place.location(name)?;
    let (store, prefix) = location.store();
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok(store.create(format!("{prefix}/plain").trim_start_matches('/'), &mut file, length, &Attributes::default())?)
}

/// Fetches it into a file, which is synced.
fn get(bench: &Bench, name: &str, run: &Run) -> anyhow::Result<Usage> {
    let location = bench.place.location(name)?;
    let (store, prefix) = location.store();
    let output = run.folder.join("plain");
    let usage = child::ourselves(|| {
        let mut body = store.get(format!("{prefix}/plain").trim_start_matches('/'), None)?;
        let (mut file, mut buffer) = (File::create(&output)?, vec![0; 1 << 20]);
        loop {
            bench.go_on()?;
            match body.read(&mut buffer)? {
                0 => break,
                read => file.write_all(&buffer[..read])?,
            }
        }
        Ok(file.sync_all()?)
    })?;
    anyhow::ensure!(same(bench, &run.database(0), &output)?, "{}: a plain copy is not the database", run.name);
    fs::remove_file(&output)?;
    Ok(usage)
}
