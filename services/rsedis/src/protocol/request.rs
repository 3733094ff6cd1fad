//! Reads commands where they were received: arguments are offsets into the client's buffer.
//!
//! A command that has not come whole is gone on with where it ended, never read from its start again. Commands that stand behind
//! each other may be read before the first of them runs ([`Parser::look_ahead`]), which changes nothing but when. What is refused, and
//! with which words, is what Redis 7.0's `processMultibulkBuffer` and `processInlineBuffer` do.

use super::arguments::Span;
use super::{Args, split_words};
use crate::number::parse_integer;

/// An inline command, and the line of a count, has at most this many bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Who has not logged in may send this little.
const STRANGER_ARGUMENTS_MAX: i64 = 10;
const STRANGER_BULK_MAX: i64 = 16_384;

/// Bytes that are no command. The connection ends after the error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// An inline command that does not end.
    #[error("too big inline request")]
    InlineTooBig,
    /// A quote that is not closed, or text right behind a closed one.
    #[error("unbalanced quotes in request")]
    Quotes,
    /// The line of a number of arguments does not end.
    #[error("too big mbulk count string")]
    CountTooBig,
    /// Not a number of arguments.
    #[error("invalid multibulk length")]
    Count,
    /// More arguments than a client that has not logged in may send.
    #[error("unauthenticated multibulk length")]
    StrangerCount,
    /// The line of an argument's length does not end.
    #[error("too big bulk count string")]
    LengthTooBig,
    /// Not an argument's length.
    #[error("invalid bulk length")]
    Length,
    /// A longer argument than a client that has not logged in may send.
    #[error("unauthenticated bulk length")]
    StrangerLength,
    /// Something else where an argument should begin.
    #[error("expected '$', got '{0}'")]
    NotBulk(char),
    /// More bytes than a command may have.
    #[error("too big request: a command has at most 4294967295 bytes")]
    TooLarge,
}

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of an argument.
    pub bulk_max: i64,
    /// The client has yet to log in.
    pub is_stranger: bool,
}

impl Limits {
    /// Of what was taken already, by a master or into a file: what a [`Span`] can tell.
    pub const TAKEN: Self = Self { bulk_max: u32::MAX as i64, is_stranger: false };
}

/// A command that was read ahead.
#[derive(Clone, Copy, Debug)]
struct Ready {
    /// Its arguments' place in [`Parser::ready_spans`].
    from: u32,
    to: u32,
    /// Its bytes.
    length: usize,
}

/// Reads one client's commands.
#[derive(Debug, Default)]
pub struct Parser {
    /// Commands that were read ahead, in their order, and how many of them were given out.
    ready: Vec<Ready>,
    given: usize,
    /// Their arguments, each from its own command's first byte on.
    ready_spans: Vec<Span>,
    /// Of the arguments so far: from the command's first byte on, or in `inline`.
    spans: Vec<Span>,
    /// An inline command's arguments without their quotes.
    inline: Vec<u8>,
    is_inline: bool,
    /// Read so far, from the command's first byte on.
    at: usize,
    /// Arguments that are still to come; none before their number is known.
    missing: Option<usize>,
    /// Bytes of the argument that comes next, if its length was read.
    bulk: Option<usize>,
    is_complete: bool,
}

impl Parser {
    /// Goes on with the command that begins at the first of these bytes: its length, if it is complete. Must be given more of
    /// the same bytes until it is.
    #[inline]
    pub fn next(&mut self, bytes: &[u8], limits: Limits) -> Result<Option<usize>, ProtocolError> {
        if let Some(ready) = self.ready.get(self.given) {
            self.given += 1;
            return Ok(Some(ready.length));
        }
        if self.given > 0 {
            self.forget_ready();
        }
        self.read(bytes, limits)
    }

