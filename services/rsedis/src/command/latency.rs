//! LATENCY: how long commands took, and the spikes that the monitor has seen.

use crate::failure::{Failure, Outcome};
use crate::latency::Series;
use crate::protocol::Args;
use crate::server::{CommandStats, Server};
use crate::session::Session;

/// Columns and rows of a graph.
const COLUMNS: usize = 80;
const ROWS: usize = 4;
/// How much of a row is full.
const LEVELS: &[u8; 3] = b"_o#";

pub(super) fn latest(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let reply = &mut client.reply;
    reply.array(server.latency.events.len());
    for (name, series) in &server.latency.events {
        let last = series.samples.back();
        reply.array(4);
        reply.bulk(name.as_bytes());
        reply.integer(last.map_or(0, |last| last.at));
        reply.integer(last.map_or(0, |last| last.millis as i64));
        reply.integer(series.max_millis as i64);
    }
    Ok(())
}

fn series<'a>(server: &'a Server, name: &[u8]) -> Option<&'a Series> {
    server.latency.events.get(std::str::from_utf8(name).ok()?)
}

pub(super) fn history(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let samples = series(server, args.at(2)).map(|series| &series.samples);
    client.reply.array(samples.map_or(0, |samples| samples.len()));
    for sample in samples.into_iter().flatten() {
        client.reply.array(2);
        client.reply.integer(sample.at);
        client.reply.integer(sample.millis as i64);
    }
    Ok(())
}

pub(super) fn reset(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let events = &mut server.latency.events;
    let before = events.len();
    events.retain(|name, _| {
        args.len() > 2 && !args.from(2).iter().any(|wanted| wanted.eq_ignore_ascii_case(name.as_bytes()))
    });
    client.reply.count(before - server.latency.events.len());
    Ok(())
}

fn push_histogram(client: &mut Session, name: &str, stats: &CommandStats) {
    let bounds = stats.times.cumulative();
    client.reply.bulk(name.as_bytes());
    client.reply.map(2);
    client.reply.bulk(b"calls");
    client.reply.integer(stats.calls as i64);
    client.reply.bulk(b"histogram_usec");
    client.reply.map(bounds.len());
    for (micros, count) in bounds {
        client.reply.integer(micros as i64);
        client.reply.integer(count as i64);
    }
}

pub(super) fn histogram(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let asked: Vec<&super::Command> = match args.len() {
        2 => super::all().to_vec(),
        _ => (args.from(2).iter().filter_map(super::named))
            .flat_map(|command| [command].into_iter().chain(command.subcommands))
            .collect(),
    };
    let timed: Vec<_> = (asked.into_iter())
        .filter_map(|command| Some((command.name, server.stats.of(super::number_of(command))?)))
        .filter(|(_, stats)| stats.times.percentile(100.0).is_some())
        .collect();
    client.reply.map(timed.len());
    timed.into_iter().for_each(|(name, stats)| push_histogram(client, name, stats));
    Ok(())
}

/// How long ago, in the largest unit that is not zero.
fn age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Bars, and below them how long ago each sample was, read downwards.
fn draw(values: &[(u64, String)]) -> String {
    let low = values.iter().map(|(millis, _)| *millis).min().unwrap_or(0);
    let high = values.iter().map(|(millis, _)| *millis).max().unwrap_or(0);
    let steps = LEVELS.len() * ROWS;
    let range = (high - low).max(1) as f64;
    let step = |millis: u64| (((millis - low) as f64 * steps as f64 / range) as usize).min(steps - 1);
    let mut text = String::new();
    for (place, part) in values.chunks(COLUMNS).enumerate() {
        if place > 0 {
            text.push('\n');
        }
        for row in 0..ROWS {
            let floor = (ROWS - row - 1) * LEVELS.len();
            text.extend(part.iter().map(|(millis, _)| match step(*millis).checked_sub(floor) {
                None => ' ',
                Some(level) => LEVELS.get(level).map_or('|', |level| char::from(*level)),
            }));
            text.push('\n');
        }
        let longest = part.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
        text.push_str(&" ".repeat(part.len()));
        text.push('\n');
        for letter in 0..longest {
            text.extend(
                part.iter().map(|(_, label)| label.as_bytes().get(letter).map_or(' ', |byte| char::from(*byte))),
            );
            text.push('\n');
        }
    }
    text
}

