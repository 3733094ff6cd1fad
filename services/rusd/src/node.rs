//! One member of a group, as its API sees it: who it is, where commands go, what may be read.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use replog::ReadLevel;
use replog::runtime::{Committed, Handle, ProposeError, ReadError, Ticket};
use service_kit::grpc::{self, Status};
use service_kit::probes::Readiness;
use tokio::time::{sleep, timeout};

use crate::aside::Aside;
use crate::copies::Copies;
use crate::group::Group;
use crate::hashes::Hashes;
use crate::lessor::Lessor;
use crate::measured::Measured;
use crate::proto::etcdserverpb as pb;
use crate::settings::Settings;
use crate::space::Space;
use crate::store::command::{self, Kind};
use crate::store::{Caller, Error, Reader, Reply, View};
use crate::tokens::Tokens;
use crate::watches::Signal;

/// The release of etcd whose API this is.
pub const ETCD_VERSION: &str = "3.7.3";
/// What members of this release speak.
pub const CLUSTER_VERSION: &str = "3.7.0";

/// How often the disk is looked at.
const DISK_ROUND: Duration = Duration::from_millis(100);
/// How often it is looked at whether this member serves, besides when its leader changes.
const READINESS_ROUND: Duration = Duration::from_millis(100);
/// How often who waits for a compaction looks whether it is done.
const SWEEP_ROUND: Duration = Duration::from_millis(10);

/// A member.
pub struct Node {
    /// What it runs with.
    pub settings: Settings,
    /// The group's number.
    pub cluster_id: u64,
    /// Its own.
    pub member_id: u64,
    /// Its place in the group.
    pub handle: Handle<Reply>,
    /// What is published.
    pub reader: Reader,
    /// When leases end.
    pub lessor: Arc<Lessor>,
    /// The group around it.
    pub group: Arc<Group>,
    /// What stands for users and passwords.
    pub tokens: Tokens,
    /// Where passwords are hashed.
    pub passwords: Aside,
    /// Where more keys are read than a connection's thread may be kept busy with.
    pub long_reads: Aside,
    /// Where copies of everything are made for clients.
    pub copies: Copies,
    /// Where everything is hashed.
    pub hashes: Hashes,
    /// What it has measured.
    pub measured: Arc<Measured>,
    /// What wakes its worker threads.
    pub signals: Vec<Arc<Signal>>,
    /// Room on its disk.
    pub space: Space,
    /// Whether it serves, for who asks by `grpc.health.v1`.
    pub readiness: Readiness,
}

pub use crate::group::Done;

impl Node {
    /// A response's header.
    pub fn header(&self, revision: i64, raft_term: u64) -> pb::ResponseHeader {
        pb::ResponseHeader { cluster_id: self.cluster_id, member_id: self.member_id, revision, raft_term }
    }

    /// A header of what this member knows at the moment.
    pub fn header_now(&self) -> pb::ResponseHeader {
        self.header(self.reader.view().revision(), self.term())
    }

    /// The term, as far as this member knows.
    pub fn term(&self) -> u64 {
        self.handle.try_read(ReadLevel::Eventual, 0).map_or_else(|| self.handle.status().term, |ticket| ticket.term)
    }

