//! LCS: the longest common subsequence of two strings.

use super::options::{integer, is};
use crate::failure::{Failure, Outcome, SYNTAX};
use crate::keyspace::Key;
use crate::protocol::Args;
use crate::server::Server;
use crate::session::Session;

/// Lengths of common subsequences of all beginnings, row by row.
struct Table {
    lengths: Vec<u32>,
    columns: usize,
}

impl Table {
    fn new(one: &[u8], other: &[u8]) -> Self {
        let columns = other.len() + 1;
        let mut table = Self { lengths: vec![0; (one.len() + 1) * columns], columns };
        for row in 1..=one.len() {
            for column in 1..=other.len() {
                table.lengths[row * columns + column] = match one[row - 1] == other[column - 1] {
                    true => table.get(row - 1, column - 1) + 1,
                    false => table.get(row - 1, column).max(table.get(row, column - 1)),
                };
            }
        }
        table
    }

    fn get(&self, row: usize, column: usize) -> u32 {
        self.lengths[row * self.columns + column]
    }

    /// Where both have the same: begin in one and in the other, and length; the last first.
    fn matches(&self, one: &[u8], other: &[u8]) -> Vec<(usize, usize, usize)> {
        let (mut row, mut column) = (one.len(), other.len());
        let mut found: Vec<(usize, usize, usize)> = Vec::new();
        let mut is_open = false;
        while row > 0 && column > 0 {
            if one[row - 1] == other[column - 1] {
                row -= 1;
                column -= 1;
                match found.last_mut() {
                    Some(last) if is_open && last.0 == row + 1 && last.1 == column + 1 => {
                        *last = (row, column, last.2 + 1);
                    }
                    _ => found.push((row, column, 1)),
                }
                is_open = true;
            } else {
                is_open = false;
                if self.get(row - 1, column) > self.get(row, column - 1) { row -= 1 } else { column -= 1 }
            }
        }
        found
    }
}

pub(super) fn lcs(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let mut texts = Vec::new();
    for name in args.from(1).to(2).iter() {
        let text = server.text(client.database, &Key::new(name));
        let text = text.map_err(|_| Failure::new("ERR The specified keys must contain string values"))?;
        texts.push(text.map(|text| text.to_vec()).unwrap_or_default());
    }
    let (one, other) = (&texts[0], &texts[1]);
    let (mut only_length, mut with_places, mut with_lengths, mut least) = (false, false, false, 0);
    let mut at = 3;
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            _ if is(word, "IDX") => with_places = true,
            _ if is(word, "LEN") => only_length = true,
            _ if is(word, "WITHMATCHLEN") => with_lengths = true,
            Some(value) if is(word, "MINMATCHLEN") => {
                least = integer(value)?.max(0) as usize;
                at += 1;
            }
            _ => return Err(SYNTAX),
        }
        at += 1;
    }
    if only_length && with_places {
        return Err(Failure::new("ERR If you want both the length and indexes, please just use IDX."));
    }
    let bytes = (one.len() + 1).saturating_mul(other.len() + 1).saturating_mul(size_of::<u32>());
    if bytes as i64 > server.settings.bulk_max {
        return Err(Failure::new("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    let table = Table::new(one, other);
    let length = table.get(one.len(), other.len());
    if only_length {
        client.reply.integer(i64::from(length));
        return Ok(());
    }
    let matches = table.matches(one, other);
    if !with_places {
        let text: Vec<u8> =
            matches.iter().rev().flat_map(|(from, _, length)| &one[*from..from + length]).copied().collect();
        client.reply.bulk(&text);
        return Ok(());
    }
    let wanted: Vec<_> = matches.into_iter().filter(|(.., length)| *length >= least).collect();
    let reply = &mut client.reply;
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(wanted.len());
    for (from, other_from, length) in wanted {
        reply.array(if with_lengths { 3 } else { 2 });
        for begin in [from, other_from] {
            reply.array(2);
            reply.count(begin);
            reply.count(begin + length - 1);
        }
        if with_lengths {
            reply.count(length);
        }
    }
    reply.bulk(b"len");
    reply.integer(i64::from(length));
    Ok(())
}
