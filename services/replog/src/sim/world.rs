//! The event loop of the simulation: what happens when, and to whom.

use std::collections::BinaryHeap;

use super::Options;
use super::checks::{Checked, Checks, broken};
use super::host::{Asked, Clock, Host, Process};
use super::kv::{self, Kv};
use super::network::Network;
use super::settings;
use wal::files::SimulatedDirectory;

use crate::applying::LongStep;
use crate::bugs::{Bug, Planted};
use crate::clock::Now;
use crate::membership::Membership;
use crate::message::Message;
use crate::random::{Random, mix};
use crate::reads::{ReadLevel, ReadPermit};
use crate::replica::Effects;
use crate::settings::Settings;
use crate::snapshot::{ChunksJob, FilesJob, SnapshotJob};

/// What happened, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stats {
    pub events: u64,
    pub elections: u64,
    pub committed: u64,
    pub acknowledged: u64,
    pub reads: u64,
    pub lease_reads: u64,
    pub crashes: u64,
    pub disk_faults: u64,
    pub partitions: u64,
    pub pauses: u64,
    pub snapshots_installed: u64,
    pub long_steps: u64,
    pub membership_changes: u64,
    pub transfers: u64,
    pub closed_links: u64,
    /// From the end of all faults until everything worked.
    pub recovery_micros: u64,
}

/// What happens at a point of simulated time.
#[derive(Debug)]
pub(super) enum Event {
    Tick {
        host: u64,
        epoch: u64,
    },
    Deliver(Message),
    Disk {
        host: u64,
        epoch: u64,
    },
    Look {
        host: u64,
        epoch: u64,
        permit: ReadPermit,
    },
    /// Another thread looks, that saw a lease of this term.
    Glance {
        host: u64,
        epoch: u64,
        asked: Asked,
        term: u64,
    },
    Snapshot {
        host: u64,
        epoch: u64,
        job: SnapshotJob,
    },
    LongStep {
        host: u64,
        epoch: u64,
        step: LongStep<Kv, SimulatedDirectory>,
    },
    Files {
        host: u64,
        epoch: u64,
        job: FilesJob<SimulatedDirectory>,
    },
    Chunks {
        host: u64,
        epoch: u64,
        job: ChunksJob<SimulatedDirectory>,
    },
    Write {
        host: u64,
        key: u64,
    },
    Read {
        host: u64,
        asked: Asked,
    },
    Client,
    Trouble,
    Administer,
    Restart {
        host: u64,
    },
    Crash {
        host: u64,
        is_power_lost: bool,
    },
    Isolate {
        host: u64,
    },
    /// To the first, the connection of the other closes.
    Closed(u64, u64),
    Resume {
        host: u64,
    },
    Calm,
    Probe,
}

struct Scheduled {
    time: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.number) == (other.time, other.number)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    /// The earliest is the greatest, as the heap wants it.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}

/// Liveness: when all faults have ended, everything works after so many of the shortest election timeouts.
const RECOVERY_ELECTIONS_MAX: u64 = 20;

/// What the end of a run waits for.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) since: u64,
    /// An entry that was proposed after the faults.
    pub(super) probe: Option<u64>,
    /// Who has answered a strong read since.
    pub(super) answered: Vec<u64>,
}

