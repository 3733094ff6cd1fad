//! Classes of durability, which users ask for, engines honour, and arms must share to be ranked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an acknowledged write survives.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Durability {
    /// Power loss: the write is synced to disk before it is acknowledged.
    #[default]
    Fsync,
    /// A crash of the process; a power loss may take the last second.
    Interval,
    /// Nothing: writes are acknowledged before they are safe anywhere.
    None,
}

impl Durability {
    /// Every class, the strictest first.
    pub const ALL: [Self; 3] = [Self::Fsync, Self::Interval, Self::None];
}
