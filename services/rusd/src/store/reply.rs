//! What a command of one kind comes to. The store answers with a [`Response`] of any kind; whoever put the command into the log knows
//! which one it must be.

use super::Response;
use crate::proto::etcdserverpb as pb;

/// The newest revision, of a command that has nothing else to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestRevision(pub i64);

/// It is of another kind: this one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the store replied as to another command: {0:?}")]
pub struct OtherReply(pub Response);

macro_rules! replies {
    ($($kind:ident($reply:ident) $type:ty: $made:expr;)*) => {
        $(impl TryFrom<Response> for $type {
            type Error = OtherReply;

            fn try_from(response: Response) -> Result<Self, OtherReply> {
                match response {
                    Response::$kind($reply) => Ok($made),
                    other => Err(OtherReply(other)),
                }
            }
        })*
    };
}

replies! {
    Put(reply) pb::PutResponse: reply;
    DeleteRange(reply) pb::DeleteRangeResponse: reply;
    Txn(reply) pb::TxnResponse: reply;
    LeaseGrant(reply) pb::LeaseGrantResponse: reply;
    Alarm(reply) pb::AlarmResponse: reply;
    Done(revision) NewestRevision: NewestRevision(revision);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_another_command_is_an_error_and_no_empty_success() {
        let put = pb::PutResponse { prev_kv: Some(Default::default()), ..Default::default() };
        assert_eq!(pb::PutResponse::try_from(Response::Put(put.clone())), Ok(put.clone()));
        assert_eq!(pb::TxnResponse::try_from(Response::Put(put.clone())), Err(OtherReply(Response::Put(put))));
        assert_eq!(NewestRevision::try_from(Response::Done(7)), Ok(NewestRevision(7)));
        assert!(pb::PutResponse::try_from(Response::Done(7)).is_err());
    }
}
