//! The debugger of scripts (SCRIPT DEBUG SYNC), as that of Redis 7.0.15: where it stops, what it has to tell, what it was told.
//!
//! A session is one EVAL. Before a line ([`hook`]) Lua stops, what has happened is told to the client, and commands ([`commands`]) are
//! taken from it until one lets the script go on. What a script has changed stays changed. Everybody else hears BUSY meanwhile. A client
//! that goes away, or says nothing for [`crate::server::DEBUGGER_PATIENCE`], is asked no more: the script runs on, for no longer than
//! `busy-reply-threshold`.

mod commands;
mod hook;
mod show;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use mlua::{Value, Variadic};

pub(super) use hook::Hook;

use crate::protocol::Reply;
use crate::server::Heard;

/// As many lines may be marked.
const BREAKPOINTS_MAX: usize = 64;
/// Values and replies are cut to so many bytes, until the client says otherwise.
const SHOWN_BYTES: usize = 256;
/// Less than this cannot be asked for.
const SHOWN_BYTES_MIN: usize = 60;

/// One session.
struct Session {
    /// The script.
    lines: Vec<Vec<u8>>,
    /// Where it is, from 1.
    line: usize,
    /// Lines to stop at, in the order in which they were marked.
    breakpoints: Vec<usize>,
    /// It stops at the next line.
    steps: bool,
    /// The same, since the script called `redis.breakpoint()`.
    is_break_asked: bool,
    /// Values and replies are cut to so many bytes; 0: not at all.
    shown_bytes: usize,
    /// The client knows that.
    is_cut_known: bool,
    /// What was not told yet.
    notes: Vec<Vec<u8>>,
    /// What the client said last.
    heard: Heard,
    /// There is nobody to ask any more.
    is_alone: bool,
    /// Since when it has run without a stop.
    runs_since: Instant,
    /// Until when the client's own code may run, while it does.
    evaluates_until: Option<Instant>,
}

/// A session, if there is one; shared by the hook and the functions that scripts call.
#[derive(Clone, Default)]
pub(super) struct Debugger(Rc<RefCell<Option<Session>>>);

impl Debugger {
    /// Begins a session with this script, which stops at its first line.
    pub(super) fn begin(&self, script: &[u8]) {
        let end = script.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
        *self.0.borrow_mut() = Some(Session {
            lines: script[..end].split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect(),
            line: 0,
            breakpoints: Vec::new(),
            steps: true,
            is_break_asked: false,
            shown_bytes: SHOWN_BYTES,
            is_cut_known: false,
            notes: Vec::new(),
            heard: Heard::Gone,
            is_alone: false,
            runs_since: Instant::now(),
            evaluates_until: None,
        });
    }

    /// Ends it, if there is one; the last that is to be told.
    pub(super) fn end(&self) -> Vec<u8> {
        let session = self.0.borrow_mut().take();
        session.map_or_else(Vec::new, |mut session| {
            session.note("<endsession>");
            session.take_notes()
        })
    }

    /// Whether there is a session.
    pub(super) fn is_active(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether commands and their replies are told.
    pub(super) fn tells(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|session| session.steps)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Session) -> T) -> Option<T> {
        self.0.borrow_mut().as_mut().map(work)
    }

    fn note(&self, text: impl AsRef<[u8]>) {
        self.with(|session| session.notes.push(text.as_ref().to_vec()));
    }

    /// What the client is to be told now.
    pub(super) fn take_notes(&self) -> Vec<u8> {
        self.with(Session::take_notes).unwrap_or_default()
    }

    /// What it has said to that.
    pub(super) fn hear(&self, heard: Heard) {
        self.with(|session| session.heard = heard);
    }

    /// A command that the script calls.
    pub(super) fn note_command(&self, words: &[Vec<u8>]) {
        const WORDS_MAX: usize = 10;
        let mut text = b"<redis>".to_vec();
        for word in words.iter().take(WORDS_MAX) {
            text.push(b' ');
            text.extend_from_slice(word);
        }
        if words.len() > WORDS_MAX {
            text.extend_from_slice(format!(" ... ({} more)", words.len() - WORDS_MAX - 1).as_bytes());
        }
        self.note(text);
    }

    /// A command that the script called did not run.
    pub(super) fn note_refusal(&self, text: &[u8]) {
        match text.strip_prefix(b"ERR ") {
            Some(text) => self.note([b"<error> ".as_slice(), text].concat()),
            None => self.note([b"<error> -".as_slice(), text].concat()),
        }
    }

    /// What it was answered.
    pub(super) fn note_reply(&self, bytes: &[u8]) {
        if let Some(error) = bytes.strip_prefix(b"-") {
            self.note([b"<error> -", error.trim_ascii_end()].concat());
        }
        self.with(|session| {
            session.note_cut(b"<reply> ", |text| {
                show::push_reply(text, bytes, 0);
            });
        });
    }

    /// `redis.debug()`.
    pub(super) fn note_values(&self, values: &Variadic<Value>) {
        self.with(|session| {
            let mut text = format!("<debug> line {}: ", session.line).into_bytes();
            for (place, value) in values.iter().enumerate() {
                if place > 0 {
                    text.extend_from_slice(b", ");
                }
                let mut shown = show::Text::new(show::BYTES_MAX);
                show::push_value(&mut shown, value, 0);
                text.extend(shown.bytes);
            }
            session.notes.push(text);
        });
    }

    /// `redis.breakpoint()`: whether there is a debugger to stop.
    pub(super) fn ask_for_break(&self) -> bool {
        self.with(|session| session.is_break_asked = true).is_some()
    }
}

impl Session {
    fn note(&mut self, text: impl AsRef<[u8]>) {
        self.notes.push(text.as_ref().to_vec());
    }

    /// What may be long is cut, and the client told once how to have all.
    fn note_cut(&mut self, prefix: &[u8], push: impl FnOnce(&mut show::Text)) {
        let most = if self.shown_bytes == 0 { show::BYTES_MAX } else { self.shown_bytes };
        let mut text = show::Text::new(most);
        text.push(prefix);
        push(&mut text);
        let is_cut = text.is_full();
        if is_cut {
            text.bytes.truncate(most);
            text.bytes.extend_from_slice(b" ...");
        }
        self.notes.push(text.bytes);
        if is_cut && !std::mem::replace(&mut self.is_cut_known, true) {
            self.note("<hint> The above reply was trimmed. Use 'maxlen 0' to disable trimming.");
        }
    }

    /// A line of the script, with what there is to it.
    fn note_line(&mut self, line: usize) {
        let prefix = match (line == self.line, self.breakpoints.contains(&line)) {
            (true, true) => "->#",
            (true, false) => "-> ",
            (false, true) => "  #",
            (false, false) => "   ",
        };
        let text = line.checked_sub(1).and_then(|place| self.lines.get(place));
        let text = text.map_or(b"<out of range source code line>".as_slice(), Vec::as_slice);
        self.notes.push([format!("{prefix}{line:<3} ").as_bytes(), text].concat());
    }

    /// The lines around one.
    fn note_lines(&mut self, around: usize, context: usize) {
        for line in 1..=self.lines.len() {
            if around.abs_diff(line) <= context {
                self.note_line(line);
            }
        }
    }

    /// As an array of lines.
    fn take_notes(&mut self) -> Vec<u8> {
        let notes = std::mem::take(&mut self.notes);
        let mut reply = Reply::default();
        reply.array(notes.len());
        for mut note in notes {
            note.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
            reply.bytes.push(b'+');
            reply.bytes.extend(note);
            reply.bytes.extend_from_slice(b"\r\n");
        }
        reply.bytes
    }
}
