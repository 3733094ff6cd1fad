//! A server of tests, which notes what it is asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// Requests, whole.
pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

/// A server that notes each request, and answers it as told by its text and number, which begins with 1; then it closes the connection.
pub(crate) fn answering(mut answer: impl FnMut(&str, usize) -> String + Send + 'static) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let notes = seen.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = BufReader::new(socket.unwrap());
            let (mut request, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                socket.read_line(&mut line).unwrap();
                let field = line.to_ascii_lowercase();
                length = field.strip_prefix("content-length: ").map_or(length, |length| length.trim().parse().unwrap());
                request.push_str(&line);
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            socket.read_exact(&mut body).unwrap();
            request.push_str(&String::from_utf8_lossy(&body));
            let mut notes = notes.lock().unwrap();
            notes.push(request);
            let text = answer(&notes[notes.len() - 1], notes.len());
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
            let length = body.len();
            let answer = format!("{head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = socket.into_inner().write_all(answer.as_bytes());
        }
    });
    (endpoint, seen)
}
