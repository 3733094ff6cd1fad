//! The faults that can be planted, as written on the command line: `--fault NAME[=VALUE]`.
//!
//! Promises: a fault that is misspelt, has a value it cannot have, is given twice, or cannot work together with
//! another is refused with one line that says so. No fault at all is the control arm: a transparent proxy.

use std::time::Duration;

use clap::ValueEnum;

/// Which store is behind the proxy, and so which protocol it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// gRPC on HTTP/2, with HTTP/1 for `/health` and `/metrics` on the same port.
    Etcd,
    /// RESP2 or RESP3.
    Redis,
    /// The same as Redis in everything that matters here.
    Valkey,
}

/// The longest delay that can be asked for. A longer one is `never-ready`, or a typing error.
const DELAY_MAX_MICROS: u64 = 60_000_000;
/// The greatest growth of latency that can be asked for: a hundredfold.
const DELAY_MAX_PERCENT: u64 = 10_000;
/// `kill-after-millis` waits for this many requests first, so that it strikes in a trial and not in a start-up probe.
const KILL_ARMED_AFTER_REQUESTS: u64 = 100;

/// What is wrong with this store. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// Each answer comes later by this share of the time it took anyway.
    pub delay_percent: u64,
    /// Each answer comes later by this much, in microseconds.
    pub delay_micros: u64,
    /// Every so-manieth write is acknowledged and never made.
    pub drop_write_every: Option<u64>,
    /// Every so-manieth value read has one bit inverted in its last byte.
    pub flip_value_every: Option<u64>,
    /// What a transaction compares is ignored: it always succeeds.
    pub ignore_compares: bool,
    /// Answers to reads are remembered for so long, and given again to the same question.
    pub stale_read: Option<Duration>,
    /// When to SIGSTOP the store, and for how long.
    pub stop: Option<(Duration, Duration)>,
    /// When to SIGKILL the store.
    pub kill_after: Option<Duration>,
    /// How many requests must have passed before the clocks of `stop` and `kill` start, where it was given.
    pub arm_after_requests: Option<u64>,
    /// Start nothing, accept connections, never answer.
    pub never_ready: bool,
    /// Exit at once.
    pub refuse: bool,
    /// The greatest size of any file that the store writes, in bytes.
    pub disk_full_after_bytes: Option<u64>,
}

impl Faults {
    /// Reads the faults of the command line. The error is one line for the user.
    pub fn parse(list: &[String], store: Store) -> Result<Self, String> {
        let mut faults = Self::default();
        let (mut stop_after, mut stop_for) = (None, None);
        let mut seen: Vec<&str> = Vec::new();
        for text in list {
            let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
            if seen.contains(&name) {
                return Err(format!("fault {name} is given twice"));
            }
            seen.push(name);
            let number = |most: u64| number(name, value, most);
            let millis = || Ok::<_, String>(Some(Duration::from_millis(number(u64::from(u32::MAX))?)));
            match name {
                "delay-percent" => faults.delay_percent = number(DELAY_MAX_PERCENT)?,
                "delay-micros" => faults.delay_micros = number(DELAY_MAX_MICROS)?,
                "drop-write-every" => faults.drop_write_every = Some(number(u64::MAX)?),
                "flip-value-every" => faults.flip_value_every = Some(number(u64::MAX)?),
                "stale-read-millis" => faults.stale_read = millis()?,
                "stop-after-millis" => stop_after = millis()?,
                "stop-for-millis" => stop_for = millis()?,
                "kill-after-millis" => faults.kill_after = millis()?,
                "arm-after-requests" => faults.arm_after_requests = Some(number(u64::MAX - 1)?),
                "disk-full-after-bytes" => faults.disk_full_after_bytes = Some(number(i64::MAX as u64)?),
                "never-ready" => faults.never_ready = alone(name, value)?,
                "ignore-compares" => faults.ignore_compares = alone(name, value)?,
                "refuse" => faults.refuse = alone(name, value)?,
                _ => return Err(format!("there is no fault named {name:?}; see --help")),
            }
        }
        faults.stop = match (stop_after, stop_for) {
            (Some(after), Some(length)) => Some((after, length)),
            (None, None) => None,
            _ => return Err("stop-after-millis and stop-for-millis go together".into()),
        };
        for (name, every) in
            [("drop-write-every", faults.drop_write_every), ("flip-value-every", faults.flip_value_every)]
        {
            if every == Some(0) {
                return Err(format!("{name} counts from 1: {name}=1 means every one"));
            }
        }
        if faults.arm_after_requests.is_some() && faults.stop.is_none() && faults.kill_after.is_none() {
            return Err("arm-after-requests needs stop-after-millis or kill-after-millis".into());
        }
        if store == Store::Etcd && faults.delays() && faults.edits() {
            return Err("with etcd a delay cannot be combined with drop-write-every, flip-value-every, stale-read-millis or ignore-compares".into());
        }
        if store != Store::Etcd && (faults.stale_read.is_some() || faults.ignore_compares) {
            return Err("stale-read-millis and ignore-compares are for etcd".into());
        }
        Ok(faults)
    }

