//! Probes and scrapers that agree on HTTP/2, as they do over TLS.

use std::process::Command;

use crate::process::Rusd;

#[test]
fn what_is_no_grpc_is_answered_over_http2_as_well() {
    let server = Rusd::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let get = http::Request::get("http://server/health").body(()).unwrap();
        let health = client.send_request(get, true).unwrap().0.await.unwrap();
        assert_eq!(health.status(), 200);
        assert_eq!(health.into_body().data().await.unwrap().unwrap(), r#"{"health":"true","reason":""}"#);

        let post = http::Request::post("http://server/v3/kv/put").body(()).unwrap();
        let (put, mut body) = client.send_request(post, false).unwrap();
        body.send_data(r#"{"key":"YQ==","value":"MQ=="}"#.into(), true).unwrap();
        assert_eq!(put.await.unwrap().status(), 200);
    });
    assert_eq!(server.etcdctl(&["get", "a", "--print-value-only"]), "1\n");
}

/// curl, with TLS, on a port for HTTP alone: it agreed on HTTP/2, and nobody spoke it.
#[test]
fn what_is_no_grpc_is_answered_over_http2_by_tls_where_only_http_is_served() {
    let http = harness::free_address();
    let server = Rusd::start(&["--auto-tls", &format!("--listen-client-http-urls=https://{http}")]);
    let url = format!("https://{}/version", server.other_addresses()[0]);
    let asked = Command::new("curl").args(["-sk", "--http2", "-w", " %{http_version}", &url]).output().unwrap();
    let said = String::from_utf8(asked.stdout).unwrap();
    assert!(asked.status.success() && said.contains("etcdserver") && said.ends_with(" 2"), "{}: {said}", asked.status);
}
