//! Conversations that are the same with this server and with Redis 7.0.15, written as lines.

use super::node::Node;

/// A line's words; `''` is an empty one, `_` stands for a space, `¿` for a byte that is no text, and `␀` for a zero.
fn words(line: &str) -> Vec<Vec<u8>> {
    let word = |word: &str| if word == "''" { String::new() } else { word.replace('_', " ") };
    line.split(' ').map(|text| without_text(&word(text))).collect()
}

/// The bytes of a word.
pub fn without_text(text: &str) -> Vec<u8> {
    let bytes = |letter: char| match letter {
        '¿' => vec![255],
        '␀' => vec![0],
        letter => letter.to_string().into_bytes(),
    };
    text.chars().flat_map(bytes).collect()
}

/// Both answer these lines in the same way.
#[track_caller]
pub fn compare(lines: &[&str]) {
    compare_with(&[], lines);
}

/// The same, started with these options.
#[track_caller]
pub fn compare_with(options: &[&str], lines: &[&str]) {
    let replies = [Node::ours(options), Node::theirs(options)].map(|node| {
        let mut client = node.client();
        let call = |line: &&str| {
            let words = words(line);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            client.try_call(&words).unwrap().escape_ascii().to_string()
        };
        lines.iter().map(call).collect::<Vec<String>>()
    });
    // The client's number is told with it.
    let told = lines.iter().zip(&replies[0]).zip(&replies[1]).filter(|((line, _), _)| !line.starts_with("HELLO"));
    let mut differences = Vec::new();
    for ((line, ours), theirs) in told {
        // Subcommands have no order in Redis.
        let parts = |reply: &str| {
            let mut parts: Vec<String> = reply.split("\\r\\n").map(str::to_owned).collect();
            if line.starts_with("COMMAND INFO") || line.starts_with("COMMAND LIST") {
                parts.sort();
            }
            parts
        };
        if parts(ours) != parts(theirs) {
            differences.push(format!("{line}\n  rsedis: {ours}\n  redis:  {theirs}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
