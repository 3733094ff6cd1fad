//! TLS: what the settings make of certificate files, and one connection's side of it, without its socket.
//!
//! Files are read at the start and whenever CONFIG SET names one of the parameters, as in Redis: whoever renews certificates says so.
//! What cannot be used is refused, and what was there before stays.

use std::io::{self, ErrorKind, Read as _, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use service_kit::tls::{ClientTls, ClientTlsFiles, Protocol, TlsError, TlsFiles};

use crate::settings::Settings;

/// Encrypted at a time, bytes.
const PIECE_BYTES: usize = 32 << 10;

/// What is shown to those who connect, and to the master; nothing where TLS is not wanted.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    server: Option<Arc<ServerConfig>>,
    client: Option<Arc<ClientConfig>>,
}

fn path(settings: &Settings, name: &str) -> Option<PathBuf> {
    Some(settings.text(name)).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// `tls-protocols`: versions, or none for all that there are.
fn protocol(text: &str) -> Result<Protocol, String> {
    let (mut has_12, mut has_13) = (false, false);
    for word in text.split_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => has_12 = true,
            "tlsv1.3" => has_13 = true,
            _ => return Err(format!("tls-protocols {word}: this server speaks TLSv1.2 and TLSv1.3")),
        }
    }
    Ok(Protocol { only_12: has_12 && !has_13, only_13: has_13 && !has_12, ..Protocol::default() })
}

/// What is wrong with the files: the parameters that name them, and what to do. `whose`: how the names of certificate and key begin.
fn told(settings: &Settings, whose: &str, error: &TlsError) -> String {
    let named = |end: &str| {
        let name = format!("{whose}-{end}");
        let file = settings.text(&name);
        format!("{name} {file}")
    };
    match error {
        TlsError::Read(file, _) | TlsError::Empty(file) => {
            let names = [format!("{whose}-cert-file"), format!("{whose}-key-file"), "tls-ca-cert-file".to_owned()];
            let name = names.iter().find(|name| settings.text(name) == file).map_or("TLS", String::as_str);
            let is_encrypted = std::fs::read_to_string(file).is_ok_and(|text| text.contains("ENCRYPTED"));
            match name.ends_with("key-file") {
                true if is_encrypted => format!(
                    "{name} {file}: the key has a password, and this server asks for none: openssl rsa -in {file} -out FILE \
                     writes it without"
                ),
                true => format!("{name} {error}: a private key in PEM form is expected"),
                false => format!("{name} {error}"),
            }
        }
        TlsError::Refused(why) if why.contains("KeyMismatch") => format!(
            "{} and {} do not belong together: name the key that the certificate was made for",
            named("cert-file"),
            named("key-file")
        ),
        TlsError::Refused(why) if why.contains("UnsupportedCertVersion") => format!(
            "{}: a certificate of X.509 version 1: make one of version 3 (openssl x509 -req with -extfile)",
            named("cert-file")
        ),
        other => format!("{}, {}: {other}", named("cert-file"), named("key-file")),
    }
}

impl Tls {
    /// Reads the files that the settings name, if `tls-port` or `tls-replication` asks for TLS. Errors: one line with what to mend.
    pub fn open(settings: &Settings) -> Result<Self, String> {
        let is_replicated = settings.is_yes("tls-replication");
        if settings.integer("tls-port") == 0 && !is_replicated {
            return Ok(Self::default());
        }
        let needed = |name: &str| path(settings, name).ok_or(format!("no {name} is configured, and TLS needs one"));
        let (certificate, key) = (needed("tls-cert-file")?, needed("tls-key-file")?);
        let authority = path(settings, "tls-ca-cert-file");
        let asks_clients = settings.text("tls-auth-clients");
        if authority.is_none() && (asks_clients != "no" || is_replicated) {
            return Err("no tls-ca-cert-file is configured, and tls-auth-clients and tls-replication need one: name it, or set both \
                        to no"
                .to_owned());
        }
        let protocol = protocol(settings.text("tls-protocols"))?;
        let own = match (path(settings, "tls-client-cert-file"), path(settings, "tls-client-key-file")) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => (certificate.clone(), key.clone()),
            _ => return Err("tls-client-cert-file and tls-client-key-file go together: name both or none".to_owned()),
        };
        // Masters are known by who has signed them, as in Redis: a certificate is for any host.
        let client = ClientTls::open_for_any_host(ClientTlsFiles {
            authority: authority.clone(),
            certificate: Some(own),
            protocol: protocol.clone(),
        });
        let files = TlsFiles {
            certificate,
            key,
            client_authority: authority.filter(|_| asks_clients != "no"),
            revocations: None,
            self_signed: None,
            protocol,
        };
        let server = if asks_clients == "optional" {
            service_kit::tls::Tls::open_optional(files)
        } else {
            service_kit::tls::Tls::open(files)
        };
        let server = server.map_err(|error| told(settings, "tls", &error))?;
        let whose = if settings.text("tls-client-cert-file").is_empty() { "tls" } else { "tls-client" };
        let client = client.map_err(|error| told(settings, whose, &error))?;
        let mut server = ServerConfig::clone(&server.config());
        // There is one protocol on this port: whoever names another, or none, is served.
        server.alpn_protocols.clear();
        Ok(Self { server: Some(Arc::new(server)), client: Some(client.config()) })
    }

    /// This side of a client's connection.
    pub fn accept(&self) -> io::Result<TlsStream> {
        let config = self.server.clone().ok_or(ErrorKind::NotConnected)?;
        ServerConnection::new(config).map(|connection| TlsStream::new(connection.into())).map_err(io::Error::other)
    }

    /// This side of the connection to a host.
    pub fn connect(&self, host: &str) -> io::Result<TlsStream> {
        let config = self.client.clone().ok_or(ErrorKind::NotConnected)?;
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(config, name)
            .map(|connection| TlsStream::new(connection.into()))
            .map_err(io::Error::other)
    }
}

