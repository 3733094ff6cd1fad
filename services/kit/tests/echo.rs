//! The example as a process: what a whole server on the kit does.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use service_kit::client::{Channel, GrpcError, Options};
use service_kit::tls::{ClientTls, ClientTlsFiles};
use tokio_rustls::TlsConnector;

const LIMIT: Duration = Duration::from_secs(20);

struct Server {
    child: Child,
    address: String,
    log: BufReader<std::process::ChildStderr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn echo() -> Command {
    let tests = std::env::current_exe().unwrap();
    let mut command = Command::new(tests.parent().unwrap().parent().unwrap().join("examples/echo"));
    command.stderr(Stdio::piped()).stdout(Stdio::null()).stdin(Stdio::null());
    command
}

/// Starts it on a port that is free, and waits until it is ready.
fn start(scheme: &str, arguments: &[&str]) -> Server {
    start_as(echo(), scheme, arguments)
}

fn start_as(mut command: Command, scheme: &str, arguments: &[&str]) -> Server {
    let listen = format!("--listen={scheme}://127.0.0.1:0");
    command.stderr(Stdio::piped()).stdout(Stdio::null()).stdin(Stdio::null());
    let mut child = command.arg(listen).arg("--log-format=json").args(arguments).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"ready\"") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    let (_, rest) = line.split_once("127.0.0.1:").unwrap();
    let port = rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    Server { child, address: format!("127.0.0.1:{port}"), log }
}

impl Server {
    fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    fn get(&self, path: &str, accept: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: a\r\naccept: {accept}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn text(text: impl Into<String>) -> String {
    text.into()
}

/// As [`start`], with so few open files that 14 clients may be connected at a time.
fn start_with_14_places() -> Server {
    let echo = echo().get_program().to_owned();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 166; exec \"$0\" \"$@\""]).arg(echo);
    start_as(limited, "http", &[])
}

/// Silent connections got all places for as long as they liked, and health could not be asked for: a probe would have killed the server.
#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let server = start_with_14_places();
    run(async {
        let mut called = Channel::connect(&server.address, Options::new(LIMIT)).await.unwrap();
        let repeat = called.call("/echo.Echo/Repeat");
        let (mut sender, mut receiver) = called.stream::<String, String>(&repeat, &text("0")).await.unwrap();
        assert_eq!(receiver.next().await, Ok(Some(text("0"))));
        for _ in 0..3 {
            let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
            let begun = Instant::now();
            assert!(server.get("/livez", "*/*").ends_with("ok\n"));
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
            drop(silent);
        }
        // A call that waits is no silence.
        sender.send(&text("1")).await.unwrap();
        assert_eq!(receiver.next().await, Ok(Some(text("1"))));
    });
}