    /// Whether neither a command that was read ahead is left, nor a part of one.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.given == self.ready.len() && !self.is_busy()
    }

    /// Reads up to so many commands before they are asked for, and tells their arguments. Where it is not drained, it tells nothing.
    /// What is incomplete, wrong or inline is left to [`Parser::next`], which alone tells errors: those before it are run first.
    pub fn look_ahead<'a>(
        &'a mut self,
        bytes: &'a [u8],
        limits: Limits,
        most: usize,
    ) -> impl Iterator<Item = Args<'a>> + use<'a> {
        let is_due = self.is_drained();
        if is_due {
            self.forget_ready();
            let mut at = 0;
            while self.ready.len() < most && bytes.get(at) == Some(&b'*') {
                match self.read(&bytes[at..], limits) {
                    Ok(Some(length)) => {
                        let from = self.ready_spans.len() as u32;
                        self.ready_spans.extend_from_slice(&self.spans);
                        self.ready.push(Ready { from, to: self.ready_spans.len() as u32, length });
                        at += length;
                        self.reset();
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.reset();
                        break;
                    }
                }
            }
        }
        let mut at = 0;
        let spans = self.ready_spans.as_slice();
        let fresh = if is_due { self.ready.as_slice() } else { &[] };
        fresh.iter().map(move |ready| {
            let args = Args { bytes: &bytes[at..], spans: &spans[ready.from as usize..ready.to as usize] };
            at += ready.length;
            args
        })
    }

    #[inline]
    fn read(&mut self, bytes: &[u8], limits: Limits) -> Result<Option<usize>, ProtocolError> {
        if self.is_complete {
            self.reset();
        }
        if self.missing.is_none() {
            match bytes.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.inline(bytes),
            }
            let Some((count, behind)) = number(bytes, 1, || ProtocolError::CountTooBig)? else { return Ok(None) };
            let count = count.filter(|&count| count <= ARGUMENTS_MAX).ok_or(ProtocolError::Count)?;
            if limits.is_stranger && count > STRANGER_ARGUMENTS_MAX {
                return Err(ProtocolError::StrangerCount);
            }
            self.at = behind;
            self.missing = Some(count.max(0) as usize);
        }
        let mut missing = self.missing.unwrap_or(0);
        while missing > 0 {
            let length = match self.bulk {
                Some(length) => length,
                None => {
                    let Some((length, behind)) = number(bytes, self.at + 1, || ProtocolError::LengthTooBig)? else {
                        return Ok(None);
                    };
                    let kind = bytes[self.at];
                    if kind != b'$' {
                        return Err(ProtocolError::NotBulk(char::from(kind)));
                    }
                    let length = length.filter(|length| (0..=limits.bulk_max).contains(length));
                    let length = length.ok_or(ProtocolError::Length)?;
                    if limits.is_stranger && length > STRANGER_BULK_MAX {
                        return Err(ProtocolError::StrangerLength);
                    }
                    self.at = behind;
                    if u32::try_from(behind + length as usize + 2).is_err() {
                        return Err(ProtocolError::TooLarge);
                    }
                    self.bulk = Some(length as usize);
                    length as usize
                }
            };
            let to = self.at + length;
            if bytes.len() < to + 2 {
                return Ok(None);
            }
            self.spans.push(Span { from: self.at as u32, to: to as u32 });
            self.at = to + 2;
            self.bulk = None;
            missing -= 1;
            self.missing = Some(missing);
        }
        self.is_complete = true;
        Ok(Some(self.at))
    }

    /// Bytes that the command needs at least before it can go on, counted from its first.
    pub fn needs(&self) -> usize {
        self.bulk.map_or(0, |length| self.at + length + 2)
    }

    /// Of a command that has not come whole: bytes up to where it was read, and those of its arguments among them.
    pub fn progress(&self) -> (usize, usize) {
        match self.is_busy() {
            true => (self.at, self.spans.iter().map(|span| (span.to - span.from) as usize).sum()),
            false => (0, 0),
        }
    }

    /// Whether it is in the middle of a command.
    pub fn is_busy(&self) -> bool {
        self.missing.is_some() && !self.is_complete
    }

    /// Memory it takes.
    pub fn memory(&self) -> usize {
        let spans = (self.spans.capacity() + self.ready_spans.capacity()) * size_of::<Span>();
        spans + self.ready.capacity() * size_of::<Ready>() + self.inline.capacity()
    }

    /// The arguments of the command that is complete; `bytes` begin as they did then.
    #[inline]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> Args<'a> {
        if let Some(ready) = self.given.checked_sub(1).and_then(|last| self.ready.get(last)) {
            return Args { bytes, spans: &self.ready_spans[ready.from as usize..ready.to as usize] };
        }
        debug_assert!(self.is_complete);
        Args { bytes: if self.is_inline { &self.inline } else { bytes }, spans: &self.spans }
    }

    fn forget_ready(&mut self) {
        self.ready.clear();
        self.ready_spans.clear();
        if self.ready_spans.capacity() > 4096 {
            self.ready_spans = Vec::new();
        }
        self.given = 0;
    }

    fn reset(&mut self) {
        self.spans.clear();
        if self.spans.capacity() > 4096 {
            self.spans = Vec::new();
        }
        self.inline.clear();
        self.is_inline = false;
        self.at = 0;
        self.missing = None;
        self.bulk = None;
        self.is_complete = false;
    }

    fn inline(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        // What has been searched needs not be searched again.
        let Some(newline) = end_of_line(b'\n', &bytes[self.at..]).map(|offset| self.at + offset) else {
            self.at = memchr::memchr(0, &bytes[self.at..]).map_or(bytes.len(), |offset| self.at + offset);
            let is_too_big = bytes.len() > LINE_BYTES_MAX;
            return if is_too_big { Err(ProtocolError::InlineTooBig) } else { Ok(None) };
        };
        let line = &bytes[..newline];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.is_inline = true;
        let (inline, spans) = (&mut self.inline, &mut self.spans);
        split_words(line, |word| {
            let from = inline.len() as u32;
            inline.extend_from_slice(word);
            spans.push(Span { from, to: inline.len() as u32 });
        })
        .ok_or(ProtocolError::Quotes)?;
        self.is_complete = true;
        Ok(Some(newline + 1))
    }
}

