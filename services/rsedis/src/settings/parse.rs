//! Reads redis.conf and the command line.

use std::path::Path;

use super::table::SHUTDOWN_WORDS;
use super::{Kind, PARAMETERS, Parameter, Settings, find};
use crate::protocol::request::split_words;
use service_kit::command_line::nearest;

/// What the command line asks for.
#[derive(Debug)]
pub enum Start {
    /// Print this, and end well.
    Print(String),
    /// Run with these.
    Serve(Box<Settings>),
}

const USAGE: &str = "Usage: rsedis [/path/to/redis.conf] [options] [-]
       rsedis - (read config from stdin)
       rsedis -v or --version
       rsedis -h or --help

Options are parameters of redis.conf: --port 7777 --appendonly yes --appendfsync always
";

/// Reads the command line's words, without the program's name. `read` reads a file (`-`: standard input).
///
/// Errors: one line that names the words and what is wrong with them.
pub fn read_command_line(
    words: &[String],
    version: &str,
    read: impl Fn(&Path) -> std::io::Result<Vec<u8>>,
) -> Result<Start, String> {
    match words.first().map(String::as_str) {
        Some("-v" | "--version") => return Ok(Start::Print(format!("{version}\n"))),
        Some("-h" | "--help") => return Ok(Start::Print(USAGE.to_owned())),
        _ => {}
    }
    let mut settings = Settings::default();
    let mut rest = words;
    if let [file, tail @ ..] = words
        && (file == "-" || !file.starts_with("--"))
    {
        let text = read(Path::new(file)).map_err(|error| format!("can't open config file '{file}': {error}"))?;
        read_file(&mut settings, &text, file)?;
        if file != "-" {
            settings.file = file.clone();
        }
        rest = tail;
    }
    while let [option, tail @ ..] = rest {
        let Some(name) = option.strip_prefix("--") else {
            return Err(format!("'{option}': not an option: options begin with --"));
        };
        let is_option = |word: &String| word.starts_with("--") && word.len() > 2;
        let count = tail.iter().position(is_option).unwrap_or(tail.len());
        let (values, behind) = tail.split_at(count);
        // `--save ''` and `--bind 'a b'` are lines of redis.conf like any other.
        let values = match values {
            [single] if matches!(kind(name), Some(Kind::List | Kind::Master)) => {
                single.split_whitespace().map(str::to_owned).collect()
            }
            _ => values.to_vec(),
        };
        set(&mut settings, name, &values).map_err(|error| format!("{}: {error}", shown(option, &values)))?;
        rest = behind;
    }
    Ok(Start::Serve(Box::new(settings)))
}

fn kind(name: &str) -> Option<Kind> {
    find(name.as_bytes()).map(|index| PARAMETERS[index].kind)
}

fn shown(option: &str, values: &[String]) -> String {
    let values: String = values.iter().map(|value| format!(" \"{value}\"")).collect();
    format!("'{option}{values}'")
}

fn read_file(settings: &mut Settings, text: &[u8], file: &str) -> Result<(), String> {
    let mut has_save = false;
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let failed = |error: &str| format!("{file}, line {}, '{}': {error}", number + 1, String::from_utf8_lossy(line));
        let mut words = Vec::new();
        split_words(line, |word| words.push(String::from_utf8_lossy(word).into_owned()))
            .ok_or_else(|| failed("Unbalanced quotes in configuration line"))?;
        let Some((name, values)) = words.split_first() else { continue };
        let mut values = values.to_vec();
        // Lines `save` add up, until one says that there are none.
        if name.eq_ignore_ascii_case("save") && std::mem::replace(&mut has_save, true) && values != [""] {
            values.splice(0..0, settings.text("save").split_whitespace().map(str::to_owned));
        }
        set(settings, name, &values).map_err(|error| failed(&error))?;
    }
    Ok(())
}

fn set(settings: &mut Settings, name: &str, values: &[String]) -> Result<(), String> {
    if name.eq_ignore_ascii_case("user") {
        return add_user(settings, values);
    }
    let index = find(name.as_bytes()).ok_or_else(|| {
        let meant = nearest(name, PARAMETERS.iter().map(|parameter| parameter.name));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!("Bad directive or wrong number of arguments{meant}")
    })?;
    settings.set(index, values)
}

/// `user NAME RULES`: looked at for mistakes now, and given to the server when it starts.
fn add_user(settings: &mut Settings, values: &[String]) -> Result<(), String> {
    let (name, rules) = values.split_first().ok_or("wrong number of arguments")?;
    if !crate::acl::is_name(name.as_bytes()) {
        return Err("Spaces not allowed in ACL usernames".to_owned());
    }
    if settings.users.iter().any(|(known, _)| known == name) {
        return Err("Duplicate user found. A user can only be defined once in config files".to_owned());
    }
    let words: Vec<String> = rules.iter().flat_map(|rule| rule.split_whitespace()).map(str::to_owned).collect();
    let bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    crate::acl::Users::default().set(b"someone", &bytes)?;
    settings.users.push((name.clone(), words));
    Ok(())
}

