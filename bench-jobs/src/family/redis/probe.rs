//! Asks a store that speaks Redis for answers, one command on a connection of its own at a time.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};

use super::resp::{Token, read, write_command};
use storebench_crds::meter::Check;

use crate::failure::Failure;
use crate::family::check::{ANSWER_TIMEOUT, tried};
use crate::net::http_client::exchange;

/// `PING`, refused while the store loads its data.
pub fn answers(address: SocketAddr) -> Result<(), Failure> {
    command(address, &[b"PING"], |token| match token {
        Token::Simple(b"PONG") => Ok(()),
        token => Err(described(&token)),
    })
}

/// The version in `INFO`.
pub fn version(address: SocketAddr) -> Result<String, Failure> {
    command(address, &[b"INFO", b"server"], |token| match token {
        Token::Bulk(text) => {
            let text = String::from_utf8_lossy(text);
            let version = version_in(&text).map(str::to_owned);
            version.ok_or_else(|| Failure::new("the answer has no redis_version"))
        }
        token => Err(described(&token)),
    })
}

/// The first setting, if any, that a store says is another than it was given: `CONFIG GET`.
pub fn differing_setting(endpoints: &[String], expected: &BTreeMap<String, String>) -> Option<String> {
    let all = endpoints.iter().flat_map(|endpoint| expected.iter().map(move |(name, value)| (endpoint, name, value)));
    all.filter_map(|(endpoint, name, value)| match setting(endpoint, name) {
        Ok(found) if found == *value => None,
        Ok(found) => {
            Some(format!("durability is not kept: {name} is {found} at {endpoint}, and {value} was asked for"))
        }
        Err(failure) => Some(format!("whether durability is kept is not known: {failure}")),
    })
    .next()
}

fn setting(endpoint: &str, name: &str) -> Result<String, Failure> {
    let address = endpoint.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    let address = address.ok_or_else(|| Failure::new(format_args!("{endpoint} has no address")))?;
    let mut request = Vec::new();
    write_command(&[b"CONFIG", b"GET", name.as_bytes()], &mut request);
    let complete = |answer: &[u8]| !matches!(texts(answer), Ok(None));
    let answer = exchange(address, &request, ANSWER_TIMEOUT, complete);
    let answer = answer.map_err(|error| Failure::io("CONFIG GET", &error))?;
    match texts(&answer).map_err(Failure::new)? {
        Some(found) if found.len() == 2 => Ok(found[1].clone()),
        Some(_) => Err(Failure::new(format_args!("CONFIG GET {name}: there is no such setting"))),
        None => Err(Failure::new("CONFIG GET: the store closed the connection")),
    }
}

/// The texts of an array of texts; `None`: it has not come whole.
fn texts(mut answer: &[u8]) -> Result<Option<Vec<String>>, String> {
    let mut next = || match read(answer) {
        Ok(Some((token, length))) => {
            answer = &answer[length..];
            Ok(Some(token))
        }
        Ok(None) => Ok(None),
        Err(malformed) => Err(malformed.to_string()),
    };
    let count = match next()? {
        Some(Token::Array(count)) => count,
        Some(token) => return Err(described(&token).text().to_owned()),
        None => return Ok(None),
    };
    let mut texts = Vec::new();
    for _ in 0..count {
        match next()? {
            Some(Token::Bulk(text)) => texts.push(String::from_utf8_lossy(text).into_owned()),
            Some(token) => return Err(described(&token).text().to_owned()),
            None => return Ok(None),
        }
    }
    Ok(Some(texts))
}

