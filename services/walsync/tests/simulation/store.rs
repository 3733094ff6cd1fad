//! A bucket in memory in bad weather: what it does to a call is drawn from a seed.

use harness::Random;
use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use walsync::store::memory::MemoryStore;
use walsync::store::{Attributes, Body, Object, Part, Store, StoreError};

/// The bucket, which outlives those who write into it.
#[derive(Default)]
pub struct Bucket {
    /// As it is.
    pub objects: Arc<MemoryStore>,
    weather: Mutex<Weather>,
}

#[derive(Default)]
struct Weather {
    random: Option<Random>,
    /// Objects of which half is there.
    torn: BTreeSet<String>,
    /// What was listed when, for lists that are old.
    listed: Vec<Vec<Object>>,
    /// Old lists that were given.
    stale: u64,
    faults: u64,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fair,
    Refused,
    /// It is done, and its answer is lost.
    Unanswered,
    /// Half of it is done. Nobody is told that it was.
    Torn,
    /// It tells of what was; of an object twice.
    Stale,
    Doubled,
}

impl Bucket {
    /// From now on calls are disturbed as this chance says; `None`: none are.
    pub fn set_weather(&self, random: Option<Random>) {
        self.weather.lock().unwrap().random = random;
    }

    /// Objects of which half is there.
    pub fn torn(&self) -> BTreeSet<String> {
        self.weather.lock().unwrap().torn.clone()
    }

    /// How many old lists were given.
    pub fn stale_lists(&self) -> u64 {
        self.weather.lock().unwrap().stale
    }

    /// How many calls were disturbed.
    pub fn faults(&self) -> u64 {
        self.weather.lock().unwrap().faults
    }

    fn fate(&self, fates: &[Fate]) -> Fate {
        let mut weather = self.weather.lock().unwrap();
        let Some(random) = &mut weather.random else { return Fate::Fair };
        let fate = if random.below(4) == 0 { random.pick(fates) } else { Fate::Fair };
        weather.faults += u64::from(fate != Fate::Fair);
        fate
    }
}

/// The bucket as one process reaches it. One that is dead reaches it no more, whatever it has begun.
#[derive(Clone)]
pub struct Connection {
    bucket: Arc<Bucket>,
    is_cut: Arc<AtomicBool>,
}

fn reset() -> StoreError {
    StoreError::Transient("connection reset".into())
}

impl Connection {
    pub fn new(bucket: &Arc<Bucket>) -> Connection {
        Connection { bucket: bucket.clone(), is_cut: Arc::default() }
    }

    /// The process is dead.
    pub fn cut(&self) {
        // Whoever is within a call comes out of it first: it was in time.
        let _weather = self.bucket.weather.lock().unwrap();
        self.is_cut.store(true, Ordering::Release);
    }

    fn begin(&self, fates: &[Fate]) -> Result<Fate, StoreError> {
        let fate = self.bucket.fate(fates);
        match self.is_cut.load(Ordering::Acquire) {
            true => Err(reset()),
            false if fate == Fate::Refused => Err(StoreError::Transient("503 Slow Down".into())),
            false => Ok(fate),
        }
    }
}

impl Store for Connection {
    fn create(&self, key: &str, body: &mut dyn Body, length: u64, with: &Attributes) -> Result<(), StoreError> {
        let fate = self.begin(&[Fate::Refused, Fate::Unanswered, Fate::Torn])?;
        let mut content = Vec::new();
        body.seek(std::io::SeekFrom::Start(0))?;
        body.take(length).read_to_end(&mut content)?;
        let mut weather = self.bucket.weather.lock().unwrap();
        if self.is_cut.load(Ordering::Acquire) {
            return Err(reset());
        }
        let torn = fate == Fate::Torn;
        let sent = if torn { &content[..content.len() / 2] } else { &content[..] };
        self.bucket.objects.create(key, &mut Cursor::new(sent), sent.len() as u64, with)?;
        if torn {
            weather.torn.insert(key.to_owned());
        }
        if fate == Fate::Fair { Ok(()) } else { Err(reset()) }
    }

    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Box<dyn Read + Send>, StoreError> {
        let fate = self.begin(&[Fate::Refused, Fate::Unanswered])?;
        let mut body = self.bucket.objects.get(key, range)?;
        if fate == Fate::Fair {
            return Ok(body);
        }
        // The connection breaks in the middle.
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes)?;
        bytes.truncate(bytes.len() / 2);
        Ok(Box::new(Cursor::new(bytes).chain(Broken)))
    }

    fn get_part(&self, key: &str, range: Range<u64>, version: Option<&str>) -> Result<Part, StoreError> {
        self.begin(&[Fate::Refused])?;
        self.bucket.objects.get_part(key, range, version)
    }

    fn list_after(&self, prefix: &str, after: &str) -> Result<Vec<Object>, StoreError> {
        let fate = self.begin(&[Fate::Refused, Fate::Stale, Fate::Doubled])?;
        let mut objects = self.bucket.objects.list_after(prefix, after)?;
        let mut weather = self.bucket.weather.lock().unwrap();
        weather.listed.push(objects.clone());
        match fate {
            Fate::Stale => {
                weather.stale += 1;
                let back = weather.listed.len().saturating_sub(4);
                objects = weather.listed[back].clone();
            }
            Fate::Doubled => objects = objects.iter().flat_map(|object| [object.clone(), object.clone()]).collect(),
            _ => {}
        }
        Ok(objects)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        // An answer that was lost on the way there: the object stays, and its remover believes that it went.
        let fate = self.begin(&[Fate::Refused, Fate::Unanswered])?;
        let mut weather = self.bucket.weather.lock().unwrap();
        if self.is_cut.load(Ordering::Acquire) {
            return Err(reset());
        }
        if fate == Fate::Fair {
            weather.torn.remove(key);
            self.bucket.objects.delete(key)?;
        }
        Ok(())
    }
}

/// Where a connection breaks.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::ConnectionReset.into())
    }
}
