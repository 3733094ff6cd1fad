//! Reads redis.conf and the command line.

use std::net::SocketAddr;
use std::path::Path;

use super::table::SHUTDOWN_WORDS;
use super::{Kind, PARAMETERS, Parameter, Settings, find};
use crate::protocol::split_words;
use service_kit::command_line::nearest;

/// What the command line asks for.
#[derive(Debug)]
pub enum Start {
    /// Print this, and end well.
    Print(String),
    /// Run with these.
    Serve(Box<Settings>),
}

/// What settings are read with, and what is known of users and commands, which they may speak of.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// Reads a file; `-`: standard input.
    pub read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    /// Looks at a user's name and rules for mistakes.
    pub check_user: fn(&str, &[&[u8]]) -> Result<(), String>,
    /// Whether a command has this name.
    pub is_command: fn(&str) -> bool,
}

#[cfg(test)]
impl<'a> Outside<'a> {
    /// The program's, with these files.
    pub(super) fn with_files(read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>) -> Self {
        Self { read, check_user: crate::acl::check_user, is_command: crate::command::is_own_name }
    }
}

const USAGE: &str = "Usage: rsedis [/path/to/redis.conf] [options] [-]
       rsedis - (read config from stdin)
       rsedis -v or --version
       rsedis -h or --help

Options are parameters of redis.conf: --port 7777 --appendonly yes --appendfsync always
";

/// Reads the command line's words, without the program's name.
///
/// Errors: one line that names the words and what is wrong with them.
pub fn read_command_line(words: &[String], version: &str, outside: Outside<'_>) -> Result<Start, String> {
    match words.first().map(String::as_str) {
        Some("-v" | "--version") => return Ok(Start::Print(format!("{version}\n"))),
        Some("-h" | "--help") => return Ok(Start::Print(USAGE.to_owned())),
        _ => {}
    }
    let mut reading = Reading { settings: Settings::default(), has_save: false, outside, depth: 0 };
    let mut rest = words;
    if let [file, tail @ ..] = words
        && (file == "-" || !file.starts_with('-'))
    {
        reading.file(file)?;
        if file != "-" {
            reading.settings.file = file.clone();
        }
        rest = tail;
    }
    for line in lines(rest)? {
        reading.line(&line).map_err(|error| format!("{}: {error}", shown(&line)))?;
    }
    Ok(Start::Serve(Box::new(reading.settings)))
}

/// The command line as lines of redis.conf: an option takes the word behind it, whatever that is, and those that follow up to the next
/// option. `--save` alone takes nothing, and an option may stand in one word with its value.
fn lines(words: &[String]) -> Result<Vec<Vec<String>>, String> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut may_be_option = true;
    for (at, word) in words.iter().enumerate() {
        let option = word.strip_prefix("--").filter(|_| may_be_option);
        let Some(option) = option else {
            match lines.last_mut() {
                Some(line) => line.push(word.clone()),
                // As in Redis: the first option may do without its dashes.
                None => lines.push(vec![word.clone()]),
            }
            may_be_option = true;
            continue;
        };
        let mut line = Vec::new();
        split_words(option.as_bytes(), |word| line.push(String::from_utf8_lossy(word).into_owned()))
            .filter(|()| !line.is_empty())
            .ok_or_else(|| format!("'{word}': not an option: its name and value are expected behind --"))?;
        may_be_option = line.len() > 1;
        let is_last = words.get(at + 1).is_none_or(|next| next.starts_with("--"));
        if line.len() == 1 && is_last && option.eq_ignore_ascii_case("save") {
            line.push(String::new());
            may_be_option = true;
        }
        lines.push(line);
    }
    Ok(lines)
}

fn shown(line: &[String]) -> String {
    let (name, values) = line.split_first().map_or(("", line), |(name, values)| (name.as_str(), values));
    let values: String = values.iter().map(|value| format!(" \"{value}\"")).collect();
    format!("'{name}{values}'")
}

