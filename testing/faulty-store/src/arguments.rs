//! The store's own command line: where it wants to listen, and the same command line with another port.
//!
//! Promises: nothing but the port of the client address is changed, so that the store behind the proxy is the store
//! that was asked for. In particular etcd goes on advertising the original address, which is now the proxy's.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use crate::faults::Store;

/// Where a store was told to listen, found in its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The addresses that the proxy takes over; never empty.
    pub addresses: Vec<SocketAddr>,
    /// Which argument holds the port, and what is before and after it in that argument.
    place: usize,
    before: String,
    after: String,
}

impl Listen {
    /// Finds the client address. `None`: there is none, so this is no server being started (`etcd --version`).
    /// The error is one line for the user.
    pub fn find(store: Store, arguments: &[OsString]) -> Result<Option<Self>, String> {
        match store {
            Store::Etcd => find_in_etcd(arguments),
            Store::Redis | Store::Valkey => find_in_redis(arguments),
        }
    }

    /// The arguments that make the store listen on `port` instead.
    pub fn rewrite(&self, arguments: &[OsString], port: u16) -> Vec<OsString> {
        let mut arguments = arguments.to_vec();
        if let Some(argument) = arguments.get_mut(self.place) {
            *argument = format!("{}{port}{}", self.before, self.after).into();
        }
        arguments
    }

    /// Where the proxy reaches a store that listens on `port`.
    pub fn upstream(&self, port: u16) -> SocketAddr {
        let ip = match self.addresses.first().map(SocketAddr::ip) {
            Some(IpAddr::V6(ip)) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            Some(ip) if !ip.is_unspecified() => ip,
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        SocketAddr::new(ip, port)
    }
}

/// etcd uses Go's flags: one dash or two, value after `=` or in the next argument, the last one counts.
fn find_in_etcd(arguments: &[OsString]) -> Result<Option<Listen>, String> {
    const FLAG: &str = "listen-client-urls";
    let mut found = None;
    for (at, argument) in arguments.iter().enumerate() {
        let Some(name) = argument.to_str().and_then(|a| a.strip_prefix("--").or_else(|| a.strip_prefix('-'))) else {
            continue;
        };
        if name == FLAG {
            let url = arguments.get(at + 1).ok_or_else(|| format!("--{FLAG} has no value"))?;
            found = Some((at + 1, String::new(), text(url)?));
        } else if let Some(url) = name.strip_prefix(FLAG).and_then(|rest| rest.strip_prefix('=')) {
            found = Some((at, format!("--{FLAG}="), url.to_owned()));
        }
    }
    let Some((place, flag, url)) = found else {
        return Ok(None);
    };
    if url.contains(',') {
        return Err(format!("--{FLAG} may name one URL here, not {url:?}"));
    }
    let refuse = || format!("--{FLAG} must be http://HOST:PORT here, not {url:?}");
    let authority = url.strip_prefix("http://").ok_or_else(refuse)?;
    let (authority, slash) = authority.strip_suffix('/').map_or((authority, ""), |a| (a, "/"));
    let (host, port) = authority.rsplit_once(':').ok_or_else(refuse)?;
    let port: u16 = port.parse().map_err(|_| refuse())?;
    Ok(Some(Listen {
        addresses: vec![resolve(host.trim_start_matches('[').trim_end_matches(']'), port)?],
        place,
        before: format!("{flag}http://{host}:"),
        after: slash.to_owned(),
    }))
}

/// Redis takes lines of its configuration as options: `--port 6379 --bind 127.0.0.1 -::1`, the last one counts.
fn find_in_redis(arguments: &[OsString]) -> Result<Option<Listen>, String> {
    let mut found = None;
    let mut hosts: Vec<String> = Vec::new();
    for (at, argument) in arguments.iter().enumerate() {
        let option = argument.to_str().unwrap_or_default();
        if option.eq_ignore_ascii_case("--port") {
            let value = text(arguments.get(at + 1).ok_or("--port has no value")?)?;
            let port: u16 = value.parse().map_err(|_| format!("--port must be a port, not {value:?}"))?;
            found = Some((at + 1, port));
        } else if option.eq_ignore_ascii_case("--bind") {
            let values = arguments.iter().skip(at + 1).map_while(|a| a.to_str().filter(|a| !a.starts_with("--")));
            hosts = values.flat_map(str::split_whitespace).map(str::to_owned).collect();
        }
    }
    // Port 0 turns TCP off, so there is nothing to stand in front of.
    let Some((place, port)) = found.filter(|(_, port)| *port != 0) else {
        return Ok(None);
    };
    let mut addresses = Vec::new();
    for host in &hosts {
        // A dash before an address means: if the machine has it. Such a one is left to the store.
        match host.as_str() {
            "*" => addresses.push(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)),
            "::*" => addresses.push(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)),
            optional if optional.starts_with('-') => {}
            host => addresses.push(resolve(host, port)?),
        }
    }
    if addresses.is_empty() {
        // This is an instrument for loopback: without an address it takes loopback, where Redis would take all.
        addresses.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    Ok(Some(Listen { addresses, place, before: String::new(), after: String::new() }))
}

