//! Random requests: few keys, so that they meet; every option, and now and then one that must be refused.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rusd::proto::etcdserverpb as pb;
use rusd::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use rusd::proto::etcdserverpb::request_op::Request;

/// A request.
#[derive(Clone, Debug)]
pub enum Operation {
    Put(pb::PutRequest),
    Range(pb::RangeRequest),
    RangeStream(pb::RangeRequest),
    DeleteRange(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Hash(pb::HashKvRequest),
    Grant(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    TimeToLive(pb::LeaseTimeToLiveRequest),
    Leases(pb::LeaseLeasesRequest),
    Watch(pb::WatchCreateRequest),
}

const KEYS: [&[u8]; 10] = [b"a", b"ab", b"abc", b"b", b"b\0", b"c", b"d", b"\xff", b"\xff\xff", b"\0"];
const LEASES: [i64; 4] = [1, 2, 3, i64::MAX];
/// Long enough that none ends by itself.
const TTL_SECONDS: i64 = 10_000;

/// Makes operations of a seed.
pub struct Generator {
    random: StdRng,
    /// Whether deletions of the transaction that is being made may have no end. etcd does not see that such a one meets a put of the same
    /// transaction, and ends itself if the put wants to keep what was deleted: then no put keeps anything.
    deletes_to_the_end: bool,
    /// The newest revision, as far as the caller knows.
    pub revision: i64,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), deletes_to_the_end: false, revision: 1 }
    }

    pub fn operation(&mut self) -> Operation {
        match self.random.random_range(0..100) {
            0..30 => Operation::Put(self.put()),
            30..45 => Operation::Range(self.range()),
            45..50 => Operation::RangeStream(self.range_to_stream()),
            50..60 => Operation::DeleteRange(self.delete_range()),
            60..78 => {
                self.deletes_to_the_end = self.rarely(2);
                Operation::Txn(self.txn(2))
            }
            78..80 => Operation::Compact(self.compaction()),
            80..83 => Operation::Hash(pb::HashKvRequest { revision: self.a_revision() }),
            83..87 => Operation::Grant(pb::LeaseGrantRequest { ttl: TTL_SECONDS, id: self.lease() }),
            87..90 => Operation::Revoke(pb::LeaseRevokeRequest { id: self.lease() }),
            90..93 => Operation::TimeToLive(pb::LeaseTimeToLiveRequest { id: self.lease(), keys: self.rarely(2) }),
            93..94 => Operation::Leases(pb::LeaseLeasesRequest {}),
            _ => Operation::Watch(self.watch()),
        }
    }

    /// Once in so many times.
    fn rarely(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    fn key(&mut self) -> Bytes {
        match self.rarely(60) {
            true => Bytes::new(),
            false => Bytes::from_static(KEYS.choose(&mut self.random).unwrap()),
        }
    }

    fn range_end(&mut self) -> Bytes {
        match self.random.random_range(0..4) {
            0..2 => Bytes::new(),
            2 => Bytes::from_static(b"\0"),
            // It may well lie before the key.
            _ => self.key(),
        }
    }

    fn lease(&mut self) -> i64 {
        *LEASES.choose(&mut self.random).unwrap()
    }

    /// None, one that was, now, or one to come.
    fn a_revision(&mut self) -> i64 {
        match self.random.random_range(0..8) {
            0..2 => 0,
            2..7 => self.random.random_range(self.revision / 2..=self.revision),
            _ => self.random.random_range(1..=self.revision + 5),
        }
    }

    /// Not of revision 0: ever after, etcd gives the hash of that one to who asks for the newest. And at once: what is removed sometime
    /// changes hashes sometime.
    fn compaction(&mut self) -> pb::CompactionRequest {
        pb::CompactionRequest { revision: self.a_revision().max(1), physical: true }
    }

    fn put(&mut self) -> pb::PutRequest {
        let (ignore_value, ignore_lease) = (self.rarely(10), self.rarely(10));
        let value: &[u8] = [&b""[..], b"1", b"2", b"three", b"\0\xff"].choose(&mut self.random).unwrap();
        pb::PutRequest {
            key: self.key(),
            value: if ignore_value && !self.rarely(8) { Bytes::new() } else { Bytes::copy_from_slice(value) },
            lease: if !self.rarely(4) || ignore_lease && !self.rarely(8) { 0 } else { self.lease() },
            prev_kv: self.rarely(2),
            ignore_value,
            ignore_lease,
        }
    }

    /// A limit comes without a target to sort by: etcd sorts one key more than the limit, drops the last, and goes on behind the key
    /// that then is the last, so that keys before it are neither told nor counted.
    fn range_to_stream(&mut self) -> pb::RangeRequest {
        let range = self.range();
        pb::RangeRequest { limit: if range.sort_target == 0 { range.limit } else { 0 }, ..range }
    }

    fn range(&mut self) -> pb::RangeRequest {
        let mut filter =
            || if self.random.random_ratio(1, 6) { self.random.random_range(0..=self.revision) } else { 0 };
        let [min_mod_revision, max_mod_revision, min_create_revision, max_create_revision] = [(); 4].map(|()| filter());
        pb::RangeRequest {
            key: self.key(),
            range_end: self.range_end(),
            limit: if self.rarely(3) { self.random.random_range(0..4) } else { 0 },
            revision: if self.rarely(3) { self.a_revision() } else { 0 },
            // The last one of each is none.
            sort_order: if self.rarely(2) {
                self.random.random_range(0..3)
            } else {
                self.random.random_range(0..80) / 79 * 3
            },
            sort_target: if self.rarely(2) {
                self.random.random_range(0..5)
            } else {
                self.random.random_range(0..80) / 79 * 5
            },
            serializable: self.rarely(2),
            keys_only: self.rarely(5),
            count_only: self.rarely(5),
            min_mod_revision,
            max_mod_revision,
            min_create_revision,
            max_create_revision,
        }
    }

    fn delete_range(&mut self) -> pb::DeleteRangeRequest {
        pb::DeleteRangeRequest { key: self.key(), range_end: self.range_end(), prev_kv: self.rarely(2) }
    }

    fn txn(&mut self, depth: u32) -> pb::TxnRequest {
        let compare = (0..self.random.random_range(0..3)).map(|_| self.compare()).collect();
        let mut branch = || (0..self.random.random_range(0..4)).map(|_| self.request(depth)).collect();
        let (success, failure) = (branch(), branch());
        pb::TxnRequest { compare, success, failure }
    }

    fn request(&mut self, depth: u32) -> pb::RequestOp {
        let request = match self.random.random_range(0..10) {
            0..4 => {
                let mut put = self.put();
                (put.ignore_value, put.ignore_lease) =
                    (put.ignore_value && !self.deletes_to_the_end, put.ignore_lease && !self.deletes_to_the_end);
                Request::RequestPut(put)
            }
            4..7 => Request::RequestRange(self.range()),
            7..9 => {
                let mut delete = self.delete_range();
                if !self.deletes_to_the_end && delete.range_end == b"\0"[..] {
                    delete.range_end = Bytes::new();
                }
                Request::RequestDeleteRange(delete)
            }
            _ if depth > 0 => Request::RequestTxn(self.txn(depth - 1)),
            _ => return pb::RequestOp { request: None },
        };
        pb::RequestOp { request: Some(request) }
    }

    fn compare(&mut self) -> pb::Compare {
        use CompareResult::{Equal, Greater, Less, NotEqual};
        let number = self.random.random_range(0..=self.revision);
        let (target, union) = match self.random.random_range(0..5) {
            0 => (CompareTarget::Version, TargetUnion::Version(number % 4)),
            1 => (CompareTarget::Create, TargetUnion::CreateRevision(number)),
            2 => (CompareTarget::Mod, TargetUnion::ModRevision(number)),
            3 => (CompareTarget::Lease, TargetUnion::Lease(self.lease() % 4)),
            _ => (CompareTarget::Value, TargetUnion::Value(Bytes::from_static(b"1"))),
        };
        pb::Compare {
            result: *[Equal, Greater, Less, NotEqual].choose(&mut self.random).unwrap() as i32,
            target: target as i32,
            key: self.key(),
            range_end: self.range_end(),
            target_union: Some(union),
        }
    }

    fn watch(&mut self) -> pb::WatchCreateRequest {
        let filters = if self.rarely(4) { vec![self.random.random_range(0..2)] } else { vec![] };
        pb::WatchCreateRequest {
            key: self.key(),
            range_end: self.range_end(),
            start_revision: self.a_revision(),
            prev_kv: self.rarely(2),
            filters,
            fragment: self.rarely(3),
            ..Default::default()
        }
    }
}
