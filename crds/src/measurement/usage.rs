//! What stores, control planes and machines used while they were measured.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a store used over a span of time, all its processes together.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Length of the span, nanoseconds.
    pub elapsed_nanos: u64,
    /// Processor time, user and system, nanoseconds.
    pub cpu_nanos: u64,
    /// Largest processor use over a sampling interval, thousandths of a core.
    pub cpu_peak_millicores: u64,
    /// Resident memory, average over samples, bytes.
    pub rss_average_bytes: u64,
    /// Resident memory, largest sample, bytes.
    pub rss_peak_bytes: u64,
    /// Proportional set size (shared pages divided among their users), largest sample, bytes.
    pub pss_peak_bytes: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Processor time of everything on the machine, store and loader included, nanoseconds; 0 where it is not known.
    #[serde(default)]
    pub machine_cpu_nanos: u64,
    /// What was written to the disks under its data, bytes, by whomever, the file system's own bookkeeping included. Absent: not
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
}

/// What one machine went through during a measured phase, and how much of that was the trial's own.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineUse {
    /// The identifier that its kernel chose when it started.
    pub machine: String,
    /// What of the trial ran there: `load-0`, `store-1`, `control-plane-0`.
    pub parts: BTreeSet<String>,
    /// Length of the span, nanoseconds.
    pub elapsed_nanos: u64,
    /// Processor time of everything on it, nanoseconds; 0 where it is not known.
    pub cpu_nanos: u64,
    /// Processor time of these parts, nanoseconds.
    pub own_nanos: u64,
    /// Time that its hypervisor gave to others although a processor here had work, of all processors together, nanoseconds.
    pub stolen_nanos: u64,
    /// Time during which at least one task waited for a processor, nanoseconds. Absent: its kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure_nanos: Option<u64>,
}

impl MachineUse {
    /// What several parts said of their machines, machine by machine. All parts of a machine see all of it, each for as long as it
    /// measured, so that the longest span counts; what they used themselves adds up.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut machines: BTreeMap<String, Self> = BTreeMap::new();
        for one in all {
            let Some(known) = machines.get_mut(&one.machine) else {
                machines.insert(one.machine.clone(), one);
                continue;
            };
            let own_nanos = known.own_nanos + one.own_nanos;
            known.parts.extend(one.parts.iter().cloned());
            let parts = std::mem::take(&mut known.parts);
            let longest = if one.elapsed_nanos > known.elapsed_nanos { one } else { known.clone() };
            *known = Self { parts, own_nanos, ..longest };
        }
        machines.into_values().collect()
    }

    /// What others than these parts used, the kernel's work for them included, thousandths of a core; `None`: not known.
    pub fn foreign_millicores(&self) -> Option<u64> {
        let foreign_nanos = self.cpu_nanos.saturating_sub(self.own_nanos);
        (self.cpu_nanos > 0).then(|| (u128::from(foreign_nanos) * 1_000 / u128::from(self.elapsed_nanos.max(1))) as u64)
    }

    /// What its hypervisor gave to others, thousandths of a core.
    pub fn stolen_millicores(&self) -> u64 {
        (u128::from(self.stolen_nanos) * 1_000 / u128::from(self.elapsed_nanos.max(1))) as u64
    }
}

/// What a control plane used, its store not included.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneUsage {
    /// The API server.
    pub api_server: Usage,
    /// Controller manager, scheduler and the simulator of nodes together.
    pub others: Usage,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_on_one_machine_see_it_once_and_add_up_what_they_used() {
        let on = |machine: &str, part: &str, elapsed_nanos: u64, own_nanos: u64| MachineUse {
            machine: machine.into(),
            parts: [part.to_owned()].into(),
            elapsed_nanos,
            cpu_nanos: 10 * elapsed_nanos / 4,
            own_nanos,
            stolen_nanos: elapsed_nanos / 100,
            pressure_nanos: Some(elapsed_nanos / 10),
        };
        let found = MachineUse::together([
            on("one", "load-0", 1_000, 400),
            on("two", "store-0", 1_000, 500),
            on("one", "store-1", 1_200, 600),
        ]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].parts, ["load-0".to_owned(), "store-1".to_owned()].into());
        assert_eq!((found[0].elapsed_nanos, found[0].cpu_nanos, found[0].own_nanos), (1_200, 3_000, 1_000));
        assert_eq!((found[0].foreign_millicores(), found[1].foreign_millicores()), (Some(1_666), Some(2_000)));
        assert_eq!(found[0].stolen_millicores(), 10);
        assert_eq!(MachineUse::default().foreign_millicores(), None, "nobody knows");
    }
}
