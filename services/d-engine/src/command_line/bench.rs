//! `d-engine bench`: the load of the published report, with its flags, and what its numbers do not say.
//!
//! The report's tool lets in as many requests as there are connections, and starts the clock when one is let in, so that its "1,000
//! clients" are 200. Here all clients are in flight, unless `--report-inflight` asks for the report's reading; how many really were is
//! printed, and so is what an acknowledged write has been through.

use std::io;

use d_engine_client::ReadLevel;
use d_engine_client::wire::StatusReply;
use hdrhistogram::Histogram;
use service_kit::console;

use super::keys::Keys;
use super::load::{self, Door, Load, Measured, Work};
use super::{access, ctl, in_full, wait_for};
use crate::state::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// A sync that takes less than this does not reach a disk, microseconds.
const SYNC_MICROS_MIN: u64 = 50;

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Addresses of members; once for each, or with commas.
    #[arg(
        long = "endpoints",
        global = true,
        default_value = "http://127.0.0.1:9081",
        value_delimiter = ',',
        value_name = "HOST:PORT",
        value_parser = access::endpoint
    )]
    endpoints: Vec<String>,
    /// Connections.
    #[arg(long, global = true, default_value_t = 1)]
    conns: usize,
    /// Clients: each makes one request after the other.
    #[arg(long, global = true, default_value_t = 1)]
    clients: usize,
    /// Requests of all clients together.
    #[arg(long, global = true, default_value_t = 10_000)]
    total: u64,
    /// Bytes of a key.
    #[arg(long, global = true, default_value_t = 8)]
    key_size: usize,
    /// Bytes of a value.
    #[arg(long, global = true, default_value_t = 256)]
    value_size: usize,
    /// Keys in order, from 99999999 down.
    #[arg(long, global = true)]
    sequential_keys: bool,
    /// Different keys; by default as many as requests.
    #[arg(long, global = true)]
    key_space: Option<u64>,
    /// Lets in as many requests as there are connections, and starts the clock then, as the report's tool does.
    #[arg(long, global = true)]
    report_inflight: bool,
    #[command(flatten)]
    access: access::Flags,
    /// What is spoken.
    #[arg(long, global = true, value_enum, default_value_t = Door::Unary)]
    door: Door,
    #[command(subcommand)]
    work: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Puts.
    Put,
    /// Gets of single keys.
    #[command(visible_alias = "get")]
    Range {
        /// l (linearizable), s (lease) or e (eventual).
        #[arg(long, default_value = "l", value_parser = ctl::level)]
        consistency: ReadLevel,
    },
}

impl Arguments {
    /// The run that they ask for, or what is wrong with them.
    pub fn check(self) -> Result<Load, String> {
        if self.conns == 0 || self.clients < self.conns || self.total == 0 || self.key_space == Some(0) {
            return Err(
                "--conns must be at least 1, --clients at least --conns, --total and --key-space at least 1".into()
            );
        }
        if self.key_size == 0 || self.key_size > KEY_BYTES_MAX || self.value_size > VALUE_BYTES_MAX {
            return Err(format!(
                "--key-size must be from 1 to {KEY_BYTES_MAX}, --value-size at most {VALUE_BYTES_MAX}"
            ));
        }
        let work = match self.work {
            Verb::Put => Work::Put(self.value_size),
            Verb::Range { consistency } => Work::Get(consistency),
        };
        Ok(Load {
            access: self.access.open().map_err(|error| in_full(&error))?,
            endpoints: self.endpoints,
            connections: self.conns,
            clients: self.clients,
            total: self.total,
            keys: Keys { bytes: self.key_size, is_sequential: self.sequential_keys },
            key_space: self.key_space.unwrap_or(self.total),
            door: self.door,
            work,
            limits_in_flight: self.report_inflight,
        })
    }
}

