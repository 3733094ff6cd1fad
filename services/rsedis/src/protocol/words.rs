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
