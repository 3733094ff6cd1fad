//! From instantaneous readings to what was used over a span. Pure: the caller brings the readings.

use std::collections::BTreeMap;

use storebench_crds::job::{MachineUse, Usage};
use storebench_crds::meter::Reading;

/// Sums readings of one or several members, always given in the same order.
#[derive(Clone, Debug)]
pub struct Accumulator {
    first: Vec<Reading>,
    last: Vec<Reading>,
    cpu_peak_millicores: u64,
    rss_sum_bytes: u128,
    rss_peak_bytes: u64,
    samples: u64,
}

impl Accumulator {
    /// A span begins with these readings, one for each member.
    pub fn start(first: Vec<Reading>) -> Self {
        let mut accumulator = Self {
            last: first.clone(),
            first,
            cpu_peak_millicores: 0,
            rss_sum_bytes: 0,
            rss_peak_bytes: 0,
            samples: 0,
        };
        accumulator.memory(&accumulator.last.clone());
        accumulator
    }

    /// Readings within the span.
    pub fn sample(&mut self, readings: Vec<Reading>) {
        self.memory(&readings);
        let millicores = readings.iter().zip(&self.last).map(|(now, last)| millicores(last, now)).sum();
        self.cpu_peak_millicores = self.cpu_peak_millicores.max(millicores);
        self.last = readings;
    }

    /// The first member, from 0, that was replaced since the span began: its counters say nothing about the span.
    pub fn restarted(&self, readings: &[Reading]) -> Option<usize> {
        self.first.iter().zip(readings).position(|(first, now)| first.restarts != now.restarts)
    }

    /// What the members' machines went through until these readings; `part` names a member by its number.
    pub fn machines(&self, readings: &[Reading], part: impl Fn(usize) -> String) -> Vec<MachineUse> {
        let pairs = self.first.iter().zip(readings).enumerate();
        pairs.map(|(number, (first, last))| first.machine_until(last, part(number))).collect()
    }

    /// The span ends with these readings.
    pub fn finish(mut self, readings: &[Reading]) -> Usage {
        self.memory(readings);
        let pairs = || self.first.iter().zip(readings);
        let grown = |counter: fn(&Reading) -> u64| -> u64 {
            pairs().map(|(first, last)| counter(last).saturating_sub(counter(first))).sum()
        };
        let average_millicores = pairs().map(|(first, last)| millicores(first, last)).sum();
        Usage {
            elapsed_nanos: pairs().map(|(first, last)| elapsed_nanos(first, last)).max().unwrap_or_default(),
            cpu_nanos: grown(|reading| reading.cpu_nanos),
            cpu_peak_millicores: self.cpu_peak_millicores.max(average_millicores),
            rss_average_bytes: (self.rss_sum_bytes / u128::from(self.samples.max(1))) as u64,
            rss_peak_bytes: self.rss_peak_bytes,
            pss_peak_bytes: readings.iter().filter_map(|reading| reading.pss_bytes).sum(),
            voluntary_switches: grown(|reading| reading.switches.unwrap_or_default().voluntary),
            involuntary_switches: grown(|reading| reading.switches.unwrap_or_default().involuntary),
            machine_cpu_nanos: machine_cpu_nanos(&self.first, readings),
            written_bytes: written_bytes(&self.first, readings),
        }
    }

    fn memory(&mut self, readings: &[Reading]) {
        let rss_bytes: u64 = readings.iter().map(|reading| reading.rss_bytes).sum();
        self.rss_sum_bytes += u128::from(rss_bytes);
        self.rss_peak_bytes = self.rss_peak_bytes.max(rss_bytes);
        self.samples += 1;
    }
}

fn elapsed_nanos(first: &Reading, last: &Reading) -> u64 {
    last.monotonic_nanos.saturating_sub(first.monotonic_nanos)
}

/// Processor use between two readings of a member, thousandths of a core.
fn millicores(first: &Reading, last: &Reading) -> u64 {
    let used_nanos = u128::from(last.cpu_nanos.saturating_sub(first.cpu_nanos));
    (used_nanos * 1_000 / u128::from(elapsed_nanos(first, last).max(1))) as u64
}

/// Of members on one disk each sees all of it. What one of them does not know, all together do not know.
fn written_bytes(first: &[Reading], last: &[Reading]) -> Option<u64> {
    let mut disks = BTreeMap::new();
    for (first, last) in first.iter().zip(last) {
        let (before, now) = (first.disk.as_ref()?, last.disk.as_ref()?);
        let grown = now.written_bytes.checked_sub(before.written_bytes).filter(|_| now.device == before.device)?;
        disks.insert((&now.device, &last.machine), grown);
    }
    Some(disks.values().sum())
}

