//! Clients that put and get, each one request at a time, and write down what is known of each.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::children::{Children, Connection};
use crate::history::Operation;

/// Keys at a time.
const KEYS: u64 = 5;
/// Then there are others: a checker's work grows faster than the number of operations on a key.
const KEY_NANOS: u64 = 5_000_000_000;

/// What all clients share.
pub struct Load<'a> {
    pub children: &'a Children,
    pub began: Instant,
    pub ends: AtomicBool,
    pub history: Mutex<Vec<Operation>>,
    /// When the last put was acknowledged, nanoseconds since the beginning.
    pub last_acknowledged: AtomicU64,
    /// Who leads, as far as anybody knows.
    pub leader: AtomicU64,
}

impl<'a> Load<'a> {
    pub fn new(children: &'a Children) -> Self {
        Self {
            children,
            began: Instant::now(),
            ends: AtomicBool::new(false),
            history: Mutex::default(),
            last_acknowledged: AtomicU64::new(0),
            leader: AtomicU64::new(1),
        }
    }

    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// The keys of the moment.
    pub fn keys(&self) -> impl Iterator<Item = String> + use<> {
        keys_of(self.now() / KEY_NANOS)
    }

    /// What a client does until the end. `number` decides what it asks, the machine when.
    pub fn client(&self, number: usize) {
        let mut connections: Vec<Option<Connection>> = (0..self.children.members).map(|_| None).collect();
        let mut random = number as u64;
        for count in 0_u64.. {
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let dice = random >> 33;
            let Some(key) = self.keys().nth((dice % KEYS) as usize) else { return };
            if dice / KEYS % 10 < 6 {
                self.put(number, key, format!("{number}-{count}"), &mut connections);
            } else {
                let level = if (dice / KEYS).is_multiple_of(2) { "linearizable" } else { "lease" };
                let leads = (dice / 100).is_multiple_of(2);
                let member =
                    if leads { self.leader.load(Ordering::Relaxed) } else { dice / 200 % self.children.members + 1 };
                self.get(number, key, level, member, &mut connections);
            }
            // So many that they get in each other's way, so few that a long history can be checked.
            std::thread::sleep(Duration::from_millis(4));
        }
    }

    /// Asks a member. The outer `None`: it could not be asked.
    fn ask(&self, connections: &mut [Option<Connection>], member: u64, request: &str) -> Option<Option<String>> {
        let connection = &mut connections[member as usize - 1];
        if connection.is_none() {
            *connection = self.children.connect(member);
        }
        let answer = connection.as_mut()?.ask(request);
        if answer.is_none() {
            *connection = None;
        }
        Some(answer)
    }

    /// Whether it was acknowledged.
    pub fn put(&self, client: usize, key: String, value: String, connections: &mut [Option<Connection>]) -> bool {
        let member = self.leader.load(Ordering::Relaxed);
        let start_nanos = self.now();
        let Some(answer) = self.ask(connections, member, &format!("put {key} {value}")) else {
            self.leader.store(member % self.children.members + 1, Ordering::Relaxed);
            return false;
        };
        let end = self.now();
        let end_nanos = match answer.as_deref().unwrap_or("unknown").split(' ').collect::<Vec<_>>()[..] {
            ["ok", _] => Some(end),
            ["notleader", leader] => {
                let leader = leader.parse().ok().filter(|leader| *leader > 0);
                self.leader.store(leader.unwrap_or(member % self.children.members + 1), Ordering::Relaxed);
                return false;
            }
            ["busy"] => return false,
            _ => None,
        };
        if end_nanos.is_some() {
            self.last_acknowledged.fetch_max(end, Ordering::Relaxed);
        } else {
            self.leader.store(member % self.children.members + 1, Ordering::Relaxed);
        }
        self.note(Operation { client, key, value: Some(value), start_nanos, end_nanos, level: None });
        end_nanos.is_some()
    }

    pub fn get(
        &self,
        client: usize,
        key: String,
        level: &'static str,
        member: u64,
        connections: &mut [Option<Connection>],
    ) -> bool {
        let start_nanos = self.now();
        let answer = self.ask(connections, member, &format!("get {level} {key}")).flatten();
        self.note_get(client, key, level, start_nanos, answer)
    }

    /// Notes what a get has seen, if it was answered.
    pub fn note_get(
        &self,
        client: usize,
        key: String,
        level: &'static str,
        start_nanos: u64,
        answer: Option<String>,
    ) -> bool {
        let end_nanos = Some(self.now());
        let value = match answer.as_deref().unwrap_or("failed").split(' ').collect::<Vec<_>>()[..] {
            ["value", value, _] => Some(value.to_owned()),
            ["none", _] => None,
            _ => return false,
        };
        self.note(Operation { client, key, value, start_nanos, end_nanos, level: Some(level) });
        true
    }

    fn note(&self, operation: Operation) {
        self.history.lock().unwrap().push(operation);
    }

    /// Reads every key strongly at every member: what was acknowledged is there.
    pub fn look_at_everything(&self) {
        let mut connections: Vec<Option<Connection>> = (0..self.children.members).map(|_| None).collect();
        for member in 1..=self.children.members {
            for key in (0..=self.now() / KEY_NANOS).flat_map(keys_of) {
                let deadline = Instant::now() + harness::LONG;
                while !self.get(1_000, key.clone(), "linearizable", member, &mut connections) {
                    assert!(Instant::now() < deadline, "member {member} does not answer when all is well");
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }
}

fn keys_of(generation: u64) -> impl Iterator<Item = String> {
    (0..KEYS).map(move |key| format!("key{key}.{generation}"))
}