/// The simulated machines, network, clients and clock.
pub(super) struct World {
    pub(super) now: u64,
    pub(super) random: Random,
    /// Of the most patient member.
    pub(super) settings: Settings,
    /// Members wait for a leader for different times.
    is_patience_mixed: bool,
    pub(super) network: Network,
    pub(super) hosts: Vec<Host>,
    pub(super) stats: Stats,
    pub(super) fingerprint: u64,
    pub(super) options: Options,
    events: BinaryHeap<Scheduled>,
    next_number: u64,
    pub(super) checks: Checks,
    pub(super) founders: Membership,
    /// Time between a client's requests.
    pub(super) client_micros: u64,
    /// How many of its requests are writes, of a hundred.
    pub(super) writes: u64,
    /// Who wins an election before that time has bad luck.
    pub(super) unlucky_until: u64,
    /// Until then clients only read, unless two members lead: a rival whose log is behind wins nothing.
    pub(super) quiet_until: u64,
    pub(super) ending: Option<Ending>,
    /// The machine whose disk does not answer any more, when all other faults have ended.
    pub(super) hanging: Option<u64>,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut random = Random::new(mix(seed ^ 0x5eed));
        let settings = settings::of_group(&mut random);
        let network = Network::new(&mut random, settings.election_micros());
        let nodes = match options.nodes {
            0 => [3, 3, 3, 5, 5, 1][random.below(6) as usize],
            nodes => nodes,
        };
        let mut world = Self {
            now: 1_000_000,
            founders: Membership::of(1..=nodes),
            client_micros: 1_000 + random.below(8_000),
            writes: [40, 40, 10, 2][random.below(4) as usize],
            unlucky_until: 0,
            quiet_until: 0,
            random,
            settings,
            is_patience_mixed: mix(seed ^ 0x9a71).is_multiple_of(4),
            network,
            hosts: Vec::new(),
            stats: Stats::default(),
            fingerprint: seed,
            options,
            events: BinaryHeap::new(),
            next_number: 0,
            checks: Checks::new(),
            ending: None,
            hanging: None,
        };
        for _ in 0..nodes {
            world.add_host(true);
        }
        let length = world.settings.election_micros() * (8 + world.random.below(16));
        for (event, after) in [(Event::Client, 0), (Event::Trouble, 0), (Event::Administer, 0), (Event::Calm, length)] {
            world.after(after, event);
        }
        world
    }

    /// Adds a machine, and lets it start.
    pub(super) fn add_host(&mut self, is_founder: bool) -> u64 {
        let id = self.hosts.len() as u64 + 1;
        let drift = i64::from(self.settings.clock_drift_ppm);
        let clock = Clock {
            since: self.now,
            boot_micros: self.random.below(10_000_000_000),
            // As wrong as it may be, more often than not.
            rate_ppm: [-drift, drift, self.random.below(2 * drift as u64 + 1) as i64 - drift]
                [self.random.below(3) as usize],
            unix_offset_millis: 1_700_000_000_000 + self.random.below(2_000),
        };
        let election_ticks = match self.is_patience_mixed {
            true => settings::mixed_election_ticks(&self.settings, &mut self.random),
            false => self.settings.election_ticks,
        };
        self.hosts.push(Host::new(id, clock, election_ticks, is_founder));
        self.after(0, Event::Restart { host: id });
        id
    }

    pub(super) fn after(&mut self, micros: u64, event: Event) {
        self.next_number += 1;
        self.events.push(Scheduled { time: self.now + micros, number: self.next_number, event });
    }

    pub(super) fn say(&self, host: u64, text: impl FnOnce() -> String) {
        if self.options.trace {
            let who = if host == 0 { "      ".into() } else { format!("node {host}") };
            println!("{:>10.3} ms  {who}  {}", (self.now - 1_000_000) as f64 / 1000.0, text());
        }
    }

    pub(super) fn planted(&self) -> Planted {
        Planted::new(self.options.bug)
    }

    pub(super) fn host(&mut self, id: u64) -> &mut Host {
        &mut self.hosts[id as usize - 1]
    }

    pub(super) fn process(&mut self, id: u64) -> Option<&mut Process> {
        self.host(id).process.as_mut()
    }

    pub(super) fn clock(&self, id: u64) -> Now {
        self.hosts[id as usize - 1].clock.at(self.now)
    }

    /// Until the end of the seed, or until a promise is broken.
    pub(super) fn run(&mut self) -> Checked {
        while let Some(Scheduled { time, event, .. }) = self.events.pop() {
            self.now = time;
            self.stats.events += 1;
            self.happen(event)?;
            if let Some(ending) = &self.ending {
                if self.has_recovered(ending) {
                    self.stats.recovery_micros = self.stats.recovery_micros.max(self.now - ending.since);
                    if self.hang_a_disk() {
                        continue;
                    }
                    self.stats.committed = self.checks.last_committed();
                    return Ok(());
                }
                let limit = ending.since + RECOVERY_ELECTIONS_MAX * self.settings.election_micros();
                if self.now > limit {
                    return self.not_alive();
                }
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Checked {
        let id = match &event {
            Event::Tick { host, .. }
            | Event::Disk { host, .. }
            | Event::Look { host, .. }
            | Event::Glance { host, .. }
            | Event::Snapshot { host, .. }
            | Event::LongStep { host, .. }
            | Event::Files { host, .. }
            | Event::Chunks { host, .. }
            | Event::Write { host, .. }
            | Event::Closed(host, _)
            | Event::Read { host, .. } => *host,
            Event::Deliver(message) => message.to,
            _ => 0,
        };
        if id > 0 {
            let now = self.now;
            let host = self.host(id);
            if host.paused_until > now && !matches!(event, Event::Disk { .. }) {
                host.inbox.push(event);
                return Ok(());
            }
            let now = self.clock(id);
            return self.happen_to(id, event, now);
        }
        match event {
            Event::Client => {
                self.client();
                Ok(())
            }
            Event::Trouble => self.trouble(),
            Event::Administer => {
                self.administer();
                Ok(())
            }
            Event::Restart { host } => self.start(host),
            Event::Crash { .. } | Event::Isolate { .. } if self.ending.is_some() => Ok(()),
            Event::Crash { host, is_power_lost } => {
                self.crash(host, is_power_lost);
                self.restart_later(host);
                Ok(())
            }
            Event::Isolate { host } => {
                self.isolate(host);
                Ok(())
            }
            Event::Resume { host } => self.resume(host),
            Event::Calm => self.calm(),
            Event::Probe => {
                self.probe();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Something happens to a machine whose clock says `now`.
    fn happen_to(&mut self, id: u64, event: Event, now: Now) -> Checked {
        let local_clock = self.planted().has(Bug::LocalClock);
        let epoch = self.hosts[id as usize - 1].epoch;
        let Some(process) = self.process(id) else { return Ok(()) };
        if let Some(machine) = process.log.machine_mut().filter(|_| local_clock) {
            machine.local_millis = Some(now.unix_millis);
        }
        match event {
            Event::Tick { epoch: of, .. } => {
                if of != epoch {
                    return Ok(());
                }
                process.log.tick(now);
                let tick = self.settings.tick_micros;
                self.after(tick, Event::Tick { host: id, epoch });
            }
            Event::Deliver(message) => {
                let text = self.options.trace.then(|| message.describe());
                self.say(id, || format!("<- {}  {}", message.from, text.unwrap_or_default()));
                let Some(process) = self.process(id) else { return Ok(()) };
                if let Err(fatal) = process.log.receive(message, now) {
                    return self.fatal(id, fatal);
                }
            }
            Event::Closed(_, other) => {
                process.log.link_closed(other);
                self.stats.closed_links += 1;
            }
            Event::Disk { epoch: of, .. } => {
                if of != epoch {
                    return Ok(());
                }
                self.written(id)?;
            }
            Event::Look { epoch: of, permit, .. } => {
                if of != epoch {
                    return Ok(());
                }
                self.look(id, permit, now)?;
            }
            Event::Snapshot { epoch: of, job, .. } => {
                if of != epoch {
                    return Ok(());
                }
                if let Err(fatal) = process.log.snapshot_written(job.run()) {
                    return self.fatal(id, fatal);
                }
            }
            Event::LongStep { epoch: of, step, .. } => {
                if of != epoch {
                    return Ok(());
                }
                if let Err(fatal) = process.log.long_step_done(step.run()) {
                    return self.fatal(id, fatal);
                }
            }
            Event::Files { epoch: of, job, .. } => {
                if of != epoch {
                    return Ok(());
                }
                if let Err(fatal) = process.log.files_job_done(job.run(), now) {
                    return self.fatal(id, fatal);
                }
            }
            Event::Chunks { epoch: of, job, .. } => {
                if of != epoch {
                    return Ok(());
                }
                if let Err(fatal) = process.log.chunks_read(job.run()) {
                    return self.fatal(id, fatal);
                }
            }
            Event::Write { key, .. } => {
                let value = self.now;
                let ttl = if key % 3 == 0 { 20 + key % 100 } else { 0 };
                let commands: Vec<_> = (0..=key % 2).map(|more| kv::command(key + more, value, ttl)).collect();
                let Some(process) = self.process(id) else { return Ok(()) };
                if let Ok(proposed) = process.log.propose(commands, now) {
                    process.proposals.push_back(proposed);
                    self.say(id, || format!("proposed {} to {}", proposed.first, proposed.last));
                }
            }
            Event::Read { asked, .. } => {
                let standing = process.published;
                if asked.level == ReadLevel::Lease && asked.must_see % 2 == 0 && standing.has_lease(now.boot_micros) {
                    let delay = mix(self.now) % 20;
                    self.after(delay, Event::Glance { host: id, epoch, asked, term: standing.term });
                } else if let Ok(read) = process.log.read(asked.level, 0, now) {
                    process.reads.insert(read, asked);
                }
            }
            Event::Glance { epoch: of, asked, term, .. } => {
                if of != epoch {
                    return Ok(());
                }
                self.glance(id, asked, term, now)?;
            }
            _ => {}
        }
        self.drain(id, now)
    }

    /// A machine that was stopped goes on. Of what came in the meantime it handles lease reads with the time that it read
    /// before it was stopped, as a server may that reads its clock once for many requests.
    pub(super) fn resume(&mut self, id: u64) -> Checked {
        if self.host(id).paused_until > self.now {
            return Ok(());
        }
        let stale = self.host(id).paused_at;
        let inbox = std::mem::take(&mut self.host(id).inbox);
        self.say(id, || format!("goes on, {} events later", inbox.len()));
        let is_lease = |event: &Event| matches!(event, Event::Read { asked, .. } if asked.level == ReadLevel::Lease);
        let (first, rest): (Vec<Event>, Vec<Event>) = inbox.into_iter().partition(is_lease);
        for event in first {
            self.happen_to(id, event, stale)?;
        }
        let now = self.clock(id);
        for event in rest {
            self.happen_to(id, event, now)?;
        }
        Ok(())
    }

    /// Does what the member wants done, until it wants nothing more, and checks.
    pub(super) fn drain(&mut self, id: u64, now: Now) -> Checked {
        loop {
            let Some(process) = self.process(id) else { return Ok(()) };
            match process.log.take(now) {
                Err(fatal) => return self.fatal(id, fatal),
                Ok(effects) if effects.is_empty() => break,
                Ok(effects) => {
                    process.published = process.log.node().standing(now);
                    self.carry_out(id, effects)?;
                }
            }
        }
        if let Some(process) = self.process(id) {
            process.published = process.log.node().standing(now);
        }
        self.check(id)
    }

    fn carry_out(&mut self, id: u64, effects: Effects<Kv, SimulatedDirectory>) -> Checked {
        let Effects {
            messages,
            batch,
            applied,
            installed,
            reads,
            failed_reads,
            snapshot,
            long_step,
            files_job,
            chunks_job,
        } = effects;
        if let Some(batch) = batch {
            self.enqueue(id, batch)?;
        }
        // What the leader commits is checked before anybody can learn of it.
        self.check(id)?;
        for message in messages {
            self.send(id, message)?;
        }
        if let Some(index) = installed {
            self.stats.snapshots_installed += 1;
            self.say(id, || format!("installs a snapshot of {index}"));
        }
        let Some(process) = self.process(id) else { return Ok(()) };
        let states = process.log.machine_mut().map(|machine| std::mem::take(&mut machine.digests)).unwrap_or_default();
        let mut acknowledged = Vec::new();
        for entry in &applied {
            while let Some(proposed) = process.proposals.pop_front_if(|proposed| proposed.last <= entry.index) {
                if proposed.last == entry.index && proposed.term == entry.term {
                    acknowledged.push(proposed.last);
                }
            }
        }
        for read in failed_reads {
            process.reads.remove(&read);
        }
        let epoch = self.host(id).epoch;
        for permit in reads {
            let delay = self.random.below(20);
            self.after(delay, Event::Look { host: id, epoch, permit });
        }
        if let Some(job) = snapshot {
            let delay = mix(self.now) % 10_000;
            self.after(delay, Event::Snapshot { host: id, epoch, job });
        }
        // Now and then longer than an election, while things go wrong.
        let longest = if self.ending.is_some() { 20_000 } else { 3 * self.settings.election_micros() };
        if let Some(step) = long_step {
            self.stats.long_steps += 1;
            let delay = mix(self.now ^ 1) % longest;
            self.after(delay, Event::LongStep { host: id, epoch, step });
        }
        if let Some(job) = files_job {
            let delay = mix(self.now ^ 2) % longest;
            self.after(delay, Event::Files { host: id, epoch, job });
        }
        if let Some(job) = chunks_job {
            let delay = mix(self.now ^ 3) % longest;
            self.after(delay, Event::Chunks { host: id, epoch, job });
        }
        for (index, digest) in states {
            self.checks.state(id, index, digest)?;
        }
        for index in acknowledged {
            self.stats.acknowledged += 1;
            self.checks.acknowledge(self.now, index);
        }
        Ok(())
    }

    fn send(&mut self, id: u64, message: Message) -> Checked {
        let disk = &self.hosts[id as usize - 1].disk;
        let looks = !self.options.harm_only;
        if let Some((term, candidate)) = message.vote().filter(|_| looks)
            && !(disk.term > term || (disk.term == term && disk.vote == candidate))
        {
            let detail =
                format!("node {id} votes for {candidate} in term {term}; its disk has {} in {}", disk.vote, disk.term);
            return broken("votes are durable before they are told", detail);
        }
        if let Some((term, index)) = message.acknowledges().filter(|_| looks)
            && term >= disk.term
            && index > disk.last()
        {
            let detail = format!("node {id} acknowledges {index}; its disk has {}", disk.last());
            return broken("followers acknowledge only what is durable", detail);
        }
        if let Some((first, last)) = message.entries() {
            let log = &self.hosts[id as usize - 1].mirror;
            for (index, term, chain) in log.entries_from(first).take_while(|(index, ..)| *index <= last) {
                self.checks.entry(id, index, term, chain)?;
            }
        }
        let (from, to) = (message.from, message.to);
        self.fingerprint = mix(self.fingerprint ^ mix(self.now ^ from << 32 ^ to << 40));
        if to == 0 || to as usize > self.hosts.len() {
            return Ok(());
        }
        let [first, second] = self.network.send(from, to, &mut self.random);
        self.say(id, || {
            let fate = if first.is_none() { "  LOST" } else { "" };
            format!("-> {to}  {}{fate}", message.describe())
        });
        // Now and then as a transport would.
        let message = match self.random.below(16) {
            0 => match Message::decode(&message.encode()) {
                Ok(message) => message,
                Err(error) => return broken("what was encoded is decoded", error.to_string()),
            },
            _ => message,
        };
        if let Some(delay) = second {
            self.after(delay, Event::Deliver(message.clone()));
        }
        if let Some(delay) = first {
            self.after(delay, Event::Deliver(message));
        }
        Ok(())
    }
}