/// Of members on one machine each sees all of it. Where there are several machines, nobody sees everything.
fn machine_cpu_nanos(first: &[Reading], last: &[Reading]) -> u64 {
    match (first.split_first(), last.first()) {
        (Some((first, others)), Some(last)) if others.iter().all(|other| other.machine == first.machine) => {
            last.machine_cpu_nanos.saturating_sub(first.machine_cpu_nanos)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storebench_crds::meter::{DiskWrites, Switches};

    const MILLISECOND: u64 = 1_000_000;

    /// A member whose clock began at `clock`, after so many milliseconds of which it used `cpu`.
    fn reading(clock: u64, millis: u64, cpu: u64, rss_bytes: u64) -> Reading {
        Reading {
            monotonic_nanos: clock + millis * MILLISECOND,
            cpu_nanos: cpu * MILLISECOND,
            rss_bytes,
            switches: Some(Switches { voluntary: 10 * cpu, involuntary: cpu }),
            pss_bytes: Some(rss_bytes / 2),
            disk: Some(DiskWrites { device: "8:1".into(), written_bytes: 1_000 * cpu }),
            machine_cpu_nanos: 3 * millis * MILLISECOND,
            machine: "one".into(),
            restarts: 0,
            machine_stolen_nanos: 0,
            machine_pressure_nanos: None,
        }
    }

    #[test]
    fn a_span_of_one_member() {
        let mut accumulator = Accumulator::start(vec![reading(5, 1_000, 100, 1_000)]);
        accumulator.sample(vec![reading(5, 1_100, 180, 5_000)]);
        accumulator.sample(vec![reading(5, 1_200, 190, 3_000)]);
        let usage = accumulator.finish(&[reading(5, 1_250, 200, 3_000)]);
        let expected = Usage {
            elapsed_nanos: 250 * MILLISECOND,
            cpu_nanos: 100 * MILLISECOND,
            cpu_peak_millicores: 800,
            rss_average_bytes: 3_000,
            rss_peak_bytes: 5_000,
            pss_peak_bytes: 1_500,
            voluntary_switches: 1_000,
            involuntary_switches: 100,
            machine_cpu_nanos: 750 * MILLISECOND,
            written_bytes: Some(100_000),
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn members_are_added_up_each_by_its_own_clock() {
        let mut accumulator = Accumulator::start(vec![reading(5, 0, 0, 1_000), reading(77, 0, 50, 2_000)]);
        accumulator.sample(vec![reading(5, 100, 50, 1_000), reading(77, 200, 150, 2_000)]);
        let usage = accumulator.finish(&[reading(5, 300, 60, 1_000), reading(77, 400, 150, 2_000)]);
        assert_eq!((usage.elapsed_nanos, usage.cpu_nanos), (400 * MILLISECOND, 160 * MILLISECOND));
        assert_eq!(usage.cpu_peak_millicores, 500 + 500);
        assert_eq!((usage.rss_average_bytes, usage.rss_peak_bytes, usage.pss_peak_bytes), (3_000, 3_000, 1_500));
        assert_eq!(usage.machine_cpu_nanos, 900 * MILLISECOND, "both see the same machine");
    }

    #[test]
    fn members_on_one_disk_are_not_counted_twice_and_one_without_a_disk_hides_all() {
        let on = |machine: &str, cpu| Reading { machine: machine.into(), ..reading(0, cpu, cpu, 0) };
        let written = |first: Vec<Reading>, last: Vec<Reading>| Accumulator::start(first).finish(&last).written_bytes;
        assert_eq!(written(vec![on("a", 0), on("a", 0)], vec![on("a", 9), on("a", 9)]), Some(9_000));
        assert_eq!(written(vec![on("a", 0), on("b", 0)], vec![on("a", 9), on("b", 5)]), Some(14_000));
        let without = Reading { disk: None, ..on("a", 9) };
        assert_eq!(written(vec![on("a", 0), on("a", 0)], vec![on("a", 9), without]), None);
        assert_eq!(written(Vec::new(), Vec::new()), Some(0));
    }

    #[test]
    fn of_several_machines_nobody_sees_everything() {
        let elsewhere = |millis| Reading { machine: "two".into(), ..reading(0, millis, 0, 0) };
        let accumulator = Accumulator::start(vec![reading(0, 0, 0, 0), elsewhere(0)]);
        assert_eq!(accumulator.finish(&[reading(0, 100, 0, 0), elsewhere(100)]).machine_cpu_nanos, 0);
    }

    #[test]
    fn a_member_that_was_replaced_is_noticed() {
        let accumulator = Accumulator::start(vec![reading(0, 0, 500, 0), reading(0, 0, 500, 0)]);
        let replaced = Reading { restarts: 1, ..reading(0, 100, 3, 0) };
        assert_eq!(accumulator.restarted(&[reading(0, 100, 510, 0), reading(0, 100, 510, 0)]), None);
        assert_eq!(accumulator.restarted(&[reading(0, 100, 510, 0), replaced]), Some(1));
    }
}
