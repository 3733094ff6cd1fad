//! What clients send as headers, for who looks for a fault: a line for each on stderr, as Go's HTTP/2 server writes them when it is
//! started with `GODEBUG=http2debug=2`. etcd's own tests read from them what a client says in `:authority`. Tokens are among them.

use std::fmt::Write as _;
use std::io::Write as _;

use http::Request;

/// Whether this value of the variable `GODEBUG` asks for it.
pub fn is_wanted(godebug: &str) -> bool {
    // The last one counts, as in Go.
    godebug.split(',').rev().find_map(|setting| setting.strip_prefix("http2debug=")) == Some("2")
}

/// Writes the lines of a request.
pub fn write<B>(request: &Request<B>) {
    // Who closed stderr does not want them.
    let _ = std::io::stderr().lock().write_all(lines(request).as_bytes());
}

fn lines<B>(request: &Request<B>) -> String {
    let uri = request.uri();
    let mut lines = String::new();
    let mut line = |name: &str, value: &str| {
        // A string takes whatever is written to it.
        let _ = writeln!(lines, "http2: decoded hpack field header field {name:?} = {value:?}");
    };
    line(":method", request.method().as_str());
    line(":scheme", uri.scheme_str().unwrap_or_default());
    line(":path", uri.path_and_query().map_or("", |path| path.as_str()));
    line(":authority", uri.authority().map_or("", |authority| authority.as_str()));
    for (name, value) in request.headers() {
        line(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_of_go() {
        let request =
            Request::post("http://localhost:20000/etcdserverpb.KV/Put").header("te", "a \"b\"").body(()).unwrap();
        let expected = r#"http2: decoded hpack field header field ":method" = "POST"
http2: decoded hpack field header field ":scheme" = "http"
http2: decoded hpack field header field ":path" = "/etcdserverpb.KV/Put"
http2: decoded hpack field header field ":authority" = "localhost:20000"
http2: decoded hpack field header field "te" = "a \"b\""
"#;
        assert_eq!(lines(&request), expected);
    }

    #[test]
    fn only_the_last_and_the_loudest_setting_asks_for_them() {
        for (godebug, expected) in [
            ("http2debug=2", true),
            ("x=1,http2debug=2", true),
            ("http2debug=2,http2debug=0", false),
            ("http2debug=1", false),
            ("", false),
        ] {
            assert_eq!(is_wanted(godebug), expected, "{godebug}");
        }
    }
}