/// One header without a message, and one watch of health, kept a place each for ever.
#[test]
fn calls_that_are_only_begun_keep_nobody_out() {
    let server = start_with_14_places();
    run(async {
        let mut held = Vec::new();
        for path in ["/echo.Echo/Repeat", "/echo.Echo/Say", "/grpc.health.v1.Health/Watch"].iter().cycle().take(14) {
            let socket = tokio::net::TcpStream::connect(&server.address).await.unwrap();
            let (mut sender, connection) = h2::client::handshake(socket).await.unwrap();
            tokio::spawn(connection);
            let request = http::Request::post(format!("http://a{path}")).header("content-type", "application/grpc");
            let (answer, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
            if path.contains("health") {
                // An empty message: the health of all.
                body.send_data(bytes::Bytes::from_static(&[0; 5]), true).unwrap();
            }
            held.push((sender, answer, body));
        }
        // What was begun is on its way only while these wait.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let begun = Instant::now();
        assert!(server.get("/livez", "*/*").ends_with("ok\n"));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
    let metrics = server.get("/metrics", "*/*");
    let closed =
        metrics.lines().find_map(|line| line.strip_prefix("connections_closed_for_others_total ")).expect(&metrics);
    assert!(closed.parse::<u64>().unwrap() >= 1, "{closed}");
}

#[test]
fn calls_and_streams_are_answered_and_counted() {
    let server = start("http", &[]);
    run(async {
        let mut options = Options::new(LIMIT);
        options.tells_limit = true;
        let mut channel = Channel::connect(&server.address, options).await.unwrap();
        let say = channel.call("/echo.Echo/Say");
        // A string by itself is encoded as a message with one field, as Saying is.
        assert_eq!(channel.unary::<String, String>(&say, &text("hello")).await, Ok(text("hello")));
        // Longer than the windows of both ends begin with.
        let long = "x".repeat(900_000);
        assert_eq!(channel.unary::<String, String>(&say, &long).await, Ok(long.clone()));
        let error = channel.unary::<String, String>(&say, &"x".repeat(1 << 20)).await.unwrap_err();
        assert!(error.to_string().contains("received message larger than max"), "{error}");
        let nowhere = channel.call("/echo.Echo/Sing");
        let error = channel.unary::<String, String>(&nowhere, &text("")).await.unwrap_err();
        let expected = "server answered Unimplemented (code 12): unknown method Sing for service echo.Echo";
        assert_eq!(error.to_string(), expected);
        let repeat = channel.call("/echo.Echo/Repeat");
        let (mut sender, mut receiver) = channel.stream::<String, String>(&repeat, &text("0")).await.unwrap();
        for number in 1..10 {
            assert_eq!(receiver.next().await, Ok(Some(text((number - 1).to_string()))));
            sender.send(&number.to_string()).await.unwrap();
        }
        sender.finish().unwrap();
        assert_eq!((receiver.next().await, receiver.next().await), (Ok(Some(text("9"))), Ok(None)));
    });
    let prometheus = server.get("/metrics", "*/*");
    assert!(prometheus.contains("text/plain; version=0.0.4"), "{prometheus}");
    assert!(prometheus.contains("# TYPE echo_said_total counter\necho_said_total 12\n"), "{prometheus}");
    let open_metrics = server.get("/metrics", "application/openmetrics-text;version=1.0.0");
    assert!(open_metrics.contains("# TYPE echo_said counter\necho_said_total 12\n"), "{open_metrics}");
    assert!(open_metrics.ends_with("# EOF\n"));
    assert!(server.get("/livez", "*/*").ends_with("ok\n"));
    assert!(server.get("/readyz?verbose", "*/*").ends_with("[+]voice ok\nok\n"));
    assert!(server.get("/else", "*/*").starts_with("HTTP/1.1 404"));
}

/// As long as a block of Hiero may be.
#[test]
fn a_message_of_131_072_000_bytes_goes_there_and_back() {
    const BYTES: usize = 131_072_000;
    let server = start("http", &[&format!("--message-bytes-max={BYTES}")]);
    run(async {
        let mut channel = Channel::connect(&server.address, Options::new(LIMIT)).await.unwrap();
        let repeat = channel.call("/echo.Echo/Repeat");
        let (mut sender, mut receiver) = channel.stream::<String, String>(&repeat, &text("0")).await.unwrap();
        assert_eq!(receiver.next().await, Ok(Some(text("0"))));
        // The field's head has 5 bytes.
        let long = "x".repeat(BYTES - 5);
        let (sent, heard) = futures::join!(sender.send(&long), receiver.next());
        assert_eq!((sent, heard.unwrap().unwrap() == long), (Ok(()), true));
        let too_long = "x".repeat(BYTES - 4);
        let refused = tokio::select! {
            heard = receiver.next() => heard.unwrap_err(),
            () = async { drop(sender.send(&too_long).await); std::future::pending().await } => unreachable!(),
        };
        assert!(refused.to_string().contains("larger than max (131072001 vs. 131072000)"), "{refused}");
    });
}

#[test]
fn health_and_reflection_are_there() {
    let server = start("http", &[]);
    run(async {
        let mut channel = Channel::connect(&server.address, Options::new(LIMIT)).await.unwrap();
        let check = channel.call("/grpc.health.v1.Health/Check");
        // HealthCheckResponse has one field, a varint: SERVING is 1.
        for service in ["", "echo.Echo"] {
            assert_eq!(channel.unary::<String, u32>(&check, &text(service)).await, Ok(1));
        }
        let error = channel.unary::<String, u32>(&check, &text("else")).await.unwrap_err();
        assert_eq!(error.to_string(), "server answered NotFound (code 5): unknown service");
        let watch = channel.call("/grpc.health.v1.Health/Watch");
        let (_sender, mut receiver) = channel.stream::<String, u32>(&watch, &text("")).await.unwrap();
        assert_eq!(receiver.next().await, Ok(Some(1)));
    });
}

#[test]
fn a_server_that_is_asked_to_stop_ends_its_streams_and_stops() {
    let mut server = start("http", &[]);
    run(async {
        let mut channel = Channel::connect(&server.address, Options::new(LIMIT)).await.unwrap();
        let repeat = channel.call("/echo.Echo/Repeat");
        let (_sender, mut receiver) = channel.stream::<String, String>(&repeat, &text("a")).await.unwrap();
        assert_eq!(receiver.next().await, Ok(Some(text("a"))));
        server.terminate();
        let error = receiver.next().await.unwrap_err();
        assert!(matches!(&error, GrpcError::Status(status) if status.message.contains("stopping")), "{error}");
    });
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    server.log.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("SIGTERM: the server stops"), "{rest}");
}

/// A certificate that is its own authority, and its key.
fn self_signed(directory: &tempfile::TempDir) -> (PathBuf, PathBuf) {
    let file = |name: &str, content: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = file("certificate", parameters.self_signed(&key).unwrap().pem());
    let key = file("key", key.serialize_pem());
    (certificate, key)
}

/// Each had a line: strangers filled the disk, 20 GB a day.
#[test]
fn handshakes_that_fail_have_a_line_together() {
    // What a line each would say fits into the pipe that the log is read from.
    const HANDSHAKES: usize = 100;
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(&directory);
    let argument = |flag: &str, path: &PathBuf| format!("--{flag}={}", path.display());
    let arguments = [argument("tls-certificate", &certificate), argument("tls-key", &key)];
    let mut server = start("https", &arguments.each_ref().map(String::as_str));
    for _ in 0..HANDSHAKES {
        let mut socket = TcpStream::connect(&server.address).unwrap();
        socket.write_all(b"\x16\x03\x01\x00\x05hello").unwrap();
        // An error says as well that it is over.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    server.terminate();
    server.child.wait().unwrap();
    let mut log = String::new();
    server.log.read_to_string(&mut log).unwrap();
    let told = log.lines().filter(|line| line.contains("rejected connection on client endpoint")).count();
    // One of each thread at once, and another only if this took longer than ten seconds.
    let threads = std::thread::available_parallelism().unwrap().get();
    assert!((1..=3 * threads).contains(&told), "{told} lines for {HANDSHAKES} connections");
    assert!(log.contains("\"connections\":1"), "{log}");
}

/// Calls of which nothing but the head had come took four times what they counted as.
#[test]
fn an_open_call_takes_no_more_than_it_counts_as() {
    const CALLS: usize = 9_000;
    let server = start("http", &[]);
    let resident = || {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", server.child.id())).unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    };
    run(async {
        let mut last = resident();
        // Of the first connection all that is made once is new, too.
        for method in ["Say", "Say", "Repeat"] {
            let socket = tokio::net::TcpStream::connect(&server.address).await.unwrap();
            let (mut sender, mut connection) = h2::client::Builder::new()
                .initial_max_send_streams(CALLS)
                .handshake::<_, bytes::Bytes>(socket)
                .await
                .unwrap();
            let mut pings = connection.ping_pong().unwrap();
            tokio::spawn(connection);
            for _ in 0..CALLS {
                let request = http::Request::post(format!("http://a/echo.Echo/{method}"));
                let request = request.header("content-type", "application/grpc").body(()).unwrap();
                sender = sender.ready().await.unwrap();
                std::mem::forget(sender.send_request(request, false).unwrap());
            }
            pings.ping(h2::Ping::opaque()).await.unwrap();
            pings.ping(h2::Ping::opaque()).await.unwrap();
            let now = resident();
            let each = (now - last) / CALLS;
            assert!(each > 1 << 10, "{each} bytes: this test shows nothing");
            assert!(each <= service_kit::grpc::CALL_BYTES, "{each} bytes for a call of {method}");
            last = now;
        }
    });
}

#[test]
fn tls_is_spoken_and_certificates_of_clients_are_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(&directory);
    let argument = |flag: &str, path: &PathBuf| format!("--{flag}={}", path.display());
    let server = start(
        "https",
        &[
            &argument("tls-certificate", &certificate),
            &argument("tls-key", &key),
            &argument("tls-client-authority", &certificate),
        ],
    );
    let said = |own: Option<(PathBuf, PathBuf)>| {
        run(async {
            let files = ClientTlsFiles { authority: Some(certificate.clone()), certificate: own, ..Default::default() };
            let tls = TlsConnector::from(Arc::clone(&ClientTls::open(files).unwrap().config()));
            let socket = tokio::net::TcpStream::connect(&server.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let stream = tls.connect(name, socket).await.map_err(|error| GrpcError::Connect(error.to_string()))?;
            let options = Options { is_tls: true, ..Options::new(LIMIT) };
            let mut channel = Channel::over(stream, "localhost", options).await?;
            let say = channel.call("/echo.Echo/Say");
            channel.unary::<String, String>(&say, &text("hello")).await
        })
    };
    assert_eq!(said(Some((certificate.clone(), key.clone()))), Ok(text("hello")));
    assert!(said(None).is_err());
}

#[test]
fn mistakes_are_told_before_anything_happens() {
    let mistake = |arguments: &[&str]| {
        let output = echo().args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = mistake(&["--listen=127.0.0.1:1"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("expected a URL such as http://127.0.0.1:2379"), "{said}");
    assert_eq!(mistake(&["--log-format=xml"]).0, Some(2));
    assert_eq!(mistake(&["--no-such-flag"]).0, Some(2));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, said) = mistake(&[&format!("--listen=http://{}", taken.local_addr().unwrap())]);
    assert_eq!(code, Some(1));
    assert!(said.contains("is another server running there?"), "{said}");
    // Of the addresses for documents: no machine has it.
    let (code, said) = mistake(&["--listen=http://192.0.2.1:0"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("is not of this machine") && !said.contains("another server"), "{said}");
    let (code, said) = mistake(&["--listen=https://127.0.0.1:0"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("give --tls-certificate and --tls-key"), "{said}");
}
