//! The space of an etcd that is somebody's. What a load writes stays in the history, and in the file, until the owner compacts and
//! defragments; a file as large as the quota stops everybody's writes. So a load does not begin on one that is half full, and ends by itself
//! before one is full.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::family::etcd::Etcd;
use crate::net::etcd::messages::StatusResponse;
use crate::net::etcd::store::Store;

/// What etcd has where nothing else is configured; members before 3.6 do not say what they have.
const DEFAULT_QUOTA_BYTES: i64 = 2 << 30;
/// A load does not begin on a file that takes more of the quota.
const BEGIN_PERCENT: i64 = 50;
/// A load does not go on when a file takes more of the quota.
const STOP_PERCENT: i64 = 80;
/// Between two looks: at 500 MB a second a fifth of the smallest usual quota lasts for four.
const INTERVAL: Duration = Duration::from_millis(200);

/// Whether a load may begin, as far as a member's space goes. Refused: an alarm, or anything else that the member says is wrong with it; a file
/// that takes more than half of the quota; and a member that does not tell. The member's version.
pub async fn look(member: &mut Store) -> Result<String, Failure> {
    let status = member.status().await?;
    let endpoint = member.endpoint();
    // Alarms of all members are among them: `memberID:… alarm:NOSPACE`.
    if !status.errors.is_empty() {
        let errors = status.errors.join(", ");
        return Err(Failure::new(format_args!(
            "the store at {endpoint} says what is wrong with it: {errors}: mend it first"
        )));
    }
    match full(&status, BEGIN_PERCENT) {
        None => Ok(status.version),
        Some(full) => Err(Failure::new(format_args!(
            "the store at {endpoint} {full}, and a load adds history that only its owner may remove: compact and defragment it, or raise \
             its quota"
        ))),
    }
}

/// Does what a client does; the first client of a load process looks after the members' space meanwhile, where they are somebody's. Errors: a
/// file takes too much of its quota, or a member does not tell.
pub async fn guarded(
    etcd: &Etcd,
    is_first_client: bool,
    doing: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    if etcd.seat.context.outside.is_none() || !is_first_client {
        return doing.await;
    }
    tokio::select! {
        biased;
        done = doing => done,
        failed = watch(etcd) => failed,
    }
}

/// Looks until there is something to say.
async fn watch(etcd: &Etcd) -> Result<(), Failure> {
    let mut members = etcd.members().await?;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for member in &mut members {
            if let Some(full) = full(&member.status().await?, STOP_PERCENT) {
                return Err(Failure::new(format_args!(
                    "the load was stopped, for the store at {} {full}: compact and defragment it, and load it for a shorter time",
                    member.endpoint()
                )));
            }
        }
    }
}

/// How full a member's file is, in words, if it takes more than so many percent of the quota. One without a quota is never full.
fn full(status: &StatusResponse, most_percent: i64) -> Option<String> {
    let quota = if status.db_size_quota == 0 { DEFAULT_QUOTA_BYTES } else { status.db_size_quota };
    let is_full = quota > 0 && status.db_size > quota / 100 * most_percent;
    is_full
        .then(|| format!("has {} MiB in its file, above {most_percent} % of {} MiB", status.db_size >> 20, quota >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_does_not_tell_its_quota_has_the_usual_one_and_one_without_is_never_full() {
        let is_full = |db_size, db_size_quota| {
            let status = StatusResponse { db_size, db_size_quota, ..StatusResponse::default() };
            full(&status, BEGIN_PERCENT).is_some()
        };
        assert!(!is_full(1 << 30, 4 << 30) && is_full(3 << 30, 4 << 30));
        assert!(!is_full(1 << 29, 0) && is_full((1 << 30) + 1, 0));
        assert!(!is_full(i64::MAX, -1));
    }
}
