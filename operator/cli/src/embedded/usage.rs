//! What processes use, read from /proc: all processes of a store together, children included.

use std::time::Instant;

use procfs::CurrentSI as _;
use procfs::process::Process;
use storebench_core::record::Usage;

/// A store has few processes; more than this are not followed.
const PROCESSES_MAX: usize = 256;

/// Sums usage from its creation until [`Meter::finish`].
pub(super) struct Meter {
    processes: Vec<i32>,
    started: Instant,
    first: Counters,
    first_machine_cpu_nanos: u64,
    last: (Instant, u64),
    cpu_peak_millicores: u64,
    rss_sum_bytes: u128,
    rss_peak_bytes: u64,
    samples: u64,
}

/// Counters that only grow.
#[derive(Clone, Copy, Default)]
struct Counters {
    cpu_nanos: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

impl Meter {
    /// Starts to measure these processes and their descendants of this moment.
    pub(super) fn start(roots: &[u32]) -> Self {
        let processes = descendants(roots);
        let first = counters(&processes);
        let started = Instant::now();
        let mut meter = Self {
            processes,
            started,
            first,
            first_machine_cpu_nanos: machine_cpu_nanos(),
            last: (started, first.cpu_nanos),
            cpu_peak_millicores: 0,
            rss_sum_bytes: 0,
            rss_peak_bytes: 0,
            samples: 0,
        };
        meter.sample_memory();
        meter
    }

    /// Takes a sample. Processor time is counted in ticks of 10 ms: sample no more often than every 100 ms.
    pub(super) fn sample(&mut self) {
        self.sample_memory();
        let now = Instant::now();
        let cpu_nanos = self.processes.iter().filter_map(|pid| cpu_nanos(*pid)).sum::<u64>();
        let span_nanos = now.duration_since(self.last.0).as_nanos().max(1);
        let used_nanos = u128::from(cpu_nanos.saturating_sub(self.last.1));
        self.cpu_peak_millicores = self.cpu_peak_millicores.max((used_nanos * 1_000 / span_nanos) as u64);
        self.last = (now, cpu_nanos);
    }

    fn sample_memory(&mut self) {
        let rss_bytes: u64 = self.processes.iter().filter_map(|pid| rss_bytes(*pid)).sum();
        self.rss_sum_bytes += u128::from(rss_bytes);
        self.rss_peak_bytes = self.rss_peak_bytes.max(rss_bytes);
        self.samples += 1;
    }

    /// Ends the measurement. Reads the proportional set size once, here, because reading it holds up the store.
    pub(super) fn finish(mut self) -> Usage {
        let end = counters(&self.processes);
        let elapsed_nanos = self.started.elapsed().as_nanos() as u64;
        self.sample_memory();
        let pss_bytes: u64 = self.processes.iter().filter_map(|pid| pss_bytes(*pid)).sum();
        let cpu_nanos = end.cpu_nanos.saturating_sub(self.first.cpu_nanos);
        let average_millicores = (u128::from(cpu_nanos) * 1_000 / u128::from(elapsed_nanos.max(1))) as u64;
        Usage {
            elapsed_nanos,
            cpu_nanos,
            cpu_peak_millicores: self.cpu_peak_millicores.max(average_millicores),
            rss_average_bytes: (self.rss_sum_bytes / u128::from(self.samples.max(1))) as u64,
            rss_peak_bytes: self.rss_peak_bytes,
            pss_peak_bytes: pss_bytes,
            voluntary_switches: end.voluntary_switches.saturating_sub(self.first.voluntary_switches),
            involuntary_switches: end.involuntary_switches.saturating_sub(self.first.involuntary_switches),
            machine_cpu_nanos: machine_cpu_nanos().saturating_sub(self.first_machine_cpu_nanos),
        }
    }
}

/// The processes themselves and everything below them, in the order found.
fn descendants(roots: &[u32]) -> Vec<i32> {
    let mut found: Vec<i32> = roots.iter().map(|pid| pid.cast_signed()).collect();
    let mut index = 0;
    while index < found.len() && found.len() < PROCESSES_MAX {
        let tasks = Process::new(found[index]).and_then(|process| process.tasks()).into_iter().flatten().flatten();
        for child in tasks.filter_map(|task| task.children().ok()).flatten() {
            found.push(child.cast_signed());
        }
        index += 1;
    }
    found
}

fn counters(processes: &[i32]) -> Counters {
    let mut sum = Counters::default();
    for pid in processes {
        sum.cpu_nanos += cpu_nanos(*pid).unwrap_or_default();
        let tasks = Process::new(*pid).and_then(|process| process.tasks()).into_iter().flatten().flatten();
        for status in tasks.filter_map(|task| task.status().ok()) {
            sum.voluntary_switches += status.voluntary_ctxt_switches.unwrap_or_default();
            sum.involuntary_switches += status.nonvoluntary_ctxt_switches.unwrap_or_default();
        }
    }
    sum
}

fn cpu_nanos(pid: i32) -> Option<u64> {
    let stat = Process::new(pid).ok()?.stat().ok()?;
    Some((stat.utime + stat.stime) * (1_000_000_000 / procfs::ticks_per_second()))
}

/// Time that all processors together were not idle since the system started; 0 where it cannot be read.
fn machine_cpu_nanos() -> u64 {
    let Ok(stat) = procfs::KernelStats::current() else { return 0 };
    let busy_ticks = stat.total.user + stat.total.nice + stat.total.system;
    let interrupt_ticks = stat.total.irq.unwrap_or_default() + stat.total.softirq.unwrap_or_default();
    (busy_ticks + interrupt_ticks) * (1_000_000_000 / procfs::ticks_per_second())
}

fn rss_bytes(pid: i32) -> Option<u64> {
    let stat = Process::new(pid).ok()?.stat().ok()?;
    Some(stat.rss * procfs::page_size())
}

fn pss_bytes(pid: i32) -> Option<u64> {
    let rollup = Process::new(pid).ok()?.smaps_rollup().ok()?;
    rollup.memory_map_rollup.0.first()?.extension.map.get("Pss").copied()
}
