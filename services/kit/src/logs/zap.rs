//! Lines as zap writes them, the logger of etcd and of much else that is written in Go.

use std::fmt::{self, Write as _};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// See [`super::Format::Zap`].
pub(super) struct Zap;

impl<S, N> FormatEvent<S, N> for Zap
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        let level = level(*metadata.level());
        let [time, caller, message] = [time.as_str(), metadata.target(), fields.message.as_str()].map(Value::from);
        let others = fields.others;
        writeln!(writer, r#"{{"level":"{level}","ts":{time},"caller":{caller},"msg":{message}{others}}}"#)
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        // zap has nothing below.
        _ => "debug",
    }
}

/// What an event says: its message, and the rest as members of an object, each behind a comma.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        // A String takes everything.
        let _ = write!(self.others, ",{}:{}", Value::from(field.name()), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, value),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
}
