//! Logs: a line for each event on stderr, as text or as JSON.

mod zap;

use std::fmt;
use std::io::{IsTerminal, Stderr};
use std::str::FromStr;

use crate::console::OneLine;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{self, DefaultFields, Writer};
use tracing_subscriber::fmt::{FormatFields, SubscriberBuilder};
use zap::Zap;

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people; with colours on a terminal, unless `NO_COLOR` is set.
    #[default]
    Text,
    /// An object on each line, with `timestamp`, `level`, `target` and the event's fields, `message` among them.
    Json,
    /// An object on each line with the keys of zap, Go's logger: `level` in lower case, `ts` (UTC, microseconds), `caller`, `msg`, and the event's
    /// other fields. `caller` is the module that says it: zap's file and line change with every release. For a server in whose place another
    /// one was, whose lines are read by programs; no flag chooses it.
    Zap,
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
    let logs = subscriber().with_max_level(level);
    match format {
        Format::Text => logs.fmt_fields(OneLineEach).with_ansi(has_colours()).init(),
        Format::Json => logs.json().flatten_event(true).init(),
        Format::Zap => logs.event_format(Zap).init(),
    }
}

/// Writes, as text, those events that `RUST_LOG` asks for in the words of `tracing`, and without it those of INFO and above.
pub fn start_by_environment() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    subscriber().fmt_fields(OneLineEach).with_env_filter(filter).with_ansi(has_colours()).init();
}

/// To stderr. Where that cannot be written, because its disk is full or nobody reads it, lines are lost: the subscriber would tell of that there, too, and
/// panic.
fn subscriber() -> SubscriberBuilder<DefaultFields, format::Format, LevelFilter, fn() -> Stderr> {
    tracing_subscriber::fmt().log_internal_errors(false).with_writer(std::io::stderr)
}

/// Whether who reads stderr sees colours and wants them (<https://no-color.org>).
fn has_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// An event is one line, whatever its values have: names of files, keys and what peers say may have line breaks, or what steers a terminal.
struct OneLineEach;

impl<'writer> FormatFields<'writer> for OneLineEach {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        write!(writer, "{}", OneLine(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    const STARTED_BY: &str = "STOREBENCH_KIT_LOGS";

    #[test]
    #[ignore = "the body of the child process of the next test"]
    fn child_process() {
        match std::env::var(STARTED_BY).as_deref() {
            Ok("text") => start(Format::Text, Level::INFO),
            Ok("json") => start(Format::Json, Level::INFO),
            Ok("zap") => start(Format::Zap, Level::INFO),
            Ok(_) => start_by_environment(),
            Err(_) => return,
        }
        tracing::info!("nobody reads this");
    }

    #[test]
    fn a_server_whose_log_cannot_be_written_lives_on() {
        for how in ["text", "json", "zap", "environment"] {
            // Each write says that the disk is full.
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "logs::tests::child_process"])
                .env(STARTED_BY, how)
                .stdout(std::process::Stdio::null())
                .stderr(full)
                .status()
                .unwrap();
            assert!(status.success(), "{how}: {status}");
        }
    }

    /// What is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_value_with_line_breaks_forges_no_event() {
        let kept = Kept::default();
        let of_logs = kept.clone();
        let logs = tracing_subscriber::fmt().fmt_fields(OneLineEach).with_writer(move || of_logs.clone()).finish();
        tracing::subscriber::with_default(logs, || {
            tracing::info!(path = %"/a\n2026 INFO forged\r\x1b[31m", "what\never");
            tracing::info!("next");
        });
        let written = kept.text();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.len(), 2, "{written}");
        assert!(lines[0].contains("what\\never path=/a\\n2026 INFO forged\\r\\u{1b}[31m"), "{written}");
        assert!(lines[1].ends_with("next"), "{written}");
    }

    /// Who reads etcd's lines found neither time nor text in those of a server in its place.
    #[test]
    fn a_line_with_zaps_keys_has_level_time_caller_text_and_fields() {
        let kept = Kept::default();
        let of_logs = kept.clone();
        let logs = tracing_subscriber::fmt()
            .event_format(Zap)
            .with_max_level(Level::TRACE)
            .with_writer(move || of_logs.clone())
            .finish();
        tracing::subscriber::with_default(logs, || {
            let took = std::time::Duration::from_micros(1500);
            let nothing: Option<u64> = None;
            tracing::warn!(
                "local-member-id" = %format!("{:x}", 0x8e9e_05c5_2164_694d_u64),
                "compact-revision" = -7_i64,
                bytes = u64::MAX,
                part = 0.5,
                is_new = true,
                ?took,
                nothing,
                path = "a\"b\nforged",
                "finished {}\n\"so\"",
                "scheduled compaction"
            );
            tracing::error!("e");
            tracing::info!("i");
            tracing::debug!("d");
            tracing::trace!("t");
        });
        let written = kept.text();
        assert!(written.starts_with("{\"level\":\"warn\",\"ts\":\""), "as zap orders them: {written}");
        let lines = written.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut lines = lines.collect::<Vec<serde_json::Value>>();
        let levels = lines.iter().map(|line| line["level"].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(levels, ["warn", "error", "info", "debug", "debug"]);
        assert_eq!(lines[1]["msg"], "e");
        let first = lines[0].as_object_mut().unwrap();
        let time = first.remove("ts").unwrap();
        // 2026-11-29T09:52:51.123456Z
        let digits_as_zeros = time.as_str().unwrap().replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(digits_as_zeros, "0000-00-00T00:00:00.000000Z");
        let expected = serde_json::json!({
            "level": "warn",
            "caller": module_path!(),
            "msg": "finished scheduled compaction\n\"so\"",
            "local-member-id": "8e9e05c52164694d",
            "compact-revision": -7,
            "bytes": u64::MAX,
            "part": 0.5,
            "is_new": true,
            "took": "1.5ms",
            "path": "a\"b\nforged",
        });
        assert_eq!(lines[0], expected);
    }
}
