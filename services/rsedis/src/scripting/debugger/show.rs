//! Values of Lua and replies as the debugger shows them to people, in Redis's words, and no longer than was asked for.

use mlua::{Table, Value};

use crate::command::monitor::push_quoted;
use crate::number::general_text;

/// The most that is shown of one thing, whatever is asked for: tables may refer to each other.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// Tables in tables are shown up to here.
const DEPTH_MAX: usize = 10;
/// Redis writes numbers with `%g`.
const DIGITS: usize = 6;

/// What is shown of one thing. Once it is longer than it may be, nothing is added.
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    most: usize,
}

impl Text {
    pub(super) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most }
    }

    /// Whether it is longer than it may be.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() > self.most
    }

    pub(super) fn push(&mut self, text: impl AsRef<[u8]>) {
        if !self.is_full() {
            self.bytes.extend_from_slice(text.as_ref());
        }
    }

    fn push_quoted(&mut self, bytes: &[u8]) {
        if !self.is_full() {
            let mut text = String::new();
            push_quoted(&mut text, &bytes[..bytes.len().min(self.most)]);
            self.push(text);
        }
    }
}

/// A value of Lua.
pub(super) fn push_value(text: &mut Text, value: &Value, depth: usize) {
    if depth == DEPTH_MAX {
        return text.push("<max recursion level reached! Nested table?>");
    }
    let pointer = |text: &mut Text, kind: &str| text.push(format!("\"{kind}@{:p}\"", value.to_pointer()));
    match value {
        Value::String(string) => text.push_quoted(&string.as_bytes()),
        Value::Boolean(is_so) => text.push(is_so.to_string()),
        Value::Integer(number) => text.push(general_text(*number as f64, DIGITS)),
        Value::Number(number) => text.push(general_text(*number, DIGITS)),
        Value::Nil => text.push("nil"),
        Value::Table(table) => push_table(text, table, depth + 1),
        Value::Function(_) => pointer(text, "function"),
        Value::Thread(_) => pointer(text, "thread"),
        Value::LightUserData(_) => pointer(text, "light-userdata"),
        _ => pointer(text, "userdata"),
    }
}

fn push_table(text: &mut Text, table: &Table, depth: usize) {
    let pairs = || table.pairs::<Value, Value>().flatten();
    let is_index = |key: &Value, place: usize| match key {
        Value::Integer(index) => *index == place as i64,
        Value::Number(index) => *index == place as f64,
        _ => false,
    };
    let is_array = pairs().zip(1..).all(|((key, _), place)| is_index(&key, place));
    text.push("{");
    for (place, (key, value)) in pairs().enumerate() {
        if text.is_full() {
            return;
        }
        if place > 0 {
            text.push("; ");
        }
        if !is_array {
            text.push("[");
            push_value(text, &key, depth);
            text.push("]=");
        }
        push_value(text, &value, depth);
    }
    text.push("}");
}

/// The first reply of some bytes; where it ends.
pub(super) fn push_reply(text: &mut Text, bytes: &[u8], at: usize) -> usize {
    let Some(end) = memchr::memchr(b'\r', &bytes[at..]).map(|length| at + length) else { return bytes.len() };
    let (kind, line) = (bytes[at], &bytes[at + 1..end]);
    let mut next = (end + 2).min(bytes.len());
    let length = crate::number::parse_integer(line).unwrap_or(-1);
    match kind {
        b':' => text.push(line),
        b'$' | b'=' => match usize::try_from(length) {
            Err(_) => text.push("NULL"),
            Ok(length) => {
                text.push_quoted(bytes.get(next..next + length).unwrap_or_default());
                next = (next + length + 2).min(bytes.len());
            }
        },
        b'+' | b'-' => text.push_quoted(&bytes[at..end]),
        b'_' => text.push("(null)"),
        b'#' => text.push(if line == b"t" { "#true" } else { "#false" }),
        b',' => text.push([b"(double) ", line].concat()),
        b'(' => text.push([b"(big number) ", line].concat()),
        b'*' | b'>' if length < 0 => text.push("NULL"),
        b'*' | b'>' | b'~' => {
            let (opening, closing) = if kind == b'~' { ("~(", ")") } else { ("[", "]") };
            text.push(opening);
            for place in 0..length {
                if place > 0 {
                    text.push(",");
                }
                next = push_reply(text, bytes, next);
            }
            text.push(closing);
        }
        b'%' => {
            text.push("{");
            for place in 0..length {
                if place > 0 {
                    text.push(",");
                }
                next = push_reply(text, bytes, next);
                text.push(" => ");
                next = push_reply(text, bytes, next);
            }
            text.push("}");
        }
        _ => {}
    }
    next
}
