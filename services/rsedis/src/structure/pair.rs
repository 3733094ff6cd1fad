//! A name and what belongs to it, one behind the other in bytes:
//!
//! | bytes | field |
//! | --- | --- |
//! | 1, or 5 | length of the name; 255: the length follows in 4 bytes, little-endian |
//! | | name |
//! | | what belongs to it |

const LONG: usize = 255;

/// What stands before a name.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; 5],
    used: usize,
}

impl Head {
    /// Of a name of so many bytes.
    #[inline]
    pub fn new(length: usize) -> Self {
        let [a, b, c, d] = (length as u32).to_le_bytes();
        match length < LONG {
            true => Self { bytes: [a, 0, 0, 0, 0], used: 1 },
            false => Self { bytes: [LONG as u8, a, b, c, d], used: 5 },
        }
    }

    /// As it is written.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Where the name begins and where it ends.
#[inline]
pub fn span(bytes: &[u8]) -> (usize, usize) {
    match usize::from(bytes[0]) {
        LONG => {
            let length = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            (5, 5 + length as usize)
        }
        length => (1, 1 + length),
    }
}

/// The name, and what belongs to it.
#[inline]
pub fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (from, to) = span(bytes);
    (&bytes[from..to], &bytes[to..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_come_back() {
        for length in [0, 1, 254, 255, 256, 70_000] {
            let name = vec![7; length];
            let bytes = [Head::new(length).as_slice(), &name, b"rest"].concat();
            assert_eq!(split(&bytes), (&name[..], &b"rest"[..]));
        }
    }
}
