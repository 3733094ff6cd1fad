//! The contract of the meters: where `store-meter` and `control-plane-meter` are asked, and what they answer. The load and the operator ask.
//!
//! Read strictly: a field that is missing or unknown is an error and no zero, so that a meter of another release is noticed at its first answer. What
//! may be absent is written as null.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::Metrics;
use crate::job::{MachineUse, SyncCounters};
use crate::storage_service::Footprint;

/// Of a store: a [`Reading`]. With `?pss=true` with the proportional set size, with `?switches=false` without context switches.
pub const READING: &str = "/reading";
/// Of a control plane: a [`Reading`] of the API server.
pub const API_SERVER: &str = "/api-server";
/// Of a control plane: a [`Reading`] of its other processes.
pub const OTHERS: &str = "/others";
/// A [`MemberReading`].
pub const STORE: &str = "/store";
/// How often the store has synced its disk so far, a number.
pub const FSYNCS: &str = "/fsyncs";
/// What of the protocol the store serves, tried out: a list of [`Check`].
pub const PROTOCOL: &str = "/protocol";
/// Where a strike is asked for: a [`Struck`].
pub const STRIKE: &str = "/strike";
/// Where it is told that it is over: a [`Struck`].
pub const STRUCK: &str = "/struck";

/// How long a killed store may take to be started again: a kubelet waits for five minutes at most.
pub const RESTART_PATIENCE: Duration = Duration::from_secs(330);
/// The longest that a store stands still.
pub const STOP_MAX: Duration = Duration::from_secs(3600);
/// A shorter token could be guessed.
const TOKEN_CHARACTERS_MIN: usize = 32;

/// Whether a text may be the token that lets a meter strike. Errors: what one is.
pub fn check_token(text: &str) -> Result<(), &'static str> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    match text.len() >= TOKEN_CHARACTERS_MIN && is_plain {
        true => Ok(()),
        false => Err("give at least 32 letters and digits, which nobody can guess"),
    }
}

/// What the processes of one member have used so far, at one instant. Counters only grow, unless `restarts` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reading {
    /// When, by the monotonic clock of the member's machine, nanoseconds.
    pub monotonic_nanos: u64,
    /// Processor time, user and system, nanoseconds.
    pub cpu_nanos: u64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Context switches; null where not asked for.
    #[serde(deserialize_with = "Option::deserialize")]
    pub switches: Option<Switches>,
    /// What was written to the disk under the member's data; null where not asked for, or not known.
    #[serde(deserialize_with = "Option::deserialize")]
    pub disk: Option<DiskWrites>,
    /// Proportional set size, bytes; null where not asked for.
    #[serde(deserialize_with = "Option::deserialize")]
    pub pss_bytes: Option<u64>,
    /// Time that all processors of the machine together were not idle since it started, nanoseconds; 0 where it cannot be
    /// read.
    pub machine_cpu_nanos: u64,
    /// Time that the machine's hypervisor gave to others although a processor had work, since it started, nanoseconds.
    pub machine_stolen_nanos: u64,
    /// Time during which at least one task of the machine waited for a processor, since it started, nanoseconds. Null: its kernel does not say.
    #[serde(deserialize_with = "Option::deserialize")]
    pub machine_pressure_nanos: Option<u64>,
    /// The machine's boot identifier; empty where it cannot be read.
    pub machine: String,
    /// How often the member's process was replaced by another since the meter began. Its counters began anew then.
    pub restarts: u32,
}

impl Reading {
    /// What the machine went through from this reading to a later one of it, as this part of the trial saw it.
    pub fn machine_until(&self, later: &Self, part: String) -> MachineUse {
        let grown = |counter: fn(&Self) -> u64| counter(later).saturating_sub(counter(self));
        let pressure = self.machine_pressure_nanos.zip(later.machine_pressure_nanos);
        MachineUse {
            machine: later.machine.clone(),
            parts: [part].into(),
            elapsed_nanos: grown(|reading| reading.monotonic_nanos),
            cpu_nanos: grown(|reading| reading.machine_cpu_nanos),
            own_nanos: grown(|reading| reading.cpu_nanos),
            stolen_nanos: grown(|reading| reading.machine_stolen_nanos),
            pressure_nanos: pressure.map(|(before, now)| now.saturating_sub(before)),
        }
    }
}

/// Context switches of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Switches {
    /// The thread waited for something.
    pub voluntary: u64,
    /// Another thread got the processor.
    pub involuntary: u64,
}

/// What was written to a disk so far, by whomever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskWrites {
    /// Which disk of the machine it is, `major:minor`.
    pub device: String,
    /// How much, bytes.
    pub written_bytes: u64,
}

/// What a meter says of the member beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberReading {
    /// The version as the server itself reports it; null where it has not, or does not.
    #[serde(deserialize_with = "Option::deserialize")]
    pub version: Option<String>,
    /// What the idle member costs; null until it has answered and been watched, or if it cannot be known.
    #[serde(deserialize_with = "Option::deserialize")]
    pub footprint: Option<Footprint>,
    /// Why there is no footprint (yet), in one line; null where there is one.
    #[serde(deserialize_with = "Option::deserialize")]
    pub problem: Option<String>,
    /// Space that the data directory takes on disk, bytes: allocated blocks, as `du` counts; null where it is not weighed.
    #[serde(deserialize_with = "Option::deserialize")]
    pub disk_bytes: Option<u64>,
    /// Facts about the machine.
    pub facts: BTreeMap<String, String>,
}

