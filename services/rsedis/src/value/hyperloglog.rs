//! HyperLogLog: how many different elements were seen, in 12 KiB at most, as a string laid out byte for byte as Redis does.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | `HYLL` |
//! | 1 | 0: dense, 1: sparse |
//! | 3 | zero |
//! | 8 | the count as it was last computed, little-endian; the highest bit of the last byte: it is no longer right |
//! | | dense: 16,384 registers of six bits; sparse: `00LLLLLL` L + 1 zeros, `01LLLLLL LLLLLLLL` the same with 14 bits, `1VVVVVLL` L + 1 times V + 1 |

const REGISTERS: usize = 1 << 14;
const HEADER: usize = 16;
const DENSE_BYTES: usize = HEADER + REGISTERS * 6 / 8;
/// Bits of a hash that are not the register's number.
const RANK_BITS: usize = 50;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const ZERO_MAX: usize = 64;
const VALUE_MAX: u8 = 32;
const VALUE_LENGTH_MAX: usize = 4;

/// Bytes that are not laid out as they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// An empty one.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..4].copy_from_slice(b"HYLL");
    bytes[4] = SPARSE;
    push_zeros(&mut bytes, REGISTERS);
    bytes
}

/// Whether a string is one, as far as its header says.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER
        && bytes.starts_with(b"HYLL")
        && bytes[4] <= SPARSE
        && (bytes[4] == SPARSE || bytes.len() == DENSE_BYTES)
}

/// Whether it is packed.
pub fn is_sparse(bytes: &[u8]) -> bool {
    bytes[4] == SPARSE
}

fn push_zeros(out: &mut Vec<u8>, count: usize) {
    match count {
        0 => {}
        1..=ZERO_MAX => out.push(count as u8 - 1),
        _ => out.extend_from_slice(&(0x4000 | (count as u16 - 1)).to_be_bytes()),
    }
}

fn push_value(out: &mut Vec<u8>, value: u8, count: usize) {
    if count > 0 {
        out.push(0x80 | (value - 1) << 2 | (count as u8 - 1));
    }
}

/// A run of registers with the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Zero, or what the registers hold.
    pub value: u8,
    /// How many.
    pub length: usize,
    /// Bytes that say so.
    pub bytes: usize,
}

fn run(bytes: &[u8]) -> Option<Run> {
    Some(match *bytes.first()? {
        byte @ 0..=0x3F => Run { value: 0, length: usize::from(byte) + 1, bytes: 1 },
        byte @ 0x40..=0x7F => {
            let length = usize::from(byte & 0x3F) << 8 | usize::from(*bytes.get(1)?);
            Run { value: 0, length: length + 1, bytes: 2 }
        }
        byte => Run { value: (byte >> 2 & 0x1F) + 1, length: usize::from(byte & 3) + 1, bytes: 1 },
    })
}

/// The runs of a sparse one as they stand there, whether they make sense or not.
pub fn runs_as_written(bytes: &[u8]) -> Vec<Run> {
    let (mut found, mut at) = (Vec::new(), HEADER);
    while let Some(first) = bytes.get(at) {
        // Where the second byte is missing Redis finds the zero that ends its strings.
        let Some(run) = run(&[*first, bytes.get(at + 1).copied().unwrap_or(0)]) else { break };
        at += run.bytes;
        found.push(run);
    }
    found
}

/// The runs of a sparse one.
pub fn runs(bytes: &[u8]) -> Result<Vec<Run>, Corrupt> {
    let found = runs_as_written(bytes);
    let is_whole = HEADER + found.iter().map(|run| run.bytes).sum::<usize>() == bytes.len();
    match found.iter().map(|run| run.length).sum::<usize>() {
        REGISTERS if is_whole => Ok(found),
        _ => Err(Corrupt),
    }
}

fn dense_get(bytes: &[u8], register: usize) -> u8 {
    let bit = register * 6;
    let (byte, shift) = (HEADER + bit / 8, bit % 8);
    let next = bytes.get(byte + 1).copied().unwrap_or(0);
    ((u16::from(next) << 8 | u16::from(bytes[byte])) >> shift) as u8 & 63
}

fn dense_set(bytes: &mut [u8], register: usize, value: u8) {
    let bit = register * 6;
    let (byte, shift) = (HEADER + bit / 8, bit % 8);
    let word = u16::from(bytes[byte]) | u16::from(bytes.get(byte + 1).copied().unwrap_or(0)) << 8;
    let word = word & !(63 << shift) | u16::from(value) << shift;
    bytes[byte] = word as u8;
    if let Some(next) = bytes.get_mut(byte + 1) {
        *next = (word >> 8) as u8;
    }
}

/// All registers.
pub fn registers(bytes: &[u8]) -> Result<Vec<u8>, Corrupt> {
    if !is_sparse(bytes) {
        return Ok((0..REGISTERS).map(|register| dense_get(bytes, register)).collect());
    }
    Ok(runs(bytes)?.iter().flat_map(|run| std::iter::repeat_n(run.value, run.length)).collect())
}

/// Unpacks it; whether it was packed.
pub fn make_dense(bytes: &mut Vec<u8>) -> Result<bool, Corrupt> {
    if !is_sparse(bytes) {
        return Ok(false);
    }
    let registers = registers(bytes)?;
    bytes.truncate(HEADER);
    bytes[4] = DENSE;
    bytes.resize(DENSE_BYTES, 0);
    for (register, value) in registers.into_iter().enumerate().filter(|(_, value)| *value > 0) {
        dense_set(bytes, register, value);
    }
    Ok(true)
}

