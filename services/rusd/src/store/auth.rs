//! Users, roles and who may do what.
//!
//! Part of the replicated state: equal commands make equal users on every member. Passwords come as hashes that the API made;
//! simple tokens come from the API, too, and live as long as it says by the time of the log's entries. From etcd's
//! `server/auth/{store,simple_token}.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::command::IssuedToken;
use super::error::Error;
use crate::proto::authpb::{Permission, Role, User, permission};
use crate::proto::etcdserverpb as pb;

mod access;
mod spans;
#[cfg(test)]
mod tests;
mod tokens;

pub use access::Access;
use spans::Spans;
pub use tokens::Token;
use tokens::Tokens;

const ROOT: &str = "root";

/// How long a simple token lives after it was made or renewed: etcd's default of `--auth-token-ttl`.
pub const TOKEN_TTL_SECONDS: u64 = 300;
/// Most simple tokens that live at a time: the oldest makes room.
const TOKENS_MAX: usize = 100_000;

/// Users, roles, and what they may do.
#[derive(Clone, Debug, PartialEq)]
pub struct Auth {
    enabled: bool,
    revision: u64,
    /// Shared with the views before: a login changes none of these.
    users: Arc<BTreeMap<String, User>>,
    roles: Arc<BTreeMap<String, Role>>,
    tokens: Tokens,
    /// Of each user, what follows from its roles.
    granted: Arc<BTreeMap<String, Granted>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Granted {
    is_root: bool,
    read: Spans,
    write: Spans,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            enabled: false,
            // etcd's first, too: 0 is that of a request without credentials.
            revision: 1,
            users: Arc::default(),
            roles: Arc::default(),
            tokens: Tokens::default(),
            granted: Arc::default(),
        }
    }
}

/// Reads.
impl Auth {
    /// Whether anybody is checked at all.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Counts changes of users and roles.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A user.
    pub fn user(&self, name: &str) -> Result<&User, Error> {
        self.users.get(name).ok_or(Error::UserNotFound)
    }

    /// Names of all users, in order.
    pub fn users(&self) -> impl Iterator<Item = &String> {
        self.users.keys()
    }

    /// What a role permits.
    pub fn role(&self, name: &str) -> Result<Vec<Permission>, Error> {
        let role = self.roles.get(name).ok_or(Error::RoleNotFound)?;
        let everything = Permission {
            perm_type: permission::Type::Readwrite as i32,
            key: Bytes::new(),
            range_end: Bytes::from_static(&[0]),
        };
        Ok(if name == ROOT { vec![everything] } else { role.key_permission.clone() })
    }

    /// Names of all roles, in order.
    pub fn roles(&self) -> impl Iterator<Item = &String> {
        self.roles.keys()
    }

    /// The bcrypt hash to check a password against, and the revision to ask for a token with. From etcd's `CheckPassword`.
    pub fn password(&self, name: &str) -> Result<(&Bytes, u64), Error> {
        if !self.enabled {
            return Err(Error::AuthNotEnabled);
        }
        let user = self.users.get(name).ok_or(Error::AuthFailed)?;
        if has_no_password(user) { Err(Error::NoPasswordUser) } else { Ok((&user.password, self.revision)) }
    }

    /// A token that lives.
    pub fn token(&self, token: &str, now_millis: u64) -> Option<&Token> {
        let token = self.tokens.get(token)?;
        (self.enabled && now_millis < token.expires_millis).then_some(token)
    }

    /// All users, with the hashes of their passwords.
    pub(crate) fn all_users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// All roles.
    pub(crate) fn all_roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.values()
    }

    pub(super) fn all_tokens(&self) -> impl Iterator<Item = (&str, &Token)> {
        self.tokens.iter()
    }
}

/// Changes, as etcd's store makes them.
impl Auth {
    pub(super) fn enable(&mut self) -> Result<(), Error> {
        if !self.enabled {
            let root = self.users.get(ROOT).ok_or(Error::RootUserNotExist)?;
            if !root.roles.iter().any(|role| role == ROOT) {
                return Err(Error::RootRoleNotExist);
            }
            self.enabled = true;
        }
        Ok(())
    }

    pub(super) fn disable(&mut self) {
        if self.enabled {
            self.enabled = false;
            self.tokens = Tokens::default();
            self.revision += 1;
        }
    }

