//! Who may call, and how much each may take: names, tokens and quotas from a file (`--clients`). Without the file everybody may do everything.
//!
//! ```toml
//! [[client]]
//! name = "mirror-1"
//! token-sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
//! may = ["read"]                 # or "publish"; both without this line
//! calls-max = 8                  # under way at a time, on all its connections; without it as many as there is room for
//! bytes-per-second = 20_000_000  # of messages in both directions together; without it as fast as it goes
//! ```
//!
//! A client shows its token as `authorization: Bearer TOKEN`; with `certificate = "NAME"` it is known by the common name of its certificate
//! instead. The file holds hashes, so that whoever reads it cannot call. What a client takes beyond its bytes a second it waits for: nothing
//! is refused for that, and nothing piles up. Health and reflection, which tell nothing of blocks, are open to everybody, and so are metrics.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use service_kit::grpc::{Code, Peer, Status};
use tokio::time::Instant;

/// A client that took nothing for a while may take so much at once.
const BURST: Duration = Duration::from_secs(1);

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Publish blocks.
    Publish,
    /// Read blocks and proofs. Status is for all who are known.
    Read,
}

/// Why a file is none of clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Its name.
        path: PathBuf,
        /// What the file system said.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{}: {what}", path.display())]
    Text {
        /// Its name.
        path: PathBuf,
        /// What is wrong, with its place.
        what: String,
    },
    /// A client cannot be known, or not be told from another.
    #[error("{}: client {name:?}: {what}", path.display())]
    Client {
        /// The file's name.
        path: PathBuf,
        /// The client's.
        name: String,
        /// What is wrong, and what to do.
        what: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    client: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: String,
    token_sha256: Option<String>,
    certificate: Option<String>,
    may: Option<Vec<Right>>,
    calls_max: Option<u32>,
    bytes_per_second: Option<u64>,
}

/// A client that is known.
#[derive(Debug)]
pub struct Client {
    /// As logs say it.
    pub name: String,
    rights: Vec<Right>,
    calls_max: u32,
    calls: AtomicU32,
    bytes_per_second: Option<u64>,
    /// What it has taken is paid for then.
    paid: Mutex<Instant>,
}

/// One of them, where it stands in the file.
pub type ClientId = usize;

/// All of them.
#[derive(Debug, Default)]
pub struct Clients {
    clients: Vec<Arc<Client>>,
    by_token: HashMap<[u8; 32], ClientId>,
    by_certificate: HashMap<String, ClientId>,
}

impl Clients {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, ClientsError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ClientsError::File { path: path.to_owned(), source })?;
        let document: Document = toml::from_str(&text).map_err(|error| ClientsError::Text {
            path: path.to_owned(),
            what: error.to_string().replace('\n', " "),
        })?;
        let mut clients = Self::default();
        for entry in document.client {
            let name = entry.name.clone();
            clients.add(entry).map_err(|what| ClientsError::Client { path: path.to_owned(), name, what })?;
        }
        Ok(clients)
    }

    fn add(&mut self, entry: Entry) -> Result<(), &'static str> {
        if entry.bytes_per_second == Some(0) || entry.calls_max == Some(0) {
            return Err("calls-max and bytes-per-second must be 1 at least; leave them out for no limit");
        }
        let id = self.clients.len();
        self.clients.push(Arc::new(Client {
            name: entry.name,
            rights: entry.may.unwrap_or_else(|| vec![Right::Publish, Right::Read]),
            calls_max: entry.calls_max.unwrap_or(u32::MAX),
            calls: AtomicU32::new(0),
            bytes_per_second: entry.bytes_per_second,
            paid: Mutex::new(Instant::now()),
        }));
        let is_twice = match (entry.token_sha256, entry.certificate) {
            (Some(hash), None) => {
                let hash = from_hexadecimal(&hash).ok_or("token-sha256 must be 64 hexadecimal digits")?;
                self.by_token.insert(hash, id).is_some()
            }
            (None, Some(certificate)) => self.by_certificate.insert(certificate, id).is_some(),
            _ => return Err("it needs one of token-sha256 and certificate"),
        };
        if is_twice { Err("another client has the same token or certificate") } else { Ok(()) }
    }

    /// Begins a call of a client that was admitted.
    pub fn begin(&self, admitted: Option<ClientId>) -> Result<Call, Status> {
        let client = admitted.and_then(|id| self.clients.get(id));
        let client = client.ok_or_else(|| Status::new(Code::Unauthenticated, "nobody was admitted"))?;
        let one_more = |calls: u32| (calls < client.calls_max).then(|| calls + 1);
        if client.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            let message = format!("client {} has {} calls under way, as many as it may", client.name, client.calls_max);
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        Ok(Call(Some(Arc::clone(client))))
    }

    /// Who shows this, if he may do it. `None`: whoever is known may.
    pub fn admit(&self, headers: &HeaderMap, peer: &Peer, right: Option<Right>) -> Result<ClientId, Status> {
        let id = self.find(headers, peer)?;
        match self.clients.get(id).filter(|client| right.is_some_and(|right| !client.rights.contains(&right))) {
            None => Ok(id),
            Some(client) => {
                let message = format!("client {} may not do this; --clients says who may", client.name);
                Err(Status::new(Code::PermissionDenied, message))
            }
        }
    }

    fn find(&self, headers: &HeaderMap, peer: &Peer) -> Result<ClientId, Status> {
        if let Some(shown) = headers.get(AUTHORIZATION) {
            let token = shown.as_bytes().split_first_chunk::<7>();
            let token = token.and_then(|(kind, token)| kind.eq_ignore_ascii_case(b"Bearer ").then_some(token));
            let hash = token.and_then(|token| <[u8; 32]>::try_from(digest(&SHA256, token).as_ref()).ok());
            let client = hash.and_then(|hash| self.by_token.get(&hash).copied());
            return client.ok_or_else(|| Status::new(Code::Unauthenticated, "the token is not known"));
        }
        let by_certificate = peer.common_name.as_ref().and_then(|name| self.by_certificate.get(name).copied());
        let message = "no client is known by this; show a token as `authorization: Bearer TOKEN`, or a certificate";
        by_certificate.ok_or_else(|| Status::new(Code::Unauthenticated, message))
    }
}

