//! What jemalloc tells of memory, and does about it.

use rsedis::memory::Allocator;
use tikv_jemalloc_ctl::{Access as _, AsName as _, stats_print};

/// See the module's description.
pub const JEMALLOC: Allocator = Allocator { total: allocated, own: allocated_here, purge, report };

/// Bytes allocated, by jemalloc's own count.
fn allocated() -> u64 {
    // Both fail only if jemalloc was built without counts; it is not.
    let _ = tikv_jemalloc_ctl::epoch::advance();
    // What threads keep for their next allocation counts as allocated there, and is not used. 4096 stands for all arenas.
    let kept: usize = b"stats.arenas.4096.tcache_bytes\0".name().read().unwrap_or(0);
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0).saturating_sub(kept) as u64
}

/// Bytes that this thread has allocated, less those that it has freed.
fn allocated_here() -> i64 {
    use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};
    thread_local! {
        static COUNTS: Option<(ThreadLocal<u64>, ThreadLocal<u64>)> = allocatedp::read().ok().zip(deallocatedp::read().ok());
    }
    COUNTS.with(|counts| counts.map_or(0, |(allocated, freed)| allocated.get().wrapping_sub(freed.get()) as i64))
}

/// Gives the system back what is not used: pages may rest for no time at all, for a moment.
fn purge() -> bool {
    let arenas: u32 = tikv_jemalloc_ctl::arenas::narenas::read().unwrap_or(0);
    let given_back = (0..arenas).filter(|arena| {
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        let name = name.as_bytes().name();
        // Arenas that no thread has used yet do not exist.
        let decay: tikv_jemalloc_ctl::Result<isize> = name.read();
        decay.is_ok_and(|decay| name.write(0_isize).and_then(|()| name.write(decay)).is_ok())
    });
    given_back.count() > 0
}

/// Jemalloc's own report.
fn report() -> String {
    let mut text = Vec::new();
    match stats_print::stats_print(&mut text, stats_print::Options::default()) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => format!("jemalloc: {error}"),
    }
}
