//! The machine that this process runs on: its clocks, its processors' time, and the facts that must be equal before
//! figures may be compared.

use std::collections::BTreeMap;
use std::fs;

use procfs::{Current as _, CurrentSI as _};
use rustix::time::{ClockId, clock_gettime};
use storebench_crds::meter::Reading;

/// Facts by name: architecture, kernel, memory, processor. One that cannot be read is left out.
pub fn facts() -> BTreeMap<&'static str, String> {
    let system = rustix::system::uname();
    let facts = [
        ("architecture", Some(system.machine().to_string_lossy().into_owned())),
        ("kernel", Some(system.release().to_string_lossy().into_owned())),
        ("memory", memory()),
        ("processor", processor()),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))).collect()
}

/// Processors of the machine, whether or not this process may use them all.
pub fn cores() -> Option<usize> {
    Some(procfs::KernelStats::current().ok()?.cpu_time.len())
}

/// The identifier that the kernel chose when it started: the same in every container of a machine, and in no other.
pub fn boot_identifier() -> Option<String> {
    first_line("/proc/sys/kernel/random/boot_id")
}

/// Time that all processors together were not idle since the system started, nanoseconds.
pub fn cpu_nanos() -> Option<u64> {
    busy_and_stolen_nanos().map(|(busy, _)| busy)
}

/// The time of [`cpu_nanos`], and that which the hypervisor gave to others although a processor here had work.
pub fn busy_and_stolen_nanos() -> Option<(u64, u64)> {
    let total = procfs::KernelStats::current().ok()?.total;
    Some((busy_nanos(&total), total.steal.unwrap_or_default() * nanos_per_tick()))
}

fn busy_nanos(total: &procfs::CpuTime) -> u64 {
    let interrupt_ticks = total.irq.unwrap_or_default() + total.softirq.unwrap_or_default();
    (total.user + total.nice + total.system + interrupt_ticks) * nanos_per_tick()
}

/// Time during which at least one task waited for a processor since the system started, nanoseconds. Absent: the kernel does not
/// count it.
pub fn pressure_nanos() -> Option<u64> {
    Some(procfs::CpuPressure::current().ok()?.some.total * 1_000)
}

/// What the machine of this identifier, which is this one, has gone through so far, and nothing of any process.
pub fn reading(machine: String) -> Reading {
    let (machine_cpu_nanos, machine_stolen_nanos) = busy_and_stolen_nanos().unwrap_or_default();
    Reading {
        monotonic_nanos: monotonic_nanos(),
        machine_cpu_nanos,
        machine_stolen_nanos,
        machine_pressure_nanos: pressure_nanos(),
        machine,
        ..Reading::default()
    }
}

/// What the kernel counts processor time and the start of processes in.
pub fn nanos_per_tick() -> u64 {
    1_000_000_000 / procfs::ticks_per_second()
}

/// The monotonic clock.
pub fn monotonic_nanos() -> u64 {
    nanos_of(ClockId::Monotonic)
}

/// The clock that the start of processes is counted on: it also advances while the machine is suspended.
pub fn boottime_nanos() -> u64 {
    nanos_of(ClockId::Boottime)
}

/// The first line of a file of the system, without spaces around it.
pub fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

fn nanos_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Since the machine started, so neither part is negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<String> {
    let bytes = procfs::Meminfo::current().ok()?.mem_total;
    Some(format!("{} MiB", bytes >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = facts();
        for name in ["architecture", "kernel", "memory"] {
            assert!(facts.contains_key(name), "{facts:?}");
        }
        assert!(facts["memory"].ends_with(" MiB") && !facts["memory"].starts_with("0 "), "{facts:?}");
        assert!(cores().is_some_and(|cores| cores > 0) && cpu_nanos().is_some_and(|nanos| nanos > 0));
        assert!(boottime_nanos() >= monotonic_nanos() - 1_000_000_000);
    }
}
