//! One load process's share of a workload, where several make the load of one trial together.
//!
//! Connections, clients and a closed loop's total are cut into parts that differ by at most one, the larger ones first.
//! The keys are cut into as many slices, each owned by one process: what [`crate::content::keys`] says about clients and what
//! [`crate::content::expect`] can know holds in a slice as it does in a whole key space, and no process needs to ask another. The
//! timetable of an open loop is not cut but dealt: request *n* of all is for process *n* mod *processes*, so that all of
//! them together send at the very instants at which one would (see [`Share::seat`]).

use std::ops::Range;

use crate::content::seeds::mix;

/// Which of how many load processes this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    process: u32,
    processes: u32,
}

/// A process that the job has no share for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--process {process}: must be less than the job's processes, {processes}")]
pub struct NoShare {
    process: u32,
    processes: u32,
}

impl Share {
    /// The share of a process that is alone.
    pub const WHOLE: Self = Self { process: 0, processes: 1 };

    /// The share of process `process`, from 0, of `processes`.
    pub fn new(process: u32, processes: u32) -> Result<Self, NoShare> {
        match process < processes {
            true => Ok(Self { process, processes }),
            false => Err(NoShare { process, processes }),
        }
    }

    /// The number of this process, from 0.
    pub fn process(self) -> u32 {
        self.process
    }

    /// How many processes there are.
    pub fn processes(self) -> u32 {
        self.processes
    }

    /// Whether this process does what is done once for all.
    pub fn is_first(self) -> bool {
        self.process == 0
    }

    /// Whether there are no others.
    pub fn is_whole(self) -> bool {
        self.processes == 1
    }

    /// This process's part of `whole`.
    pub fn of(self, whole: u64) -> u64 {
        let (process, processes) = (u64::from(self.process), u64::from(self.processes));
        whole / processes + u64::from(process < whole % processes)
    }

    /// This process's part of `whole` things that are counted in 32 bits.
    pub fn of_count(self, whole: u32) -> u32 {
        self.of(u64::from(whole)) as u32
    }

    /// This process's slice of the numbers from 0 to `whole` − 1. Slices of all processes are one after the other.
    pub fn slice(self, whole: u32) -> Range<u32> {
        let before = self.process * (whole / self.processes) + self.process.min(whole % self.processes);
        before..before + self.of_count(whole)
    }

    /// The number of a thread among those that deal a timetable out, and how many these are, as
    /// [`crate::load::pace::Timetable`] wants them. Other processes may have another number of threads: of the requests of this
    /// process, `thread` of `threads` gets its turn.
    pub fn seat(self, thread: u32, threads: u32) -> (u32, u32) {
        (thread * self.processes + self.process, threads * self.processes)
    }

    /// The seed of what this process draws: processes must not visit their keys in step.
    pub fn seed(self, seed: u64) -> u64 {
        match self.process {
            0 => seed,
            process => mix(seed, u64::from(process)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::pace::Timetable;
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn shares(processes: u32) -> Vec<Share> {
        (0..processes).map(|process| Share::new(process, processes).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn parts_add_up_and_differ_by_at_most_one(whole in 0u64..10_000, processes in 1u32..65) {
            let parts: Vec<u64> = shares(processes).into_iter().map(|share| share.of(whole)).collect();
            prop_assert_eq!(parts.iter().sum::<u64>(), whole);
            prop_assert!(parts[0] - parts[parts.len() - 1] <= 1);
            prop_assert!(parts.is_sorted_by(|larger, smaller| larger >= smaller));
        }

        #[test]
        fn slices_cover_everything_without_overlap(whole in 0u32..10_000, processes in 1u32..65) {
            let mut next = 0;
            for share in shares(processes) {
                let slice = share.slice(whole);
                prop_assert_eq!(slice.start, next);
                prop_assert_eq!(slice.len() as u32, share.of_count(whole));
                next = slice.end;
            }
            prop_assert_eq!(next, whole);
        }

        /// Every request of the timetable is sent by one thread of one process, when it would be if there were only one.
        #[test]
        fn a_timetable_is_dealt_out_whole(
            requests in 0u64..500, threads in proptest::collection::vec(1u32..4, 1..5), rate in 1u64..100_000,
        ) {
            let start = Instant::now();
            let mut due: Vec<Duration> = Vec::new();
            for (share, threads) in shares(threads.len() as u32).into_iter().zip(threads) {
                for thread in 0..threads {
                    let (seat, seats) = share.seat(thread, threads);
                    let timetable = Timetable::new(start, rate, requests, seat, seats);
                    due.extend((0..timetable.tickets()).map(|ticket| timetable.due(ticket) - start));
                }
            }
            due.sort();
            let alone = Timetable::new(start, rate, requests, 0, 1);
            prop_assert_eq!(due, (0..requests).map(|ticket| alone.due(ticket) - start).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_process_without_a_share_is_told_which_there_are() {
        let said = Share::new(3, 3).unwrap_err().to_string();
        assert_eq!(said, "--process 3: must be less than the job's processes, 3");
    }

    #[test]
    fn processes_draw_differently_and_the_first_as_if_it_were_alone() {
        assert_eq!(Share::new(0, 3).unwrap().seed(7), Share::WHOLE.seed(7));
        assert_ne!(Share::new(1, 3).unwrap().seed(7), Share::new(2, 3).unwrap().seed(7));
    }
}
