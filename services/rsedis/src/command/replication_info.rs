//! What INFO says of replication.

use super::info::line;
use crate::replication::{Backlog, Failover, Master};
use crate::server::Server;
use crate::session::Session;

pub(super) fn about_replication(server: &Server, client: &Session, text: &mut String) {
    let (replication, settings) = (&server.replication, &server.settings);
    line!(text, "role:{}", if replication.is_replica() { "slave" } else { "master" });
    if let Some(master) = &replication.master {
        about_master(server, master, text);
    }
    let sessions = || {
        let found = |slot: &usize| match *slot == client.slot && client.is_replica() {
            true => Some(client),
            false => server.sessions.get(*slot)?.as_deref(),
        };
        // Who has gone while a script runs is closed later.
        replication.replicas.iter().filter_map(found).filter(|session| !session.is_killed)
    };
    line!(text, "connected_slaves:{}", sessions().count());
    if settings.replicas_min > 0 {
        line!(text, "min_slaves_good_slaves:{}", server.good_replicas(settings.replica_lag_max));
    }
    for (number, session) in sessions().enumerate() {
        let (Some(replica), Some(address)) = (&session.replica, session.replica_address()) else { continue };
        line!(
            text,
            "slave{number}:ip={address},port={},state={},offset={},lag={}",
            replica.port,
            replica.stage_word(),
            replica.acknowledged,
            replica.lag_seconds(server.now)
        );
    }
    line!(text, "master_failover_state:{}", Failover::state_word(replication.failover.as_ref()));
    line!(text, "master_replid:{}", replication.id);
    match &replication.second {
        Some((id, _)) => line!(text, "master_replid2:{id}"),
        None => line!(text, "master_replid2:{}", "0".repeat(40)),
    }
    line!(text, "master_repl_offset:{}", replication.offset);
    line!(text, "second_repl_offset:{}", replication.second.as_ref().map_or(-1, |(_, shared)| *shared as i64 + 1));
    let backlog = replication.backlog.as_ref();
    line!(text, "repl_backlog_active:{}", u8::from(backlog.is_some()));
    line!(text, "repl_backlog_size:{}", settings.backlog_bytes);
    line!(text, "repl_backlog_first_byte_offset:{}", backlog.map_or(0, |backlog| backlog.begin() + 1));
    line!(text, "repl_backlog_histlen:{}", backlog.map_or(0, Backlog::len));
}

fn about_master(server: &Server, master: &Master, text: &mut String) {
    let (replication, settings) = (&server.replication, &server.settings);
    let seconds = |since: i64| (server.now - since).max(0) / 1000;
    line!(text, "master_host:{}", master.host);
    line!(text, "master_port:{}", master.port);
    line!(text, "master_link_status:{}", if master.is_up() { "up" } else { "down" });
    line!(text, "master_last_io_seconds_ago:{}", if master.is_up() { seconds(master.heard_at) } else { -1 });
    line!(text, "master_sync_in_progress:{}", u8::from(master.is_syncing()));
    let held = server.sessions.iter().flatten().find(|session| session.is_master && master.is_up());
    line!(
        text,
        "slave_read_repl_offset:{}",
        replication.applied() + held.map_or(0, |session| session.query_bytes) as u64
    );
    line!(text, "slave_repl_offset:{}", replication.offset);
    if let Some(receipt) = master.receipt() {
        let (read, total) = (receipt.received(), receipt.total().unwrap_or(0));
        line!(text, "master_sync_total_bytes:{total}");
        line!(text, "master_sync_read_bytes:{read}");
        line!(text, "master_sync_left_bytes:{}", total as i64 - read as i64);
        line!(text, "master_sync_perc:{:.2}", read as f64 * 100.0 / total.max(1) as f64);
        line!(text, "master_sync_last_io_seconds_ago:{}", seconds(master.heard_at));
    }
    if !master.is_up() {
        line!(text, "master_link_down_since_seconds:{}", seconds(master.down_since));
    }
    line!(text, "slave_priority:{}", settings.text("replica-priority"));
    line!(text, "slave_read_only:{}", u8::from(settings.is_read_only));
    line!(text, "replica_announced:{}", u8::from(settings.is_yes("replica-announced")));
}
