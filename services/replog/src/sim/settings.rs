//! What the members of a seed's group run with.

use crate::random::Random;
use crate::settings::Settings;

/// What the most patient member of a seed's group runs with, and all of them but for their patience.
pub(super) fn of_group(random: &mut Random) -> Settings {
    let pick = |random: &mut Random, from: &[u64]| from[random.below(from.len() as u64) as usize];
    Settings {
        group: 3,
        tick_micros: 10_000,
        heartbeat_ticks: 2 + random.below(2) as u32,
        election_ticks: 12 + random.below(10) as u32,
        clock_drift_ppm: pick(random, &[500, 10_000, 150_000]) as u32,
        lease_margin_micros: pick(random, &[0, 1_000]),
        command_bytes_max: 1024,
        append_bytes_max: pick(random, &[0, 0, 300, 65_536]),
        append_messages_max: pick(random, &[2, 8, 64]) as usize,
        uncommitted_bytes_max: 65_536,
        apply_bytes_max: pick(random, &[64, 1 << 20]),
        reads_max: 64,
        snapshot_entries: pick(random, &[10, 40, 100, 10_000]),
        snapshot_log_bytes: 5_000,
        snapshot_keep_entries: pick(random, &[0, 5, 50]),
        // About twenty entries.
        lagging_log_bytes: 3_000,
        snapshot_chunk_bytes: pick(random, &[64, 128, 300, 4096]) as u32,
    }
}

/// How long a member of a group waits for a leader in which not all wait alike, as while they are restarted with another setting.
pub(super) fn mixed_election_ticks(group: &Settings, random: &mut Random) -> u32 {
    match random.below(2) {
        0 => group.election_ticks.min(4 * group.heartbeat_ticks),
        _ => group.election_ticks,
    }
}
