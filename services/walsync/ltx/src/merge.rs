//! One file out of several that follow each other: of every page the newest, and none beyond the last size.

use crate::Error;
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::header::{Header, NO_CHECKSUM, RESERVED_SIZE};
use std::io::{Read, Write};

/// One input: its decoder and the page that it is at.
struct Input<R> {
    decoder: Decoder<R>,
    page: Vec<u8>,
    number: Option<u32>,
}

impl<R: Read> Input<R> {
    fn advance(&mut self) -> Result<(), Error> {
        self.number = self.decoder.page(&mut self.page)?;
        Ok(())
    }
}

fn merged_header(inputs: &[Header]) -> Result<Header, Error> {
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else {
        return Err(Error::Merge("there are none".into()));
    };
    for pair in inputs.windows(2) {
        let [before, after] = pair else { continue };
        if before.page_size != after.page_size {
            let (before, after) = (before.page_size, after.page_size);
            return Err(Error::Merge(format!("page size changes from {before} to {after}")));
        }
        // Overlap is allowed, a hole is not: what a later file repeats is newer.
        if after.min_txid > before.max_txid + 1 || after.max_txid <= before.max_txid {
            let (max, min) = (before.max_txid, after.min_txid);
            return Err(Error::Merge(format!("one ends with TXID {max}, the next begins with {min}")));
        }
    }
    // Not the WAL's place: the file holds what is at several.
    Ok(Header {
        flags: NO_CHECKSUM,
        page_size: last.page_size,
        commit: last.commit,
        min_txid: first.min_txid,
        max_txid: last.max_txid,
        timestamp_millis: last.timestamp_millis,
        node_id: last.node_id,
        reserved: [0; RESERVED_SIZE],
        ..Header::default()
    })
}

/// Merges `inputs`, ordered by transaction ID, into `output`; gives it back with the header and the checksum of the file.
///
/// Streams: memory is a page for each input, and the index. Every input is read to its end and its checksum compared
/// before the output is finished.
///
/// # Errors
/// [`Error::Merge`] where inputs do not follow each other; whatever an input's decoder finds.
pub fn merge<R: Read, W: Write>(inputs: Vec<Decoder<R>>, output: W) -> Result<(W, Header, u64), Error> {
    let headers: Vec<Header> = inputs.iter().map(|decoder| decoder.header().clone()).collect();
    let header = merged_header(&headers)?;
    let mut encoder = Encoder::new(output, header.clone())?;
    let mut inputs: Vec<Input<R>> = inputs
        .into_iter()
        .map(|decoder| Input { page: vec![0; header.page_size as usize], decoder, number: None })
        .collect();
    for input in &mut inputs {
        input.advance()?;
    }
    while let Some(number) = inputs.iter().filter_map(|input| input.number).min() {
        // The last input that has the page holds the newest. A page may be gone and come back: then the newest has it.
        if number <= header.commit
            && let Some(newest) = inputs.iter().rfind(|input| input.number == Some(number))
        {
            encoder.page(number, &newest.page)?;
        }
        for input in inputs.iter_mut().filter(|input| input.number == Some(number)) {
            input.advance()?;
        }
    }
    for input in inputs {
        input.decoder.finish()?;
    }
    let (output, checksum) = encoder.finish()?;
    Ok((output, header, checksum))
}