/// Runs it, and prints what came of it.
pub(super) fn run(load: Load) -> anyhow::Result<()> {
    let (leader, before) = wait_for(ctl::wait_for_leader(&load.access, &load.endpoints, load::PATIENCE))?;
    console::print(format_args!(
        "leader: {leader}, members: {}, durability of acknowledged writes: {}\n",
        before.members.len(),
        before.durability
    ))?;
    let measured = load::run(&load, &leader)?;
    print(&load, &measured)?;
    if before.durability == "fsync" {
        // Of the run alone, and whatever has become of the member.
        match wait_for(ctl::status(&load.access, &leader)) {
            Ok(after) => print_syncs(&leader, &before, &after)?,
            Err(error) => console::print(format_args!("syncs of the leader's log: not known: {}\n", in_full(&error)))?,
        }
    } else {
        console::print(format_args!("warning: acknowledged writes are not synced: compare with nothing that syncs\n"))?;
    }
    if let Some(refusal) = measured.refusal {
        anyhow::bail!("the run has ended early: {refusal}");
    }
    anyhow::ensure!(
        measured.latencies.len() == load.total,
        "only {} of {} requests succeeded",
        measured.latencies.len(),
        load.total
    );
    Ok(())
}

/// What the log of the member that led when the run began has done since.
fn print_syncs(leader: &str, before: &StatusReply, after: &StatusReply) -> io::Result<()> {
    let Some(syncs) = after.syncs.checked_sub(before.syncs) else {
        return console::print(format_args!(
            "syncs of the leader's log: not known: {leader} was started again meanwhile\n"
        ));
    };
    let mean = after.sync_sum_micros.saturating_sub(before.sync_sum_micros).checked_div(syncs);
    let with_mean = mean.map(|mean| format!(", mean {mean} us with their writes")).unwrap_or_default();
    console::print(format_args!("syncs of the leader's log: {syncs}{with_mean}\n"))?;
    if after.leader_id != before.leader_id {
        console::print(format_args!("the leader has changed meanwhile: these are the syncs of {leader} alone\n"))?;
    }
    if mean.is_some_and(|mean| mean < SYNC_MICROS_MIN) {
        console::print(format_args!(
            "warning: syncs of less than {SYNC_MICROS_MIN} us do not reach a disk: numbers of writes are not durable ones\n"
        ))?;
    }
    Ok(())
}

fn print(load: &Load, measured: &Measured) -> io::Result<()> {
    let Measured { elapsed, latencies, found, failed, made_again, problem, busy_seconds, refusal: _ } = measured;
    let seconds = elapsed.as_secs_f64();
    let requests = latencies.len();
    console::print(format_args!(
        "total time: {seconds:.3} s, requests: {requests}, throughput: {:.0} ops/s\n",
        requests as f64 / seconds
    ))?;
    console::print(format_args!(
        "in flight: {:.1} on average (clients {}, connections {}{})\n",
        busy_seconds / seconds,
        load.clients,
        load.connections,
        if load.limits_in_flight { ", limited to the connections as in the report" } else { "" }
    ))?;
    if let Work::Get(_) = load.work {
        console::print(format_args!("found: {found} of {requests}\n"))?;
    }
    if requests == 0 {
        console::print(format_args!("latency: of nothing\n"))?;
    } else {
        print_latencies(latencies)?;
    }
    if let Some(problem) = problem {
        console::print(format_args!("failed: {failed}, made again: {made_again}, the first: {problem}\n"))?;
    }
    Ok(())
}

fn print_latencies(latencies: &Histogram<u64>) -> io::Result<()> {
    console::print(format_args!(
        "latency us: avg {:.0} min {} max {} p50 {} p90 {} p99 {} p99.9 {}\n",
        latencies.mean(),
        latencies.min(),
        latencies.max(),
        latencies.value_at_quantile(0.5),
        latencies.value_at_quantile(0.9),
        latencies.value_at_quantile(0.99),
        latencies.value_at_quantile(0.999)
    ))
}
