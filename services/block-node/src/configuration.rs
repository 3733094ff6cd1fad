//! A configuration file (`--config`): the flags of a server in TOML, below the environment, which is below the command line.
//!
//! Each word is a flag without its dashes: `server-port = 40840`. Names of the Java node's properties are the same words in another
//! writing, and taken as well: `server.maxMessageSizeBytes` is `server-max-message-size-bytes`, and so is `maxMessageSizeBytes` below
//! `[server]`. So are names of the environment, `SERVER_PORT`, whatever the flag is called. What is no such word, or no value for it, is refused with its line. What the environment or the command line say too is
//! not looked at in the file.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Command, CommandFactory as _, Parser as _};
use service_kit::command_line::{nearest, one_line};
use toml::de::{DeTable, DeValue};

use crate::command_line::CommandLine;

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The command line or the environment; or help was asked for.
    #[error("{}", one_line(&.0.to_string()))]
    CommandLine(#[from] clap::Error),
    /// The file.
    #[error("--config: {}: {what}", path.display())]
    File {
        /// Its name.
        path: PathBuf,
        /// What is wrong, with the line.
        what: String,
    },
}

/// What is wrong in a file, and where.
struct Mistake {
    line: Option<usize>,
    what: String,
}

impl Mistake {
    fn at(self, path: &Path) -> ConfigurationError {
        let Self { line, what } = self;
        let what = line.map_or_else(|| what.clone(), |line| format!("line {line}: {what}"));
        ConfigurationError::File { path: path.to_owned(), what }
    }
}

/// A line of a file.
struct Entry {
    word: String,
    line: usize,
    value: Value,
}

