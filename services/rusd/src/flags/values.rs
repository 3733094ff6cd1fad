//! Values of flags, and what is wrong with them.

use std::fmt;
use std::time::Duration;

use service_kit::url::Url;

/// A mistake on the command line, in one line that names the flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mistake(String);

impl Mistake {
    /// About a flag.
    pub fn new(flag: &str, what: impl fmt::Display) -> Self {
        Self(format!("--{flag}: {what}"))
    }

    pub(super) fn of_argument(argument: &str, what: &str) -> Self {
        Self(format!("{argument} {what}"))
    }
}

pub(super) fn boolean(flag: &str, text: &str) -> Result<bool, Mistake> {
    match text {
        "true" | "TRUE" | "True" | "1" | "t" | "T" => Ok(true),
        "false" | "FALSE" | "False" | "0" | "f" | "F" => Ok(false),
        _ => Err(expected(flag, "true or false", text)),
    }
}

pub(super) fn number(flag: &str, text: &str) -> Result<u64, Mistake> {
    text.parse().map_err(|_| expected(flag, "a number from 0", text))
}

/// A duration as Go writes it: `1h30m`, `1.5s`, `300ms`.
pub fn duration(flag: &str, text: &str) -> Result<Duration, Mistake> {
    service_kit::duration::of_go(text).ok_or_else(|| expected(flag, "a duration such as 300ms, 5s or 2h", text))
}

pub(super) fn urls(flag: &str, text: &str) -> Result<Vec<Url>, Mistake> {
    parts(text).map(|part| url(flag, part)).collect()
}

/// Those for clients, which may be files.
pub(super) fn client_urls(flag: &str, text: &str) -> Result<Vec<Url>, Mistake> {
    parts(text).map(|part| part.parse().map_err(|_| expected(flag, URLS, part))).collect()
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// One URL, given with this flag; not a file.
pub fn url(flag: &str, text: &str) -> Result<Url, Mistake> {
    text.parse().ok().filter(|url: &Url| !url.is_unix).ok_or_else(|| expected(flag, URLS, text))
}

const URLS: &str = "URLs such as http://127.0.0.1:2379, with commas between them";

fn expected(flag: &str, what: &str, found: &str) -> Mistake {
    Mistake::new(flag, format!("expected {what}, found {found:?}"))
}

pub(super) fn with_single_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_have_a_scheme_a_host_and_a_port() {
        let urls = urls("f", "http://a:1, https://[::1]:2/").unwrap();
        assert_eq!(urls.iter().map(Url::to_string).collect::<Vec<_>>(), ["http://a:1", "https://[::1]:2"]);
        for wrong in ["a:1", "ftp://a:1", "http://a", "http://a:99999", "http://a/b:1", "http://::1:2", "unix://a:1"] {
            assert!(url("f", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_may_come_by_a_file() {
        let urls = client_urls("f", "http://a:1,unix://a:1, unixs:///run/rusd").unwrap();
        assert_eq!(
            urls.iter().map(Url::to_string).collect::<Vec<_>>(),
            ["http://a:1", "unix://a:1", "unixs:///run/rusd"]
        );
        assert_eq!(
            urls.iter().map(|url| (url.is_unix, url.is_tls)).collect::<Vec<_>>(),
            [(false, false), (true, false), (true, true)]
        );
        for wrong in ["unix://", "unix:a", "file://a"] {
            assert!(client_urls("f", wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_a_mistake(text in any::<String>()) {
            let _ = (duration("f", &text), url("f", &text), number("f", &text), boolean("f", &text));
        }
    }
}
