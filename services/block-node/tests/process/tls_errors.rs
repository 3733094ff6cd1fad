//! Mistakes about TLS are told by what is wrong, and by the flag that mends it.

use super::*;

/// What is said of a status that cannot be had.
fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).arg("status").args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn who_speaks_tls_to_a_plain_port_or_the_other_way_round_is_told_which() {
    let authority = harness::Authority::new();
    let (certificate, key) = authority.sign("localhost");
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
    let trusted = authority.path().display().to_string();
    let directory = harness::folder();
    let plain = Server::start(directory.path(), &[]);
    let address = format!("https://{}", plain.address);
    let said = refusal(&[&address]);
    assert!(said.contains("--tls-authority must say who signs its certificate"), "{said}");
    let said = refusal(&[&address, "--tls-authority", &trusted]);
    assert!(said.contains("where it speaks no TLS, leave https:// away"), "{said}");
    drop(plain);
    let directory = harness::folder();
    let server = Server::start(directory.path(), &["--tls-certificate", &certificate, "--tls-key", &key]);
    let address = server.address.strip_prefix("https://").unwrap_or(&server.address).replace("127.0.0.1", "localhost");
    let said = refusal(&[&address]);
    assert!(said.contains(&format!("it speaks TLS: https://{address} with --tls-authority")), "{said}");
    let publisher = ["simulate", "publisher", "--address", &address];
    let said = String::from_utf8(Command::new(PROGRAM).args(publisher).output().unwrap().stderr).unwrap();
    assert!(said.contains(&format!("it speaks TLS: https://{address} with --tls-authority")), "{said}");
    let address = format!("https://{address}");
    let output = Command::new(PROGRAM).args(["status", &address, "--tls-authority", &trusted]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_file_that_is_missing_is_told_with_its_own_flag() {
    let authority = harness::Authority::new();
    let (certificate, key) = authority.sign("localhost");
    let directory = harness::folder();
    let none = authority.file("none");
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
    for (flag, files) in [
        ("--tls-key", [certificate.as_str(), none.as_str(), certificate.as_str()]),
        ("--tls-certificate", [none.as_str(), key.as_str(), certificate.as_str()]),
        ("--tls-client-authority", [certificate.as_str(), key.as_str(), none.as_str()]),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["--server-port", "0", "--data-dir"]).arg(directory.path());
        command.args(["--tls-certificate", files[0], "--tls-key", files[1], "--tls-client-authority", files[2]]);
        let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(said.contains(&format!("block-node: {flag}: {none}: ")), "{said}");
    }
}
