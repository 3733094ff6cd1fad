//! Members that speak nothing but TLS, with each other too, and ask clients for certificates.

use std::path::PathBuf;
use std::process::Command;

use d_engine_client::{Client, Options, ReadLevel, Tls};
use harness::Authority;

use crate::group::{Group, PATIENCE, PROGRAM};

#[tokio::test]
async fn clients_with_a_certificate_are_served_and_others_are_not() {
    let authority = Authority::new();
    let ca = authority.path();
    let [(server, server_key), (client, client_key)] = ["server", "client"].map(|name| authority.sign(name));
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let flags = [
        ("--tls-certificate", &server),
        ("--tls-key", &server_key),
        ("--tls-client-authority", &ca),
        ("--peer-tls-certificate", &server),
        ("--peer-tls-key", &server_key),
        ("--peer-tls-authority", &ca),
    ];
    let flags: Vec<String> = flags.into_iter().flat_map(|(flag, path)| [flag.to_owned(), text(path)]).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let tls = Tls::open(&ca, Some((&client, &client_key))).unwrap();
    let group = Group::start_by_tls(3, &flags, Some(tls));
    let leader = group.leader().await;
    let own = group.client().await;
    let mut watch = own.watch_prefix("k").await.unwrap();
    let revision = own.put("k", "v").await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().revision, revision);
    let seen = own.get_with("k", ReadLevel::Linearizable).await.unwrap();
    assert_eq!(seen.value.unwrap().revision, revision);

    let address = &group.addresses[leader - 1..leader];
    let refused = |options: Options| async move {
        let options = Options { connect_timeout: PATIENCE, ..options };
        match Client::connect(address, options).await {
            Ok(client) => client.get("k").await.map(drop).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    // In the open, without a certificate, and of somebody who does not trust the server.
    let said = refused(Options::default()).await;
    assert!(said.contains("does the member speak without TLS") && !said.contains("outcome"), "{said}");
    refused(Options { tls: Some(Tls::open(&ca, None).unwrap()), ..Options::default() }).await;
    let other = Authority::new();
    let stranger = Tls::open(&other.path(), Some((&client, &client_key))).unwrap();
    let said = refused(Options { tls: Some(stranger), ..Options::default() }).await;
    assert!(said.contains("invalid peer certificate"), "{said}");
    // By TLS, to one that speaks in the open.
    let in_the_open = Group::start(1);
    in_the_open.leader().await;
    let tls = Some(Tls::open(&ca, None).unwrap());
    let said = Client::connect(&in_the_open.addresses, Options { tls, ..Options::default() }).await.err().unwrap();
    assert!(said.to_string().contains("does the member speak TLS"), "{said}");

    let by_tls = ["--tls-authority", &text(&ca), "--tls-certificate", &text(&client), "--tls-key", &text(&client_key)];
    let run = |verb: &[&str], rest: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(verb).args(["--endpoints", &group.addresses.join(",")]).args(by_tls).args(rest);
        harness::output(&mut command)
    };
    assert!(run(&["ctl"], &["status"]).contains("leader"));
    assert!(run(&["ctl"], &["get", "k"]).contains('v'));
    for door in ["unary", "stream"] {
        let said = run(&["bench"], &["--total", "50", "--door", door, "put"]);
        assert!(said.contains("requests: 50"), "{said}");
    }
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let folder = harness::folder();
    let path = folder.path().join("ca.pem");
    for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&path, text).unwrap();
        let output = Command::new(PROGRAM).args(["ctl", "--tls-authority"]).arg(&path).arg("status").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("ca.pem") && said.trim().lines().count() == 1, "{said}");
    }
}