pub(super) fn graph(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let name = String::from_utf8_lossy(args.at(2));
    let unknown = || Failure::joined(&[b"ERR No samples available for event '", args.at(2), b"'"]);
    let series = series(server, args.at(2)).ok_or_else(unknown)?;
    let values: Vec<(u64, String)> =
        series.samples.iter().map(|sample| (sample.millis, age(server.now / 1000 - sample.at))).collect();
    let (low, high) = (values.iter().map(|(millis, _)| *millis).min(), values.iter().map(|(millis, _)| *millis).max());
    let text = format!(
        "{name} - high {} ms, low {} ms (all time high {} ms)\n{}\n{}",
        high.unwrap_or(0),
        low.unwrap_or(0),
        series.max_millis,
        "-".repeat(COLUMNS),
        draw(&values)
    );
    client.reply.verbatim(&text);
    Ok(())
}

/// What may be done about an event.
fn advice(event: &str) -> &'static str {
    match event {
        "command" => {
            "Check your Slow Log to understand what are the commands you are running which are too slow to execute. Deleting, \
             expiring or evicting large objects is a blocking operation: try to fragment them into multiple smaller objects."
        }
        "fast-command" => {
            "The system is slow to execute code that makes no system calls: see that the server has a processor when it needs one."
        }
        "aof-fsync-always" => {
            "Your fsync policy is set to 'always', and the disk takes long to sync: use a faster one, or relax the policy to 'everysec'."
        }
        "aof-write" => "Writing the append-only file takes long: see whether the disk is shared with other programs.",
        "expire-cycle" | "eviction-cycle" => {
            "Many keys, or large ones, go at once: spread their times to live, or fragment them into smaller objects."
        }
        _ => "See what the server does at these times.",
    }
}

pub(super) fn doctor(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    let is_off = server.settings.latency_threshold_millis == 0;
    let events = &server.latency.events;
    if events.is_empty() {
        client.reply.verbatim(match is_off {
            true => "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use \"CONFIG SET \
                     latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd \
                     suggest to take a look at https://redis.io/topics/latency-monitor.\n",
            false => "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I \
                      honestly think you ought to sit down calmly, take a stress pill, and think things over.\n",
        });
        return Ok(());
    }
    let mut text = "Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n\n"
        .to_owned();
    for (place, (name, series)) in events.iter().enumerate() {
        let analysis = series.analyse(server.now / 1000);
        let count = series.samples.len();
        text += &format!(
            "{}. {name}: {count} latency spikes (average {}ms, mean deviation {}ms, period {:.2} sec). Worst all time event {}ms.\n",
            place + 1,
            analysis.mean_millis,
            analysis.deviation_millis,
            analysis.period as f64 / count.max(1) as f64,
            series.max_millis
        );
    }
    text += "\nI have a few advices for you:\n\n";
    events.keys().for_each(|name| text += &format!("- {name}: {}\n", advice(name)));
    client.reply.verbatim(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis's own `sparkline.c` draws them.
    #[test]
    fn bars_grow_with_time_and_labels_read_downwards() {
        let values = [(10, "12s".to_owned()), (20, "3s".to_owned()), (30, "1s".to_owned())];
        assert_eq!(draw(&values), "  #\n _|\n ||\n_||\n   \n131\n2ss\ns  \n");
        assert_eq!(draw(&[(7, "1d".to_owned())]), " \n \n \n_\n \n1\nd\n");
    }
}
