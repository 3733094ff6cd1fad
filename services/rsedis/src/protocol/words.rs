//! Lines as words, with quotes: inline commands, redis.conf, the manifest of the append-only file, files of users.

/// Splits a line into words, as Redis's `sdssplitargs` does: quotes, `\n`, `\x41`. Nothing: the quotes are unbalanced.
pub fn split_words(line: &[u8], mut take: impl FnMut(&[u8])) -> Option<()> {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let mut rest = line;
    let mut word = Vec::new();
    loop {
        while let [first, tail @ ..] = rest
            && (is_space(*first) || *first == 0)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(());
        }
        word.clear();
        loop {
            match rest {
                [] => break,
                [first, ..] if is_space(*first) || *first == 0 => break,
                [b'"', tail @ ..] => rest = quoted(tail, &mut word)?,
                [b'\'', tail @ ..] => rest = single_quoted(tail, &mut word)?,
                [first, tail @ ..] => {
                    word.push(*first);
                    rest = tail;
                }
            }
        }
        take(&word);
    }
}

/// A word as [`split_words`] takes it: in quotes where it has to be.
pub fn quoted_word(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    if !word.is_empty() && word.iter().all(is_plain) { word.to_vec() } else { in_quotes(word) }
}

/// The same, in quotes in any case.
pub fn in_quotes(word: &[u8]) -> Vec<u8> {
    let is_text = std::str::from_utf8(word).is_ok();
    let mut text = vec![b'"'];
    for &byte in word {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b'\t' => text.extend(b"\\t"),
            0..b' ' | 0x7F => text.extend(format!("\\x{byte:02x}").bytes()),
            0x80.. if !is_text => text.extend(format!("\\x{byte:02x}").bytes()),
            _ => text.push(byte),
        }
    }
    text.push(b'"');
    text
}

/// A closing quote must end the word.
fn closed(tail: &[u8]) -> Option<&[u8]> {
    matches!(tail, [] | [b' ' | b'\t'..=b'\r' | 0, ..]).then_some(tail)
}

fn quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    loop {
        match rest {
            [] => return None,
            [b'"', tail @ ..] => return closed(tail),
            [b'\\', b'x', high, low, tail @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                word.push(hex(*high)? << 4 | hex(*low)?);
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [b'\'', tail @ ..] => return closed(tail),
            [byte, tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quoted_word_is_read_as_it_was(words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 1..4)) {
            let line = words.iter().map(|word| quoted_word(word)).collect::<Vec<_>>().join(&b' ');
            prop_assert!(!line.contains(&b'\n'));
            let mut again = Vec::new();
            prop_assert!(split_words(&line, |word| again.push(word.to_vec())).is_some());
            prop_assert_eq!(again, words);
        }
    }
}
