//! CONFIG.

use crate::failure::{Failure, Outcome};
use crate::glob;
use crate::protocol::Args;
use crate::server::{Request, Server, SettingsBefore, Stats};
use crate::session::{ReplyMode, Session};
use crate::settings::{Extent, Kind, LISTENING, PARAMETERS, Settings, find};
use crate::tls::Tls;
use crate::{events, eviction, file_limit};

pub(super) fn get(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    let mut found: Vec<(&str, usize)> = Vec::new();
    for (index, parameter) in PARAMETERS.iter().enumerate() {
        for name in [parameter.name, parameter.alias] {
            let is_asked = |pattern: &[u8]| match parameter.is_shown_by_name_only() {
                true => pattern.eq_ignore_ascii_case(name.as_bytes()),
                false => glob::matches_with(pattern, name.as_bytes(), true),
            };
            if !name.is_empty() && args.from(2).iter().any(is_asked) {
                found.push((name, index));
            }
        }
    }
    client.reply.map(found.len());
    for (name, index) in found {
        client.reply.bulk(name.as_bytes());
        let value = server.settings.value(index);
        match PARAMETERS[index].kind {
            Kind::Events => client.reply.bulk(events::shown(value).as_bytes()),
            _ => client.reply.bulk(value.as_bytes()),
        }
    }
    Ok(())
}

fn failed(name: &str, why: &str) -> Failure {
    Failure::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

/// Whether the client may change where files are.
fn may_change_places(server: &Server, client: &Session) -> bool {
    match server.settings.text("enable-protected-configs") {
        "local" => client.is_local,
        word => word == "yes",
    }
}

/// Whether files may be there.
fn check_directory(name: &str, value: &str) -> Outcome {
    match std::fs::metadata(value) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(failed(name, "Not a directory")),
        Err(error) => Err(failed(name, &error.to_string())),
    }
}

pub(super) fn set(server: &mut Server, client: &mut Session, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(crate::failure::SYNTAX);
    }
    // All or nothing.
    let mut settings = server.settings.clone();
    let (mut seen, mut names) = (Vec::new(), Vec::new());
    for at in (2..args.len()).step_by(2) {
        let name = args.at(at);
        let shown = String::from_utf8_lossy(name);
        let Some(index) = find(name) else {
            return Err(Failure::joined(&[
                b"ERR Unknown option or number of arguments for CONFIG SET - '",
                name,
                b"'",
            ]));
        };
        // By its other name a parameter may come once more: then the last counts, as in Redis.
        if names.iter().any(|known: &&[u8]| known.eq_ignore_ascii_case(name)) {
            return Err(failed(&shown, "duplicate parameter"));
        }
        names.push(name);
        seen.push(index);
        if !PARAMETERS[index].can_change {
            return Err(failed(&shown, "can't set immutable config"));
        }
        if PARAMETERS[index].is_protected() && !may_change_places(server, client) {
            return Err(failed(&shown, "can't set protected config"));
        }
        if server.reads_data() && PARAMETERS[index].waits_for_data() {
            return Err(Failure::new("LOADING Failed to set the specified configuration while loading data"));
        }
    }
    // Values are looked at once all names are right, as in Redis.
    for (place, &index) in seen.iter().enumerate() {
        let (shown, value) = (String::from_utf8_lossy(names[place]), std::str::from_utf8(args.at(2 * place + 3)));
        let value = value.map_err(|_| failed(&shown, "the value is no UTF-8: send text"))?.to_owned();
        if PARAMETERS[index].name == "dir" {
            check_directory(&shown, &value)?;
        }
        let words = match PARAMETERS[index].kind {
            Kind::List | Kind::Percentiles | Kind::OutputLimits | Kind::Shutdown => {
                value.split_whitespace().map(str::to_owned).collect()
            }
            _ => vec![value],
        };
        settings.set(index, &words).map_err(|why| failed(&shown, &why))?;
    }
    let of_tls = seen.iter().map(|index| PARAMETERS[*index].name).find(|name| name.starts_with("tls-"));
    let tls = of_tls.map(|name| {
        Tls::open(&settings).map_err(|error| {
            crate::log::warning(format_args!("TLS: {error}: what was there before stays"));
            failed(name, "Unable to update TLS configuration. Check server logs.")
        })
    });
    let tls = tls.transpose()?;
    let clients = settings.integer("maxclients");
    if clients > server.settings.integer("maxclients") {
        let allowed = file_limit::raise_for(clients).clients;
        if allowed < clients {
            let why = "The operating system is not able to handle the specified number of clients, try with";
            return Err(failed("maxclients", &format!("{why} {allowed}")));
        }
    }
    let switches_aof = settings.is_yes("appendonly") != server.settings.is_yes("appendonly");
    let elsewhere = LISTENING.iter().find(|name| settings.text(name) != server.settings.text(name));
    if let Some(name) = elsewhere
        && server.settings_before.is_some()
    {
        return Err(failed(name, "another client changes where the server listens: try again"));
    }
    let before = seen.iter().map(|index| (*index, server.settings.value(*index).to_owned())).collect();
    // Nothing refuses it any more.
    adopt(server, settings);
    if let Some(tls) = tls {
        server.tls = tls;
    }
    if find(b"requirepass").is_some_and(|index| seen.contains(&index)) {
        take_password(server, Some(client));
    }
    // In a transaction or a script the reply cannot wait. What fails is logged then, and refuses writes, or is as before.
    let may_wait = !client.may_not_wait && client.reply_mode == ReplyMode::On;
    let mut waits = may_wait.then_some(client.slot);
    if let Some(name) = elsewhere {
        server.settings_before = Some(Box::new(SettingsBefore { values: before, name }));
        server.requests.push(Request::Listen(waits.take()));
    }
    if switches_aof {
        server.requests.push(Request::SwitchAof(waits.take()));
    }
    if !may_wait || waits.is_some() {
        client.reply.ok();
    }
    Ok(())
}