/// One kind of request, tried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    /// Its name in the protocol.
    pub name: String,
    /// Whether the store answered rightly.
    pub ok: bool,
    /// What was answered, or what went wrong, in one line.
    pub detail: String,
}

/// What became of a strike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Struck {
    /// Whether it is over.
    pub is_over: bool,
    /// From the strike to its end, nanoseconds.
    pub lasted_nanos: u64,
    /// Why it has not ended as it should, in one line; null where it has, or has not ended yet.
    #[serde(deserialize_with = "Option::deserialize")]
    pub problem: Option<String>,
}

/// How a store counts the syncs of its disk, as `store-meter --syncs` is told: `PORT/PATH,NAME=COUNT,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syncs {
    port: u16,
    path: String,
    /// What counts them, by its name, and how many syncs one of each is.
    counters: BTreeMap<String, u64>,
}

impl Syncs {
    /// As the row of an engine says, whose metrics are at this port; `None`: it does not count them.
    pub fn of(metrics: &Metrics, port: u16) -> Option<Self> {
        let counters: BTreeMap<_, _> = metrics.syncs.iter().map(|(name, syncs)| ((*name).to_owned(), *syncs)).collect();
        (!counters.is_empty()).then(|| Self { port, path: metrics.path.into(), counters })
    }

    /// Those of a store whose ports are at these addresses.
    pub fn at(self, address: impl FnOnce(u16) -> String) -> SyncCounters {
        let Self { port, path, counters } = self;
        SyncCounters { address: address(port), path, counters }
    }
}

impl fmt::Display for Syncs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.port, self.path)?;
        self.counters.iter().try_for_each(|(name, syncs)| write!(formatter, ",{name}={syncs}"))
    }
}

impl FromStr for Syncs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const REMEDY: &str = "write PORT/PATH,NAME=COUNT, with a counter or more, such as 2379/metrics,syncs_total=1";
        let (place, counters) = text.split_once(',').ok_or(REMEDY)?;
        let (port, path) = place.split_once('/').ok_or(REMEDY)?;
        let counter = |text: &str| {
            let (name, syncs) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
            Some((name.to_owned(), syncs.parse().ok()?))
        };
        let counters = counters.split(',').map(counter).collect::<Option<_>>().ok_or(REMEDY)?;
        Ok(Self { port: port.parse().map_err(|_| REMEDY)?, path: format!("/{path}"), counters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ENGINES;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    /// What is written is read, and nothing else is: no field may be missing, and none be more.
    fn strictly<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
        let written = serde_json::to_value(value).unwrap();
        assert_eq!(&serde_json::from_value::<T>(written.clone()).unwrap(), value);
        let fields = written.as_object().unwrap();
        for name in fields.keys() {
            let mut lacking = fields.clone();
            lacking.remove(name);
            let said = serde_json::from_value::<T>(Value::Object(lacking)).unwrap_err().to_string();
            assert!(said.contains(&format!("missing field `{name}`")), "{said}");
        }
        let mut more = fields.clone();
        more.insert("ofTomorrow".into(), json!(1));
        let said = serde_json::from_value::<T>(Value::Object(more)).unwrap_err().to_string();
        assert!(said.contains("unknown field `ofTomorrow`"), "{said}");
    }

    #[test]
    fn what_a_meter_of_another_release_says_is_no_answer() {
        strictly(&Reading::default());
        strictly(&Switches::default());
        strictly(&DiskWrites::default());
        strictly(&MemberReading::default());
        strictly(&Struck::default());
        strictly(&Check { name: "Put".into(), ok: true, detail: "revision 7".into() });
    }

    #[test]
    fn a_token_is_long_and_plain() {
        assert_eq!(check_token(&"x".repeat(32)), Ok(()));
        for text in ["", "0123456789", "0123456789abcdef 123456789abcdef"] {
            check_token(text).unwrap_err();
        }
    }

    #[test]
    fn what_counts_syncs_is_read_from_the_command_line() {
        let syncs: Syncs = "2379/metrics,log=1,commit=2".parse().unwrap();
        let counters = BTreeMap::from([("log".to_owned(), 1), ("commit".to_owned(), 2)]);
        assert_eq!(syncs, Syncs { port: 2379, path: "/metrics".into(), counters });
        for wrong in
            ["", "2379/metrics", "metrics,log=1", "70000/metrics,log=1", "1/m,", "1/m,log", "1/m,=1", "1/m,log=x"]
        {
            assert!(wrong.parse::<Syncs>().unwrap_err().contains("write PORT/PATH,NAME=COUNT"), "{wrong}");
        }
    }

    #[test]
    fn what_a_row_says_of_syncs_is_what_a_meter_reads() {
        let rows = ENGINES.iter().filter_map(|engine| engine.metrics);
        let written: Vec<Syncs> = rows.filter_map(|metrics| Syncs::of(&metrics, 2379)).collect();
        assert!(written.len() >= 4, "{written:?}");
        for syncs in written {
            assert_eq!(syncs.to_string().parse(), Ok(syncs));
        }
    }
}
