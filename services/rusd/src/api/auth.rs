//! Users, roles and tokens. From etcd's `server/etcdserver/api/v3rpc/auth.go` and `server/auth/store.go`.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use prost::Message;
use service_kit::grpc::{self, Code, Status, Unary, decode};

use crate::api::kv::header_of;
use crate::api::{Answer, Api, refuse};
use crate::jwt::Claims;
use crate::node::{Node, now_millis};
use crate::proto::etcdserverpb as pb;
use crate::store::command::Kind;
use crate::store::{Access, Caller, Error, View};
use crate::tokens::Tokens;

/// As etcd says it.
const VERIFY_ONLY: &str = "auth: token signing attempted with verify-only key";

/// Methods that put the request into the log as it is, and answer with a header.
macro_rules! plain {
    ($($name:ident $kind:ident $response:ident)*) => {
        impl Api {
            $(pub(super) fn $name(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
                Ok(self.propose(call, Access::Administrate, Kind::$kind, &message, |node, done| {
                    Ok(pb::$response { header: header_of(node, done)? })
                }))
            })*
        }
    };
}

plain! {
    auth_enable AuthEnable AuthEnableResponse
    auth_disable AuthDisable AuthDisableResponse
    user_delete AuthUserDelete AuthUserDeleteResponse
    user_grant_role AuthUserGrantRole AuthUserGrantRoleResponse
    user_revoke_role AuthUserRevokeRole AuthUserRevokeRoleResponse
    role_add AuthRoleAdd AuthRoleAddResponse
    role_delete AuthRoleDelete AuthRoleDeleteResponse
    role_grant_permission AuthRoleGrantPermission AuthRoleGrantPermissionResponse
    role_revoke_permission AuthRoleRevokePermission AuthRoleRevokePermissionResponse
}

impl Api {
    pub(super) fn auth_status(&self, call: &grpc::Caller, _: Bytes) -> Result<Unary, Status> {
        // Everybody may ask, as in etcd 3.7.
        self.look(false, call, |node, _, view, term| {
            let header = Some(node.header(view.revision(), term));
            let (enabled, auth_revision) = (view.auth.is_enabled(), view.auth.revision());
            Ok(grpc::encode(&pb::AuthStatusResponse { header, enabled, auth_revision }))
        })
    }

    /// Checks a password, and makes a token that all members take.
    pub(super) fn authenticate(&self, _: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::AuthenticateRequest = decode(message)?;
        let node = Arc::clone(&self.node);
        Ok(Unary::Later(Box::pin(async move {
            loop {
                let (view, _) = node.view().await?;
                let (hash, auth_revision) = view.auth.password(&request.name)?;
                let (hash, password) = (hash.clone(), request.password.clone());
                let verify = move || bcrypt::verify(password, &String::from_utf8_lossy(&hash));
                if !node.passwords.run(verify).await?.unwrap_or(false) {
                    return Err(Error::AuthFailed.into());
                }
                let simple = match &node.tokens {
                    Tokens::Simple(simple) => simple,
                    Tokens::Jwt(jwt) => {
                        let token = jwt.make(&Claims { user: request.name, auth_revision }, now_millis());
                        let token = token.ok_or_else(|| Status::new(Code::Unknown, VERIFY_ONLY))?;
                        return Ok(grpc::encode(&pb::AuthenticateResponse { header: Some(node.header_now()), token }));
                    }
                };
                let issued = simple.issue(request.name.clone(), auth_revision, node.handle.status().applied);
                let done = node.propose(&Caller::Server, Kind::Authenticate, &issued.encode_to_vec()).await;
                // The password may have changed while it was checked.
                if done.as_ref().is_err_and(|status| status.message == Error::AuthOldRevision.message()) {
                    continue;
                }
                let header = header_of(&node, done?)?;
                return Ok(grpc::encode(&pb::AuthenticateResponse { header, token: issued.token }));
            }
        })))
    }

