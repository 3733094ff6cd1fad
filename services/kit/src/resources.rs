//! What this process uses, as the kernel counts it.

/// Memory that is resident, in bytes; 0 if the kernel does not tell.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as u64
}

/// Open files, with the one that looks; 0 if the kernel does not tell.
pub fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)
}

/// What the kernel counts of this process besides; zeros where it does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time, seconds.
    pub cpu_seconds: f64,
    /// Since 1970, seconds.
    pub start_seconds: f64,
    /// Address space that is taken, bytes.
    pub virtual_bytes: u64,
}

/// What the kernel counts of this process besides: proc_pid_stat(5), fields 14, 15, 22 and 23.
pub fn usage() -> Usage {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may hold anything; what follows its parenthesis are numbers, from field 3 on.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    let field = |number: usize| fields.split(' ').nth(number - 3).and_then(|field| field.parse::<f64>().ok());
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let system = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = system.lines().find_map(|line| line.strip_prefix("btime ")?.parse::<f64>().ok()).unwrap_or_default();
    Usage {
        cpu_seconds: (field(14).unwrap_or_default() + field(15).unwrap_or_default()) / ticks,
        start_seconds: boot + field(22).unwrap_or_default() / ticks,
        virtual_bytes: field(23).unwrap_or_default() as u64,
    }
}