fn from_hexadecimal(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    (digits.len() == 64).then(|| bytes.try_into().ok())?
}

/// A call under way; of nobody in particular, where nobody is asked for a name.
#[derive(Debug, Default)]
pub struct Call(Option<Arc<Client>>);

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(client) = &self.0 {
            client.calls.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Call {
    /// Whose it is: the name of a client that is known, and otherwise where the call comes from.
    pub fn client(&self, peer: &Peer) -> String {
        match &self.0 {
            Some(client) => format!("client {}", client.name),
            None => peer.origin(),
        }
    }

    /// So many bytes have gone, or come.
    pub fn charge(&self, bytes: usize) {
        let Some((client, rate)) = self.0.as_ref().and_then(|client| Some((client, client.bytes_per_second?))) else {
            return;
        };
        let takes = Duration::from_micros((bytes as u64).saturating_mul(1_000_000) / rate);
        let mut paid = client.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        *paid = (*paid).max(now.checked_sub(BURST).unwrap_or(now)) + takes;
    }

    /// When what was taken is paid for, if that is still to come.
    pub fn paid(&self) -> Option<Instant> {
        let client = self.0.as_ref().filter(|client| client.bytes_per_second.is_some())?;
        let paid = *client.paid.lock().unwrap_or_else(PoisonError::into_inner);
        (paid > Instant::now()).then_some(paid)
    }

    /// Returns when what was taken is paid for.
    pub async fn turn(&self) {
        while let Some(paid) = self.paid() {
            tokio::time::sleep_until(paid).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_a_name_is_where_it_comes_from() {
        let peer = Peer { address: "[2001:db8:1:2:3:4:5:6]:1".into(), ..Peer::default() };
        assert_eq!(Call::default().client(&peer), "2001:db8:1:2::");
    }

    const HASH_OF_TEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn read(text: &str) -> Result<Clients, String> {
        let folder = harness::folder();
        let path = folder.path().join("clients.toml");
        std::fs::write(&path, text).unwrap();
        Clients::open(&path).map_err(|error| error.to_string())
    }

    fn with(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[test]
    fn a_client_is_known_by_its_token_or_certificate_and_may_do_what_the_file_says() {
        let text = format!(
            "[[client]]\nname = \"a\"\ntoken-sha256 = \"{HASH_OF_TEST}\"\nmay = [\"read\"]\ncalls-max = 1\n\
             [[client]]\nname = \"b\"\ncertificate = \"node\""
        );
        let clients = read(&text).unwrap();
        let (nobody, node) = (Peer::default(), Peer { common_name: Some("node".into()), ..Peer::default() });
        let code = |headers: &HeaderMap, peer, right| {
            let call = clients.admit(headers, peer, Some(right)).and_then(|id| clients.begin(Some(id)));
            call.map_err(|status| status.code)
        };
        let held = code(&with("test"), &nobody, Right::Read).unwrap();
        assert_eq!(code(&with("test"), &nobody, Right::Read).err(), Some(Code::ResourceExhausted), "a second call");
        drop(held);
        assert!(code(&with("test"), &nobody, Right::Read).is_ok());
        assert_eq!(code(&with("test"), &nobody, Right::Publish).err(), Some(Code::PermissionDenied));
        assert_eq!(
            code(&with("tess"), &node, Right::Read).err(),
            Some(Code::Unauthenticated),
            "whatever else it shows"
        );
        assert_eq!(code(&HeaderMap::new(), &nobody, Right::Read).err(), Some(Code::Unauthenticated));
        assert!(code(&HeaderMap::new(), &node, Right::Publish).is_ok());
        assert!(clients.begin(None).is_err(), "nobody was admitted");
    }

    #[test]
    fn mistakes_are_told_with_the_client() {
        for (text, said) in [
            ("[[client]]\nname = \"a\"", "client \"a\": it needs one of"),
            ("[[client]]\nname = \"a\"\ntoken-sha256 = \"9f\"", "client \"a\": token-sha256 must be"),
            ("[[client]]\nname = \"a\"\ncertificate = \"b\"\ncalls-max = 0", "must be 1 at least"),
            (
                "[[client]]\nname = \"a\"\ncertificate = \"b\"\n[[client]]\nname = \"c\"\ncertificate = \"b\"",
                "\"c\": another",
            ),
            ("[[client]]\nname = \"a\"\ntoken = \"b\"", "unknown field `token`"),
            ("[[client]]\nname = \"a\"\nmay = [\"write\"]", "unknown variant `write`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[tokio::test]
    async fn who_takes_more_than_its_bytes_a_second_waits_on_all_its_calls() {
        let text = format!("[[client]]\nname = \"a\"\ntoken-sha256 = \"{HASH_OF_TEST}\"\nbytes-per-second = 100_000");
        let clients = read(&text).unwrap();
        let id = clients.admit(&with("test"), &Peer::default(), None).ok();
        let call = || clients.begin(id).map_err(|_| ()).unwrap();
        let (one, two) = (call(), call());
        let began = Instant::now();
        two.turn().await;
        assert!(one.paid().is_none());
        one.charge(30_000);
        two.turn().await;
        assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
        assert!(one.paid().is_none());
    }
}
