//! Who belongs to the group, and how that changes while it works.
//!
//! The log's membership says who votes; the state says where members are, and who was removed for good. What is done in several steps is
//! done again from the beginning if it was not ended: each step that was done is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use d_engine_client::Error;
use replog::runtime::RequestError;
use replog::{Change, Membership, Rejected};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Address, IdentityError, Node, identity};
use crate::state::{Command, Known, Place};

/// A change of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a member that gets the log and does not vote; to be started after that, and told to join.
    Add(u64, Address),
    /// Lets a member vote that has caught up.
    Promote(u64),
    /// Removes a member for good; its number is never used again.
    Remove(u64),
    /// Hands leadership over to a member.
    Transfer(u64),
}

/// Members, and where they are.
pub type Members = BTreeMap<u64, Address>;

impl Node {
    /// Who the members are, and where; as far as this one knows.
    pub fn members(&self) -> Arc<Members> {
        self.0.members.borrow().clone()
    }

    /// Where the members are, and each change of that.
    pub(crate) fn follow_addresses(&self) -> watch::Receiver<Arc<Members>> {
        self.0.members.subscribe()
    }

    /// Who of them votes, and each change of that.
    pub(crate) fn follow_votes(&self) -> watch::Receiver<Arc<Membership>> {
        self.handle().membership()
    }

    /// Whether a member was removed for good, and the log has no more use for it.
    pub(super) fn has_removed(&self, member: u64) -> bool {
        self.shall_go(member) && !self.status().membership.all().contains(&member)
    }

    fn shall_go(&self, member: u64) -> bool {
        // Whose state has ended takes nobody for removed: that is for good.
        self.shown().known().is_some_and(|known| known.has_removed(member))
    }

    /// Whether this member was removed for good.
    pub(super) fn is_removed(&self) -> bool {
        self.0.peers.is_removed() || self.has_removed(self.id())
    }

    /// Whether it cannot go on.
    pub(super) fn has_ended(&self) -> bool {
        self.status().has_ended || self.shown().broken().is_some() || self.is_removed() || self.emptied().is_some()
    }

    /// Whether another member knows this one, which began with nothing.
    pub(super) fn emptied(&self) -> Option<IdentityError> {
        let by = self.0.founding.as_ref()?.is_known_to()?;
        let address = self.group().members.get(&by).map_or_else(|| by.to_string(), |member| member.peer.clone());
        Some(IdentityError::Emptied(self.options().directory.display().to_string(), self.id(), address))
    }

