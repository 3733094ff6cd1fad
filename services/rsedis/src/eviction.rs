//! What goes when memory is full (`maxmemory-policy`).
//!
//! As in Redis, keys are drawn by chance, and the best of those drawn lately are kept in a pool: the next to go is the best of the
//! pool, which comes near the best of all for next to no work. `volatile-ttl` needs no chance: expiries are kept in order. A command
//! evicts for at most as long as `maxmemory-eviction-tenacity` allows, at least one key; what is left to do is done in the turns
//! that follow.
//!
//! A clock is one word for each key ([`ClockKind`]), and is only kept where a policy needs it, or once somebody has asked
//! for idle times (OBJECT IDLETIME) or told one (RESTORE).

use std::time::{Duration, Instant};

use crate::events;
use crate::keyspace::{Database, Key, Place};
use crate::random::Random;
use crate::server::Server;
use crate::settings::{Choice, ClockKind, FrequencySettings};
use crate::structure::table::Element as _;

/// What a new key begins with, so that it is not the first to go.
const FIRST_COUNT: u32 = 5;
/// Draws that are remembered.
const POOL: usize = 16;

/// A key that may go.
#[derive(Debug)]
struct Candidate {
    /// The greatest goes first.
    score: u32,
    database: usize,
    key: Vec<u8>,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Eviction {
    /// Which clock the databases keep.
    clock: Option<ClockKind>,
    /// By score, the greatest last.
    pool: Vec<Candidate>,
    /// There was more to do than one command may wait for.
    pub is_under_way: bool,
    /// Where the next random draw begins.
    turn: usize,
    /// What telling of evicted keys took since the command began: it does not count either.
    told_bytes: u64,
}

impl Eviction {
    /// Which clock the databases keep.
    #[inline]
    pub fn clock(&self) -> Option<ClockKind> {
        self.clock
    }
}

fn minutes(now: i64) -> u32 {
    (now / 60_000) as u32 & 0xFFFF
}

/// A new key's clock.
fn first_word(kind: ClockKind, now: i64) -> u32 {
    match kind {
        ClockKind::LastUse => (now / 100) as u32,
        ClockKind::Frequency => minutes(now) << 8 | FIRST_COUNT,
    }
}

/// Tenths of a second since a key was used.
fn idle_tenths(word: u32, now: i64) -> u32 {
    first_word(ClockKind::LastUse, now).wrapping_sub(word)
}

/// How often a key was used, by a clock that counts that.
fn count(word: u32, settings: FrequencySettings, now: i64) -> u32 {
    let passed = minutes(now).wrapping_sub(word >> 8) & 0xFFFF;
    let periods = i64::from(passed).checked_div(settings.decay_minutes).unwrap_or(0);
    (word & 0xFF).saturating_sub(u32::try_from(periods).unwrap_or(u32::MAX))
}

/// The count after one more use.
fn count_up(count: u32, settings: FrequencySettings, random: &mut Random) -> u32 {
    let above = f64::from(count.saturating_sub(FIRST_COUNT));
    let chance = 1.0 / (above * settings.log_factor as f64 + 1.0);
    let drawn = (random.word() >> 11) as f64 / (1u64 << 53) as f64;
    if count < 255 && drawn < chance { count + 1 } else { count }
}

/// Keeps the clocks that the settings ask for. Clocks that begin say that every key was used just now. Clocks of last use stay where
/// no others are asked for: in Redis there always are some, and OBJECT IDLETIME goes on.
pub fn follow_settings(server: &mut Server) {
    let last_use = server.eviction.clock.filter(|kind| *kind == ClockKind::LastUse);
    let wanted = server.settings.policy.clock().or(last_use);
    server.eviction.pool.clear();
    if wanted != server.eviction.clock {
        keep(server, wanted);
    }
}

/// All of them, also those that are read beside those that are served.
fn databases(server: &mut Server) -> impl Iterator<Item = &mut Database> {
    server.databases.iter_mut().chain(server.aside.iter_mut().flat_map(|aside| &mut aside.databases))
}

fn keep(server: &mut Server, clock: Option<ClockKind>) {
    server.eviction.clock = clock;
    let word = clock.map(|kind| first_word(kind, server.now));
    databases(server).for_each(|database| database.keep_clocks(word));
}

/// The time was set, which new keys' clocks tell. `before`: what it was.
pub fn follow_time(server: &mut Server, before: i64) {
    if let Some(kind) = server.eviction.clock
        && first_word(kind, before) != first_word(kind, server.now)
    {
        let word = first_word(kind, server.now);
        databases(server).for_each(|database| database.set_first_clock(word));
    }
}

/// An empty database, with the clocks that are kept.
pub fn empty_database(server: &Server) -> Database {
    let mut database = Database::default();
    database.keep_clocks(server.eviction.clock.map(|kind| first_word(kind, server.now)));
    database
}

/// A key is used.
pub fn note_use(server: &mut Server, database: usize, place: Place) {
    let Some(kind) = server.eviction.clock else { return };
    let (now, settings) = (server.now, server.settings.frequency);
    let Some(word) = server.databases[database].clock(place) else { return };
    let word = match kind {
        ClockKind::LastUse => first_word(kind, now),
        ClockKind::Frequency => minutes(now) << 8 | count_up(count(word, settings, now), settings, &mut server.random),
    };
    server.databases[database].set_clock(place, word);
}

/// Seconds since a key was used; nothing where clocks count uses. Where there are no clocks they begin now.
pub fn idle_seconds(server: &mut Server, database: usize, place: Place) -> Option<i64> {
    match server.eviction.clock {
        Some(ClockKind::Frequency) => return None,
        Some(ClockKind::LastUse) => {}
        None => keep(server, Some(ClockKind::LastUse)),
    }
    let word = server.databases[database].clock(place)?;
    Some(i64::from(idle_tenths(word, server.now)) / 10)
}

/// How often a key is used; nothing where that is not counted.
pub fn frequency(server: &Server, database: usize, place: Place) -> Option<i64> {
    let word = server.databases[database].clock(place)?;
    let is_counted = server.eviction.clock == Some(ClockKind::Frequency);
    is_counted.then(|| i64::from(count(word, server.settings.frequency, server.now)))
}

/// A key comes with its clock: seconds that it was not used, or how often it was. Where there are no clocks, idle times begin now; a
/// clock of another kind than what is kept is forgotten.
pub fn restore(server: &mut Server, database: usize, place: Place, idle_seconds: Option<i64>, frequency: Option<u8>) {
    let now = server.now;
    if idle_seconds.is_some() && server.eviction.clock.is_none() {
        keep(server, Some(ClockKind::LastUse));
    }
    let word = match (server.eviction.clock, idle_seconds, frequency) {
        (Some(ClockKind::LastUse), Some(seconds), _) => {
            // What is older than half of what the clock can tell is that old: it must not come round again.
            const OLDEST: i64 = i32::MAX as i64;
            first_word(ClockKind::LastUse, now).wrapping_sub(seconds.saturating_mul(10).min(OLDEST) as u32)
        }
        (Some(ClockKind::Frequency), _, Some(count)) => minutes(now) << 8 | u32::from(count),
        _ => return,
    };
    server.databases[database].set_clock(place, word);
}

/// Bytes that wait for replicas.
pub fn replica_buffers(server: &Server) -> usize {
    let replica_bytes = |slot: &usize| Some(server.sessions.get(*slot)?.as_ref()?.reply.bytes.capacity());
    server.replication.replicas.iter().filter_map(replica_bytes).sum()
}

/// Bytes that do not count against the limit: what effects take, since evictions make more of it.
pub fn not_counted(server: &Server) -> u64 {
    let effects = server.effects.bytes.capacity();
    // The backlog counts as far as it was asked for.
    let held = server.replication.backlog.as_ref().map_or(0, |backlog| backlog.len().saturating_sub(backlog.size()));
    (effects + server.replication.pending.capacity() + held + replica_buffers(server)) as u64
}

/// Bytes above the limit.
fn excess(server: &Server) -> u64 {
    let most = server.settings.memory_max;
    let used = server.memory.used().saturating_sub(not_counted(server) + server.eviction.told_bytes);
    if most == 0 { 0 } else { used.saturating_sub(most) }
}

/// How long a command may evict, as Redis has it: half a millisecond at 10, growing by 15 % a step, without an end at 100.
fn time_limit(tenacity: i64) -> Option<Duration> {
    match tenacity {
        ..=10 => Some(Duration::from_micros(50 * tenacity.max(0) as u64)),
        11..100 => Some(Duration::from_micros((500.0 * 1.15f64.powf(tenacity as f64 - 10.0)) as u64)),
        _ => None,
    }
}

/// A replica holds what its master holds.
fn is_the_masters_business(server: &Server) -> bool {
    server.replication.is_replica() && server.settings.is_yes("replica-ignore-maxmemory")
}

/// Evicts until memory is below its limit, or the time is up, or there is nothing to evict: then the limit is exceeded, and false
/// is returned.
pub fn make_room(server: &mut Server) -> bool {
    server.eviction.is_under_way = false;
    server.eviction.told_bytes = 0;
    // Keys that come beside those that are served are the master's business as well, and no key goes for them.
    if server.reads_data() || server.is_paused() || is_the_masters_business(server) || excess(server) == 0 {
        return true;
    }
    if server.settings.policy.choice.is_none() {
        return false;
    }
    if server.reclaimer.counters().0 > 0 {
        // What is being freed on another thread is not known yet, and no key has to go for it.
        server.memory.look();
    }
    let began = Instant::now();
    let limit = time_limit(server.settings.eviction_tenacity);
    while excess(server) > 0 {
        let Some((database, key)) = choose(server) else { return false };
        evict(server, database, &Key::new(&key));
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            server.eviction.is_under_way = true;
            break;
        }
    }
    true
}

