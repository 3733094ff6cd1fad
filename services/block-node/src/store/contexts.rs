//! What zstd works in, kept by each thread: to make it anew for every block costs more than to compress a small one.

use std::cell::RefCell;
use std::io;

use zstd::dict::{DecoderDictionary, EncoderDictionary};
use zstd::zstd_safe::{self, CCtx, DCtx, ErrorCode};

thread_local! {
    static COMPRESSING: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSING: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

fn failed(code: ErrorCode) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

fn compressing(
    plain: &[u8],
    work: impl FnOnce(&mut CCtx<'static>, &mut Vec<u8>) -> Result<usize, ErrorCode>,
) -> io::Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
    COMPRESSING.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?),
        };
        work(context, &mut frame).map_err(failed)
    })?;
    // What is kept of it is what was asked for, and not what might have been needed.
    frame.shrink_to_fit();
    Ok(frame)
}

/// Compresses into a frame, at this level.
pub(super) fn compress(plain: &[u8], level: i32) -> io::Result<Vec<u8>> {
    compressing(plain, |context, frame| context.compress(frame, plain, level))
}

/// Compresses into a frame that needs this dictionary, at its level.
pub(super) fn compress_with(plain: &[u8], dictionary: &EncoderDictionary<'static>) -> io::Result<Vec<u8>> {
    compressing(plain, |context, frame| context.compress_using_cdict(frame, plain, dictionary.as_cdict()))
}

fn decompressing(
    bytes_max: usize,
    work: impl FnOnce(&mut DCtx<'static>, &mut Vec<u8>) -> Result<usize, ErrorCode>,
) -> io::Result<Vec<u8>> {
    let mut plain = Vec::with_capacity(bytes_max);
    DECOMPRESSING.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?),
        };
        work(context, &mut plain).map_err(failed)
    })?;
    Ok(plain)
}

/// What is in a frame; takes no more memory than this, whatever the frame says.
pub(super) fn decompress(frame: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    decompressing(bytes_max, |context, plain| context.decompress(plain, frame))
}

/// What is in a frame that needs this dictionary; takes no more memory than this, whatever the frame says.
pub(super) fn decompress_with(
    frame: &[u8],
    dictionary: &DecoderDictionary<'_>,
    bytes_max: usize,
) -> io::Result<Vec<u8>> {
    decompressing(bytes_max, |context, plain| context.decompress_using_ddict(plain, frame, dictionary.as_ddict()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_comes_back_behind_what_failed_and_with_or_without_a_dictionary() {
        let dictionary: Vec<u8> = (0..20_000_u32).flat_map(|number| (number * number).to_le_bytes()).collect();
        let (encoder, decoder) = (EncoderDictionary::copy(&dictionary, 1), DecoderDictionary::copy(&dictionary));
        for round in 0..20_usize {
            let plain = &dictionary[round * 300..round * 1_500 + 10];
            let (alone, with) = (compress(plain, 1).unwrap(), compress_with(plain, &encoder).unwrap());
            assert_eq!(zstd::bulk::decompress(&alone, plain.len()).unwrap(), plain);
            assert!(decompress(&alone, plain.len() - 1).is_err(), "there is no room");
            assert!(decompress(&plain[..8], 1_000).is_err(), "no frame");
            assert_eq!(decompress_with(&with, &decoder, plain.len()).unwrap(), plain);
            assert_eq!(decompress(&alone, plain.len()).unwrap(), plain);
        }
    }
}
