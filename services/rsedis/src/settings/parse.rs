//! Reads redis.conf and the command line.

use std::path::Path;

use super::{Kind, PARAMETERS, Settings, find};
use crate::glob;
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

/// Looks at a user's name and rules; what is wrong with them.
pub type CheckUser = fn(&[u8], &[&[u8]]) -> Result<(), String>;

/// What settings are read with, and what is known of users and commands, which they may speak of.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// Reads a file; `-`: standard input.
    pub read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    /// Names of a directory's files.
    pub list: &'a dyn Fn(&Path) -> std::io::Result<Vec<String>>,
    /// For lines about users.
    pub check_user: CheckUser,
    /// Whether a command has this name.
    pub is_command: fn(&str) -> bool,
}

/// Names of a directory's files, as [`Outside::list`] has them; those that are no text are nobody's.
pub fn list_files(folder: &Path) -> std::io::Result<Vec<String>> {
    std::fs::read_dir(folder)?
        .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
        .collect()
}

#[cfg(test)]
impl<'a> Outside<'a> {
    /// The program's, with these files.
    pub(super) fn with_files(read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>) -> Self {
        Self {
            read,
            list: &|_| Ok(Vec::new()),
            check_user: crate::acl::check_user,
            is_command: crate::command::is_own_name,
        }
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
/// Errors: a line for each mistake, that names the words and what is wrong with them.
pub fn read_command_line(words: &[String], version: &str, outside: Outside<'_>) -> Result<Start, String> {
    match words.first().map(String::as_str) {
        Some("-v" | "--version") => return Ok(Start::Print(format!("{version}\n"))),
        Some("-h" | "--help") => return Ok(Start::Print(USAGE.to_owned())),
        _ => {}
    }
    let mut reading =
        Reading { settings: Settings::default(), has_save: false, outside, depth: 0, mistakes: Vec::new() };
    let mut rest = words;
    if let [file, tail @ ..] = words
        && !file.starts_with('-')
    {
        reading.file(file)?;
        reading.settings.file = file.clone();
        rest = tail;
    }
    // As in Redis: what standard input says comes behind the file, and options win, wherever the `-` stands.
    let is_input = |word: &String| word == "-";
    let shorter = match rest {
        [first, tail @ ..] if is_input(first) => Some(tail),
        [front @ .., last] if is_input(last) => Some(front),
        _ => None,
    };
    if let Some(shorter) = shorter {
        reading.file("-")?;
        rest = shorter;
    }
    for line in lines(rest)? {
        if let Err(error) = reading.line(&line) {
            reading.mistakes.push(format!("{}: {error}", shown(&line)));
        }
    }
    match reading.mistakes.is_empty() {
        true => Ok(Start::Serve(Box::new(reading.settings))),
        false => Err(reading.mistakes.join("\n")),
    }
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

/// Mistakes that are told at once.
const MISTAKES_MAX: usize = 20;
/// Files that include one another; more is a circle.
const DEPTH_MAX: usize = 16;

/// Lines of files and of the command line, in their order.
struct Reading<'a> {
    settings: Settings,
    /// There was a line `save`: those that follow add to it, and do not replace what is set unless told otherwise.
    has_save: bool,
    outside: Outside<'a>,
    depth: usize,
    /// A line for each.
    mistakes: Vec<String>,
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
            if self.mistakes.len() == MISTAKES_MAX {
                break;
            }
            if let Err(error) = self.bytes(line) {
                let shown = String::from_utf8_lossy(line);
                self.mistakes.push(format!("{file}, line {}, '{shown}': {error}", number + 1));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn bytes(&mut self, line: &[u8]) -> Result<(), String> {
        let mut words = Vec::new();
        split_words(line, |word| words.push(word.to_vec())).ok_or("Unbalanced quotes in configuration line")?;
        // Keys that users may touch are any bytes.
        if let Some((name, values)) = words.split_first()
            && name.eq_ignore_ascii_case(b"user")
        {
            return add_user(&mut self.settings, self.outside, values);
        }
        let words: Result<Vec<String>, _> = words.into_iter().map(String::from_utf8).collect();
        self.line(&words.map_err(|_| "no UTF-8: write it as text")?)
    }

    /// The files that `include` names. One with a wildcard may name any number of them, in their order, and none, as in Redis.
    fn included(&self, file: &str) -> Result<Vec<String>, String> {
        let is_pattern = |text: &str| text.contains(['*', '?', '[']);
        if !is_pattern(file) {
            return Ok(vec![file.to_owned()]);
        }
        let (folder, pattern) = file.split_at(file.rfind('/').map_or(0, |slash| slash + 1));
        if is_pattern(folder) {
            return Err("wildcards may stand in the name of the file only: write a line for each directory".to_owned());
        }
        let place = if folder.is_empty() { "." } else { folder };
        let mut names = (self.outside.list)(Path::new(place)).unwrap_or_default();
        // As a shell has them: hidden files are named by who wants them.
        let shell_pattern = pattern.replace("[!", "[^");
        names.retain(|name| {
            (!name.starts_with('.') || pattern.starts_with('.'))
                && glob::matches(shell_pattern.as_bytes(), name.as_bytes())
        });
        names.sort_unstable();
        Ok(names.into_iter().map(|name| format!("{folder}{name}")).collect())
    }

    fn line(&mut self, words: &[String]) -> Result<(), String> {
        let Some((name, values)) = words.split_first() else { return Ok(()) };
        if name.eq_ignore_ascii_case("include") {
            let [file] = values else { return Err("wrong number of arguments".to_owned()) };
            return self.included(file)?.iter().try_for_each(|file| self.file(file));
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
        let values: Vec<Vec<u8>> = values.iter().map(|value| value.clone().into_bytes()).collect();
        return add_user(settings, outside, &values);
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
fn add_user(settings: &mut Settings, outside: Outside<'_>, values: &[Vec<u8>]) -> Result<(), String> {
    let (name, rules) = values.split_first().ok_or("wrong number of arguments")?;
    if settings.users.iter().any(|(known, _)| known == name) {
        return Err("Duplicate user found. A user can only be defined once in config files".to_owned());
    }
    let words: Vec<&[u8]> = rules.iter().flat_map(|rule| rule.split(u8::is_ascii_whitespace)).collect();
    let words: Vec<&[u8]> = words.into_iter().filter(|word| !word.is_empty()).collect();
    (outside.check_user)(name, &words)?;
    settings.users.push((name.clone(), words.into_iter().map(<[u8]>::to_vec).collect()));
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

    /// As Redis 7.0.15 does.
    #[test]
    fn an_include_with_a_wildcard_names_files_in_their_order_or_none() {
        let read = |path: &Path| match path.to_str() {
            Some("main") => Ok(b"include conf.d/[!x]*.conf\ninclude none/*.conf\ninclude ?.conf\n".to_vec()),
            Some("conf.d/a.conf") => Ok(b"port 1\nsave 1 1\n".to_vec()),
            Some("conf.d/b.conf") => Ok(b"port 2\nsave 2 2\n".to_vec()),
            Some("h.conf") => Ok(b"timeout 7\n".to_vec()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        };
        let list = |folder: &Path| {
            let names = match folder.to_str() {
                Some("conf.d/") => &["b.conf", "x.conf", ".hidden.conf", "a.conf", "a.conf.old"][..],
                Some(".") => &["h.conf", "main"],
                _ => return Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
            };
            Ok(names.iter().map(|name| (*name).to_owned()).collect())
        };
        let outside = Outside { list: &list, ..Outside::with_files(&read) };
        let read = |file: &str| read_command_line(&["--include".to_owned(), file.to_owned()], "", outside);
        let Ok(Start::Serve(settings)) = read("main") else { panic!() };
        assert_eq!((settings.text("port"), settings.text("save"), settings.text("timeout")), ("2", "1 1 2 2", "7"));
        let refused = read("*/a.conf").unwrap_err();
        assert!(refused.ends_with("write a line for each directory"), "{refused}");
    }

    /// As in Redis: behind a file, in front of the options, and the file stays the one that CONFIG REWRITE writes.
    #[test]
    fn standard_input_is_read_where_the_last_word_asks_for_it() {
        let read = |path: &Path| match path.to_str() {
            Some("file") => Ok(b"port 1\ntimeout 1\nmaxclients 1\n".to_vec()),
            Some("-") => Ok(b"port 2\ntimeout 2\n".to_vec()),
            _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
        };
        for (line, file, clients) in
            [("file --port 3 -", "file", "1"), ("- --port 3", "", "10000"), ("--port 3 -", "", "10000")]
        {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let outside = Outside::with_files(&read);
            let Ok(Start::Serve(settings)) = read_command_line(&words, "", outside) else { panic!("{line}") };
            assert_eq!((settings.text("port"), settings.text("timeout")), ("3", "2"), "{line}");
            assert_eq!((settings.file.as_str(), settings.text("maxclients")), (file, clients), "{line}");
        }
    }

    /// Who comes with a redis.conf of many lines would start it once for each.
    #[test]
    fn all_mistakes_are_told_at_once() {
        let read = |path: &Path| match path.to_str() {
            Some("file") => Ok(b"daemonize yes\nport 1\ninclude other\nsupervised systemd\n".to_vec()),
            Some("other") => Ok(b"cluster-enabled yes\n".to_vec()),
            _ => Ok("foo\n".repeat(50).into_bytes()),
        };
        let words = ["file", "--dbfilename", "a/b"].map(str::to_owned);
        let refused = read_command_line(&words, "", Outside::with_files(&read)).unwrap_err();
        let lines: Vec<&str> = refused.lines().collect();
        assert_eq!(
            lines,
            [
                "file, line 1, 'daemonize yes': not supported: this server has 'no' only: run it under systemd, or with nohup and & in a shell",
                "other, line 1, 'cluster-enabled yes': not supported: this server has 'no' only: leave it out: replicas and Sentinel are there, Redis Cluster is not",
                "file, line 4, 'supervised systemd': not supported: this server has 'no' only: a systemd unit starts it with Type=simple",
                "'dbfilename \"a/b\"': dbfilename can't be a path, just a filename",
            ]
        );
        let refused = read_command_line(&["many".to_owned()], "", Outside::with_files(&read)).unwrap_err();
        assert_eq!(refused.lines().count(), MISTAKES_MAX);
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
            ("--io-threads 4", "'io-threads \"4\"': not supported: this server has '1' only: leave it out"),
            ("--appendfilename a/b", "'appendfilename \"a/b\"': appendfilename can't be a path, just a filename"),
            ("--appenddirname a/b", "'appenddirname \"a/b\"': appenddirname can't be a path, just a dirname"),
            (
                "--repl-backlog-size 0",
                "'repl-backlog-size \"0\"': argument must be between 1 and 9223372036854775807 inclusive",
            ),
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