    pub(super) fn user_add(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let mut request: pb::AuthUserAddRequest = decode(message)?;
        let caller = self.permit(call, Access::Administrate)?;
        if request.name.is_empty() {
            return Ok(refuse(Error::UserEmpty));
        }
        let needs_password = !request.options.as_ref().is_some_and(|options| options.no_password);
        let node = Arc::clone(&self.node);
        Ok(Unary::Later(Box::pin(async move {
            if needs_password && request.hashed_password.is_empty() {
                request.hashed_password = hashed(&node, std::mem::take(&mut request.password)).await?;
            }
            let done = node.propose(&caller, Kind::AuthUserAdd, &request.encode_to_vec()).await?;
            Ok(grpc::encode(&pb::AuthUserAddResponse { header: header_of(&node, done)? }))
        })))
    }

    pub(super) fn user_change_password(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let mut request: pb::AuthUserChangePasswordRequest = decode(message)?;
        let caller = self.permit(call, Access::Administrate)?;
        let node = Arc::clone(&self.node);
        Ok(Unary::Later(Box::pin(async move {
            if request.hashed_password.is_empty() {
                request.hashed_password = hashed(&node, std::mem::take(&mut request.password)).await?;
            }
            let done = node.propose(&caller, Kind::AuthUserChangePassword, &request.encode_to_vec()).await?;
            Ok(grpc::encode(&pb::AuthUserChangePasswordResponse { header: header_of(&node, done)? }))
        })))
    }

    pub(super) fn user_get(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::AuthUserGetRequest = decode(message)?;
        self.see(call, move |caller, view, header| {
            view.check(caller, Access::SeeUser(&request.name))?;
            let roles = view.auth.user(&request.name)?.roles.clone();
            Ok(grpc::encode(&pb::AuthUserGetResponse { header, roles }))
        })
    }

    pub(super) fn user_list(&self, call: &grpc::Caller, _: Bytes) -> Result<Unary, Status> {
        self.see(call, |caller, view, header| {
            view.check(caller, Access::Administrate)?;
            Ok(grpc::encode(&pb::AuthUserListResponse { header, users: view.auth.users().cloned().collect() }))
        })
    }

    pub(super) fn role_get(&self, call: &grpc::Caller, message: Bytes) -> Result<Unary, Status> {
        let request: pb::AuthRoleGetRequest = decode(message)?;
        self.see(call, move |caller, view, header| {
            view.check(caller, Access::SeeRole(&request.role))?;
            Ok(grpc::encode(&pb::AuthRoleGetResponse { header, perm: view.auth.role(&request.role)? }))
        })
    }

    pub(super) fn role_list(&self, call: &grpc::Caller, _: Bytes) -> Result<Unary, Status> {
        self.see(call, |caller, view, header| {
            view.check(caller, Access::Administrate)?;
            Ok(grpc::encode(&pb::AuthRoleListResponse { header, roles: view.auth.roles().cloned().collect() }))
        })
    }

    fn see(
        &self,
        call: &grpc::Caller,
        look: impl Fn(&Caller, &View, Option<pb::ResponseHeader>) -> Answer + 'static,
    ) -> Result<Unary, Status> {
        self.look(false, call, move |node, caller, view, term| {
            look(caller, view, Some(node.header(view.revision(), term)))
        })
    }
}

/// Longer ones bcrypt cannot tell apart.
const PASSWORD_BYTES_MAX: usize = 72;

/// The hash as it stands in a command.
async fn hashed(node: &Node, password: String) -> Result<String, Status> {
    if password.len() > PASSWORD_BYTES_MAX {
        // As etcd says it.
        return Err(Status::new(Code::Unknown, "bcrypt: password length exceeds 72 bytes"));
    }
    let cost = node.settings.bcrypt_cost;
    let hash = node.passwords.run(move || bcrypt::hash(password, cost)).await?;
    let hash = hash.map_err(|error| Status::new(Code::Unknown, format!("bcrypt: {error}")))?;
    Ok(STANDARD.encode(hash))
}