fn evict(server: &mut Server, database: usize, key: &Key<'_>) {
    server.databases[database].remove(key);
    server.stats.evicted += 1;
    let before = server.memory.used();
    server.touch_by(database, key.bytes, 0);
    server.notify(events::EVICTED, "evicted", database, key.bytes);
    server.eviction.told_bytes += server.memory.used().saturating_sub(before);
    server.effects.add(database, &[b"DEL", key.bytes]);
}

/// The next to go.
fn choose(server: &mut Server) -> Option<(usize, Vec<u8>)> {
    match server.settings.policy.choice? {
        Choice::SoonestExpiry => {
            let databases = server.databases.iter().enumerate();
            let first = databases.filter_map(|(number, database)| Some((database.next_to_expire()?, number)));
            let ((_, key), number) = first.min()?;
            Some((number, key.to_vec()))
        }
        Choice::Random => {
            let count = server.databases.len();
            for _ in 0..count {
                let number = server.eviction.turn % count;
                server.eviction.turn = number + 1;
                if let Some(place) = draw(server, number) {
                    return Some((number, server.databases[number].entry(place).key().to_vec()));
                }
            }
            None
        }
        Choice::Clock(kind) => loop {
            fill_pool(server, kind);
            let Candidate { database, key, .. } = server.eviction.pool.pop()?;
            // It may have gone since it was drawn, or expire no longer.
            let only_volatile = server.settings.policy.only_volatile;
            let may_go = server.databases.get(database).is_some_and(|keys| {
                let place = keys.find(&Key::new(&key));
                place.is_some_and(|place| !only_volatile || keys.entry(place).expiry().is_some())
            });
            if may_go {
                return Some((database, key));
            }
        },
    }
}

