//! Keys of a master that are read a little in each turn of the loop, from a file that has come or comes.

use std::time::Duration;

use crate::rdb;
use crate::replication::link::Receipt;
use crate::server::Server;

/// Bytes that are received ahead of those that are read.
const AHEAD_BYTES: usize = 1 << 20;

/// How far the file of a receipt was read.
pub(super) struct Loading {
    reader: rdb::Loader,
    /// All of the file was read.
    is_read: bool,
}

impl Default for Loading {
    fn default() -> Self {
        Self { reader: rdb::Loader::new(true), is_read: false }
    }
}

impl Loading {
    /// Reads on for about so long; whether the file has come whole and was read. Errors: it is none.
    pub(super) fn step(&mut self, server: &mut Server, receipt: &mut Receipt, most: Duration) -> Result<bool, String> {
        if !self.is_read {
            let (before, may_grow) = (self.reader.at(), !receipt.is_whole());
            let outcome = self.reader.step(server, receipt.rest(), may_grow, most);
            self.is_read = outcome.map_err(|error| error.to_string())?;
            receipt.note_read(self.reader.at() - before);
        }
        if self.is_read { receipt.has_ended() } else { Ok(false) }
    }

    /// Whether it can read on at once.
    pub(super) fn has_more(&self, receipt: &Receipt) -> bool {
        let has_enough = receipt.is_whole() || self.reader.is_content_with(receipt.rest().len());
        has_enough && !self.is_read && !self.reader.is_waiting()
    }

    /// Whether so much waits to be read that nothing needs to be received.
    pub(super) fn is_ahead(&self, receipt: &Receipt) -> bool {
        let count = receipt.rest().len();
        count >= AHEAD_BYTES && self.reader.is_content_with(count) && !self.is_read
    }

    /// How many bytes were read.
    pub(super) fn at(&self) -> usize {
        self.reader.at()
    }

    /// The database that the stream behind the file has selected.
    pub(super) fn stream_database(&self) -> usize {
        self.reader.stream_database.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "0123456789012345678901234567890123456789";

    proptest! {
        /// However the bytes come, they are read with the last of them, and what follows is left; a mark that is another one is none.
        #[test]
        fn keys_are_read_as_they_come(
            keys in 1usize..60,
            length in 0usize..200,
            end in 0..3,
            pieces in proptest::collection::vec(1usize..4_000, 1..20),
        ) {
            let now = 1_700_000_000_000;
            let mut master = Server::new(crate::settings::Settings::default(), now, 7);
            for number in 0..keys {
                let name = number.to_string();
                let key = crate::keyspace::Key::new(name.as_bytes());
                master.databases[number % 3].set_string(&key, None, "x".repeat(number * length).as_bytes(), None);
            }
            let file = rdb::write(&master, false);
            let (head, tail) = match end {
                0 => (format!("${}\r\n", file.len()), &b"*1\r\n$4\r\nPING\r\n"[..]),
                _ => (format!("$EOF:{ID}\r\n"), if end == 1 { ID.as_bytes() } else { &[b'z'; ID.len() + 1] }),
            };
            let sent = [head.as_bytes(), &file, tail].concat();
            let mut replica = Server::new(crate::settings::Settings::default(), now, 8);
            let mut receipt = Receipt::new((ID.to_owned(), 0));
            let (mut query, mut rest, mut loading, mut outcome) = (Vec::new(), &sent[..], None, Ok(false));
            for piece in pieces.iter().cycle() {
                let (some, later) = rest.split_at((*piece).min(rest.len()));
                query.extend_from_slice(some);
                rest = later;
                match &mut loading {
                    None => {
                        prop_assert!(receipt.take(&mut query).is_ok());
                        loading = receipt.has_begun().then(Loading::default);
                    }
                    Some(loading) => {
                        prop_assert!(receipt.take(&mut query).is_ok());
                        outcome = loading.step(&mut replica, &mut receipt, Duration::MAX);
                    }
                }
                if rest.is_empty() && loading.is_some() && outcome != Ok(false) {
                    break;
                }
                prop_assert!(outcome != Ok(true) || end == 0, "with {} bytes to come", rest.len());
                prop_assert!(outcome.is_ok() || end == 2);
                if outcome.is_err() {
                    break;
                }
            }
            prop_assert_eq!(outcome.is_err(), end == 2);
            if end < 2 {
                prop_assert_eq!(crate::digest::of_databases(&replica.databases), crate::digest::of_databases(&master.databases));
                prop_assert_eq!(query, if end == 0 { tail } else { &[] });
            }
        }
    }
}
