//! etcd's command line: every flag of etcd 3.7, from arguments, `ETCD_*` variables or a configuration file.
//!
//! An argument overrules a variable; a configuration file overrules both, as in etcd. A flag that is neither etcd's nor one of the three
//! that are rusd's own (`table.rs`) is an error, and so is one that asks for what rusd does not do; one that tunes what rusd does not have is
//! taken and has no effect, as are settings of a configuration file that etcd has dropped. etcd passes over all that it does not know in
//! that file; here what was never a setting of etcd is a slip, and refused.

mod table;
mod values;

pub use service_kit::url::Url;
pub use values::{Mistake, duration, url};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use table::{Effect, Flag, Kind};

const HELP: &str = "help";

/// What was probably meant by a name that there is not; nothing, where no name is like it.
fn did_you_mean(own: &[Flag], name: &str, dashes: &str) -> String {
    table::nearest(own, name).map_or_else(
        || if dashes.is_empty() { String::new() } else { "; --help has all".into() },
        |meant| format!("; did you mean {dashes}{meant}?"),
    )
}

/// What was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// By name of the flag.
    given: BTreeMap<&'static str, String>,
    /// Variables that are no flag's, and settings of a configuration file that etcd has no more.
    strangers: Vec<String>,
}

impl Flags {
    /// Reads arguments (without the program's name), variables and the configuration file, if one is named. `read` reads it.
    pub fn parse(
        arguments: impl IntoIterator<Item = String>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        read: impl FnOnce(&Path) -> std::io::Result<String>,
    ) -> Result<Self, Mistake> {
        let mut flags = Self::default();
        flags.take_variables(variables)?;
        flags.take_arguments(arguments, &[])?;
        flags.or_of_file(read)
    }

    /// Reads the arguments of `rusd import` behind its source, and the configuration file, if one is named: `--bump-revision` and
    /// `--mark-compacted` are arguments only, and no file overrules them.
    pub fn parse_import(
        arguments: impl IntoIterator<Item = String>,
        read: impl FnOnce(&Path) -> std::io::Result<String>,
    ) -> Result<Self, Mistake> {
        let mut flags = Self::default();
        flags.take_arguments(arguments, table::OF_IMPORT)?;
        let own = table::OF_IMPORT.iter().filter_map(|flag| flags.given.remove_entry(flag.name)).collect::<Vec<_>>();
        // A file says nothing of it, and must not be read for it.
        if flags.asks_for_help() {
            return Ok(flags);
        }
        let mut flags = flags.or_of_file(read)?;
        flags.given.extend(own);
        Ok(flags)
    }

    /// What the configuration file says instead, if one is named.
    fn or_of_file(self, read: impl FnOnce(&Path) -> std::io::Result<String>) -> Result<Self, Mistake> {
        let Some(path) = self.given("config-file") else { return Ok(self) };
        let text = read(Path::new(path)).map_err(|error| Mistake::new("config-file", format!("{path}: {error}")))?;
        Self::from_file(&text)
    }