fn text(argument: &OsStr) -> Result<String, String> {
    argument.to_str().map(str::to_owned).ok_or_else(|| format!("{argument:?} is not UTF-8"))
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let mut addresses = (host, port).to_socket_addrs().map_err(|e| format!("cannot resolve {host:?}: {e}"))?;
    addresses.next().ok_or_else(|| format!("{host:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn found(store: Store, line: &str) -> (Listen, String) {
        let listen = Listen::find(store, &words(line)).unwrap().unwrap();
        let rewritten = listen.rewrite(&words(line), 7);
        let joined = rewritten.join(OsStr::new(" ")).into_string().unwrap();
        (listen, joined)
    }

    #[test]
    fn etcd_listens_elsewhere_and_advertises_the_proxy() {
        for (line, expected) in [
            (
                "--name a --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379",
                "--name a --listen-client-urls http://127.0.0.1:7 --advertise-client-urls http://127.0.0.1:2379",
            ),
            ("--listen-client-urls=http://127.0.0.1:2379/", "--listen-client-urls=http://127.0.0.1:7/"),
            ("-listen-client-urls http://127.0.0.1:2379", "-listen-client-urls http://127.0.0.1:7"),
            (
                "--listen-client-urls http://127.0.0.1:1 --listen-client-urls http://127.0.0.1:2379 --name b",
                "--listen-client-urls http://127.0.0.1:1 --listen-client-urls http://127.0.0.1:7 --name b",
            ),
        ] {
            let (listen, rewritten) = found(Store::Etcd, line);
            assert_eq!(rewritten, expected);
            assert_eq!(listen.addresses, ["127.0.0.1:2379".parse().unwrap()]);
            assert_eq!(listen.upstream(7), "127.0.0.1:7".parse().unwrap());
        }
        let (listen, rewritten) = found(Store::Etcd, "--listen-client-urls http://[::1]:2379");
        assert_eq!((listen.addresses[0], rewritten.contains("http://[::1]:7")), ("[::1]:2379".parse().unwrap(), true));
    }

    #[test]
    fn redis_listens_elsewhere() {
        let (listen, rewritten) =
            found(Store::Redis, "--port 6379 --bind 127.0.0.1 ::1 -10.9.9.9 --dir /tmp --save  --appendonly yes");
        assert_eq!(rewritten, "--port 7 --bind 127.0.0.1 ::1 -10.9.9.9 --dir /tmp --save  --appendonly yes");
        assert_eq!(listen.addresses, ["127.0.0.1:6379".parse().unwrap(), "[::1]:6379".parse().unwrap()]);

        let (listen, rewritten) = found(Store::Valkey, "--bind * --port 1 --port 6379");
        assert_eq!(
            (listen.upstream(7), rewritten.as_str()),
            ("127.0.0.1:7".parse().unwrap(), "--bind * --port 1 --port 7")
        );
        assert_eq!(found(Store::Valkey, "--port 6379").0.addresses, ["127.0.0.1:6379".parse().unwrap()]);
    }

    #[test]
    fn no_address_is_no_server() {
        for store in [Store::Etcd, Store::Redis, Store::Valkey] {
            for line in
                ["--version", "-v", "--help", "--advertise-client-urls http://127.0.0.1:1 --portal 5", "--port 0"]
            {
                assert_eq!(Listen::find(store, &words(line)), Ok(None), "{line}");
            }
        }
    }

    #[test]
    fn an_address_that_cannot_be_taken_over_is_refused() {
        for url in
            ["https://127.0.0.1:1", "unix://a", "http://127.0.0.1", "http://127.0.0.1:x", "http://a:1,http://b:2"]
        {
            let error = Listen::find(Store::Etcd, &words(&format!("--listen-client-urls {url}"))).unwrap_err();
            assert!(error.contains(url) && !error.contains('\n'), "{error}");
        }
        assert!(Listen::find(Store::Etcd, &words("--listen-client-urls")).is_err());
        assert!(Listen::find(Store::Redis, &words("--port")).is_err());
        assert!(Listen::find(Store::Redis, &words("--port many")).is_err());
    }
}