/// A key that may go, by chance.
fn draw(server: &mut Server, database: usize) -> Option<Place> {
    let Server { databases, random, settings, .. } = server;
    match settings.policy.only_volatile {
        true => databases[database].random_expiring(random),
        false => databases[database].random(random),
    }
}

fn fill_pool(server: &mut Server, kind: ClockKind) {
    let samples = server.settings.eviction_samples;
    for database in 0..server.databases.len() {
        for _ in 0..samples {
            let Some(place) = draw(server, database) else { break };
            let Some(word) = server.databases[database].clock(place) else { break };
            let score = match kind {
                ClockKind::LastUse => idle_tenths(word, server.now),
                ClockKind::Frequency => 255 - count(word, server.settings.frequency, server.now),
            };
            let pool = &mut server.eviction.pool;
            if pool.len() == POOL && pool.first().is_some_and(|least| least.score >= score) {
                continue;
            }
            let key = server.databases[database].entry(place).key();
            if pool.iter().any(|known| known.database == database && known.key == key) {
                continue;
            }
            if pool.len() == POOL {
                pool.remove(0);
            }
            let at = pool.partition_point(|known| known.score <= score);
            pool.insert(at, Candidate { score, database, key: key.to_vec() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: FrequencySettings = FrequencySettings { log_factor: 10, decay_minutes: 1 };

    #[test]
    fn uses_count_by_their_logarithm_and_are_forgotten() {
        let mut random = Random::new(1);
        let now = 1_700_000_000_000;
        let mut word = first_word(ClockKind::Frequency, now);
        let mut told = Vec::new();
        for uses in 1..=1_000_000u32 {
            word = minutes(now) << 8 | count_up(count(word, SETTINGS, now), SETTINGS, &mut random);
            if [100, 1_000, 100_000, 1_000_000].contains(&uses) {
                told.push(word & 0xFF);
            }
        }
        // The table in redis.conf says 10, 18, 142, 255 for this factor.
        for (count, expected) in told.iter().zip([10i64, 18, 142, 255]) {
            assert!((i64::from(*count) - expected).abs() <= expected / 4 + 2, "{told:?}");
        }
        assert_eq!(count(word, SETTINGS, now + 100 * 60_000), 155);
        assert_eq!(count(word, SETTINGS, now + 1_000 * 60_000), 0);
        assert_eq!(count(word, FrequencySettings { decay_minutes: 0, ..SETTINGS }, now + 1_000 * 60_000), 255);
    }

    proptest! {
        #[test]
        fn idle_times_survive_the_clocks_turn(now in 0i64..1 << 45, idle in 0i64..400_000_000) {
            let then = first_word(ClockKind::LastUse, now);
            prop_assert_eq!(i64::from(idle_tenths(then, now + idle * 1000)) / 10, idle);
        }
    }
}