    fn take_variables(&mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<(), Mistake> {
        for (name, value) in variables {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
            // Empty means not given, as in etcd, whatever kind of flag it is.
            let Some(of_flag) = name.strip_prefix("ETCD_").filter(|_| !value.is_empty()) else { continue };
            match table::find(&of_flag.to_ascii_lowercase().replace('_', "-")) {
                Some(flag) => self.set(flag, value)?,
                // Others use the prefix as well, so it is told of and no more, as in etcd: the Service "etcd" of a cluster has
                // ETCD_SERVICE_HOST in every pod.
                None => self.strangers.push(name.to_owned()),
            }
        }
        Ok(())
    }

    /// `own` are flags that the program has beside the server's.
    fn take_arguments(
        &mut self,
        arguments: impl IntoIterator<Item = String>,
        own: &'static [Flag],
    ) -> Result<(), Mistake> {
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(text) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                let what = match argument.as_str() {
                    "gateway" | "grpc-proxy" => {
                        "is a program of etcd's, which works in front of rusd as it is: use etcd's"
                    }
                    _ => "is not a flag",
                };
                return Err(Mistake::of_argument(&argument, what));
            };
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text, None),
            };
            let name = if name == "h" { HELP } else { name };
            let unknown = || {
                let meant = did_you_mean(own, name, "--");
                Mistake::of_argument(&argument, &format!("is not a flag of etcd 3.7{meant}"))
            };
            let flag = table::find_among(own, name).ok_or_else(unknown)?;
            let value = match (value, flag.kind) {
                (Some(value), _) => value,
                (None, Kind::Bool) => "true".into(),
                (None, _) => arguments.next().ok_or_else(|| Mistake::new(flag.name, "needs a value"))?,
            };
            self.set(flag, &value)?;
        }
        Ok(())
    }

    /// Keys of the file are names of flags, but for those of TLS, which stand in two sections.
    fn from_file(text: &str) -> Result<Self, Mistake> {
        let wrong =
            |error: &dyn std::fmt::Display| Mistake::new("config-file", values::with_single_spaces(&error.to_string()));
        let file: BTreeMap<String, Value> = serde_yaml::from_str(text).map_err(|error| wrong(&error))?;
        let mut flags = Self::default();
        for (key, value) in file {
            let prefix = match key.as_str() {
                "client-transport-security" => "",
                "peer-transport-security" => "peer-",
                key => {
                    flags.set_from_file(key, &value)?;
                    continue;
                }
            };
            let section = BTreeMap::<String, Value>::deserialize(&value).map_err(|error| wrong(&error))?;
            for (key, value) in section {
                flags.set_from_file(&format!("{prefix}{key}"), &value)?;
            }
        }
        Ok(flags)
    }

    fn set_from_file(&mut self, key: &str, value: &Value) -> Result<(), Mistake> {
        let Some(flag) = table::find(key) else {
            if !table::was_in_etcd(key) {
                let meant = did_you_mean(&[], key, "");
                return Err(Mistake::new("config-file", format!("{key} is not a setting of etcd 3.7{meant}")));
            }
            self.strangers.push(format!("{key} in --config-file"));
            return Ok(());
        };
        match value {
            Value::Null => Ok(()),
            // etcd has lists for a few: `log-outputs`, `cipher-suites`.
            Value::Array(values) => {
                let texts = values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
                self.set(flag, &texts.collect::<Vec<_>>().join(","))
            }
            Value::String(text) => self.set(flag, text),
            Value::Number(number) if flag.kind == Kind::Duration => self.set(flag, &format!("{number}ns")),
            other => self.set(flag, &other.to_string()),
        }
    }

    fn set(&mut self, flag: &'static Flag, value: &str) -> Result<(), Mistake> {
        match flag.kind {
            Kind::Bool => drop(values::boolean(flag.name, value)?),
            Kind::Number => drop(values::number(flag.name, value)?),
            Kind::Duration => drop(values::duration(flag.name, value)?),
            Kind::Text => {}
        }
        let is_idle = value.is_empty() || matches!((flag.kind, value), (Kind::Bool, "false") | (Kind::Number, "0"));
        if flag.effect == Effect::Refused && !is_idle {
            return Err(Mistake::new(flag.name, "is not supported by rusd; leave it out"));
        }
        self.given.insert(flag.name, value.to_owned());
        Ok(())
    }

    /// What was given, if anything.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// What `--help` prints, if it was asked for.
    pub fn help(&self) -> Option<String> {
        self.asks_for_help().then(table::help)
    }

    /// What `rusd import --help` prints, if it was asked for.
    pub fn help_of_import(&self) -> Option<String> {
        self.asks_for_help().then(table::help_of_import)
    }

    fn asks_for_help(&self) -> bool {
        self.given(HELP).is_some_and(|value| values::boolean(HELP, value) == Ok(true))
    }

    /// A flag that is on or off.
    pub fn boolean(&self, name: &str, default: bool) -> Result<bool, Mistake> {
        self.given(name).map_or(Ok(default), |value| values::boolean(name, value))
    }

    /// A number that is not negative.
    pub fn number(&self, name: &'static str, default: u64) -> Result<u64, Mistake> {
        self.given(name).map_or(Ok(default), |value| values::number(name, value))
    }

    /// A duration.
    pub fn duration(&self, name: &'static str, default: std::time::Duration) -> Result<std::time::Duration, Mistake> {
        self.given(name).map_or(Ok(default), |value| values::duration(name, value))
    }

    /// URLs, with commas between them.
    pub fn urls(&self, name: &'static str, default: &str) -> Result<Vec<Url>, Mistake> {
        values::urls(name, self.given(name).unwrap_or(default))
    }

    /// URLs of clients, with commas between them: [`Flags::urls`], and files.
    pub fn client_urls(&self, name: &'static str, default: &str) -> Result<Vec<Url>, Mistake> {
        values::client_urls(name, self.given(name).unwrap_or(default))
    }

    /// What was given and has no effect: flags, variables, and settings of a configuration file.
    pub fn without_effect(&self) -> impl Iterator<Item = String> {
        let idle = |name: &&&'static str| table::find(name).is_some_and(|flag| flag.effect == Effect::None);
        let flags = self.given.keys().filter(idle).map(|name| format!("--{name}"));
        flags.chain(self.strangers.iter().cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str], variables: &[(&str, &str)], file: &str) -> Result<Flags, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Flags::parse(arguments, variables, |_| Ok(file.to_owned())).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn flags_come_in_the_forms_that_go_programs_take() {
        let flags = parse(&["--name", "a", "-data-dir=/b", "--client-cert-auth", "--pre-vote=false"], &[], "").unwrap();
        assert_eq!(flags.given("name"), Some("a"));
        assert_eq!(flags.given("data-dir"), Some("/b"));
        assert_eq!(flags.boolean("client-cert-auth", false), Ok(true));
        assert_eq!(flags.boolean("pre-vote", true), Ok(false));
    }

    #[test]
    fn an_argument_overrules_a_variable_and_a_file_overrules_both() {
        let variables = [("ETCD_NAME", "variable"), ("ETCD_UNSUPPORTED_ARCH", "amd64"), ("PATH", "/bin")];
        assert_eq!(parse(&[], &variables, "").unwrap().given("name"), Some("variable"));
        assert_eq!(parse(&["--name=argument"], &variables, "").unwrap().given("name"), Some("argument"));
        let file = "name: file\nheartbeat-interval: 100\nclient-transport-security:\n  cert-file: /c\n  client-cert-auth: true\n\
                    grpc-keepalive-timeout: 5s\ngrpc-keepalive-interval: 7000000000\ncipher-suites: [a, b]\n";
        let flags = parse(&["--name=argument", "--config-file=f"], &variables, file).unwrap();
        assert_eq!((flags.given("name"), flags.given("cert-file")), (Some("file"), Some("/c")));
        assert_eq!(flags.number("heartbeat-interval", 0), Ok(100));
        assert_eq!(flags.boolean("client-cert-auth", false), Ok(true));
        assert_eq!(flags.given("cipher-suites"), Some("a,b"));
        let interval = flags.duration("grpc-keepalive-interval", std::time::Duration::ZERO);
        assert_eq!(interval, Ok(std::time::Duration::from_secs(7)));
    }

    /// Whoever gives variables in a template leaves some empty: the server did not start.
    #[test]
    fn an_empty_variable_is_passed_over() {
        let empty =
            ["ETCD_AUTO_TLS", "ETCD_SNAPSHOT_COUNT", "ETCD_GRPC_KEEPALIVE_TIMEOUT", "ETCD_NAME"].map(|name| (name, ""));
        assert_eq!(parse(&[], &empty, "").unwrap(), parse(&[], &[], "").unwrap());
    }

    #[test]
    fn mistakes_name_the_flag() {
        let mistakes = [
            (&["--no-such-flag=1"][..], "--no-such-flag=1 is not a flag of etcd 3.7; --help has all"),
            (&["--data-dri", "/a"], "--data-dri is not a flag of etcd 3.7; did you mean --data-dir?"),
            (
                &["-listen-client-url=a"],
                "-listen-client-url=a is not a flag of etcd 3.7; did you mean --listen-client-urls?",
            ),
            (&["stray"], "stray is not a flag"),
            (&["--name"], "--name: needs a value"),
            (&["--pre-vote=maybe"], "--pre-vote: expected true or false, found \"maybe\""),
            (&["--snapshot-count=-1"], "--snapshot-count: expected a number from 0, found \"-1\""),
            (
                &["--grpc-keepalive-timeout=5"],
                "--grpc-keepalive-timeout: expected a duration such as 300ms, 5s or 2h, found \"5\"",
            ),
            (&["--discovery-srv=example.org"], "--discovery-srv: is not supported by rusd; leave it out"),
        ];
        for (arguments, expected) in mistakes {
            assert_eq!(parse(arguments, &[], "").unwrap_err(), expected);
        }
        let mistake = parse(&["--config-file=f"], &[], "nmae: x").unwrap_err();
        assert_eq!(mistake, "--config-file: nmae is not a setting of etcd 3.7; did you mean name?");
        let proxy = parse(&["grpc-proxy", "start"], &[], "").unwrap_err();
        assert_eq!(proxy, "grpc-proxy is a program of etcd's, which works in front of rusd as it is: use etcd's");
        assert!(parse(&["--config-file=f"], &[], ": : :").unwrap_err().starts_with("--config-file: "));
    }

    /// etcd's own sample of a file has them to this day, and did not start rusd.
    #[test]
    fn settings_that_etcd_has_dropped_are_taken_and_told_of() {
        let file = "name: a\ndiscovery:\ndiscovery-proxy:\nproxy: 'off'\nproxy-failure-wait: 5000\nenable-v2: true\n\
                    experimental-initial-corrupt-check: true\nmax-wals: 5\n";
        let flags = parse(&["--config-file=f"], &[("ETCD_PROXY", "off")], file).unwrap();
        let without = flags.without_effect().collect::<Vec<_>>();
        let dropped = ["discovery", "discovery-proxy", "enable-v2", "experimental-initial-corrupt-check", "proxy"];
        let expected = dropped.iter().chain(&["proxy-failure-wait"]).map(|name| format!("{name} in --config-file"));
        assert_eq!(without, ["--max-wals".to_owned()].into_iter().chain(expected).collect::<Vec<_>>());
    }

    #[test]
    fn a_variable_that_is_no_flags_is_told_of() {
        let flags = parse(&[], &[("ETCD_DATADIR", "/a"), ("ETCD_NAME", "a"), ("ETCDCTL_API", "3")], "").unwrap();
        assert_eq!(flags.without_effect().collect::<Vec<_>>(), ["ETCD_DATADIR"]);
    }

    #[test]
    fn help_is_there_for_whoever_asks_and_for_nobody_else() {
        for asked in ["--help", "-help", "-h", "--help=true"] {
            assert!(parse(&["--name", "a", asked], &[], "").unwrap().help().is_some(), "{asked}");
        }
        for other in [&[][..], &["--help=false"], &["--name=help"]] {
            assert!(parse(other, &[], "").unwrap().help().is_none());
        }
    }

    fn parse_import(arguments: &[&str], file: &str) -> Result<Flags, String> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        Flags::parse_import(arguments, |_| Ok(file.to_owned())).map_err(|mistake| mistake.to_string())
    }

    /// What a file says stands for all arguments: a bump that was asked for would have been forgotten.
    #[test]
    fn an_import_has_flags_that_no_file_overrules_and_no_server_takes() {
        let arguments = ["--name=argument", "--bump-revision", "5", "--mark-compacted", "--config-file=f"];
        let flags = parse_import(&arguments, "name: file").unwrap();
        assert_eq!(flags.given("name"), Some("file"));
        assert_eq!((flags.number("bump-revision", 0), flags.boolean("mark-compacted", false)), (Ok(5), Ok(true)));
        for (argument, mistake) in [
            ("--bump-revision=-1", "--bump-revision: expected a number from 0, found \"-1\""),
            ("--mark-compact", "--mark-compact is not a flag of etcd 3.7; did you mean --mark-compacted?"),
        ] {
            assert_eq!(parse_import(&[argument], "").unwrap_err(), mistake);
        }
        assert!(parse(&["--bump-revision=5"], &[], "").unwrap_err().contains("is not a flag of etcd 3.7"));
        let mistake = parse_import(&["--config-file=f"], "bump-revision: 5").unwrap_err();
        assert!(mistake.starts_with("--config-file: bump-revision is not a setting"), "{mistake}");
    }

    #[test]
    fn a_flag_that_asks_for_nothing_is_not_refused() {
        assert!(parse(&["--discovery-srv=", "--enable-distributed-tracing=false"], &[], "").is_ok());
    }
}