/// A parameter's value in the form in which CONFIG GET shows it.
pub(super) fn normalise(parameter: &Parameter, words: &[String], before: &str) -> Result<String, String> {
    let single = || match words {
        [word] => Ok(word.as_str()),
        _ => Err("wrong number of arguments".to_owned()),
    };
    match parameter.kind {
        Kind::Boolean => match single()?.to_ascii_lowercase().as_str() {
            word @ ("yes" | "no") => Ok(word.to_owned()),
            _ => Err("argument must be 'yes' or 'no'".to_owned()),
        },
        Kind::Integer(low, high) => {
            let number: i64 =
                single()?.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
            match (low..=high).contains(&number) {
                true => Ok(number.to_string()),
                false => Err(format!("argument must be between {low} and {high} inclusive")),
            }
        }
        Kind::Memory(low, high) => {
            let bytes = memory(single()?).ok_or("argument must be a memory value")?;
            match (low..=high).contains(&bytes) {
                true => Ok(bytes.to_string()),
                false => Err(format!("argument must be between {low} and {high} inclusive")),
            }
        }
        Kind::MemoryOrPercent => {
            let word = single()?;
            match word.strip_suffix('%').map(str::parse) {
                Some(Ok(percent @ 0..=100u8)) => Ok(format!("{percent}%")),
                Some(_) => Err("percentage argument must be less or equal to 100".to_owned()),
                None => {
                    let bytes = memory(word).ok_or("argument must be a memory or percent value")?;
                    Ok(bytes.to_string())
                }
            }
        }
        Kind::Words(known) => {
            let word = single()?.to_ascii_lowercase();
            match known.contains(&word.as_str()) {
                true => Ok(word),
                false => Err(format!("argument(s) must be one of the following: {}", known.join(", "))),
            }
        }
        Kind::Text => Ok(single()?.to_owned()),
        Kind::List => Ok(words.join(" ")),
        Kind::SavePoints => {
            let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
            let are_numbers = words.iter().all(|word| word.parse::<u32>().is_ok());
            match are_numbers && words.len().is_multiple_of(2) {
                true => Ok(words.join(" ")),
                false => Err("Invalid save parameters".to_owned()),
            }
        }
        Kind::Events => crate::events::parse(single()?)
            .map(crate::events::text)
            .ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()),
        Kind::OutputLimits => output_limits(words, before),
        Kind::Shutdown => shutdown(words),
        Kind::Master => match words {
            [host, port] if host.eq_ignore_ascii_case("no") && port.eq_ignore_ascii_case("one") => Ok(String::new()),
            [host, port] if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(format!("{host} {port}")),
            [_, _] => Err("Invalid master port".to_owned()),
            _ => Err("wrong number of arguments".to_owned()),
        },
        Kind::Fixed(known) => {
            let value = words.join(" ");
            match known.contains(&value.to_ascii_lowercase().as_str()) {
                true => Ok(value),
                false => Err(format!("not supported: this server has '{}' only", known.join("' or '"))),
            }
        }
    }
}

fn shutdown(words: &[String]) -> Result<String, String> {
    let asked: Vec<String> =
        words.iter().flat_map(|word| word.split_whitespace()).map(str::to_ascii_lowercase).collect();
    if asked.is_empty() || asked.iter().any(|word| !SHUTDOWN_WORDS.contains(&word.as_str())) {
        return Err(format!("argument(s) must be one of the following: {}", SHUTDOWN_WORDS.join(", ")));
    }
    let has = |wanted: &str| asked.iter().any(|word| word == wanted);
    if has("save") && has("nosave") {
        return Err("save and nosave exclude each other".to_owned());
    }
    let known: Vec<&str> = SHUTDOWN_WORDS.into_iter().skip(1).filter(|word| has(word)).collect();
    Ok(if known.is_empty() { SHUTDOWN_WORDS[0].to_owned() } else { known.join(" ") })
}

/// Bytes as Redis writes them: `1gb` is 2^30, `1g` is 10^9.
fn memory(text: &str) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(factor)
}

