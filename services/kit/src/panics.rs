//! A panic is the end of the process. A thread that has panicked leaves a lock poisoned or a queue that nobody reads: a server that
//! lives on half dead answers wrongly or not at all, and nobody starts it again.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// From now on a panic, on whatever thread, is logged and ends the process by SIGABRT. To be called once, by the binary, and before
/// there are threads.
pub fn end_the_process() {
    std::panic::set_hook(Box::new(|panic| {
        tell(panic);
        std::process::abort();
    }));
}

fn tell(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("a panic without a message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    // As RUST_BACKTRACE says.
    let backtrace = Backtrace::capture();
    let backtrace = match backtrace.status() {
        BacktraceStatus::Captured => backtrace.to_string(),
        _ => String::new(),
    };
    if tracing::dispatcher::has_been_set() {
        tracing::error!(place, thread, backtrace, "panic, the process ends: {message}");
    } else {
        eprintln!("panic on thread {thread} at {place}, the process ends: {message}\n{backtrace}");
    }
}
