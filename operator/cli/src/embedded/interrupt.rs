//! SIGINT, SIGTERM and SIGHUP ask for an orderly end: the flag is looked at wherever the driver waits. A second signal
//! ends the process at once; children and directory are then cleaned up by [`super::guard`].

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use service_kit::console;
use tokio::signal::unix::{SignalKind, signal};

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
            loop {
                tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} _ = hangup.recv() => {} }
                if REQUESTED.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
                console::tell(format_args!("\nstopping; once more to stop at once"));
            }
        });
    })?;
    Ok(())
}