    /// Whether answers are held back.
    pub fn delays(&self) -> bool {
        self.delay_percent > 0 || self.delay_micros > 0
    }

    /// Whether requests or answers are altered, so that the protocol must be understood.
    pub fn edits(&self) -> bool {
        self.drop_write_every.is_some()
            || self.flip_value_every.is_some()
            || self.stale_read.is_some()
            || self.ignore_compares
    }

    /// How many requests must pass before the clock of `stop` starts: it starts with the first one unless told otherwise.
    pub fn stop_armed_after(&self) -> u64 {
        self.arm_after_requests.unwrap_or(0)
    }

    /// How many requests must pass before the clock of `kill` starts.
    pub fn kill_armed_after(&self) -> u64 {
        self.arm_after_requests.unwrap_or(KILL_ARMED_AFTER_REQUESTS)
    }
}

fn number(name: &str, value: Option<&str>, most: u64) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("fault {name} needs a value: {name}=N"))?;
    let number = value.parse().map_err(|_| format!("fault {name} needs a whole number, not {value:?}"))?;
    if number > most { Err(format!("fault {name} is at most {most}, not {number}")) } else { Ok(number) }
}

fn alone(name: &str, value: Option<&str>) -> Result<bool, String> {
    value.map_or(Ok(true), |_| Err(format!("fault {name} takes no value")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &[&str]) -> Result<Faults, String> {
        Faults::parse(&list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(), Store::Etcd)
    }

    #[test]
    fn nothing_is_the_control_arm() {
        assert_eq!(parse(&[]), Ok(Faults::default()));
    }

    #[test]
    fn faults_add_up() {
        let faults = parse(&["delay-percent=25", "stop-after-millis=10", "stop-for-millis=20", "refuse"]).unwrap();
        assert_eq!(faults.delay_percent, 25);
        assert_eq!(faults.stop, Some((Duration::from_millis(10), Duration::from_millis(20))));
        assert!(faults.refuse && faults.delays() && !faults.edits());
    }

    #[test]
    fn kill_waits_for_the_trial_and_stop_does_not() {
        let faults = parse(&["kill-after-millis=1"]).unwrap();
        assert_eq!((faults.stop_armed_after(), faults.kill_armed_after()), (0, 100));
        let faults = parse(&["kill-after-millis=1", "arm-after-requests=7"]).unwrap();
        assert_eq!((faults.stop_armed_after(), faults.kill_armed_after()), (7, 7));
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for (list, complaint) in [
            (&["dealy-percent=25"][..], "no fault named"),
            (&["delay-percent"], "needs a value"),
            (&["delay-percent=-1"], "whole number"),
            (&["delay-percent=1.5"], "whole number"),
            (&["delay-percent=10001"], "at most 10000"),
            (&["refuse=1"], "takes no value"),
            (&["refuse", "refuse"], "twice"),
            (&["stop-after-millis=5"], "go together"),
            (&["drop-write-every=0"], "counts from 1"),
            (&["arm-after-requests=5"], "needs stop-after-millis"),
            (&["delay-micros=5", "flip-value-every=2"], "cannot be combined"),
        ] {
            let error = parse(list).unwrap_err();
            assert!(error.contains(complaint) && !error.contains('\n'), "{list:?}: {error}");
        }
    }
}
