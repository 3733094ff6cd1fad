//! A panic ends the process, on whatever thread.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use service_kit::{logs, panics};

const CHILD: &str = "KIT_TEST_PANICS";

#[test]
fn a_panic_on_any_thread_ends_the_process_and_is_logged() {
    if std::env::var_os(CHILD).is_some() {
        logs::start(logs::Format::Json, tracing::Level::INFO);
        panics::end_the_process();
        let thread = std::thread::Builder::new().name("worker-7".into());
        let _ = thread.spawn(|| panic!("half dead")).unwrap().join();
        // Nobody comes here: exit code 0 would be seen.
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_panic_on_any_thread_ends_the_process_and_is_logged", "--nocapture"]);
    let output = child.env(CHILD, "1").output().unwrap();
    // By a signal.
    assert_eq!(output.status.code(), None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("panic, the process ends: half dead") && said.contains("worker-7"), "{said}");
}
