//! An S3 server, versitygw on a folder.

use harness::{Process, TempDir, command, folder, free_address, peer, until};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use walsync::config::S3Options;

pub const KEY: &str = "walsync-test";
pub const SECRET: &str = "walsync-secret";

pub struct Gateway {
    pub process: Process,
    pub port: u16,
    scheme: &'static str,
    folder: TempDir,
}

impl Gateway {
    /// With a bucket `bucket`.
    pub fn start() -> Gateway {
        Gateway::start_with("http", &[])
    }

    /// The same over TLS, with a certificate and its key.
    pub fn start_with_certificate((certificate, key): (std::path::PathBuf, std::path::PathBuf)) -> Gateway {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        Gateway::start_with("https", &["--cert", &text(&certificate), "--key", &text(&key)])
    }

    fn start_with(scheme: &'static str, words: &[&str]) -> Gateway {
        let folder = folder();
        // Metadata lie beside the files: not every file system has extended attributes.
        let (data, metadata) = (folder.path().join("data"), folder.path().join("metadata"));
        std::fs::create_dir_all(data.join("bucket")).unwrap();
        std::fs::create_dir(&metadata).unwrap();
        let address = free_address();
        let mut command = command(peer("versitygw", "versitygw"));
        command.args(["--access", KEY, "--secret", SECRET, "--region", "us-east-1", "--port", &address.to_string()]);
        command.args(words).args(["posix", "--sidecar"]).args([metadata, data]);
        let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        until("the gateway", || TcpStream::connect(address).is_ok());
        Gateway { process, port: address.port(), scheme, folder }
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub fn options(&self) -> S3Options {
        S3Options {
            endpoint: Some(self.endpoint()),
            access_key_id: Some(KEY.into()),
            secret_access_key: Some(SECRET.into()),
            ..S3Options::default()
        }
    }

    /// Of uploads that are not complete.
    pub fn parts(&self) -> usize {
        fn files(folder: &Path) -> usize {
            let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
            let of = |path: std::path::PathBuf| if path.is_dir() { files(&path) } else { 1 };
            entries.map(|entry| of(entry.unwrap().path())).sum()
        }
        files(&self.folder.path().join("data/bucket/.sgwtmp/multipart"))
    }
}

/// With credentials of the gateway.
pub fn with_credentials(command: &mut Command) -> &mut Command {
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET).env_remove("AWS_CA_BUNDLE")
}