/// A value, as a flag takes it.
enum Value {
    Boolean(bool),
    Text(String),
    List(Vec<String>),
    /// No flag has such a value.
    Other(&'static str),
}

/// Reads a command line, the program first, with the environment and the file that they name.
pub fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Result<CommandLine, ConfigurationError> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = CommandLine::command();
    // What is missing may be in the file: what was given is asked of a parser that does not mind. An error is help, or the version.
    let given = command.clone().ignore_errors(true).try_get_matches_from(&arguments);
    let server = given.ok().filter(|given| given.subcommand().is_none());
    let file = server.and_then(|given| Some((given.get_one::<PathBuf>("config")?.clone(), given)));
    let (Some((path, given)), Some((program, rest))) = (file, arguments.split_first()) else {
        return Ok(CommandLine::try_parse_from(arguments)?);
    };
    let is_given = |flag: &Arg| {
        let source = given.value_source(flag.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let text =
        std::fs::read_to_string(&path).map_err(|error| Mistake { line: None, what: error.to_string() }.at(&path))?;
    let flags =
        flags(&command, entries(&text).map_err(|mistake| mistake.at(&path))?).map_err(|mistake| mistake.at(&path))?;
    let of_file: Vec<(&Flag<'_>, &String)> = flags
        .iter()
        .filter(|flag| !is_given(flag.flag))
        .filter_map(|flag| Some((flag, flag.argument.as_ref()?)))
        .collect();
    let parse = |left_out: Option<usize>| {
        let kept = of_file.iter().filter(|(flag, _)| Some(flag.line) != left_out);
        let of_file = kept.map(|(_, argument)| OsString::from(*argument));
        CommandLine::try_parse_from([program.clone()].into_iter().chain(of_file).chain(rest.iter().cloned()))
    };
    parse(None).map_err(|error| {
        let what = one_line(&error.to_string());
        let line = match (error.kind(), error.get(ContextKind::InvalidArg)) {
            // What is missing is named, and not what wants it: that is the line without which it is not missing.
            (ErrorKind::MissingRequiredArgument, _) => {
                of_file.iter().map(|(flag, _)| flag.line).find(|line| match parse(Some(*line)) {
                    Ok(_) => true,
                    Err(other) => one_line(&other.to_string()) != what,
                })
            }
            // `--server-port <SERVER_PORT>`
            (_, Some(ContextValue::String(named))) => {
                let named = named.split(' ').next().and_then(|named| named.strip_prefix("--"));
                of_file.iter().find(|(flag, _)| flag.flag.get_long() == named).map(|(flag, _)| flag.line)
            }
            _ => None,
        };
        match line {
            Some(_) => Mistake { line, what }.at(&path),
            None => error.into(),
        }
    })
}

/// A flag that a file sets.
struct Flag<'a> {
    flag: &'a Arg,
    line: usize,
    /// As on a command line; `None`: it stays as it is.
    argument: Option<String>,
}

/// The flags that these lines are about.
fn flags(command: &Command, entries: Vec<Entry>) -> Result<Vec<Flag<'_>>, Mistake> {
    let names = |flag: &Arg| -> Vec<String> {
        let names = flag.get_long_and_visible_aliases().unwrap_or_default();
        let of_environment = flag.get_env().and_then(OsStr::to_str).map(word_of);
        names.into_iter().map(str::to_owned).chain(of_environment).collect()
    };
    let mut found: Vec<Flag<'_>> = Vec::new();
    for Entry { word, line, value } in entries {
        let refuse = |what: String| Mistake { line: Some(line), what };
        let mut known = command.get_arguments().filter(|flag| flag.get_id() != "config");
        let Some(flag) = known.find(|flag| names(flag).contains(&word)) else {
            let all = command.get_arguments().filter(|flag| flag.get_id() != "config");
            let all: Vec<String> = all.flat_map(names).collect();
            let similar = nearest(&word, all.iter().map(String::as_str));
            let similar = similar.map(|similar| format!("; a similar word exists: {similar}")).unwrap_or_default();
            return Err(refuse(format!("{word} is no flag of a server, see --help{similar}")));
        };
        if let Some(before) = found.iter().find(|before| before.flag.get_id() == flag.get_id()) {
            return Err(refuse(format!("{word} is what line {} says already", before.line)));
        }
        let long = flag.get_long().unwrap_or_default();
        let is_switch = matches!(flag.get_action(), ArgAction::SetTrue);
        let argument = match value {
            Value::Boolean(is_set) if is_switch => is_set.then(|| format!("--{long}")),
            _ if is_switch => return Err(refuse(format!("{word} must be true or false"))),
            Value::Text(text) => Some(format!("--{long}={text}")),
            Value::List(texts) if flag.get_value_delimiter() == Some(',') => {
                (!texts.is_empty()).then(|| format!("--{long}={}", texts.join(",")))
            }
            Value::List(_) => return Err(refuse(format!("{word} takes one value, not a list"))),
            Value::Boolean(_) => return Err(refuse(format!("{word} is neither true nor false: give it its value"))),
            Value::Other(what) => return Err(refuse(format!("{word} cannot be {what}"))),
        };
        found.push(Flag { flag, line, argument });
    }
    Ok(found)
}

/// The words of a file with their lines and values.
fn entries(text: &str) -> Result<Vec<Entry>, Mistake> {
    let line_of =
        |place: usize| text.as_bytes()[..place.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| Mistake {
        line: error.span().map(|span| line_of(span.start)),
        what: error.message().replace('\n', " "),
    })?;
    let mut entries = Vec::new();
    collect(table.get_ref(), "", &line_of, &mut entries);
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn collect(table: &DeTable<'_>, above: &str, line_of: &impl Fn(usize) -> usize, entries: &mut Vec<Entry>) {
    for (key, value) in table {
        let word = match above {
            "" => word_of(key.get_ref()),
            above => format!("{above}-{}", word_of(key.get_ref())),
        };
        match value.get_ref() {
            DeValue::Table(below) => collect(below, &word, line_of, entries),
            value => entries.push(Entry { word, line: line_of(key.span().start), value: value_of(value) }),
        }
    }
}

/// `maxMessageSizeBytes`, `max.message.size.bytes`, `max-message-size-bytes` and `MAX_MESSAGE_SIZE_BYTES` are the same.
fn word_of(key: &str) -> String {
    if !key.contains(|character: char| character.is_ascii_lowercase()) {
        return key.to_ascii_lowercase().replace(['.', '_'], "-");
    }
    let mut word = String::with_capacity(key.len() + 4);
    for character in key.chars() {
        match character {
            '.' | '_' => word.push('-'),
            character if character.is_ascii_uppercase() => {
                if !word.is_empty() && !word.ends_with('-') {
                    word.push('-');
                }
                word.push(character.to_ascii_lowercase());
            }
            character => word.push(character),
        }
    }
    word
}

fn value_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Boolean(is_set) => Value::Boolean(*is_set),
        DeValue::Array(values) => {
            let texts = values.iter().map(|value| text_of(value.get_ref())).collect();
            Option::map_or(texts, Value::Other("a list of anything but text and whole numbers"), Value::List)
        }
        DeValue::Float(_) => Value::Other("a fraction"),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Table(_) => Value::Other("a table"),
        value => text_of(value).map_or(Value::Other("so large a number"), Value::Text),
    }
}