    /// Waits until it cannot go on.
    pub(super) async fn ended(&self) {
        let (mut known, mut votes, mut removed) = (self.shown().roster(), self.follow_votes(), self.0.peers.removed());
        let has_ended = async {
            while !self.has_ended() {
                tokio::select! {
                    Ok(()) = known.changed() => {}
                    Ok(()) = votes.changed() => {}
                    Ok(()) = removed.changed() => {}
                    // This member tells of all of them for as long as it is there.
                    else => return,
                }
            }
        };
        let is_known = async {
            match &self.0.founding {
                Some(founding) => drop(founding.known_to().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = has_ended => {}
            () = is_known => {}
            () = self.log_ended() => {}
        }
    }

    /// Waits until the log has ended.
    async fn log_ended(&self) {
        let mut leadership = self.leadership();
        while leadership.changed().await.is_ok() {}
    }

    /// Makes known here what the state says of members, and tells the transport. `false`: not all of it; it is to be tried again.
    pub(super) fn follow_members(&self) -> bool {
        // One at a time, or what one has just learned would be undone by another who began before.
        let _one = self.0.following.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = self.shown().known() else { return true };
        let in_log = self.status().membership.all();
        let mut members = self.group().members.clone();
        for (id, Known { is_removed, place, .. }) in &known.members {
            // Who leaves is reached until the log has let it go.
            if *is_removed && !in_log.contains(id) {
                members.remove(id);
            } else if *place != Place::default() {
                members.insert(*id, address_of(place));
            }
        }
        let before = self.members();
        if *before == members {
            return true;
        }
        let mut is_complete = true;
        for (id, address) in members.iter().filter(|(id, address)| before.get(id) != Some(address)) {
            if let Err(error) = self.0.peers.set(*id, Some(&address.peer)) {
                tracing::warn!(%error, member = id, "cannot be sent to");
                is_complete = false;
            }
        }
        for gone in before.keys().filter(|id| !members.contains_key(id) && **id != self.id()) {
            // It cannot fail: nothing is started.
            let _ = self.0.peers.set(*gone, None);
        }
        // What has failed is tried again.
        if is_complete {
            self.0.members.send_replace(Arc::new(members));
        }
        is_complete
    }

    /// Changes the members, if this one leads; it goes on where nobody waits for it any more. What was done already is no error. For
    /// administrators. On a tokio runtime.
    pub async fn change_members(&self, change: MemberChange) -> Result<(), Error> {
        self.administers()?;
        let leads = self.leads();
        if !leads {
            return Err(Error::NotLeader(self.leader_elsewhere()));
        }
        // One at a time: whether a majority is left is asked of those that the change before has left.
        let turn = match change {
            MemberChange::Transfer(_) => None,
            _ => Some(Arc::clone(&self.0.changing).try_acquire_owned().map_err(|_| under_way())?),
        };
        let node = self.clone();
        let changed = tokio::spawn(async move {
            let _turn = turn;
            match change {
                MemberChange::Add(id, address) => node.add_member(id, address).await,
                MemberChange::Promote(id) => node.promote_member(id).await,
                MemberChange::Remove(id) => node.remove_member(id).await,
                MemberChange::Transfer(id) => node.transfer_leadership(id).await,
            }
        });
        changed.await.map_err(|_| Error::Stopped)?
    }

    async fn add_member(&self, id: u64, address: Address) -> Result<(), Error> {
        if id == 0 || u32::try_from(id).is_err() {
            return Err(Error::Invalid(format!("member {id}: numbers are from 1 to 4294967295")));
        }
        if !self.0.serves_members {
            let own = self.id();
            return Err(Error::Invalid(format!(
                "this member serves no others: start it again on its directory, whose data stay, with --member {own}=HOST:PORT, where others find it"
            )));
        }
        let membership = self.status().membership;
        check_place(&self.members(), id, &address)?;
        if membership.voters.contains(&id) {
            if self.members().get(&id) == Some(&address) {
                return Ok(());
            }
            // Its vote is counted on, and where it is said to be is where it is looked for from then on.
            self.find(id, &address.peer).await?;
        }
        // All members must find it before the log counts on it.
        let place = Place { client: address.client.into(), peer: address.peer.into() };
        self.carry_out(Command::Place(id, place)).await?;
        self.follow_members();
        match membership.all().contains(&id) {
            true => Ok(()),
            false => self.change_membership(Change::AddLearner(id)).await,
        }
    }

    async fn promote_member(&self, id: u64) -> Result<(), Error> {
        let membership = self.status().membership;
        match (membership.voters.contains(&id), membership.learners.contains(&id)) {
            (true, _) => Ok(()),
            (false, true) => {
                // It may have caught up before its address was changed.
                let place = self.members().get(&id).map(|address| address.peer.clone());
                self.find(id, &place.ok_or_else(|| not_a_member(id))?).await?;
                self.change_membership(Change::Promote(id)).await
            }
            (false, false) => Err(not_a_member(id)),
        }
    }

    /// Asks at an address whether a member whose vote counts is there: a majority that cannot be reached decides nothing any more, not even where
    /// its members are.
    async fn find(&self, id: u64, peer: &str) -> Result<(), Error> {
        let (address, group) = (peer.to_owned(), self.group().written());
        let (serial, tls) = (self.0.serial.get(), self.options().peer_tls.clone());
        let asked =
            move || identity::is_at(&address, (&group, serial), id, |address| identity::ask(address, tls.as_ref()));
        let found = tokio::task::spawn_blocking(asked).await.unwrap_or_else(|error| Err(error.to_string()));
        found.map_err(|why| {
            Error::Invalid(format!(
                "member {id} is not reached at {peer}, where its vote would be counted on: {why}; start it there first, or check the address"
            ))
        })
    }

    async fn remove_member(&self, id: u64) -> Result<(), Error> {
        let membership = self.status().membership;
        if id == self.id() {
            return Err(Error::Invalid(format!("member {id} leads: hand leadership over first (ctl transfer)")));
        }
        let is_in_log = membership.all().contains(&id);
        let is_known = is_in_log || self.members().contains_key(&id) || self.shall_go(id);
        if !is_known {
            return Err(not_a_member(id));
        }
        // Also where it was said before that it leaves, and only that was done: others may have gone silent since. Who leaves has heard so, and
        // answers to nothing any more.
        if is_in_log {
            let answering = self.status().answering;
            let answering = answering.iter().copied().filter(|other| !self.shall_go(*other)).collect();
            check_removal(&membership, self.id(), &answering, id)?;
        }
        // While it still gets the log, so that it knows and ends.
        if !self.shall_go(id) {
            self.carry_out(Command::Leave(id)).await?;
        }
        if is_in_log {
            self.change_membership(Change::Remove(id)).await?;
        }
        self.follow_members();
        Ok(())
    }

    async fn transfer_leadership(&self, id: u64) -> Result<(), Error> {
        if id == self.id() {
            return Ok(());
        }
        if !self.status().membership.voters.contains(&id) {
            if !self.members().contains_key(&id) {
                return Err(not_a_member(id));
            }
            return Err(Error::Invalid(format!("member {id} does not vote: promote it first")));
        }
        self.handle().transfer_leader(id).await.map_err(|error| self.request_error(error))?;
        let mut leadership = self.leadership();
        let changed = leadership.wait_for(|now| now.leader == Some(id));
        match timeout(self.options().forward_timeout, changed).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::Stopped),
            Err(_) => Err(Error::UnknownOutcome(format!("member {id} does not lead yet"))),
        }
    }

    async fn carry_out(&self, command: Command) -> Result<(), Error> {
        let proposed = self.handle().propose_async(command.encode()).await;
        self.written(proposed).map(drop)
    }

