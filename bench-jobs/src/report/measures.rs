//! What a family measures beyond requests and their latencies: replication lag, acknowledged blocks, failover time.
//!
//! A family declares its measures, with the metrics that read them, beside its parameters (crate `storebench-crds`), and notes
//! values through its [`Session`](crate::load::session::Session) in Measure and Verify. Nothing else need be done: they are told the
//! driver when the workload is over.

use hdrhistogram::Histogram;
use storebench_crds::job::{ContractError, latency_histogram};
use storebench_crds::measure::{Distribution, Durations, Largest, Reading, Total};

/// What was noted of each measure. They are few, so that looking one up is a matter of nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Measures(Vec<(&'static str, Noted)>);

#[derive(Clone, Debug)]
enum Noted {
    Total(u64),
    Largest(u64),
    Durations(Box<Histogram<u64>>),
}

impl Noted {
    fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Total(mine), Self::Total(theirs)) => *mine = mine.saturating_add(theirs),
            (Self::Largest(mine), Self::Largest(theirs)) => *mine = (*mine).max(theirs),
            (Self::Durations(mine), Self::Durations(theirs)) => **mine += *theirs,
            // One name has one kind: the constant that declares it.
            (mine, theirs) => debug_assert!(false, "{mine:?} and {theirs:?} are of one measure"),
        }
    }
}

impl Measures {
    /// Adds to a total.
    pub fn count(&mut self, Total(name): Total, count: u64) {
        self.note(name, Noted::Total(count));
    }

    /// Notes a value, if it is the largest.
    pub fn largest(&mut self, Largest(name): Largest, value: u64) {
        self.note(name, Noted::Largest(value));
    }

    /// Notes one duration, nanoseconds.
    pub fn took(&mut self, Durations(name): Durations, nanos: u64) {
        if let Some((_, Noted::Durations(histogram))) = self.0.iter_mut().find(|(known, _)| *known == name) {
            histogram.saturating_record(nanos);
            return;
        }
        let mut histogram = latency_histogram();
        histogram.saturating_record(nanos);
        self.note(name, Noted::Durations(Box::new(histogram)));
    }

    /// Adds what was noted elsewhere.
    pub fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(name, noted)| self.note(name, noted));
    }

    fn note(&mut self, name: &'static str, noted: Noted) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.merge(noted),
            None => self.0.push((name, noted)),
        }
    }

    /// What the driver is told, by measure.
    pub fn readings(&self) -> Result<Vec<(&'static str, Reading)>, ContractError> {
        let reading = |noted: &Noted| match noted {
            Noted::Total(total) => Ok(Reading::Total(*total)),
            Noted::Largest(largest) => Ok(Reading::Largest(*largest)),
            Noted::Durations(histogram) => Distribution::of(histogram).map(Reading::Durations),
        };
        self.0.iter().map(|(name, noted)| Ok((*name, reading(noted)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_by_kind() {
        let (blocks, lag, failover) = (Total("blocks"), Durations("lag"), Largest("failover"));
        let mut all = Measures::default();
        let mut other = Measures::default();
        for (measures, value) in [(&mut all, 3), (&mut other, 5)] {
            measures.count(blocks, value);
            measures.took(lag, value * 1_000);
            measures.largest(failover, value);
        }
        other.count(Total("only here"), 1);
        all.merge(other);
        let readings = all.readings().unwrap();
        assert_eq!(readings[0], ("blocks", Reading::Total(8)));
        assert_eq!(readings[2], ("failover", Reading::Largest(5)));
        assert_eq!(readings[3], ("only here", Reading::Total(1)));
        let Reading::Durations(lag) = &readings[1].1 else { panic!("{readings:?}") };
        assert_eq!((lag.decode().unwrap().len(), lag.summary.max_nanos), (2, lag.decode().unwrap().max()));
    }
}