/// Raises a register; whether it was lower. A sparse one with more than so many bytes becomes dense.
pub fn raise(bytes: &mut Vec<u8>, register: usize, value: u8, sparse_max: usize) -> Result<bool, Corrupt> {
    let is_raised = match is_sparse(bytes) {
        false => raise_dense(bytes, register, value),
        true if value > VALUE_MAX => {
            make_dense(bytes)?;
            raise_dense(bytes, register, value)
        }
        true => raise_sparse(bytes, register, value, sparse_max)?,
    };
    if is_raised {
        bytes[15] |= 128;
    }
    Ok(is_raised)
}

fn raise_dense(bytes: &mut [u8], register: usize, value: u8) -> bool {
    let is_lower = dense_get(bytes, register) < value;
    if is_lower {
        dense_set(bytes, register, value);
    }
    is_lower
}

fn raise_sparse(bytes: &mut Vec<u8>, register: usize, value: u8, sparse_max: usize) -> Result<bool, Corrupt> {
    let (mut at, mut first, mut before) = (HEADER, 0, None);
    let found = loop {
        let run = bytes.get(at..).and_then(run).ok_or(Corrupt)?;
        if register < first + run.length {
            break run;
        }
        before = Some(at);
        at += run.bytes;
        first += run.length;
    };
    if found.value >= value {
        return Ok(false);
    }
    let mut pieces = Vec::with_capacity(5);
    let (left, right) = (register - first, first + found.length - 1 - register);
    let rest = |pieces: &mut Vec<u8>, count| match found.value {
        0 => push_zeros(pieces, count),
        other => push_value(pieces, other, count),
    };
    rest(&mut pieces, left);
    push_value(&mut pieces, value, 1);
    rest(&mut pieces, right);
    if pieces.len() > found.bytes && bytes.len() + pieces.len() - found.bytes > sparse_max {
        make_dense(bytes)?;
        return Ok(raise_dense(bytes, register, value));
    }
    bytes.splice(at..at + found.bytes, pieces);
    merge(bytes, before.unwrap_or(HEADER));
    Ok(true)
}

/// Joins runs of the same value, a few from a position on.
fn merge(bytes: &mut Vec<u8>, from: usize) {
    let mut at = from;
    for _ in 0..5 {
        let Some(one) = bytes.get(at..).and_then(run) else { return };
        let Some(other) = bytes.get(at + one.bytes..).and_then(run) else { return };
        let length = one.length + other.length;
        if one.value > 0 && one.value == other.value && length <= VALUE_LENGTH_MAX {
            let mut joined = Vec::with_capacity(1);
            push_value(&mut joined, one.value, length);
            bytes.splice(at..at + 2, joined);
        } else {
            at += one.bytes;
        }
    }
}

/// The register of an element, and the value that it asks for.
pub fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let rank = (hash >> 14 | 1 << RANK_BITS).trailing_zeros() + 1;
    (hash as usize & (REGISTERS - 1), rank as u8)
}

/// MurmurHash64A with Redis's seed.
fn murmur(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = 0xadc8_3b19 ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word = (word ^ word >> 47).wrapping_mul(MULTIPLIER);
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0u64, |tail, byte| tail << 8 | u64::from(*byte));
        hash = (hash ^ tail).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 47
}

/// The count as it was last computed, if it is still right.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let count = bytes.get(8..16).and_then(|count| count.try_into().ok()).map(u64::from_le_bytes);
    count.filter(|count| count >> 63 == 0)
}

/// Keeps a count.
pub fn cache(bytes: &mut [u8], count: u64) {
    bytes[8..16].copy_from_slice(&count.to_le_bytes());
}

/// Says that the count is no longer right.
pub fn forget(bytes: &mut [u8]) {
    bytes[15] |= 128;
}

/// An estimate of how many different elements made these registers (Ertl 2017).
pub fn estimate(registers: &[u8]) -> u64 {
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let mut histogram = [0u32; 64];
    registers.iter().for_each(|value| histogram[usize::from(value & 63)] += 1);
    let count = REGISTERS as f64;
    let mut sum = count * tau((count - f64::from(histogram[RANK_BITS + 1])) / count);
    for rank in (1..=RANK_BITS).rev() {
        sum = (sum + f64::from(histogram[rank])) * 0.5;
    }
    sum += count * sigma(f64::from(histogram[0]) / count);
    (ALPHA * count * count / sum).round() as u64
}

fn sigma(share: f64) -> f64 {
    if share == 1.0 {
        return f64::INFINITY;
    }
    let (mut x, mut y, mut z) = (share, 1.0, share);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(share: f64) -> f64 {
    if share == 0.0 || share == 1.0 {
        return 0.0;
    }
    let (mut x, mut y, mut z) = (share, 1.0, 1.0 - share);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_and_dense_have_the_same_registers() {
        let (mut sparse, mut dense) = (empty(), empty());
        make_dense(&mut dense).unwrap();
        for number in 0..3_000u32 {
            let (register, value) = place(number.to_string().as_bytes());
            let raised = raise(&mut sparse, register, value, 12_000).unwrap();
            assert_eq!(raise(&mut dense, register, value, 0).unwrap(), raised);
        }
        assert!(is_sparse(&sparse) && is_one(&sparse) && is_one(&dense));
        assert_eq!(registers(&sparse), registers(&dense));
        let estimate = estimate(&registers(&sparse).unwrap());
        assert!((2_900..3_100).contains(&estimate), "{estimate}");
        make_dense(&mut sparse).unwrap();
        assert_eq!(sparse[HEADER..], dense[HEADER..]);
    }

    #[test]
    fn damage_is_told() {
        let mut bytes = empty();
        bytes.push(0x80);
        assert_eq!(registers(&bytes), Err(Corrupt));
        assert_eq!(estimate(&[0; REGISTERS]), 0);
    }
}
