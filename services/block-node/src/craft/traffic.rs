//! Transactions of a network, as far as their size and what they have in common goes: each is signed, has a result, and changes accounts.
//!
//! What differs every time is random (signatures, amounts, times), what stays is not (keys of accounts, memos, structure), and few accounts
//! act often. A transaction takes about 910 bytes in three items, and zstd at level 1 makes blocks of many of them 2.4 times smaller, as the
//! published size model of a network's blocks says (raw 910.5 bytes a transaction, compressed 372.8).

use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

use super::{GENESIS_SECONDS, field};
use crate::wire::{put_bytes, put_varint};

/// Accounts that there are.
const ACCOUNTS: u64 = 2_000;
const MEMOS: [&str; 6] =
    ["", "", "", "settlement of the day", "https://example.org/topics/sensor/7731", "payout batch 2026-11"];

/// Makes transactions. The same seed makes the same ones.
#[derive(Clone, Debug)]
pub struct Traffic {
    random: SmallRng,
    seconds: u64,
}

fn put_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

fn account_id(account: u64) -> Vec<u8> {
    let mut id = Vec::new();
    put_integer(&mut id, 3, 1_000 + account);
    id
}

/// The key of an account, which is always the same.
fn key(account: u64) -> [u8; 32] {
    let mut key = [0; 32];
    SmallRng::seed_from_u64(account).fill_bytes(&mut key);
    key
}

impl Traffic {
    /// From the beginning.
    pub fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), seconds: GENESIS_SECONDS as u64 }
    }

    /// The items of so many transactions.
    pub fn items(&mut self, transactions: usize) -> Vec<Vec<u8>> {
        self.seconds += 2;
        (0..transactions).flat_map(|_| self.transaction()).collect()
    }

    /// Few act often.
    fn account(&mut self) -> u64 {
        let share: f64 = self.random.random_range(0.0..1.0);
        (share.powi(3) * ACCOUNTS as f64) as u64
    }

    fn timestamp(&mut self) -> Vec<u8> {
        let mut timestamp = Vec::new();
        put_integer(&mut timestamp, 1, self.seconds);
        put_integer(&mut timestamp, 2, self.random.random_range(0..1_000_000_000));
        timestamp
    }

    fn transfers(&mut self, accounts: &[u64]) -> Vec<u8> {
        let mut transfers = Vec::new();
        for account in accounts {
            let mut transfer = Vec::new();
            put_bytes(&mut transfer, 1, &account_id(*account));
            put_integer(&mut transfer, 2, self.random.random_range(1..5_000_000_000));
            put_bytes(&mut transfers, 1, &transfer);
        }
        transfers
    }

    fn transaction(&mut self) -> [Vec<u8>; 3] {
        let (payer, receiver, node) = (self.account(), self.account(), self.random.random_range(0..30));
        // Of every other transaction one more account takes part.
        let all = [payer, receiver, node, self.account()];
        let accounts = &all[..self.random.random_range(3..=4)];
        [
            field(4, &self.signed(payer, receiver, node)),
            field(5, &self.result(payer, receiver, node)),
            field(7, &self.state_changes(accounts)),
        ]
    }

    fn signed(&mut self, payer: u64, receiver: u64, node: u64) -> Vec<u8> {
        let (mut id, mut body, mut pairs, mut signed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        put_bytes(&mut id, 1, &self.timestamp());
        put_bytes(&mut id, 2, &account_id(payer));
        put_bytes(&mut body, 1, &id);
        put_bytes(&mut body, 2, &account_id(node));
        put_integer(&mut body, 3, 200_000_000);
        put_bytes(&mut body, 4, &[0x08, 120]);
        put_bytes(&mut body, 6, MEMOS[self.random.random_range(0..MEMOS.len())].as_bytes());
        put_bytes(&mut body, 14, &self.transfers(&[payer, receiver]));
        for signer in [payer, receiver] {
            let (mut pair, mut signature) = (Vec::new(), [0; 64]);
            self.random.fill_bytes(&mut signature);
            put_bytes(&mut pair, 1, &key(signer));
            put_bytes(&mut pair, 3, &signature);
            put_bytes(&mut pairs, 1, &pair);
        }
        put_bytes(&mut signed, 1, &body);
        put_bytes(&mut signed, 2, &pairs);
        signed
    }

    fn result(&mut self, payer: u64, receiver: u64, node: u64) -> Vec<u8> {
        let mut result = Vec::new();
        put_integer(&mut result, 1, 22);
        put_bytes(&mut result, 2, &self.timestamp());
        put_integer(&mut result, 4, self.random.random_range(80_000..90_000));
        // Fees go to the node and to two accounts of the network.
        put_bytes(&mut result, 5, &self.transfers(&[node, 98, 800, payer, receiver]));
        result
    }

    /// Whole accounts, as they are behind the transaction.
    fn state_changes(&mut self, accounts: &[u64]) -> Vec<u8> {
        let mut changes = Vec::new();
        put_bytes(&mut changes, 1, &self.timestamp());
        for account in accounts {
            let (mut value, mut update, mut change) = (Vec::new(), Vec::new(), Vec::new());
            let key = key(*account);
            put_bytes(&mut value, 1, &account_id(*account));
            put_bytes(&mut value, 2, &key[..20]);
            put_bytes(&mut value, 3, &key);
            put_integer(&mut value, 4, GENESIS_SECONDS as u64 + 7_776_000);
            put_integer(&mut value, 5, self.random.random_range(1..5_000_000_000_000));
            put_bytes(&mut value, 6, b"auto-created account");
            put_integer(&mut value, 8, 1 + account % 30);
            put_integer(&mut value, 10, self.seconds / 86_400);
            put_integer(&mut value, 12, 7_776_000);
            put_integer(&mut value, 20, self.random.random_range(0..1_000));
            put_bytes(&mut value, 24, &[0; 24]);
            put_bytes(&mut update, 1, &account_id(*account));
            put_bytes(&mut update, 2, &value);
            put_integer(&mut change, 1, 2);
            put_bytes(&mut change, 5, &update);
            put_bytes(&mut changes, 2, &change);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_have_the_size_of_the_published_model() {
        const COUNT: usize = 2_000;
        let bytes = Traffic::new(1).items(COUNT).concat();
        let packed = zstd::bulk::compress(&bytes, 1).unwrap();
        let (raw, packed) = (bytes.len() / COUNT, packed.len() / COUNT);
        println!("{raw} bytes a transaction, {packed} compressed");
        assert!(raw.abs_diff(910) < 60, "{raw}");
        assert!(packed.abs_diff(373) < 40, "{packed} of {raw}");
    }
}