/// Files that include one another; more is a circle.
const DEPTH_MAX: usize = 16;

/// Lines of files and of the command line, in their order.
struct Reading<'a> {
    settings: Settings,
    /// There was a line `save`: those that follow add to it, and do not replace what is set unless told otherwise.
    has_save: bool,
    outside: Outside<'a>,
    depth: usize,
}

impl Reading<'_> {
    fn file(&mut self, file: &str) -> Result<(), String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("'{file}': more than {DEPTH_MAX} files include one another"));
        }
        let text = (self.outside.read)(Path::new(file))
            .map_err(|error| format!("can't open config file '{file}': {error}"))?;
        self.depth += 1;
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let failed =
                |error: &str| format!("{file}, line {}, '{}': {error}", number + 1, String::from_utf8_lossy(line));
            let mut words = Vec::new();
            split_words(line, |word| words.push(String::from_utf8(word.to_vec())))
                .ok_or_else(|| failed("Unbalanced quotes in configuration line"))?;
            let words: Result<Vec<String>, _> = words.into_iter().collect();
            let words = words.map_err(|_| failed("no UTF-8: write it as text"))?;
            self.line(&words).map_err(|error| failed(&error))?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn line(&mut self, words: &[String]) -> Result<(), String> {
        let Some((name, values)) = words.split_first() else { return Ok(()) };
        if name.eq_ignore_ascii_case("include") {
            let [file] = values else { return Err("wrong number of arguments".to_owned()) };
            return self.file(file);
        }
        let mut values = match (find(name.as_bytes()).map(|index| PARAMETERS[index].kind), values) {
            // One word with all of them is as good.
            (Some(Kind::List | Kind::OomScores | Kind::Percentiles | Kind::Master), [single]) => {
                single.split_whitespace().map(str::to_owned).collect()
            }
            _ => values.to_vec(),
        };
        // Lines `save` add up, until one says that there are none.
        if name.eq_ignore_ascii_case("save") && std::mem::replace(&mut self.has_save, true) && values != [""] {
            values.splice(0..0, self.settings.text("save").split_whitespace().map(str::to_owned));
        }
        set(&mut self.settings, self.outside, name, &values)
    }
}

fn set(settings: &mut Settings, outside: Outside<'_>, name: &str, values: &[String]) -> Result<(), String> {
    if name.eq_ignore_ascii_case("user") {
        return add_user(settings, outside, values);
    }
    if name.eq_ignore_ascii_case("rename-command") {
        return rename(settings, outside, values);
    }
    let index = find(name.as_bytes()).ok_or_else(|| {
        let meant = nearest(name, PARAMETERS.iter().map(|parameter| parameter.name));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!("Bad directive or wrong number of arguments{meant}")
    })?;
    settings.set(index, values)
}

/// `user NAME RULES`: looked at for mistakes now, and given to the server when it starts.
fn add_user(settings: &mut Settings, outside: Outside<'_>, values: &[String]) -> Result<(), String> {
    let (name, rules) = values.split_first().ok_or("wrong number of arguments")?;
    if settings.users.iter().any(|(known, _)| known == name) {
        return Err("Duplicate user found. A user can only be defined once in config files".to_owned());
    }
    let words: Vec<String> = rules.iter().flat_map(|rule| rule.split_whitespace()).map(str::to_owned).collect();
    let bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    (outside.check_user)(name, &bytes)?;
    settings.users.push((name.clone(), words));
    Ok(())
}

/// The longest name that a command may be given.
const COMMAND_NAME_BYTES_MAX: usize = 63;

