//! SIGINT, SIGTERM and SIGHUP ask for an orderly end: the flag is looked at wherever the driver waits. A second signal
//! ends the process at once; children and directory are then cleaned up by [`super::guard`]. What comes within half a second of the first is the
//! same wish: `timeout` signals its child and then the child's group.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use service_kit::console;
use tokio::signal::unix::{SignalKind, signal};

/// Signals so soon after the first are none of their own.
const ONE_WISH: Duration = Duration::from_millis(500);

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether a signal has asked for the end.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Starts to listen for signals, once, on a thread of its own.
pub(crate) fn listen() -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().context("signals cannot be caught")?;
    let streams = runtime.block_on(async {
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .map(signal)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
    });
    let [mut interrupt, mut terminate, mut hangup]: [_; 3] = streams
        .context("signals cannot be caught")?
        .try_into()
        .map_err(|_| anyhow::anyhow!("signals cannot be caught"))?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            let mut first = None;
            loop {
                tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} _ = hangup.recv() => {} }
                match first {
                    None => first = Some(Instant::now()),
                    Some(first) if first.elapsed() < ONE_WISH => continue,
                    Some(_) => std::process::exit(130),
                }
                REQUESTED.store(true, Ordering::Relaxed);
                console::tell(format_args!("\nstopping; once more to stop at once"));
            }
        });
    })?;
    Ok(())
}
