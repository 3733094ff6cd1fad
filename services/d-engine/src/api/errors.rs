//! What errors become in the dialects.

use d_engine_client::{Error, Leader};
use http::HeaderValue;
use service_kit::grpc::{Code, Status};

/// A status, as release 0.2.4 would choose it; with the header that names the leader, which its clients look for.
pub(super) fn status(error: Error) -> Status {
    let said = error.to_string();
    match error {
        Error::NotLeader(leader) => {
            let status = Status::new(Code::FailedPrecondition, "Not leader");
            match leader.as_ref().and_then(header) {
                Some(value) => status.with("x-raft-leader", value),
                None => status,
            }
        }
        Error::Denied(_) => Status::new(Code::PermissionDenied, said),
        Error::Busy | Error::NotNow(_) => Status::new(Code::ResourceExhausted, said),
        Error::Invalid(_) | Error::NoSession(_) | Error::Forgotten(_) => Status::new(Code::InvalidArgument, said),
        Error::TooOld(_) => Status::new(Code::OutOfRange, said),
        Error::UnknownOutcome(_) | Error::NoQuorum | Error::Unreachable(_) | Error::Failed(_) | Error::Stopped => {
            Status::new(Code::Unavailable, said)
        }
    }
}

fn header(Leader { id, address }: &Leader) -> Option<HeaderValue> {
    let value = serde_json::json!({ "leader_id": id, "address": address });
    HeaderValue::from_str(&value.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_the_leader() {
        let leader = Leader { id: 2, address: "127.0.0.1:9082".into() };
        let value = header(&leader).unwrap();
        let value: serde_json::Value = serde_json::from_slice(value.as_bytes()).unwrap();
        assert_eq!(value, serde_json::json!({ "leader_id": 2, "address": "127.0.0.1:9082" }));
        assert_eq!(status(Error::NotLeader(Some(leader))).code, Code::FailedPrecondition);
    }
}