/// The default user has the password of the settings. `client`: who asks, and is not among the sessions.
fn take_password(server: &mut Server, client: Option<&mut Session>) {
    server.users.set_default_password(server.settings.password.as_bytes());
    super::acl::follow(server, client);
}

/// All is as it was before CONFIG SET asked for a place that the server cannot listen at; the reply to who asked.
pub fn go_back(server: &mut Server, why: &str) -> String {
    let Some(before) = server.settings_before.take() else { return format!("ERR {why}") };
    let SettingsBefore { values, name } = *before;
    // What others have set since stays.
    let mut settings = server.settings.clone();
    settings.put_back(values);
    let replaced = adopt(server, settings);
    if server.settings.password != replaced.password {
        take_password(server, None);
    }
    if let Ok(tls) = Tls::open(&server.settings) {
        server.tls = tls;
    }
    let why = match name {
        "bind" => "Failed to bind to specified addresses.",
        _ => "Unable to listen on this port. Check server logs.",
    };
    failed(name, why).to_string()
}

/// These parameters hold from now on; what held before.
fn adopt(server: &mut Server, settings: Settings) -> Settings {
    let before = std::mem::replace(&mut server.settings, settings);
    crate::log::set_level(server.settings.text("loglevel"));
    eviction::follow_settings(server);
    // A limit that is lower now is kept at once, not when the next command comes.
    server.eviction.is_under_way = server.settings.memory_max > 0;
    server.users.allows_channels = server.settings.text("acl-pubsub-default") == "allchannels";
    if let Some(backlog) = &mut server.replication.backlog {
        backlog.resize(server.settings.backlog_bytes);
    }
    if server.settings.clients_max > 0 && before.clients_max == 0 {
        server.count_clients();
    }
    before
}

pub(super) fn rewrite(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    if server.settings.file.is_empty() {
        return Err(Failure::new("ERR The server is running without a config file"));
    }
    let asker = super::answered_later(client, "CONFIG REWRITE")?;
    server.requests.push(Request::RewriteConfig(asker, Extent::Changed));
    Ok(())
}

pub(super) fn resetstat(server: &mut Server, client: &mut Session, _: Args<'_>) -> Outcome {
    server.stats = Stats::default();
    server.reclaimer.reset();
    client.reply.ok();
    Ok(())
}
