//! COMMAND DOCS: what each command is for, since when, and its arguments. Complexity and history are not told.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Command;
use crate::protocol::Reply;

/// See its first lines.
const TEXT: &str = include_str!("docs.txt");

#[derive(Debug, Default)]
struct Docs {
    since: &'static str,
    group: &'static str,
    flags: Vec<&'static str>,
    deprecated_since: &'static str,
    replaced_by: &'static str,
    summary: &'static str,
    arguments: Vec<Argument>,
}

#[derive(Debug, Default)]
struct Argument {
    name: String,
    kind: &'static str,
    key_spec: Option<i64>,
    token: Option<String>,
    since: Option<String>,
    deprecated_since: Option<String>,
    flags: Vec<&'static str>,
    arguments: Vec<Argument>,
}

/// Read once somebody asks.
static DOCS: LazyLock<HashMap<&'static str, Docs>> =
    LazyLock::new(|| TEXT.lines().filter(|line| !line.starts_with('#')).filter_map(parse_line).collect());

fn parse_line(line: &'static str) -> Option<(&'static str, Docs)> {
    let mut columns = line.split('\t');
    let mut next = || columns.next();
    let (name, since, group, flags) = (next()?, next()?, next()?, next()?);
    let (deprecated_since, replaced_by, summary, mut text) = (next()?, next()?, next()?, next()?);
    let arguments = if text.is_empty() { Vec::new() } else { parse_arguments(&mut text)? };
    let flags = flags.split_whitespace().collect();
    text.is_empty().then_some((name, Docs { since, group, flags, deprecated_since, replaced_by, summary, arguments }))
}

fn parse_arguments(text: &mut &'static str) -> Option<Vec<Argument>> {
    let mut arguments = vec![parse_argument(text)?];
    while let Some(rest) = text.strip_prefix(' ') {
        *text = rest;
        arguments.push(parse_argument(text)?);
    }
    Some(arguments)
}

/// A name, a number or a token, up to what stands behind it.
fn word(text: &mut &'static str) -> Option<String> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%".contains(&byte);
    let whole: &'static str = text;
    let end = whole.bytes().position(|byte| !is_inside(byte)).unwrap_or(whole.len());
    let (word, rest) = whole.split_at(end);
    *text = rest;
    let mut pieces = word.split('%');
    let mut whole = pieces.next()?.to_owned();
    for piece in pieces {
        whole.push(char::from(u8::from_str_radix(piece.get(..2)?, 16).ok()?));
        whole.push_str(&piece[2..]);
    }
    Some(whole)
}

fn parse_argument(text: &mut &'static str) -> Option<Argument> {
    let name = word(text)?;
    let whole: &'static str = text;
    let (kind, rest) = whole.strip_prefix(':')?.split_at_checked(1)?;
    *text = rest;
    let kind = match kind {
        "!" => "pure-token",
        "k" => "key",
        "s" => "string",
        "i" => "integer",
        "o" => "oneof",
        "b" => "block",
        "d" => "double",
        "p" => "pattern",
        "u" => "unix-time",
        _ => return None,
    };
    let mut argument = Argument { name, kind, ..Argument::default() };
    while let Some(mark) = text.chars().next() {
        if matches!(mark, ' ' | ')') {
            break;
        }
        let whole: &'static str = text;
        *text = whole.get(mark.len_utf8()..)?;
        match mark {
            '@' => argument.key_spec = Some(word(text)?.parse().ok()?),
            '=' => argument.token = Some(word(text)?),
            '^' => argument.since = Some(word(text)?),
            '~' => argument.deprecated_since = Some(word(text)?),
            '?' => argument.flags.push("optional"),
            '*' => argument.flags.push("multiple"),
            '+' => argument.flags.push("multiple_token"),
            '(' => {
                argument.arguments = parse_arguments(text)?;
                *text = text.strip_prefix(')')?;
            }
            _ => return None,
        }
    }
    Some(argument)
}

/// Name and value, both strings, if there is one.
fn pair(reply: &mut Reply, name: &str, value: &str) {
    if !value.is_empty() {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// What is told of a command, and of its subcommands.
pub(super) fn describe(reply: &mut Reply, command: &Command) {
    let none = Docs::default();
    let docs = DOCS.get(command.name).unwrap_or(&none);
    let texts = [docs.summary, docs.since, docs.group, docs.deprecated_since, docs.replaced_by];
    let lists = [docs.flags.is_empty(), docs.arguments.is_empty(), command.subcommands.is_empty()];
    let fields = texts.iter().filter(|text| !text.is_empty()).count() + lists.iter().filter(|empty| !**empty).count();
    reply.map(fields);
    pair(reply, "summary", docs.summary);
    pair(reply, "since", docs.since);
    pair(reply, "group", docs.group);
    if !docs.flags.is_empty() {
        reply.bulk(b"doc_flags");
        reply.set_of_simple(&docs.flags);
    }
    pair(reply, "deprecated_since", docs.deprecated_since);
    pair(reply, "replaced_by", docs.replaced_by);
    if !docs.arguments.is_empty() {
        reply.bulk(b"arguments");
        describe_arguments(reply, &docs.arguments);
    }
    if !command.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        for subcommand in command.subcommands {
            reply.bulk(subcommand.name.as_bytes());
            describe(reply, subcommand);
        }
    }
}

fn describe_arguments(reply: &mut Reply, arguments: &[Argument]) {
    reply.array(arguments.len());
    for argument in arguments {
        let texts = [&argument.token, &argument.since, &argument.deprecated_since];
        let more = [argument.key_spec.is_some(), !argument.flags.is_empty(), !argument.arguments.is_empty()];
        reply.map(2 + texts.iter().filter(|text| text.is_some()).count() + more.iter().filter(|is| **is).count());
        pair(reply, "name", &argument.name);
        pair(reply, "type", argument.kind);
        if let Some(number) = argument.key_spec {
            reply.bulk(b"key_spec_index");
            reply.integer(number);
        }
        for (name, text) in ["token", "since", "deprecated_since"].into_iter().zip(texts) {
            if let Some(text) = text {
                reply.bulk(name.as_bytes());
                reply.bulk(text.as_bytes());
            }
        }
        if !argument.flags.is_empty() {
            reply.bulk(b"flags");
            reply.set_of_simple(&argument.flags);
        }
        if !argument.arguments.is_empty() {
            reply.bulk(b"arguments");
            describe_arguments(reply, &argument.arguments);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_and_every_command_has_one() {
        let lines: Vec<&str> = TEXT.lines().filter(|line| !line.starts_with('#')).collect();
        for line in &lines {
            assert!(parse_line(line).is_some(), "{line}");
        }
        assert_eq!(DOCS.len(), lines.len());
        for command in crate::command::all() {
            assert!(DOCS.contains_key(command.name), "{}", command.name);
        }
    }
}
