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