/// What is between a socket's bytes and a client's: a handshake first, then records.
pub struct TlsStream {
    connection: Connection,
    /// Of what is being sent so much was encrypted, and is not with the socket as a whole.
    held: usize,
}

impl TlsStream {
    fn new(connection: Connection) -> Self {
        Self { connection, held: 0 }
    }

    /// This server has connected.
    pub fn is_outgoing(&self) -> bool {
        matches!(self.connection, Connection::Client(_))
    }

    /// Something waits for the socket.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Appends to `into` all that a socket's bytes say; whether the other side has said that it ends. What is to be answered waits for
    /// [`TlsStream::flush`], also where it is an alert about an error.
    pub fn take(&mut self, mut bytes: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes)? == 0 {
                return Ok(true);
            }
            let state = self.connection.process_new_packets().map_err(io::Error::other)?;
            let (at, count) = (into.len(), state.plaintext_bytes_to_read());
            if count > 0 {
                into.resize(at + count, 0);
                self.connection.reader().read_exact(&mut into[at..])?;
            }
            if state.peer_has_closed() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives the socket what it takes.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends; how many bytes the socket has. Those that it has in part count once it has them all: the next call must begin with
    /// the same bytes.
    pub fn send(&mut self, bytes: &[u8], socket: &mut impl Write) -> io::Result<usize> {
        if self.held == 0 {
            self.flush(socket)?;
            if self.wants_write() {
                return Ok(0);
            }
            self.held = self.connection.writer().write(&bytes[..bytes.len().min(PIECE_BYTES)])?;
        }
        self.flush(socket)?;
        match self.wants_write() {
            true => Ok(0),
            false => Ok(std::mem::take(&mut self.held)),
        }
    }