    async fn change_membership(&self, change: Change) -> Result<(), Error> {
        let changed = self.handle().change_membership(vec![change]).await;
        let index = changed.map_err(|error| self.request_error(error))?;
        // What the member shows of itself comes a moment later.
        let is_shown = || self.status().applied >= index;
        let mut votes = self.follow_votes();
        tokio::select! {
            _ = votes.wait_for(|_| is_shown()) => Ok(()),
            () = self.log_ended() => Err(Error::Stopped),
            () = sleep(self.options().forward_timeout) => match is_shown() {
                true => Ok(()),
                false => Err(Error::UnknownOutcome("the members were changed, and this one does not show it yet".into())),
            },
        }
    }

    fn request_error(&self, error: RequestError) -> Error {
        match error {
            RequestError::Rejected(Rejected::NotLeader(leader)) => Error::NotLeader(self.leader(leader)),
            RequestError::Rejected(Rejected::Busy) => Error::Busy,
            RequestError::Rejected(Rejected::NotCaughtUp(id)) => Error::NotNow(format!(
                "member {id} has not caught up: is it running? Its log says which member it cannot reach. Try again"
            )),
            RequestError::Rejected(Rejected::NotNow) => under_way(),
            RequestError::Rejected(rejected @ Rejected::TooLarge(_)) => Error::Invalid(rejected.to_string()),
            RequestError::Unknown => Error::UnknownOutcome("leadership was lost meanwhile".into()),
            RequestError::Stopped => Error::Stopped,
        }
    }
}

/// Whether a member may be where no other is, for members and for clients.
fn check_place(members: &Members, id: u64, wanted: &Address) -> Result<(), Error> {
    for (other, known) in members.iter().filter(|(other, _)| **other != id) {
        for address in [&wanted.peer, &wanted.client] {
            // Within a program nobody is served.
            if !address.is_empty() && [&known.peer, &known.client].contains(&address) {
                return Err(Error::Invalid(format!("member {other} is at {address} already")));
            }
        }
    }
    Ok(())
}

/// Whether those who are left can decide without who is removed: who does not answer now may never do so again. Of `answering` are members other
/// than this one, `own`.
fn check_removal(membership: &Membership, own: u64, answering: &BTreeSet<u64>, removed: u64) -> Result<(), Error> {
    let left = membership.voters.iter().copied().filter(|id| *id != removed);
    let (voters, silent): (Vec<u64>, Vec<u64>) = left.partition(|id| *id == own || answering.contains(id));
    if !membership.voters.contains(&removed) || voters.len() > silent.len() {
        return Ok(());
    }
    let silent = silent.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    Err(Error::Invalid(format!(
        "without member {removed}, no majority of the members that vote answers: start member {silent} again, or remove that first"
    )))
}

fn under_way() -> Error {
    Error::NotNow("another change of the members is under way: try again".into())
}

fn not_a_member(id: u64) -> Error {
    Error::Invalid(format!("{id} is no member"))
}

fn address_of(Place { client, peer }: &Place) -> Address {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Address { client: text(client), peer: text(peer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_member_is_added_where_another_is_found() {
        let at = |client: &str, peer: &str| Address { client: client.into(), peer: peer.into() };
        let members = Members::from([(1, at("a:1", "a:2")), (2, at("", "b:2"))]);
        assert_eq!(check_place(&members, 3, &at("c:1", "c:2")), Ok(()));
        assert_eq!(check_place(&members, 3, &at("", "c:2")), Ok(()));
        assert_eq!(check_place(&members, 1, &at("a:1", "a:3")), Ok(()));
        for taken in [at("a:1", "c:2"), at("c:1", "a:2"), at("c:1", "a:1"), at("b:2", "c:2")] {
            let refused = check_place(&members, 3, &taken).unwrap_err().to_string();
            assert!(refused.contains("already"), "{refused}");
        }
    }

    #[test]
    fn nobody_is_removed_whose_vote_is_needed() {
        let removal = |voters: u64, answering: &[u64], removed| {
            let membership = Membership { learners: vec![9], ..Membership::of(1..=voters) };
            check_removal(&membership, 1, &answering.iter().copied().collect(), removed)
                .map_err(|error| error.to_string())
        };
        assert_eq!(removal(3, &[2, 3], 3), Ok(()));
        assert_eq!(removal(3, &[2], 3), Ok(()), "it does not answer, and is in no majority");
        let refused = removal(3, &[2], 2).unwrap_err();
        assert!(refused.contains("without member 2") && refused.contains("start member 3 again"), "{refused}");
        assert_eq!(removal(3, &[2], 9), Ok(()), "who does not vote is in no majority, either");
        // Of four, two are no majority.
        assert!(removal(5, &[2, 3], 3).unwrap_err().contains("start member 4, 5 again"));
        assert_eq!(removal(5, &[2, 3], 5), Ok(()));
        assert_eq!(removal(2, &[], 2), Ok(()));
        assert_eq!(removal(1, &[], 9), Ok(()));
    }
}