/// Where a line ends, if it does: Redis looks no further than to a zero, so that a line with one never ends.
fn end_of_line(end: u8, line: &[u8]) -> Option<usize> {
    memchr::memchr2(end, 0, line).filter(|&at| line[at] == end)
}

/// The integer in the line that begins at an offset, if it is one, and where the next line begins. Nothing: the line does not end
/// yet.
#[inline]
fn number(
    bytes: &[u8],
    from: usize,
    too_big: impl Fn() -> ProtocolError,
) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    let line = bytes.get(from..).unwrap_or_default();
    // Nearly all lines are one to three digits.
    if let [digit @ b'0'..=b'9', b'\r', _, ..] = *line {
        return Ok(Some((Some(i64::from(digit - b'0')), from + 3)));
    }
    if let [first @ b'1'..=b'9', second @ b'0'..=b'9', b'\r', _, ..] = *line {
        return Ok(Some((Some(i64::from(first - b'0') * 10 + i64::from(second - b'0')), from + 4)));
    }
    match end_of_line(b'\r', line) {
        None if line.len() > LINE_BYTES_MAX => Err(too_big()),
        Some(end) if end + 1 < line.len() => Ok(Some((parse_integer(&line[..end]), from + end + 2))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::push_command;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { bulk_max: 512 << 20, is_stranger: false };

    #[test]
    fn a_command_above_4_gib_is_refused_before_its_places_wrap() {
        let next = |head: &[u8]| Parser::default().next(head, Limits::TAKEN);
        assert_eq!(next(b"*1\r\n$4294967200\r\n"), Ok(None));
        assert_eq!(next(b"*2\r\n$3\r\nSET\r\n$4294967270\r\n"), Err(ProtocolError::TooLarge));
    }

    /// All commands in some bytes that come in pieces, and the error at the end: the same however many are read ahead.
    fn read(pieces: &[&[u8]], limits: Limits) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let outcome = read_ahead(pieces, limits, 0);
        for most in [1, 3, 16] {
            assert_eq!(read_ahead(pieces, limits, most), outcome, "{most} commands read ahead");
        }
        outcome
    }

    fn read_ahead(pieces: &[&[u8]], limits: Limits, most: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let owned = |args: Args<'_>| -> Vec<Vec<u8>> { args.iter().map(<[u8]>::to_vec).collect() };
        let (mut parser, mut buffer, mut commands, mut seen) = (Parser::default(), Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                if parser.is_drained() {
                    seen.extend(parser.look_ahead(&buffer, limits, most).map(owned));
                }
                match parser.next(&buffer, limits) {
                    Ok(Some(length)) => {
                        let command = owned(parser.args(&buffer));
                        if let Some(position) = seen.iter().position(|seen| *seen == command) {
                            assert_eq!(position, 0, "commands that were read ahead come in their order");
                            seen.remove(0);
                        }
                        commands.push(command);
                        buffer.drain(..length);
                    }
                    Ok(None) => break,
                    Err(error) => return (commands, Some(error)),
                }
            }
            assert!(seen.is_empty(), "{seen:?} were read ahead and never came");
        }
        (commands, None)
    }

    proptest! {
        #[test]
        fn commands_come_whole_however_they_are_cut(
            commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12), 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut bytes = Vec::new();
            for command in &commands {
                push_command(&mut bytes, command.iter().map(Vec::as_slice));
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces, LIMITS), (commands, None));
        }

        #[test]
        fn any_bytes_end_well(bytes in prop::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), any::<u8>()], 0..200)) {
            let whole = read(&[&bytes], LIMITS);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&single, LIMITS), whole);
        }
    }

    #[test]
    fn errors_are_those_of_redis() {
        let stranger = Limits { is_stranger: true, ..LIMITS };
        let long = [b"*".as_slice(), &vec![b'1'; LINE_BYTES_MAX + 2]].concat();
        let long_bulk = [b"*1\r\n$".as_slice(), &vec![b'1'; LINE_BYTES_MAX + 2]].concat();
        for (bytes, limits, expected) in [
            (b"*x\r\n".as_slice(), LIMITS, "invalid multibulk length"),
            (b"*2147483648\r\n", LIMITS, "invalid multibulk length"),
            (b"*1\r\n:5\r\n", LIMITS, "expected '$', got ':'"),
            (b"*1\r\n$x\r\n", LIMITS, "invalid bulk length"),
            (b"*1\r\n$-1\r\n", LIMITS, "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", LIMITS, "invalid bulk length"),
            (b"*11\r\n", stranger, "unauthenticated multibulk length"),
            (b"*1\r\n$16385\r\n", stranger, "unauthenticated bulk length"),
            (b"SET a \"x\r\n", LIMITS, "unbalanced quotes in request"),
            (b"SET a \"x\"y\r\n", LIMITS, "unbalanced quotes in request"),
            (&vec![b'a'; LINE_BYTES_MAX + 1], LIMITS, "too big inline request"),
            (&long, LIMITS, "too big mbulk count string"),
            (&long_bulk, LIMITS, "too big bulk count string"),
        ] {
            let (_, error) = read(&[bytes], limits);
            assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_line_with_a_zero_never_ends() {
        for line in
            ["PING\0\r\n", "\0\n", "ECHO \"a\0\"\r\nPING\r\n", "*1\0\r\n$4\r\nPING\r\n", "*1\r\n$4\0\r\nPING\r\n"]
        {
            let (head, tail) = line.as_bytes().split_at(line.len() - 2);
            for pieces in [&[line.as_bytes()][..], &[head, tail]] {
                assert_eq!(read(pieces, LIMITS), (vec![], None), "{line:?}");
            }
        }
        let (_, error) = read(&[&[b"PING\0\r\n".as_slice(), &[b'x'; LINE_BYTES_MAX]].concat()], LIMITS);
        assert_eq!(error, Some(ProtocolError::InlineTooBig));
    }

    #[test]
    fn inline_commands_have_quotes() {
        let line = b"SET 'it\\'s' \"\\x41\\n\\q\"  \r\n\r\n*0\r\n*-1\r\nPING\n";
        let (commands, error) = read(&[line], LIMITS);
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let none = words(&[]);
        assert_eq!(commands, [words(&[b"SET", b"it's", b"A\nq"]), none.clone(), none.clone(), none, words(&[b"PING"])]);
        assert_eq!(error, None);
    }
}
