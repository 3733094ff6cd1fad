//! The end that is asked for: by SIGTERM, SIGINT, or SIGHUP. A second signal ends the process at once, and one line tells what that leaves behind.

use super::watch::left_behind;
use service_kit::console::{self, OneLine};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use walsync::replicator::Observer;

/// As shells tell of a process that ended by SIGINT.
const EXIT_CODE: i32 = 130;

/// Whether the end was asked for.
#[derive(Clone)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    observer: Arc<OnceLock<Observer>>,
}

impl Stop {
    /// Takes the signals from now on. SIGHUP is left alone where it was ignored before us, as `nohup` does it.
    pub fn on_signals() -> anyhow::Result<Stop> {
        let stop = Stop { flag: Arc::default(), observer: Arc::default() };
        let signals: &[i32] = if is_ignored(SIGHUP) { &[SIGTERM, SIGINT] } else { &[SIGTERM, SIGINT, SIGHUP] };
        // Also while nobody can be told any more.
        let is_told = Arc::new(AtomicBool::new(false));
        for signal in signals {
            flag::register_conditional_shutdown(*signal, EXIT_CODE, is_told.clone())?;
            flag::register(*signal, stop.flag.clone())?;
        }
        let of_thread = stop.clone();
        after::<2>(signals, move || {
            is_told.store(true, Ordering::Release);
            of_thread.end_at_once();
        })?;
        Ok(stop)
    }

    /// Set when it was.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// Whether it was.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Who knows what an end at once leaves behind.
    pub fn tells_of(&self, observer: Observer) {
        let _known = self.observer.set(observer);
    }

    fn end_at_once(&self) -> ! {
        let told = "walsync: a second signal, the process ends at once";
        match self.observer.get().map(|observer| left_behind(&observer.behind())) {
            None => console::tell(told),
            Some(None) => console::tell(format_args!("{told}; nothing is known that was not sent")),
            Some(Some(behind)) => console::tell(OneLine(format_args!("{told}: {behind}"))),
        }
        std::process::exit(EXIT_CODE)
    }
}

/// At the first signal does this, and ends the process: for what is done at once or not at all.
pub fn on_signal(clean: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let signals: Vec<i32> = [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)).collect();
    after::<1>(&signals, || {
        clean();
        console::tell("walsync: ended by a signal");
        std::process::exit(EXIT_CODE);
    })
}

/// Does this on a thread of its own when so many of these signals have come.
fn after<const COUNT: usize>(signals: &[i32], act: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    // A byte for each that comes.
    let (mut come, comes) = UnixStream::pair()?;
    for signal in signals {
        pipe::register(*signal, comes.try_clone()?)?;
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if come.read_exact(&mut [0; COUNT]).is_ok() {
            act();
        }
    })?;
    Ok(())
}

/// Whether this signal does nothing to us.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
