//! The end that is asked for: SIGTERM or SIGINT.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// A server has ended so long after it was asked to.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Comes when the process is asked to end; from then on it has [`STOP_TIMEOUT`], and is ended with exit code 1 and a line in the log if
/// it takes longer, as by SIGKILL: what was acknowledged is safe then, too. On a tokio runtime. The signals are taken as soon as this
/// has returned.
pub fn stop() -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!("{name}: the server stops");
        end_after(STOP_TIMEOUT);
    })
}

/// Ends the process unless it has ended by then.
fn end_after(timeout: Duration) {
    let watch = move || {
        std::thread::sleep(timeout);
        tracing::error!("the server has not stopped within {} s; it is ended as it is", timeout.as_secs());
        std::process::exit(1);
    };
    // Without a thread it ends when it ends.
    if let Err(error) = std::thread::Builder::new().name("stop-timeout".into()).spawn(watch) {
        tracing::warn!(%error, "the time to stop cannot be limited");
    }
}