/// `rename-command OLD NEW`: commands are found by these names from the start on; an empty one hides a command.
fn rename(settings: &mut Settings, outside: Outside<'_>, values: &[String]) -> Result<(), String> {
    let [old, new] = values else { return Err("wrong number of arguments".to_owned()) };
    let (old, new) = (old.to_ascii_lowercase(), new.to_ascii_lowercase());
    let is_renamed = |name: &str| settings.renames.iter().any(|(known, _)| known == name);
    if !(outside.is_command)(&old) || is_renamed(&old) {
        return Err("No such command in rename-command".to_owned());
    }
    if (outside.is_command)(&new) && !is_renamed(&new)
        || settings.renames.iter().any(|(_, name)| !new.is_empty() && *name == new)
    {
        return Err("Target command name already exists".to_owned());
    }
    if new.len() > COMMAND_NAME_BYTES_MAX {
        return Err(format!("a command's name has at most {COMMAND_NAME_BYTES_MAX} bytes: choose a shorter one"));
    }
    settings.renames.push((old, new));
    Ok(())
}

fn integer(word: &str, low: i64, high: i64) -> Result<i64, String> {
    let number = word.parse().map_err(|_| "argument couldn't be parsed into an integer".to_owned())?;
    match (low..=high).contains(&number) {
        true => Ok(number),
        false => Err(format!("argument must be between {low} and {high} inclusive")),
    }
}

