//! `network`: the store goes away for a while, or, where nothing can stand before it, the replicator is killed; an application writes on. How
//! long is it until all of that is in the store, and what does a restore by Litestream lack?

use super::application::{self, Synchronous, insert, marker};
use super::child::Child;
use super::relay::Relay;
use super::replicator::{Arm, Objects, Run};
use super::table::{Column, Table, Value};
use super::{Bench, PATIENCE, Test};
use rusqlite::Connection;
use std::time::{Duration, Instant};

const COLUMNS: &[Column] = &[
    Column("round", "round", 0),
    Column("arm", "arm", 0),
    Column("outage", "outage", 0),
    Column("outage_seconds", "outage s", 1),
    Column("rows_meanwhile", "rows meanwhile", 0),
    Column("catch_up_seconds", "catch-up s", 2),
    Column("rows", "rows", 0),
    Column("rows_lost", "rows lost", 0),
    Column("restored_by", "restored by", 0),
];

pub fn measure(bench: &mut Bench) -> anyhow::Result<Table> {
    if bench.place.plain_endpoint().is_none() {
        bench.say("network: the store has no http:// endpoint that a relay could stand before: the replicator is killed instead");
    }
    let rows =
        bench.rounds("network", &[Arm::Walsync, Arm::Litestream], row)?.into_iter().map(|(_, row)| row).collect();
    let about = format!(
        "{} commits a second, also during an outage of {:?}; catch-up is from its end until an object has the last row; rows lost are those that differ \
         after a restore",
        bench.options.commits_per_second, bench.options.duration
    );
    Ok(Table { test: Test::Network, about, columns: COLUMNS, rows })
}

/// One row every so often, for a time.
fn write(bench: &Bench, application: &Connection, rows: &mut i64, duration: Duration) -> anyhow::Result<()> {
    let pace = Duration::from_secs(1) / bench.options.commits_per_second;
    let (begun, mut due) = (Instant::now(), Instant::now());
    while begun.elapsed() < duration {
        *rows += 1;
        insert(application, *rows)?;
        due += pace;
        bench.pause(due.min(begun + duration).saturating_duration_since(Instant::now()))?;
    }
    Ok(())
}

fn row(bench: &mut Bench, arm: Arm, round: u32) -> anyhow::Result<Vec<Value>> {
    let run = bench.new_run(arm, &format!("network-{round}"), 1)?;
    let application = application::create(&run.database(0), bench.options.database_kilobytes, Synchronous::Normal)?;
    let relay = bench.place.plain_endpoint().map(Relay::start).transpose()?;
    let place = match &relay {
        Some(relay) => bench.place.through(relay.endpoint()),
        None => bench.place.clone(),
    };
    let mut children = bench.start_durable(&run, &place)?;
    let mut rows = 0;
    write(bench, &application, &mut rows, bench.options.interval)?;
    let (before, begun) = (rows, Instant::now());
    match &relay {
        Some(relay) => relay.set_dark(true),
        // Dropped, they are killed.
        None => children.clear(),
    }
    write(bench, &application, &mut rows, bench.options.duration)?;
    let outage = begun.elapsed();
    let mut objects = Objects::behind(bench.place.replica(&run.name, "0.db")?, true)?;
    match &relay {
        Some(relay) => relay.set_dark(false),
        None => children = bench.start(&run, &place)?,
    }
    let caught_up = caught_up(bench, &run, &mut children, &mut objects, rows)?;
    children.into_iter().for_each(Child::stop);
    drop(relay);
    let by = if bench.litestream.is_some() { Arm::Litestream } else { Arm::Walsync };
    let what = format!("network, {}", arm.name());
    let lost = bench.lost(by, &run, &application, &what)?;
    if caught_up.is_none() {
        bench.failures.push(format!("{what}: not caught up after {PATIENCE:?}"));
    }
    Ok(vec![
        Value::Count(u64::from(round) + 1),
        arm.name().into(),
        if place.plain_endpoint().is_some() { "black hole" } else { "kill -9" }.into(),
        Value::Number(outage.as_secs_f64()),
        Value::Count((rows - before) as u64),
        caught_up.into(),
        Value::Count(rows as u64),
        lost.into(),
        by.name().into(),
    ])
}

fn caught_up(
    bench: &Bench,
    run: &Run,
    children: &mut [Child],
    objects: &mut Objects,
    last: i64,
) -> anyhow::Result<Option<f64>> {
    let (begun, row) = (Instant::now(), marker(last));
    let is_there = bench.comes(PATIENCE, || {
        children.iter_mut().try_for_each(Child::must_live)?;
        objects.have(&row)
    })?;
    if !is_there {
        bench.say(format_args!("{}: the last row was not in the store after {PATIENCE:?}", run.name));
    }
    Ok(is_there.then(|| begun.elapsed().as_secs_f64()))
}
