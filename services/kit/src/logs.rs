//! Logs: a line for each event on stderr, as text or as JSON.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing::Level;
use tracing_subscriber::EnvFilter;

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people; with colours on a terminal, unless `NO_COLOR` is set.
    #[default]
    Text,
    /// An object on each line, with `timestamp`, `level`, `target` and the event's fields, `message` among them.
    Json,
}

/// It is no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected text or json, found {0:?}")]
pub struct FormatError(String);

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(FormatError(other.to_owned())),
        }
    }
}

/// Writes events of this level and above from now on, for as long as the process lives. To be called once, by the binary.
pub fn start(format: Format, level: Level) {
    let logs = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    match format {
        Format::Text => logs.with_ansi(has_colours()).init(),
        Format::Json => logs.json().flatten_event(true).init(),
    }
}

/// Writes, as text, those events that `RUST_LOG` asks for in the words of `tracing`, and without it those of INFO and above.
pub fn start_by_environment() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(has_colours()).init();
}

/// Whether who reads stderr sees colours and wants them (<https://no-color.org>).
fn has_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