fn oom_scores(words: &[String]) -> Result<String, String> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    let is_score = |word: &&str| word.parse().is_ok_and(|score: i64| (-2000..=2000).contains(&score));
    match words.len() {
        3 if words.iter().all(is_score) => Ok(words.join(" ")),
        3 => Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".to_owned()),
        _ => Err("wrong number of arguments".to_owned()),
    }
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
        Kind::Integer(low, high) => integer(single()?, low, high).map(|number| number.to_string()),
        Kind::Clamped(low, high) => {
            let number = integer(single()?, 0, i64::from(i32::MAX))?;
            Ok(number.clamp(low, high).to_string())
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
            match word.strip_suffix('%').map(str::parse::<u64>) {
                Some(Ok(percent @ 0..=100)) => Ok(format!("{percent}%")),
                Some(Ok(_)) => Err("percentage argument must be less or equal to 100".to_owned()),
                Some(Err(_)) => Err("argument must be a memory or percent value".to_owned()),
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
        Kind::OomScores => oom_scores(words),
        Kind::Percentiles => percentiles(words),
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
        Kind::Address => address(single()?),
        Kind::Shutdown => shutdown(words),
        Kind::Master => match words {
            [host, port] if host.eq_ignore_ascii_case("no") && port.eq_ignore_ascii_case("one") => Ok(String::new()),
            [host, port] if port.parse::<u16>().is_ok() => Ok(format!("{host} {port}")),
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

/// Names of hosts are looked up by whoever connects: who listens says an address.
fn address(word: &str) -> Result<String, String> {
    match word.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Ok(word.to_owned()),
        _ if word.is_empty() => Ok(String::new()),
        _ => Err("argument must be an address and a port, such as 127.0.0.1:9121 or [::1]:9121, or ''".to_owned()),
    }
}

/// As C's `%f` writes them, without zeros at the end.
fn percentiles(words: &[String]) -> Result<String, String> {
    let shown = |word: &str| match word.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => {
            let text = format!("{percent:.6}");
            Ok(text.trim_end_matches('0').trim_end_matches('.').to_owned())
        }
        Ok(percent) if !percent.is_nan() => {
            Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".to_owned())
        }
        _ => Err("Invalid latency-tracking-info-percentiles parameters".to_owned()),
    };
    let words: Result<Vec<String>, String> = words.iter().flat_map(|word| word.split_whitespace()).map(shown).collect();
    Ok(words?.join(" "))
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
    // Without a sign.
    let bytes = digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+'))?;
    i64::try_from(bytes).ok()?.checked_mul(factor)
}

fn output_limits(words: &[String], before: &str) -> Result<String, String> {
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
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
        let files = |path: &Path| match path.to_str() {
            Some("good.conf") => {
                Ok(b"# a comment\nport 7001\n\nmaxmemory 1gb\nbind 127.0.0.1 ::1\nrequirepass \"a b\"\n".to_vec())
            }
            Some("save.conf") => Ok(b"save 900 1\nsave ''\nsave 300 10\nsave 60 10000\n".to_vec()),
            Some("bad.conf") => Ok(b"port 7001\nfoo bar\n".to_vec()),
            Some("latin.conf") => Ok(b"# gr\xfcn\nrequirepass gr\xfcn\n".to_vec()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        };
        read_command_line(&words, "rsedis server v=1", Outside::with_files(&files))
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
    fn options_take_words_as_redis_does() {
        for (line, expected) in [
            ("", "3600 1 300 100 60 10000"),
            ("--save 100 100", "100 100"),
            ("save.conf --save 5 6", "300 10 60 10000 5 6"),
            ("--save --loglevel verbose", ""),
            ("--loglevel verbose --save", ""),
            ("save.conf --save ''", ""),
        ] {
            assert_eq!(settings(line).text("save"), expected, "{line}");
        }
        let words = ["-", "loglevel", "verbose", "--maxmemory 700mb", "--proc-title-template", "--mine", "--port", "7"];
        let words = words.map(str::to_owned);
        let files = |_: &Path| Ok(Vec::new());
        let outside = Outside::with_files(&files);
        let Ok(Start::Serve(settings)) = read_command_line(&words, "", outside) else { panic!() };
        assert_eq!((settings.text("loglevel"), settings.memory_max), ("verbose", 700 << 20));
        assert_eq!((settings.text("PROC-TITLE-TEMPLATE"), settings.text("port")), ("--mine", "7"));
    }

    #[test]
    fn files_include_others_and_not_themselves() {
        let read = |path: &Path| match path.to_str() {
            Some("a") => Ok(b"port 1\ninclude b\n".to_vec()),
            Some("b") => Ok(b"port 2\n".to_vec()),
            _ => Ok(b"include circle\n".to_vec()),
        };
        let outside = Outside::with_files(&read);
        let Ok(Start::Serve(settings)) = read_command_line(&["a".to_owned()], "", outside) else { panic!() };
        assert_eq!(settings.text("port"), "2");
        let refused = read_command_line(&["circle".to_owned()], "", outside).unwrap_err();
        assert!(refused.contains("more than 16 files include one another"), "{refused}");
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
            ("--foo bar", "'foo \"bar\"': Bad directive or wrong number of arguments"),
            (
                "--apendonly yes",
                "'apendonly \"yes\"': Bad directive or wrong number of arguments; did you mean appendonly?",
            ),
            ("--port abc", "'port \"abc\"': argument couldn't be parsed into an integer"),
            ("--port 70000", "'port \"70000\"': argument must be between 0 and 65535 inclusive"),
            ("--port --loglevel verbose", "'port \"--loglevel\" \"verbose\"': wrong number of arguments"),
            ("--", "'--': not an option: its name and value are expected behind --"),
            ("--port", "'port': wrong number of arguments"),
            ("--appendonly maybe", "'appendonly \"maybe\"': argument must be 'yes' or 'no'"),
            ("--daemonize yes", "'daemonize \"yes\"': not supported: this server has 'no' only"),
            (
                "--shutdown-on-sigint save nosave",
                "'shutdown-on-sigint \"save\" \"nosave\"': save and nosave exclude each other",
            ),
            (
                "--metrics-listen 9121",
                "'metrics-listen \"9121\"': argument must be an address and a port, such as 127.0.0.1:9121 or [::1]:9121, or ''",
            ),
            (
                "--metrics-listen 127.0.0.1:0",
                "'metrics-listen \"127.0.0.1:0\"': argument must be an address and a port, such as 127.0.0.1:9121 or [::1]:9121, or ''",
            ),
            ("--maxmemory 5x", "'maxmemory \"5x\"': argument must be a memory value"),
            ("latin.conf", "latin.conf, line 2, 'requirepass gr\u{fffd}n': no UTF-8: write it as text"),
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
