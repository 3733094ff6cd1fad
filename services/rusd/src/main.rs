//! `rusd`: an etcd v3 server.

use std::process::ExitCode;

use rusd::flags::Flags;
use rusd::node::ETCD_VERSION;
use rusd::server::Server;
use rusd::settings::Settings;
use service_kit::grpc::header_log;
use service_kit::logs::{self, Format};
use service_kit::{open_files, panics, signals};

fn main() -> ExitCode {
    // What is created is for this user alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    if arguments.first().is_some_and(|first| first == "import") {
        return take_over(&arguments[1..]);
    }
    let flags = Flags::parse(arguments, std::env::vars_os(), |path| std::fs::read_to_string(path));
    let flags = match flags {
        Ok(flags) => flags,
        Err(mistake) => return usage(&mistake),
    };
    if let Some(help) = flags.help() {
        return print(&help);
    }
    if flags.boolean("version", false).unwrap_or(false) {
        // What tools that look for etcd's version parse.
        return print(&format!(
            "etcd Version: {ETCD_VERSION}\nrusd Version: {}\nGit SHA: none\nGo Version: none\nGo OS/Arch: linux/{}\n",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH
        ));
    }
    let mut settings = match Settings::of(&flags) {
        Ok(settings) => settings,
        Err(mistake) => return usage(&mistake),
    };
    settings.logs_headers = std::env::var("GODEBUG").is_ok_and(|godebug| header_log::is_wanted(&godebug));
    // Lines on stderr, for who reads etcd's.
    logs::start(Format::Zap, level(&settings.log_level));
    panics::end_the_process();
    open_files::raise();
    for given in flags.without_effect() {
        tracing::warn!("{given} has no effect in rusd");
    }
    if settings.imports_in_place {
        match rusd::import::in_place(&settings) {
            Ok(None) => {}
            Ok(Some(imported)) => {
                let kept = rusd::import::kept_in(&settings);
                tracing::info!(revision = imported.revision, keys = imported.keys, kept = %kept.display(), "imported what etcd wrote");
            }
            Err(error) => return failure(&error),
        }
    }
    match serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(error.as_ref()),
    }
}

/// A reader that goes away early (`| head`) has read what it wanted.
fn print(text: &str) -> ExitCode {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn failure(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("rusd: {error}");
    ExitCode::FAILURE
}

/// `rusd import`.
fn take_over(arguments: &[String]) -> ExitCode {
    use rusd::import::{CannotImport, Outcome};
    match rusd::import::run(arguments) {
        Ok(Outcome::Help(help)) => print(&help),
        Ok(Outcome::Imported(imported)) => {
            let rusd::store::import::Imported { revision, compacted, keys, leases, users, loose_keys } = imported;
            println!("imported revision {revision}: {keys} keys, {leases} leases, {users} users");
            if compacted > 0 {
                println!("compacted at revision {compacted}");
            }
            if loose_keys > 0 {
                println!("{loose_keys} records named a lease that does not exist, and name none now");
            }
            ExitCode::SUCCESS
        }
        Err(CannotImport::Usage(mistake)) => usage(&mistake),
        Err(error) => failure(&error),
    }
}

fn usage(mistake: &dyn std::error::Error) -> ExitCode {
    eprintln!("rusd: {mistake}");
    ExitCode::from(2)
}

/// Of the names that etcd has for them.
fn level(name: &str) -> tracing::Level {
    match name {
        "debug" => tracing::Level::DEBUG,
        "info" => tracing::Level::INFO,
        "warn" => tracing::Level::WARN,
        _ => tracing::Level::ERROR,
    }
}

fn serve(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = signals::stop()?;
        let server = Server::start(settings)?;
        server.run(stop).await?;
        Ok(())
    })
}
