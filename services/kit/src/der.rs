//! DER, as far as certificates and keys need it: values that lie in each other. Nothing is trusted: what does not fit is `None`.

/// Walks over DER: what is left to read.
pub struct Der<'a>(pub &'a [u8]);

/// A certificate from its subject on: behind that, its key.
pub fn from_subject(certificate: &[u8]) -> Option<Der<'_>> {
    let mut body = Der(Der(Der(certificate).enter(0x30)?).enter(0x30)?);
    if body.0.first() == Some(&0xa0) {
        body.enter(0xa0)?;
    }
    // Serial number, algorithm, issuer, validity.
    for tag in [0x02, 0x30, 0x30, 0x30] {
        body.enter(tag)?;
    }
    Some(body)
}

impl<'a> Der<'a> {
    /// The content of the next value, which must have this tag.
    pub fn enter(&mut self, tag: u8) -> Option<&'a [u8]> {
        (self.0.first() == Some(&tag)).then(|| self.any()).flatten().map(|(_, content)| content)
    }

    /// The next value: its tag and its content.
    pub fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            short @ ..0x80 => (usize::from(short), rest),
            long => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                if bytes.len() > 4 {
                    return None;
                }
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}
