//! What families have in common that spread their requests over keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many distinct keys there are unless the user says otherwise.
pub(super) fn default_key_space() -> u32 {
    10_000
}

/// Order in which keys are visited.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyOrder {
    /// Drawn uniformly from the key space, from the trial's seed.
    #[default]
    Random,
    /// First to last, then again.
    Sequential,
}
