//! Places that hold no replica: they are named, and so are the replicas below them.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ltx::{FileName, Layout};
use support::walsync;

#[test]
fn a_place_without_a_replica_is_an_error_that_names_it_and_the_replica_below_it() {
    let folder = harness::folder();
    let place = |name: &str| format!("file://{}", folder.path().join(name).display());
    // A replica whose files are not read.
    let put = |name: &str| {
        let file = folder.path().join(name).join(Layout::Files.key(0, FileName { min_txid: 1, max_txid: 1 }));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    };
    let said = |verb: &str, name: &str| {
        let mut command = walsync();
        command.arg(verb).arg(place(name));
        if verb == "restore" {
            command.arg("-o").arg(folder.path().join("restored.db"));
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb} {name}");
        String::from_utf8(output.stderr).unwrap()
    };
    put("bk/app.db");
    for verb in ["list", "verify", "restore", "compact"] {
        let nothing = format!("there is no replica here: no LTX file below {}", place("none"));
        let text = said(verb, "none");
        assert!(text.contains(&nothing), "{verb}: {text}");
        let text = said(verb, "bk");
        assert!(text.contains(&format!("there is one at {}: name that", place("bk/app.db"))), "{verb}: {text}");
    }
    put("bk/other.db");
    let text = said("list", "bk");
    assert!(text.contains(&format!("2 below it: name one, such as {}", place("bk/app.db"))), "{text}");
    assert!(!folder.path().join("restored.db").exists(), "nothing was made");
}
