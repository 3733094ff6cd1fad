//! Where to listen, or where others find a server: `http://HOST:PORT`, `https://HOST:PORT`, `unix://PATH`, `unixs://PATH`.

use std::fmt;
use std::str::FromStr;

/// Where to listen, or where others find us.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Url {
    /// `https`, or `unixs`.
    pub is_tls: bool,
    /// `unix` or `unixs`: a socket that is a file.
    pub is_unix: bool,
    /// A name, an IPv4 address or an IPv6 address in brackets; or the path of the file.
    pub host: String,
    /// The port; 0 of a file.
    pub port: u16,
}

/// It is no such URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a URL such as http://127.0.0.1:2379 or unix:///run/socket, found {0:?}")]
pub struct UrlError(pub String);

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unix {
            return write!(formatter, "{}://{}", if self.is_tls { "unixs" } else { "unix" }, self.host);
        }
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(formatter, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        parse(text).ok_or_else(|| UrlError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let is_tls = match scheme {
        "http" => false,
        "https" => true,
        "unix" | "unixs" if !rest.is_empty() => {
            return Some(Url { is_tls: scheme == "unixs", is_unix: true, host: rest.to_owned(), port: 0 });
        }
        _ => return None,
    };
    let (host, port) = rest.trim_end_matches('/').rsplit_once(':')?;
    let port = port.parse().ok()?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(['/', '?', '#', '@']) || (host.contains(':') && !is_bracketed) {
        return None;
    }
    Some(Url { is_tls, is_unix: false, host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_have_a_scheme_a_host_and_a_port_or_are_files() {
        for text in ["http://a:1", "https://[::1]:2", "unix://a:1", "unixs:///run/server"] {
            assert_eq!(text.parse::<Url>().unwrap().to_string(), text);
        }
        assert_eq!("https://[::1]:2/".parse::<Url>().unwrap().to_string(), "https://[::1]:2");
        for wrong in
            ["a:1", "ftp://a:1", "http://a", "http://a:99999", "http://a/b:1", "http://::1:2", "unix://", "unix:a"]
        {
            assert_eq!(wrong.parse::<Url>(), Err(UrlError(wrong.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn what_is_a_url_is_written_as_it_is_read(text in "[a-z]{0,6}(://)?[a-z0-9:/\\[\\]@.]{0,12}(:[0-9]{0,6})?/?") {
            if let Ok(url) = text.parse::<Url>() {
                prop_assert_eq!(url.to_string().parse(), Ok(url));
            }
        }
    }
}