    /// Notes a token that the API made for a user whose password it checked. It is to check again if users or roles have changed meanwhile.
    pub(super) fn authenticate(&mut self, issued: &IssuedToken, now_millis: u64) -> Result<(), Error> {
        if !self.enabled {
            return Err(Error::AuthNotEnabled);
        }
        if issued.auth_revision != 0 && issued.auth_revision != self.revision {
            return Err(Error::AuthOldRevision);
        }
        let user = self.users.get(&issued.user).ok_or(Error::AuthFailed)?;
        if has_no_password(user) {
            return Err(Error::AuthFailed);
        }
        self.tokens.expire(now_millis);
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.remove_first();
        }
        let new = Token { user: issued.user.clone(), expires_millis: expiry(issued, now_millis) };
        self.tokens.insert(issued.token.as_str().into(), new);
        Ok(())
    }

    /// Gives a token that lives its full time again. One that has died meanwhile, with its user's password perhaps, stays dead.
    pub(super) fn renew_token(&mut self, issued: &IssuedToken, now_millis: u64) {
        let is_alive = |token: &Token| token.user == issued.user && now_millis < token.expires_millis;
        if self.tokens.get(&issued.token).is_some_and(is_alive) {
            let renewed = Token { user: issued.user.clone(), expires_millis: expiry(issued, now_millis) };
            self.tokens.insert(issued.token.as_str().into(), renewed);
        }
    }

    pub(super) fn add_user(&mut self, request: &pb::AuthUserAddRequest) -> Result<(), Error> {
        if request.name.is_empty() || request.name.len() > super::command::USER_MAX_BYTES {
            return Err(Error::UserEmpty);
        }
        if self.users.contains_key(&request.name) {
            return Err(Error::UserAlreadyExists);
        }
        let options = request.options.unwrap_or_default();
        let password =
            if options.no_password { Bytes::new() } else { hash(&request.password, &request.hashed_password)? };
        let name = Bytes::copy_from_slice(request.name.as_bytes());
        let user = User { name, password, roles: Vec::new(), options: Some(options) };
        Arc::make_mut(&mut self.users).insert(request.name.clone(), user);
        self.changed();
        Ok(())
    }

    pub(super) fn delete_user(&mut self, name: &str) -> Result<(), Error> {
        if self.enabled && name == ROOT {
            return Err(Error::InvalidAuthManagement);
        }
        Arc::make_mut(&mut self.users).remove(name).ok_or(Error::UserNotFound)?;
        self.tokens.remove_all_of(name);
        self.changed();
        Ok(())
    }

    pub(super) fn change_password(&mut self, request: &pb::AuthUserChangePasswordRequest) -> Result<(), Error> {
        let user = Arc::make_mut(&mut self.users).get_mut(&request.name).ok_or(Error::UserNotFound)?;
        user.password =
            if has_no_password(user) { Bytes::new() } else { hash(&request.password, &request.hashed_password)? };
        self.tokens.remove_all_of(&request.name);
        self.changed();
        Ok(())
    }

    pub(super) fn grant_role(&mut self, user: &str, role: &str) -> Result<(), Error> {
        let user = Arc::make_mut(&mut self.users).get_mut(user).ok_or(Error::UserNotFound)?;
        if role != ROOT && !self.roles.contains_key(role) {
            return Err(Error::RoleNotFound);
        }
        if let Err(at) = user.roles.binary_search_by(|other| other.as_str().cmp(role)) {
            user.roles.insert(at, role.to_owned());
            self.changed();
        }
        Ok(())
    }

    pub(super) fn revoke_role(&mut self, user: &str, role: &str) -> Result<(), Error> {
        if self.enabled && user == ROOT && role == ROOT {
            return Err(Error::InvalidAuthManagement);
        }
        let user = Arc::make_mut(&mut self.users).get_mut(user).ok_or(Error::UserNotFound)?;
        let at = user.roles.iter().position(|other| other == role).ok_or(Error::RoleNotGranted)?;
        user.roles.remove(at);
        self.changed();
        Ok(())
    }

    pub(super) fn add_role(&mut self, name: &str) -> Result<(), Error> {
        if name.is_empty() {
            return Err(Error::RoleEmpty);
        }
        if self.roles.contains_key(name) {
            return Err(Error::RoleAlreadyExists);
        }
        let role = Role { name: Bytes::copy_from_slice(name.as_bytes()), key_permission: Vec::new() };
        Arc::make_mut(&mut self.roles).insert(name.to_owned(), role);
        self.changed();
        Ok(())
    }

    pub(super) fn delete_role(&mut self, name: &str) -> Result<(), Error> {
        if self.enabled && name == ROOT {
            return Err(Error::InvalidAuthManagement);
        }
        Arc::make_mut(&mut self.roles).remove(name).ok_or(Error::RoleNotFound)?;
        for user in Arc::make_mut(&mut self.users).values_mut() {
            user.roles.retain(|role| role != name);
        }
        self.changed();
        Ok(())
    }

    pub(super) fn grant_permission(&mut self, request: &pb::AuthRoleGrantPermissionRequest) -> Result<(), Error> {
        let permission = request.perm.as_ref().ok_or(Error::PermissionNotGiven)?;
        let Permission { key, range_end, perm_type } = permission;
        let is_range = range_end.is_empty() || key < range_end || *range_end == [0].as_slice();
        if key.is_empty() || !is_range {
            return Err(Error::InvalidAuthManagement);
        }
        let role = Arc::make_mut(&mut self.roles).get_mut(&request.name).ok_or(Error::RoleNotFound)?;
        let at = role.key_permission.partition_point(|other| other.key < key);
        match role.key_permission.get_mut(at) {
            Some(other) if other.key == key && other.range_end == range_end => other.perm_type = *perm_type,
            _ => {
                // Keys that outlive the command shall not keep its buffer alive.
                let copy = Permission {
                    perm_type: *perm_type,
                    key: Bytes::copy_from_slice(key),
                    range_end: Bytes::copy_from_slice(range_end),
                };
                role.key_permission.push(copy);
                role.key_permission.sort_by(|a, b| a.key.cmp(&b.key));
            }
        }
        self.changed();
        Ok(())
    }

    pub(super) fn revoke_permission(&mut self, request: &pb::AuthRoleRevokePermissionRequest) -> Result<(), Error> {
        let role = Arc::make_mut(&mut self.roles).get_mut(&request.role).ok_or(Error::RoleNotFound)?;
        let before = role.key_permission.len();
        role.key_permission.retain(|other| other.key != request.key || other.range_end != request.range_end);
        if role.key_permission.len() == before {
            return Err(Error::PermissionNotGranted);
        }
        self.changed();
        Ok(())
    }

    /// Puts all of it back as it was.
    pub(super) fn restore(
        enabled: bool,
        revision: u64,
        users: Vec<User>,
        roles: Vec<Role>,
        tokens: BTreeMap<String, Token>,
    ) -> Option<Self> {
        let name = |name: &Bytes| String::from_utf8(name.to_vec()).ok();
        let users =
            users.into_iter().map(|user| Some((name(&user.name)?, user))).collect::<Option<BTreeMap<_, _>>>()?;
        let roles =
            roles.into_iter().map(|role| Some((name(&role.name)?, role))).collect::<Option<BTreeMap<_, _>>>()?;
        let (users, roles, tokens) = (Arc::new(users), Arc::new(roles), tokens.into_iter().collect());
        let mut auth = Self { enabled, revision, users, roles, tokens, granted: Arc::default() };
        auth.derive();
        Some(auth)
    }

    fn changed(&mut self) {
        self.revision += 1;
        self.derive();
    }

    fn derive(&mut self) {
        let Self { users, roles, .. } = self;
        let granted = users.iter().map(|(name, user)| {
            let permissions =
                user.roles.iter().filter_map(|role| roles.get(role)).flat_map(|role| &role.key_permission);
            let spans = |wanted: permission::Type| {
                let both = permission::Type::Readwrite as i32;
                let wanted =
                    permissions.clone().filter(move |it| it.perm_type == wanted as i32 || it.perm_type == both);
                Spans::new(wanted.map(|permission| (&*permission.key, &*permission.range_end)))
            };
            let is_root = user.roles.iter().any(|role| role == ROOT);
            let (read, write) = (spans(permission::Type::Read), spans(permission::Type::Write));
            (name.clone(), Granted { is_root, read, write })
        });
        self.granted = Arc::new(granted.collect());
    }
}

fn expiry(issued: &IssuedToken, now_millis: u64) -> u64 {
    let ttl_seconds = if issued.ttl_seconds == 0 { TOKEN_TTL_SECONDS } else { issued.ttl_seconds };
    now_millis.saturating_add(ttl_seconds.saturating_mul(1000))
}

fn has_no_password(user: &User) -> bool {
    user.options.as_ref().is_some_and(|options| options.no_password)
}

/// The hash that the API made. A password in the clear has no place in the log.
fn hash(password: &str, hashed: &str) -> Result<Bytes, Error> {
    if hashed.is_empty() && !password.is_empty() {
        return Err(Error::MalformedCommand);
    }
    STANDARD.decode(hashed).map(Bytes::from).map_err(|_| Error::NoPasswordUser)
}
