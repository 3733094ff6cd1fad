//! The physical limit that logs are compared with, and how processor time is read. Shared by benchmarks, by path.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// What came of a measurement: records, and processor time for each.
pub struct Rate {
    pub per_second: f64,
    pub cpu_micros: f64,
}

/// Processor time of this process so far.
pub fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Bare `pwrite` and `fdatasync`: as many records of this size at once as are in flight, into zeros that were synced before. Every
/// sync takes longer by `delay`.
pub fn bare(path: &Path, record_bytes: usize, in_flight: usize, delay: Duration, duration: Duration) -> Rate {
    const FILE_BYTES: usize = 64 << 20;
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path.join("bare")).unwrap();
    file.write_all_at(&vec![0; FILE_BYTES], 0).unwrap();
    file.sync_all().unwrap();
    let bytes = vec![7; record_bytes * in_flight];
    let (began, cpu_before) = (Instant::now(), cpu());
    let (mut count, mut offset) = (0, 0);
    while began.elapsed() < duration {
        if offset + bytes.len() > FILE_BYTES {
            offset = 0;
        }
        file.write_all_at(&bytes, offset as u64).unwrap();
        file.sync_data().unwrap();
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        offset += bytes.len();
        count += in_flight;
    }
    let (elapsed, used) = (began.elapsed(), cpu() - cpu_before);
    Rate { per_second: count as f64 / elapsed.as_secs_f64(), cpu_micros: used.as_secs_f64() * 1e6 / count as f64 }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
