use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::proto::etcdserverpb as pb;

fn encode(path: &str, value: &Value) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let call = schema::call(path).unwrap();
    to_wire::encode(call.request, value, &mut out).map(|()| out).map_err(|wrong| wrong.to_string())
}

fn decode(path: &str, message: &impl Message) -> Value {
    let mut out = String::new();
    from_wire::decode(schema::call(path).unwrap().response, &message.encode_to_vec(), &mut out).unwrap();
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_request_is_what_a_grpc_client_would_have_sent() {
    let value = json!({
        "key": "YQ==", "rangeEnd": "_-8", "limit": "7", "revision": 3, "sort_order": "DESCEND", "sort_target": 2,
        "serializable": true, "keys_only": null, "of_tomorrow": {},
    });
    let expected = pb::RangeRequest {
        key: "a".into(),
        range_end: b"\xff\xef".as_slice().into(),
        limit: 7,
        revision: 3,
        sort_order: 2,
        sort_target: 2,
        serializable: true,
        ..Default::default()
    };
    let encoded = encode("/etcdserverpb.KV/Range", &value).unwrap();
    assert_eq!(pb::RangeRequest::decode(&encoded[..]).unwrap(), expected);
    let txn = json!({
        "compare": [{ "target": "CREATE", "key": "YQ==", "createRevision": "0" }],
        "success": [{ "requestPut": { "key": "YQ==", "value": "Yg==" } }, { "request_range": { "key": "YQ==" } }],
    });
    let txn = pb::TxnRequest::decode(&encode("/etcdserverpb.KV/Txn", &txn).unwrap()[..]).unwrap();
    assert_eq!(txn.compare[0].target_union, Some(pb::compare::TargetUnion::CreateRevision(0)));
    assert_eq!(txn.success.len(), 2);
}

#[test]
fn what_is_wrong_with_a_request_is_named() {
    let said = |value: Value| encode("/etcdserverpb.KV/Range", &value).unwrap_err();
    assert_eq!(said(json!({ "key": 5 })), "invalid value for key field: 5");
    assert_eq!(said(json!({ "limit": 1.5 })), "invalid value for limit field: 1.5");
    assert_eq!(said(json!({ "limit": "many" })), "invalid value for limit field: \"many\"");
    assert_eq!(said(json!({ "sortOrder": true })), "invalid value for sort_order field: true");
    assert_eq!(encode("/etcdserverpb.KV/Range", &json!({ "sortOrder": "UPWARDS" })), Ok(Vec::new()));
    assert_eq!(said(json!([])), "invalid value for message field: []");
    assert_eq!(said(json!({ "serializable": "true" })), "invalid value for serializable field: \"true\"");
}

#[test]
fn an_answer_has_64_bits_as_strings_and_leaves_defaults_out() {
    let response = pb::RangeResponse {
        header: Some(pb::ResponseHeader { cluster_id: u64::MAX, revision: -1, ..Default::default() }),
        kvs: vec![crate::proto::mvccpb::KeyValue { key: b"a\xff".as_slice().into(), version: 1, ..Default::default() }],
        more: true,
        count: 0,
    };
    let expected = json!({
        "header": { "cluster_id": "18446744073709551615", "revision": "-1" },
        "kvs": [{ "key": STANDARD.encode(b"a\xff"), "version": "1" }],
        "more": true,
    });
    assert_eq!(decode("/etcdserverpb.KV/Range", &response), expected);
    let alarms = vec![pb::AlarmMember { member_id: 1, alarm: 1 }, pb::AlarmMember { member_id: 2, alarm: 99 }];
    let alarms = pb::AlarmResponse { header: None, alarms };
    let expected = json!({ "alarms": [{ "memberID": "1", "alarm": "NOSPACE" }, { "memberID": "2", "alarm": 99 }] });
    assert_eq!(decode("/etcdserverpb.Maintenance/Alarm", &alarms), expected);
}

proptest! {
    #[test]
    fn what_was_put_comes_back(key in proptest::collection::vec(any::<u8>(), 0..40), lease in any::<i64>(), flag in any::<bool>()) {
        let value = json!({ "key": STANDARD.encode(&key), "lease": lease.to_string(), "prev_kv": flag });
        let encoded = encode("/etcdserverpb.KV/Put", &value).unwrap();
        let put = pb::PutRequest::decode(&encoded[..]).unwrap();
        prop_assert_eq!((&put.key[..], put.lease, put.prev_kv), (&key[..], lease, flag));
    }

    #[test]
    fn any_bytes_are_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut out = String::new();
        for call in schema::CALLS {
            out.clear();
            if from_wire::decode(call.response, &bytes, &mut out).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&out).is_ok(), "{}", out);
            }
        }
    }
}