/// Five requests of at most half a second each, on a key that nobody else has.
pub fn surface(store: SocketAddr, key: &str) -> Vec<Check> {
    let key = key.as_bytes();
    let is = |expected: Token<'static>, said: &'static str| {
        move |token: Token<'_>| match token == expected {
            true => Ok(said.to_owned()),
            false => Err(described(&token)),
        }
    };
    let info = |token: Token<'_>| match token {
        Token::Bulk(text) => Ok(format!("{} bytes", text.len())),
        token => Err(described(&token)),
    };
    vec![
        tried("PING", command(store, &[b"PING"], is(Token::Simple(b"PONG"), "PONG"))),
        tried("SET", command(store, &[b"SET", key, b"probe"], is(Token::Simple(b"OK"), "OK"))),
        tried("GET", command(store, &[b"GET", key], is(Token::Bulk(b"probe"), "the value that was set"))),
        tried("DEL", command(store, &[b"DEL", key], is(Token::Integer(1), "1 key"))),
        tried("INFO", command(store, &[b"INFO"], info)),
    ]
}

/// What is wrong with the answer to a command, if it was something else than it can be.
fn described(token: &Token<'_>) -> Failure {
    match token {
        Token::Error(text) => Failure::new(String::from_utf8_lossy(text)),
        token => Failure::new(format_args!("answered with {}", token.kind())),
    }
}

/// One command; `take` judges the first token of the reply. A failure begins with the
/// command's name.
fn command<T>(
    address: SocketAddr,
    command: &[&[u8]],
    take: impl FnOnce(Token<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let name = String::from_utf8_lossy(command.first().copied().unwrap_or_default());
    let mut request = Vec::new();
    write_command(command, &mut request);
    let complete = |answer: &[u8]| !matches!(read(answer), Ok(None));
    let taken = match exchange(address, &request, ANSWER_TIMEOUT, complete) {
        Ok(answer) => match read(&answer) {
            Ok(Some((token, _))) => take(token),
            Ok(None) => Err(Failure::new("the store closed the connection")),
            Err(malformed) => Err(Failure::new(malformed)),
        },
        Err(error) => return Err(Failure::io(name, &error)),
    };
    taken.map_err(|failure| Failure::new(format_args!("{name}: {failure}")))
}

/// Servers that are not Redis, and where they say their own version.
const OTHERS: [(&str, &str); 2] = [("Valkey", "valkey_version"), ("rsedis", "rsedis_version")];

fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

/// Valkey and rsedis say both: the version of redis that they are compatible with, and their own.
fn version_in(info: &str) -> Option<&str> {
    OTHERS.iter().find_map(|(_, name)| value(info, name)).or_else(|| value(info, "redis_version"))
}

/// The version of a server of which nothing is known but its protocol, with its name where that is not Redis.
pub(super) fn name_and_version_in(info: &str) -> Option<String> {
    let other = OTHERS.iter().find_map(|(server, name)| Some(format!("{server} {}", value(info, name)?)));
    other.or_else(|| value(info, "redis_version").map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use storebench_crds::engine::{ENGINES, Protocol};

    use super::*;

    /// A server that is like Redis would be reported as the Redis that it is like.
    #[test]
    fn where_each_server_tells_its_own_version_is_known() {
        const IN_REDIS_VERSION: [&str; 1] = ["redis"];
        for engine in ENGINES.iter().filter(|engine| engine.protocol == Protocol::Redis) {
            let is_known = OTHERS.iter().any(|(server, _)| server.eq_ignore_ascii_case(engine.name))
                || IN_REDIS_VERSION.contains(&engine.name);
            assert!(is_known, "{}: which field of INFO has its version?", engine.name);
        }
    }

    #[test]
    fn a_version_is_the_servers_own() {
        let redis = "# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:00000000\r\n";
        let valkey = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(version_in(redis), Some("7.0.15"));
        assert_eq!(version_in(valkey), Some("9.1.2"));
        assert_eq!(name_and_version_in(valkey).as_deref(), Some("Valkey 9.1.2"), "not the Redis that it is like");
        assert_eq!(name_and_version_in(redis).as_deref(), Some("7.0.15"));
        assert_eq!(version_in("redis_version:7.0.15\r\nrsedis_version:0.1.0\r\n"), Some("0.1.0"));
        assert_eq!(version_in("# Server\r\n"), None);
    }
}
