//! Patterns of KEYS, SCAN, PSUBSCRIBE and CONFIG GET: `*`, `?`, `[a-z]`, `[^a]`, `\x`, as Redis's `stringmatchlen` has them.
//!
//! Takes time in the product of both lengths at worst: a star goes back to the last star only, and never recurses.

/// A pattern with more stars matches nothing, as in Redis.
const STARS_MAX: usize = 1000;

/// Whether the whole text matches.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, false)
}

/// The same without regard to the case of letters, if so wished.
pub fn matches_with(pattern: &[u8], text: &[u8], ignores_case: bool) -> bool {
    let (mut at_pattern, mut at_text) = (0, 0);
    // Where to go on when a literal fails: behind the last star, one byte of text further.
    let mut retry: Option<(usize, usize)> = None;
    let mut stars = 0;
    loop {
        if pattern.get(at_pattern) == Some(&b'*') {
            // Several in a row are one.
            stars += usize::from(at_pattern == 0 || pattern[at_pattern - 1] != b'*');
            if stars > STARS_MAX {
                return false;
            }
            at_pattern += 1;
            retry = Some((at_pattern, at_text));
            continue;
        }
        if at_text == text.len() {
            return pattern[at_pattern..].iter().all(|&byte| byte == b'*');
        }
        if let Some(next) = step(&pattern[at_pattern..], text[at_text], ignores_case) {
            at_pattern += next;
            at_text += 1;
            continue;
        }
        match &mut retry {
            Some((behind_star, from)) => {
                *from += 1;
                (at_pattern, at_text) = (*behind_star, *from);
            }
            None => return false,
        }
    }
}

/// Length of the pattern's first element, if it matches the byte.
fn step(pattern: &[u8], byte: u8, ignores_case: bool) -> Option<usize> {
    let fold = |byte: u8| if ignores_case { byte.to_ascii_lowercase() } else { byte };
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => {
            let (is_member, length) = class(pattern, byte, ignores_case);
            is_member.then_some(length)
        }
        [b'\\', escaped, ..] => (fold(escaped) == fold(byte)).then_some(2),
        [literal, ..] => (fold(literal) == fold(byte)).then_some(1),
    }
}

/// A class `[...]`: whether the byte is in it, and its length. Redis takes one that is not closed as closed at the end.
fn class(pattern: &[u8], byte: u8, ignores_case: bool) -> (bool, usize) {
    let fold = |byte: u8| if ignores_case { byte.to_ascii_lowercase() } else { byte };
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = if is_negated { 2 } else { 1 };
    let mut found = false;
    loop {
        match pattern[at..] {
            [] => break,
            [b'\\', escaped, ..] => {
                found |= escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                let (low, high) = (fold(from.min(to)), fold(from.max(to)));
                found |= (low..=high).contains(&fold(byte));
                at += 3;
            }
            [member, ..] => {
                found |= fold(member) == fold(byte);
                at += 1;
            }
        }
    }
    (found != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_the_documentation() {
        for (pattern, text, expected) in [
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[", "x", false),
            ("[a", "a", true),
            ("*\\", "a\\", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(matches_with(b"MAX*", b"maxmemory", true));
    }

    #[test]
    fn many_stars_end_soon() {
        let pattern = "a*".repeat(200);
        assert!(!matches(format!("{pattern}b").as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