fn output_limits(words: &[String], before: &str) -> Result<String, String> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("wrong number of arguments".to_owned());
    }
    let mut limits: Vec<String> = before.split(' ').map(str::to_owned).collect();
    for group in words.chunks(4) {
        let class = match group[0].to_ascii_lowercase().as_str() {
            "replica" | "slave" => "slave",
            "normal" => "normal",
            "pubsub" => "pubsub",
            _ => return Err("Invalid client class specified in buffer limit configuration.".to_owned()),
        };
        let values: Option<Vec<i64>> =
            [memory(group[1]), memory(group[2]), group[3].parse().ok()].into_iter().collect();
        let values = values.filter(|values| values[2] >= 0);
        let values = values.ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
        if let Some(at) = limits.iter().position(|word| *word == class) {
            for (offset, value) in values.iter().enumerate() {
                limits[at + 1 + offset] = value.to_string();
            }
        }
    }
    Ok(limits.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Start, String> {
        let words: Vec<String> =
            line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace("''", "")).collect();
        read_command_line(&words, "rsedis server v=1", |path| match path.to_str() {
            Some("good.conf") => {
                Ok(b"# a comment\nport 7001\n\nmaxmemory 1gb\nbind 127.0.0.1 ::1\nrequirepass \"a b\"\n".to_vec())
            }
            Some("save.conf") => Ok(b"save 900 1\nsave ''\nsave 300 10\nsave 60 10000\n".to_vec()),
            Some("bad.conf") => Ok(b"port 7001\nfoo bar\n".to_vec()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        })
    }

    fn settings(line: &str) -> Settings {
        match read(line) {
            Ok(Start::Serve(settings)) => *settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_of_save_points_add_up() {
        assert_eq!(settings("save.conf").text("save"), "300 10 60 10000");
    }

    #[test]
    fn the_platforms_own_command_line() {
        let settings = settings(
            "--port 7000 --bind 127.0.0.1 --dir /tmp --save '' --daemonize no --protected-mode no --loglevel warning \
             --appendonly yes --appendfsync always",
        );
        assert_eq!(settings.text("port"), "7000");
        assert_eq!(settings.fsync, super::super::Fsync::Always);
        assert!(settings.is_yes("appendonly") && !settings.is_yes("protected-mode"));
    }

    #[test]
    fn a_file_comes_first_and_options_win() {
        let settings = settings("good.conf --port 7002");
        assert_eq!((settings.text("port"), settings.memory_max), ("7002", 1 << 30));
        assert_eq!((settings.text("bind"), settings.password.as_str()), ("127.0.0.1 ::1", "a b"));
    }

    #[test]
    fn unknown_words_are_refused_in_one_line() {
        for (line, expected) in [
            ("--foo bar", "'--foo \"bar\"': Bad directive or wrong number of arguments"),
            (
                "--apendonly yes",
                "'--apendonly \"yes\"': Bad directive or wrong number of arguments; did you mean appendonly?",
            ),
            ("--port abc", "'--port \"abc\"': argument couldn't be parsed into an integer"),
            ("--port 70000", "'--port \"70000\"': argument must be between 0 and 65535 inclusive"),
            ("--port", "'--port': wrong number of arguments"),
            ("--appendonly maybe", "'--appendonly \"maybe\"': argument must be 'yes' or 'no'"),
            ("--daemonize yes", "'--daemonize \"yes\"': not supported: this server has 'no' only"),
            (
                "--shutdown-on-sigint save nosave",
                "'--shutdown-on-sigint \"save\" \"nosave\"': save and nosave exclude each other",
            ),
            ("--maxmemory 5x", "'--maxmemory \"5x\"': argument must be a memory value"),
            ("bad.conf", "bad.conf, line 2, 'foo bar': Bad directive or wrong number of arguments"),
            ("missing.conf", "can't open config file 'missing.conf': entity not found"),
        ] {
            assert_eq!(read(line).map(|_| ()).unwrap_err(), expected);
        }
    }

    #[test]
    fn memory_of_clients_may_be_a_part_of_all() {
        let settings = settings("--maxmemory 1000mb --maxmemory-clients 5%");
        assert_eq!((settings.clients_max, settings.text("maxmemory-clients")), (50 << 20, "5%"));
        assert_eq!(super::tests::settings("--maxmemory-clients 1mb").clients_max, 1 << 20);
        assert!(read("--maxmemory-clients 101%").is_err());
    }

    #[test]
    fn signals_end_as_their_words_say() {
        use crate::server::Shutdown;
        let settings = settings("--shutdown-on-sigterm force NOSAVE --shutdown-on-sigint default");
        let words = settings.text("shutdown-on-sigterm");
        assert_eq!(words, "nosave force");
        assert_eq!(Shutdown::of(words), Shutdown { saves: Some(false), is_forced: true, is_now: false });
        assert_eq!(Shutdown::of(settings.text("shutdown-on-sigint")), Shutdown::default());
    }

    #[test]
    fn output_limits_change_by_class() {
        let settings = settings("--client-output-buffer-limit pubsub 1mb 512kb 7");
        assert_eq!(settings.pubsub_limit.hard, 1 << 20);
        assert_eq!(
            settings.text("client-output-buffer-limit"),
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 1048576 524288 7"
        );
    }
}