    /// Says that there will be nothing more, if the socket takes that.
    pub fn close(&mut self, socket: &mut impl Write) {
        self.connection.send_close_notify();
        drop(self.flush(socket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::find;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in pairs {
            settings.set(find(name.as_bytes()).unwrap(), &[(*value).to_owned()]).unwrap();
        }
        settings
    }

    /// A socket that takes so many bytes before it is full.
    struct Narrow {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn open(authority: &harness::Authority) -> Tls {
        authority.sign_as("server", |parameters| parameters.subject_alt_names.clear());
        Tls::open(&settings(&[
            ("tls-replication", "yes"),
            ("tls-cert-file", &authority.file("server.pem")),
            ("tls-key-file", &authority.file("server.key")),
            ("tls-ca-cert-file", &authority.file("ca.pem")),
        ]))
        .unwrap()
    }

    /// However little a socket takes at a time, the other side reads what was sent, and nothing counts as sent that is not with the
    /// socket.
    #[test]
    fn bytes_pass_through_a_narrow_socket_whole() {
        let tls = open(&harness::Authority::new());
        // The certificate is for no host at all: masters are known by who has signed them.
        let (mut here, mut there) = (tls.accept().unwrap(), tls.connect("127.0.0.1").unwrap());
        let sent: Vec<u8> = (0..200_000u32).map(|number| (number % 251) as u8).collect();
        let (mut at, mut read) = (0, Vec::new());
        for turn in 0..10_000 {
            let mut narrow = Narrow { taken: Vec::new(), room: 1 + turn % 300 };
            at += there.send(&sent[at..], &mut narrow).unwrap();
            here.take(&narrow.taken, &mut read).unwrap();
            let mut back = Narrow { taken: Vec::new(), room: 1 + turn % 200 };
            here.flush(&mut back).unwrap();
            there.take(&back.taken, &mut Vec::new()).unwrap();
            if at == sent.len() {
                assert!(!there.wants_write());
                break;
            }
        }
        assert_eq!((at, read.len()), (sent.len(), sent.len()));
        assert!(read == sent);
    }

    #[test]
    fn a_master_that_somebody_else_has_signed_is_refused() {
        let (ours, theirs) = (open(&harness::Authority::new()), open(&harness::Authority::new()));
        let (mut here, mut there) = (ours.connect("127.0.0.1").unwrap(), theirs.accept().unwrap());
        let mut said = Narrow { taken: Vec::new(), room: 1 << 20 };
        here.flush(&mut said).unwrap();
        there.take(&said.taken, &mut Vec::new()).unwrap();
        let mut answered = Narrow { taken: Vec::new(), room: 1 << 20 };
        there.flush(&mut answered).unwrap();
        let error = here.take(&answered.taken, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (pairs, expected) in [
            (&[("tls-replication", "yes")][..], "no tls-cert-file is configured"),
            (&[("tls-replication", "yes"), ("tls-cert-file", "/c")], "no tls-key-file is configured"),
            (
                &[("tls-replication", "yes"), ("tls-cert-file", "/c"), ("tls-key-file", "/k")],
                "no tls-ca-cert-file is configured",
            ),
            (
                &[
                    ("tls-replication", "yes"),
                    ("tls-cert-file", "/c"),
                    ("tls-key-file", "/k"),
                    ("tls-ca-cert-file", "/a"),
                ],
                "/c",
            ),
        ] {
            let error = Tls::open(&settings(pairs)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(protocol("TLSv1.1").unwrap_err().contains("TLSv1.2"));
        assert!(protocol("TLSv1.3").unwrap().only_13);
        assert!(Tls::open(&Settings::default()).unwrap().accept().is_err());
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_parameter_and_the_remedy() {
        let authority = harness::Authority::new();
        let write = |name: &str, text: &str| {
            std::fs::write(authority.file(name), text).unwrap();
            authority.file(name)
        };
        authority.sign("one");
        authority.sign("other");
        let first_version = write("first-version.pem", FIRST_VERSION);
        let encrypted = write(
            "encrypted.key",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n-----END ENCRYPTED PRIVATE KEY-----\n",
        );
        let (certificate, key, other_key) =
            (authority.file("one.pem"), authority.file("one.key"), authority.file("other.key"));
        let missing = authority.file("missing.key");
        for (certificate, key, expected) in [
            (
                &first_version,
                &key,
                format!(
                    "tls-cert-file {first_version}: a certificate of X.509 version 1: make one of version 3 (openssl x509 -req with -extfile)"
                ),
            ),
            (
                &certificate,
                &encrypted,
                format!(
                    "tls-key-file {encrypted}: the key has a password, and this server asks for none: openssl rsa -in {encrypted} -out FILE writes it without"
                ),
            ),
            (
                &certificate,
                &other_key,
                format!(
                    "tls-cert-file {certificate} and tls-key-file {other_key} do not belong together: name the key that the certificate was made for"
                ),
            ),
            (
                &certificate,
                &missing,
                format!(
                    "tls-key-file {missing}: I/O error: No such file or directory (os error 2): a private key in PEM form is expected"
                ),
            ),
            (&key, &key, format!("tls-cert-file {key} has no certificate in PEM form")),
        ] {
            let error = Tls::open(&settings(&[
                ("tls-replication", "yes"),
                ("tls-cert-file", certificate),
                ("tls-key-file", key),
                ("tls-ca-cert-file", &authority.file("ca.pem")),
            ]));
            assert_eq!(error.unwrap_err(), expected);
        }
    }

    /// As `openssl x509 -req` makes it without -extfile.
    const FIRST_VERSION: &str = "-----BEGIN CERTIFICATE-----\n\
         MIIBFTCBuwIUfkhiekgMdexXKqf0TgiKp2wbFe8wCgYIKoZIzj0EAwIwDDEKMAgG\n\
         A1UEAwwBczAgFw0yNjExMjkyMzEzMjZaGA8yMTI2MTEwNTIzMTMyNlowDDEKMAgG\n\
         A1UEAwwBczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABMveA1AMnuVa8yXQ8wDB\n\
         aGNuUvenq+jceKX07p3M2HWk/opDP0h9h9VIJ+QcjkfIcFBRAxZJ+KVWmmrHBvhd\n\
         E1cwCgYIKoZIzj0EAwIDSQAwRgIhAPoSBP0gufZroG8PYWWO/429WSboWnW7wPkE\n\
         swVUVhYrAiEAm9RqvYLTvgi60V1UhfmMau6AvM73HvBpVciVPldslGc=\n\
         -----END CERTIFICATE-----\n";
}
