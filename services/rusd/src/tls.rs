//! TLS between members.

use std::sync::Arc;

use service_kit::tls::{ClientTls, Tls, TlsError};

use crate::settings::PeerTlsFiles;

/// Both ends of connections between members.
pub fn open_peer(files: PeerTlsFiles) -> Result<replog::runtime::tcp::Tls, TlsError> {
    let server = Tls::open_allowing(files.server, files.allowed.clone())?;
    let client = ClientTls::open_allowing(files.client, files.allowed)?;
    Ok(replog::runtime::tcp::Tls {
        server: Arc::new(move || server.config()),
        client: Arc::new(move || client.config()),
        server_name: None,
    })
}