    /// How long an answer may take: as in etcd, an election and a slow disk.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.settings.election
    }

    /// Puts a command into the log, wherever its leader is, and waits until it was applied here.
    pub fn propose(
        &self,
        caller: &Caller,
        kind: Kind,
        request: &[u8],
    ) -> impl Future<Output = Result<Done, Status>> + 'static {
        let is_too_large = request.len() > self.settings.request_bytes_max;
        let command = (!is_too_large).then(|| command::encode(caller, kind, request));
        let leads = self.handle.leader().1;
        let proposed = command.clone().filter(|_| leads).map(|command| self.handle.propose_async(command));
        let (group, patience) = (Arc::clone(&self.group), self.patience());
        async move {
            let command = command.ok_or(Error::RequestTooLarge)?;
            let done = async {
                match proposed {
                    None => group.submit(command).await,
                    Some(proposed) => match proposed.await {
                        Ok(Committed { term, reply, .. }) => Done::of(reply, term),
                        // It has just ceased to lead, and nothing has happened.
                        Err(ProposeError::NotLeader(_)) => group.submit(command).await,
                        Err(error) => Err(refused(error)),
                    },
                }
            };
            Ok(timeout(patience, done).await.map_err(|_| Error::Timeout)??)
        }
    }

    /// Looks at the newest state if no acknowledged write can be missing from it, without waiting: the common case.
    pub fn look_now<T>(&self, is_serializable: bool, look: impl FnOnce(&View, u64) -> T) -> Option<T> {
        let level = if is_serializable { ReadLevel::Eventual } else { self.settings.strong_level() };
        let ticket = self.handle.try_read(level, 0)?;
        let view = self.reader.view();
        // The lease would still do. But clients of etcd expect to hear at once that the majority is lost, and a round tells them.
        if !is_serializable && !self.group.has_majority(&view.cluster) {
            return None;
        }
        let seen = look(&view, ticket.term);
        self.handle.confirm(&ticket).then_some(seen)
    }

    /// A view that no write is missing from which was acknowledged before; waits for a quorum where it must.
    pub fn view(&self) -> impl Future<Output = Result<(View, Ticket), Status>> + 'static {
        let (handle, reader, patience) = (self.handle.clone(), self.reader.clone(), self.patience());
        let measured = Arc::clone(&self.measured);
        async move {
            let read = handle.read_async(ReadLevel::Linearizable, 0);
            let ticket = match timeout(patience, read).await {
                Ok(ticket) => ticket.map_err(unread),
                Err(_) => Err(Error::Timeout),
            };
            let ticket = ticket.inspect_err(|_| Measured::add(&measured.read_indexes_failed))?;
            Ok((reader.view(), ticket))
        }
    }

    /// Looks at the newest state once more, if this still may be done; what may be much aside, for other connections of the thread would wait. Who
    /// waits for his turn keeps nothing of the state from being freed, and nor does who has looked.
    pub async fn look_again<T: Send + 'static>(
        &self,
        is_much: bool,
        may: impl Fn(&View) -> Result<(), Error>,
        look: impl FnOnce(View) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let newest = || {
            let view = self.reader.view();
            may(&view)?;
            Ok(view)
        };
        if is_much { self.long_reads.run_with(newest, look).await } else { Ok(look(newest()?)) }
    }

    /// On whose behalf a call is made: of whom its token or its certificate names. From etcd's `AuthInfoFromCtx`.
    pub fn caller(&self, call: &grpc::Caller, view: &View) -> Result<Caller, Error> {
        if !view.auth.is_enabled() {
            return Ok(Caller::NOBODY);
        }
        let token = call.headers.get("token").or_else(|| call.headers.get("authorization"));
        let user = match (token.and_then(|token| token.to_str().ok()), &call.peer.common_name) {
            (Some(token), _) => {
                let token = token.strip_prefix("Bearer ").unwrap_or(token);
                let leader_millis = self.handle.leader().1.then(|| self.handle.time_millis());
                let (caller, renewal) = self.tokens.caller(token, view, leader_millis, now_millis())?;
                if let Some(renewal) = renewal {
                    let renewal = prost::Message::encode_to_vec(&renewal);
                    // If it fails, a later use tries again.
                    self.group.post(command::encode(&Caller::Server, Kind::TokenRenew, &renewal));
                }
                return Ok(caller);
            }
            (None, Some(name)) if self.settings.client_cert_auth => name.clone(),
            (None, _) => return Ok(Caller::NOBODY),
        };
        Ok(Caller::Client { user, auth_revision: view.auth.revision() })
    }

    /// Raises the alarm and refuses if there is no room for so many bytes more, in the quota or on the disk.
    pub fn check_quota(&self, cost: u64) -> Result<(), Error> {
        let is_within = self.settings.quota_bytes.is_none_or(|quota| self.reader.view().bytes() + cost < quota);
        // Room may have come since the last look, or gone.
        let take_again = || {
            if self.space.is_look_due(Instant::now()) {
                self.look_at_disk();
            }
            self.space.take_looked(cost)
        };
        if is_within && (self.space.take(cost) || take_again()) {
            return Ok(());
        }
        // There is room as soon as these have gone: no reason for an alarm.
        if is_within && self.space.take_back_copies(cost) {
            return Err(Error::TooManyRequests);
        }
        self.raise_no_space();
        Err(Error::NoSpace)
    }

    /// Waits until what was compacted up to this revision is gone, here. What is compacted meanwhile is not waited for.
    pub async fn swept(&self, revision: i64) -> Result<(), Error> {
        while !self.reader.view().keyspace.is_swept_until(revision) {
            if self.handle.status().has_ended {
                return Err(Error::Stopped);
            }
            sleep(SWEEP_ROUND).await;
        }
        Ok(())
    }

    /// Watch streams and watchers of its clients.
    pub fn watched(&self) -> (usize, usize) {
        let watched = self.signals.iter().map(|signal| signal.watched());
        watched.fold((0, 0), |(streams, watchers), (more, others)| (streams + more, watchers + others))
    }

    /// What the data have taken at most since they were defragmented last, bytes: what is free inside of etcd's database file is still
    /// in it. At a start nothing is free. Never 0: `etcdctl endpoint status` divides by it.
    pub fn allocated_bytes(&self) -> u64 {
        let bytes = self.reader.view().bytes().max(1);
        self.measured.allocated_bytes.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }

    /// Looks at the disk, for what writes may take of it.
    pub fn look_at_disk(&self) {
        self.space.look(self.reader.view().bytes());
    }

    /// Looks at the disk for as long as the member runs.
    pub async fn watch_disk(&self) {
        loop {
            let bytes = self.reader.view().bytes();
            self.measured.allocated_bytes.fetch_max(bytes, Ordering::Relaxed);
            if let Some(disk) = self.space.look(bytes) {
                if disk.room() <= 0 && !self.space.take_back_copies(0) {
                    self.raise_no_space();
                }
                if self.space.wants_snapshot(&disk, self.handle.status().wal_bytes) {
                    self.handle.want_snapshot();
                }
            }
            sleep(DISK_ROUND).await;
        }
    }

    /// Keeps [`Node::readiness`] true for as long as the member runs: what `/readyz` asks for, as far as no other member must be asked for it.
    pub async fn watch_readiness(&self) {
        let mut leadership = self.group.leadership();
        loop {
            let has_leader = leadership.borrow_and_update().leader.is_some();
            let is_intact = !self.reader.view().cluster.has_alarm(pb::AlarmType::Corrupt);
            let checks = [
                ("leader", has_leader, "no leader"),
                ("non_learner", !self.group.is_learner(), "not supported for learner"),
                ("data_corruption", is_intact, "alarm activated: CORRUPT"),
            ];
            for (check, is_there, reason) in checks {
                match is_there {
                    true => self.readiness.is_there(check),
                    false => self.readiness.wait_for(check, reason),
                }
            }
            // A change of leadership is told at once.
            if let Ok(Err(_)) = timeout(READINESS_ROUND, leadership.changed()).await {
                // The member has ended, and nothing changes any more.
                return std::future::pending().await;
            }
        }
    }

    /// Raises the alarm NOSPACE for this member, if it is not.
    pub fn raise_no_space(&self) {
        let about = pb::AlarmMember { member_id: self.member_id, alarm: pb::AlarmType::Nospace as i32 };
        if self.reader.view().cluster.alarms(about.alarm).contains(&about) {
            return;
        }
        let alarm = pb::AlarmRequest {
            action: pb::alarm_request::AlarmAction::Activate as i32,
            member_id: about.member_id,
            alarm: about.alarm,
        };
        // If it fails, the next request, or the next look at the disk, raises it.
        self.group.post(command::encode(&Caller::Server, Kind::Alarm, &prost::Message::encode_to_vec(&alarm)));
    }
}

/// Milliseconds since 1970.
pub fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn refused(error: ProposeError) -> Error {
    match error {
        ProposeError::NotLeader(None) => Error::NoLeader,
        ProposeError::NotLeader(Some(_)) => Error::NotLeader,
        ProposeError::Busy => Error::TooManyRequests,
        ProposeError::TooLarge(_) => Error::RequestTooLarge,
        ProposeError::Unknown => Error::TimeoutDueToLeaderFail,
        ProposeError::Stopped => Error::Stopped,
    }
}

fn unread(error: ReadError) -> Error {
    match error {
        ReadError::Busy => Error::TooManyRequests,
        ReadError::NoQuorum => Error::Timeout,
        ReadError::Stopped => Error::Stopped,
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = grpc::Code::of(error.code() as u8);
        Self::new(code, error.message())
    }
}