/// Of text, and of a whole number in whatever base.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i128::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::WireEra;

    fn read(text: &str, arguments: &[&str]) -> Result<CommandLine, String> {
        let folder = harness::folder();
        let path = folder.path().join("block-node.toml");
        std::fs::write(&path, text).unwrap();
        let own = ["block-node", "--config", path.to_str().unwrap()];
        let all = own.iter().chain(arguments).map(OsString::from);
        command_line(all).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_says_what_flags_do_and_flags_override_it() {
        let text = "server-port = 1234\nwire-era = \"v0.15\"\naccept-dummy-proofs = true\nbackfill-peers = [\"a:1\", \"b:2\"]\n";
        let flags = read(text, &[]).unwrap().flags;
        assert_eq!((flags.server_port, flags.wire_era, flags.accept_dummy_proofs), (1_234, WireEra::V015, true));
        assert_eq!(flags.backfill_peers.len(), 2);
        assert_eq!(flags.cache_bytes, 16_777_216, "what it does not say is as it was");
        let flags = read(text, &["--server-port", "1", "--wire-era=today"]).unwrap().flags;
        assert_eq!((flags.server_port, flags.wire_era, flags.accept_dummy_proofs), (1, WireEra::Today, true));
        let flags = read("accept-dummy-proofs = false\nbackfill-peers = []\n", &[]).unwrap().flags;
        assert!(!flags.accept_dummy_proofs && flags.backfill_peers.is_empty());
        // What it says only makes sense together with what is on the command line, and the other way round.
        let flags = read("record-file-signers-percent = 34\n", &["--rsa-address-book", "a"]).unwrap().flags;
        assert_eq!(flags.record_file_signers_percent, 34);
        let flags = read("rsa-address-book = \"a\"\n", &["--record-file-signers-percent", "34"]).unwrap().flags;
        assert_eq!(flags.rsa_address_book, Some("a".into()));
    }

    #[test]
    fn the_java_nodes_names_are_taken() {
        let text = "files.recent.liveRootPath = \"/data\"\nproducer.duplicateBlockSkipWindow = 7\n[server]\nport = 0x10\n\
                    maxMessageSizeBytes = 1_000_000\n[server.http2]\nmaxConcurrentStreams = 8\n[block.node]\nearliestManagedBlock = 9\n";
        let flags = read(text, &[]).unwrap().flags;
        assert_eq!(flags.files_recent_live_root_path, PathBuf::from("/data"));
        assert_eq!((flags.producer_duplicate_block_skip_window, flags.server_port), (7, 16));
        assert_eq!((flags.server_max_message_size_bytes, flags.server_http2_max_concurrent_streams), (1_000_000, 8));
        assert_eq!(flags.block_node_earliest_managed_block, 9);
        assert_eq!(
            read("data-dir = \"/data\"\n", &[]).unwrap().flags.files_recent_live_root_path,
            PathBuf::from("/data")
        );
    }

    #[test]
    fn the_name_that_a_flag_has_in_the_environment_is_a_word_in_any_writing() {
        let command = CommandLine::command();
        let known = command.get_arguments().filter(|flag| flag.get_id() != "config");
        let mut count = 0;
        for (flag, name) in known.filter_map(|flag| Some((flag, flag.get_env()?.to_str()?))) {
            count += 1;
            let value = if matches!(flag.get_action(), ArgAction::SetTrue) { "true" } else { "\"1\"" };
            for word in [name.to_owned(), name.to_lowercase(), name.to_lowercase().replace('_', ".")] {
                let entries = entries(&format!("{word} = {value}\n")).map_err(|mistake| mistake.what).unwrap();
                let found =
                    flags(&command, entries).map_err(|mistake| mistake.what).unwrap_or_else(|what| panic!("{what}"));
                assert_eq!((found.len(), found[0].flag.get_id()), (1, flag.get_id()), "{word}");
            }
        }
        assert!(count > 30, "{count}");
        let flags = read("SERVER_PORT = 1\n[app.state]\nrsaBootstrapFilePath = \"roster.json\"\n", &[]).unwrap().flags;
        assert_eq!((flags.server_port, flags.rsa_address_book), (1, Some("roster.json".into())));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, expected) in [
            (
                "\nserver-prot = 1\n",
                2,
                "server-prot is no flag of a server, see --help; a similar word exists: server-port",
            ),
            ("config = \"other\"\n", 1, "config is no flag"),
            ("help = true\n", 1, "help is no flag"),
            ("[server]\n\nport = 99999\n", 3, "invalid value '99999' for '--server-port"),
            ("server-port = -1\n", 1, "invalid value '-1'"),
            ("wire-era = \"v9\"\n", 1, "it must be `today`"),
            ("server-port = 1\nserver-port = 2\n", 2, "duplicate key"),
            ("server-port = 1\nserver.port = 2\n", 2, "server-port is what line 1 says already"),
            ("data-dir = \"a\"\nfiles-recent-live-root-path = \"b\"\n", 2, "is what line 1 says already"),
            ("server-port = \n", 1, ""),
            ("accept-dummy-proofs = \"yes\"\n", 1, "must be true or false"),
            ("server-port = true\n", 1, "is neither true nor false"),
            ("server-port = [1]\n", 1, "takes one value, not a list"),
            ("server-port = 1.5\n", 1, "cannot be a fraction"),
            ("backfill-peers = [true]\n", 1, "cannot be a list of anything but text and whole numbers"),
            ("backfill-peers = [\"localhost\"]\n", 1, "invalid value 'localhost'"),
        ] {
            let said = read(text, &[]).unwrap_err();
            let begin = format!("block-node.toml: line {line}: ");
            assert!(
                said.starts_with("--config: ") && said.contains(&begin) && said.contains(expected),
                "{text:?}: {said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        for (text, line, missing) in [
            ("tls-certificate = \"a\"\n", 1, "--tls-key"),
            ("server-port = 1\n\ntls-key = \"a\"\n", 3, "--tls-certificate"),
            ("record-file-signers-percent = 34\nserver-port = 1\n", 1, "--rsa-address-book"),
            ("tls-client-authority = \"a\"\ntls-certificate = \"b\"\n", 2, "--tls-key"),
        ] {
            let said = read(text, &[]).unwrap_err();
            let expected =
                format!("block-node.toml: line {line}: the following required arguments were not provided: {missing}");
            assert!(said.contains(&expected), "{text:?}: {said}");
        }
        // What the command line wants is not the file's mistake.
        let said = read("server-port = 1\n", &["--tls-key", "a"]).unwrap_err();
        assert!(said.contains("--tls-certificate") && !said.contains("line"), "{said}");
        let said = read("", &["--server-prot", "1"]).unwrap_err();
        assert!(said.contains("--server-prot") && !said.contains("line"), "{said}");
        // What is overridden need not be right.
        assert_eq!(read("server-port = 99999\n", &["--server-port", "1"]).unwrap().flags.server_port, 1);
        let said = command_line(["block-node", "--config", "/nowhere"].map(Into::into)).unwrap_err().to_string();
        assert!(said.starts_with("--config: /nowhere: "), "{said}");
    }

    #[test]
    fn other_commands_read_no_file() {
        assert!(command_line(["block-node", "verify", "--data-dir", "a"].map(Into::into)).unwrap().command.is_some());
        assert!(command_line(["block-node", "--config", "a", "verify"].map(Into::into)).is_err());
        let help = command_line(["block-node", "--config", "a", "--help"].map(Into::into)).unwrap_err();
        let ConfigurationError::CommandLine(help) = help else { panic!("{help}") };
        assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
    }
}
