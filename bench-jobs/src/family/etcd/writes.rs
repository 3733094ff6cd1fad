//! Load that writes: Put, TxnPut, Delete.

use std::time::Instant;

use storebench_crds::job::Phase;

use crate::content::keys::KeyPicker;
use crate::failure::Failure;
use crate::family::etcd::Etcd;
use crate::load::session::Session;
use crate::net::etcd::messages::{DeleteRangeRequest, PutRequest, RequestOp, TxnRequest, request_op, response_op};
use crate::net::etcd::store::{Store, revision_of};

/// Puts of single keys.
pub async fn put(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let mut picker = etcd.picker(session);
    let mut request = PutRequest::default();
    while let Some(mut batch) = session.next().await {
        let slot = picker.slot_to_write();
        let version = etcd.fill_put(&mut request, slot);
        let answer = store.put(&request).await?;
        session.answered(&mut batch, 1, Instant::now());
        etcd.ledger.acknowledge(slot, version);
        etcd.written(session, slot, revision_of(answer.header.as_ref()));
    }
    Ok(())
}

/// Transactions of puts, each of a different key.
pub async fn transact(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let puts = etcd.plan.parameters.operations_per_transaction.unwrap_or(1);
    let mut picker = etcd.picker(session);
    let mut request = TxnRequest::default();
    let mut writes: Vec<(u32, u32)> = Vec::with_capacity(puts as usize);
    while let Some(mut batch) = session.next().await {
        fill_transaction(etcd, &mut picker, puts, &mut writes, &mut request);
        let answer = store.transact(&request).await?;
        session.answered(&mut batch, 1, Instant::now());
        let revision = revision_of(answer.header.as_ref());
        let is_put = |response: &crate::net::etcd::messages::ResponseOp| {
            matches!(response.response, Some(response_op::Response::Put(_)))
        };
        let complete =
            answer.succeeded && answer.responses.len() == writes.len() && answer.responses.iter().all(is_put);
        if let Some((slot, _)) = writes.first() {
            if !complete {
                let detail = format!(
                    "expected a transaction to succeed with the answers to {} puts, found success {} and {} answers",
                    writes.len(),
                    answer.succeeded,
                    answer.responses.len()
                );
                session.wrong(etcd.name_of(*slot), detail);
            }
            etcd.written(session, *slot, revision);
        }
        for (slot, version) in &writes {
            etcd.ledger.acknowledge(*slot, *version);
        }
    }
    Ok(())
}

/// Draws different keys and makes the transaction that writes them.
fn fill_transaction(
    etcd: &Etcd,
    picker: &mut KeyPicker,
    puts: u32,
    writes: &mut Vec<(u32, u32)>,
    request: &mut TxnRequest,
) {
    request.success.resize_with(puts as usize, RequestOp::default);
    writes.clear();
    for operation in &mut request.success {
        // The key space was chosen so that a client has at least as many keys to write as a transaction takes.
        let slot = loop {
            let slot = picker.slot_to_write();
            if !writes.iter().any(|(drawn, _)| *drawn == slot) {
                break slot;
            }
        };
        let request_op::Request::Put(put) =
            operation.request.get_or_insert_with(|| request_op::Request::Put(PutRequest::default()));
        writes.push((slot, etcd.fill_put(put, slot)));
    }
}

/// Deletions of single keys. The warm-up deletes keys beyond the key space of all processes, which do not exist: deleting
/// those of the measured phase would leave it nothing to find.
pub async fn delete(etcd: &Etcd, store: &mut Store, session: &Session) -> Result<(), Failure> {
    let mut picker = etcd.picker(session);
    let mut request = DeleteRangeRequest::default();
    let is_warm_up = session.phase() == Phase::WarmUp;
    while let Some(mut batch) = session.next().await {
        let slot = picker.slot_to_write();
        if is_warm_up {
            request.key.clear();
            etcd.names.write(etcd.keys.key(slot) + etcd.plan.parameters.key_space, &mut request.key);
        } else {
            etcd.fill_key(&mut request.key, slot);
        }
        let answer = store.delete(&request).await?;
        session.answered(&mut batch, 1, Instant::now());
        if is_warm_up {
            if answer.deleted != 0 {
                let detail = format!("expected a deletion to find nothing, it found {}", answer.deleted);
                session.wrong(String::from_utf8_lossy(&request.key), detail);
            }
            continue;
        }
        match etcd.deletions.answered(slot, answer.deleted) {
            Ok(()) => session.verified(1),
            Err(detail) => session.wrong(etcd.name_of(slot), detail),
        }
        if answer.deleted == 1 {
            etcd.written(session, slot, revision_of(answer.header.as_ref()));
        }
    }
    Ok(())
}
