//! Changes of users, and who they are. Passwords become hashes here: the log has no password.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use d_engine_client::{Error, wire};
use service_kit::grpc::Status;
use wire::change_users_request::Change;

use super::access::SignedIn;
use super::errors;
use crate::engine::Node;
use crate::state::{Access, UserChange};

/// How dear it is to guess a password: a check takes tens of milliseconds.
const COST: u32 = 10;
/// Where those come from that hash passwords, as far as turns are concerned.
const OF_CHANGES: &str = "changes of users";
/// bcrypt tells no longer ones apart.
const PASSWORD_BYTES_MAX: usize = 72;

/// Whether somebody may have this password. bcrypt looks at no more of it, and repeats what is shorter with a 0 between.
pub(super) fn is_password(password: &str) -> bool {
    (1..=PASSWORD_BYTES_MAX).contains(&password.len()) && !password.contains('\0')
}

/// A change as it is understood: what is left to do is to hash the password, which is `None` where there is none.
pub(super) struct Understood {
    change: UserChange,
    password: Option<String>,
}

/// Understands a request.
pub(super) fn understood(request: wire::ChangeUsersRequest) -> Result<Understood, Status> {
    parse(request).map_err(errors::status)
}

fn parse(request: wire::ChangeUsersRequest) -> Result<Understood, Error> {
    let invalid = |text: &str| Error::Invalid(text.into());
    let secret = |password: String| match is_password(&password) {
        false => Err(invalid("a password has 1 to 72 bytes, and no 0 among them")),
        true => Ok(Some(password)),
    };
    let (change, password) = match request.change {
        Some(Change::Add(wire::AddUser { name, password, is_admin })) => {
            (UserChange::Add { name: name.into(), hash: Bytes::new(), is_admin }, secret(password)?)
        }
        Some(Change::Password(wire::SetPassword { name, password })) => {
            (UserChange::Password { name: name.into(), hash: Bytes::new() }, secret(password)?)
        }
        Some(Change::Remove(name)) => (UserChange::Remove { name: name.into() }, None),
        Some(Change::Grant(wire::Grant { name, prefix, read, write })) => {
            (UserChange::Grant { name: name.into(), prefix, access: Access { read, write } }, None)
        }
        Some(Change::Revoke(wire::Revoke { name, prefix })) => (UserChange::Revoke { name: name.into(), prefix }, None),
        Some(Change::Enable(is_enabled)) => (UserChange::Enable(is_enabled), None),
        None => return Err(invalid("the request has no change, or one of a later version")),
    };
    change.check().map_err(|mistake| Error::Invalid(mistake.to_string()))?;
    Ok(Understood { change, password })
}

/// Changes users; what is wrong is in the answer.
pub(super) async fn change(
    node: Node,
    request: wire::ChangeUsersRequest,
    signed_in: &SignedIn,
    patience: Duration,
) -> wire::ChangeUsersReply {
    let changed = async {
        let Understood { mut change, password } = parse(request)?;
        if let Some(password) = password {
            // Before the work, which is what somebody would want who means harm. Who may do so decides the log.
            node.may_change_users(&change).await?;
            let turn = signed_in.turn(OF_CHANGES, patience).await.map_err(|_| Error::Busy)?;
            let hashed = tokio::task::spawn_blocking(move || {
                // It goes on when the client has gone, and so does its turn.
                let _turn = turn;
                bcrypt::hash(password, COST)
            });
            let hashed = hashed.await;
            let new = hashed.ok().and_then(Result::ok).ok_or(Error::Stopped)?;
            if let UserChange::Add { hash, .. } | UserChange::Password { hash, .. } = &mut change {
                *hash = new.into();
            }
        }
        node.change_users(change).await
    };
    wire::ChangeUsersReply { error: changed.await.err().map(wire::Error::of) }
}

/// Who the users are; for administrators.
pub(super) fn list(node: &Node) -> Result<wire::ListUsersReply, Status> {
    let users = node.list_users().map_err(errors::status)?;
    let granted = |(prefix, access): (&Bytes, &Access)| wire::Granted {
        prefix: prefix.clone(),
        read: access.read,
        write: access.write,
    };
    let user = |(name, user): (&Bytes, &Arc<crate::state::User>)| wire::User {
        name: String::from_utf8_lossy(name).into_owned(),
        is_admin: user.is_admin,
        grants: user.grants.iter().map(granted).collect(),
    };
    Ok(wire::ListUsersReply { is_enabled: users.is_enabled(), users: users.all().iter().map(user).collect() })
}
