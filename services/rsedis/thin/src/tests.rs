//! Against a model, with chance from a seed: this crate has no dependencies, so that all of a test can be checked. Under Valgrind, a
//! sanitizer or Miri what is wrong with memory ends them; without, what is wrong with the bytes does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

/// Where the length gets a head of another size, and where a model's bytes are interesting otherwise.
const LENGTHS: [usize; 12] = [0, 1, 6, 7, 8, 80, 253, 254, 255, 256, 4_096, 70_000];

/// Chance from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.below(3) {
            0 => LENGTHS[self.below(LENGTHS.len())],
            _ => self.below(300),
        };
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// Has memory of its own behind it, and an alignment of eight.
type Value = (u64, String);

#[derive(Clone, Debug, PartialEq)]
enum Model {
    Bytes(u8, Vec<u8>),
    Boxed(Value),
}

impl Model {
    fn is(&self, thin: &Thin<Value>) -> bool {
        match (self, thin.view()) {
            (Self::Bytes(mark, bytes), View::Bytes(found, slice)) => *mark == found && bytes == slice,
            (Self::Boxed(value), View::Boxed(found)) => value == found,
            _ => false,
        }
    }
}

fn make(chance: &mut Chance) -> (Thin<Value>, Model) {
    if chance.below(3) == 0 {
        let value = (chance.below(1_000) as u64, format!("value {}", chance.below(1_000)));
        return (Thin::boxed(Box::new(value.clone())), Model::Boxed(value));
    }
    let (mark, bytes) = (chance.below(MARKS.into()) as u8, chance.bytes());
    let (one, two) = (chance.below(bytes.len() + 1), chance.below(bytes.len() + 1));
    let parts = [&bytes[..one.min(two)], &bytes[one.min(two)..one.max(two)], &bytes[one.max(two)..]];
    (Thin::bytes(mark, parts), Model::Bytes(mark, bytes))
}

/// Makes, changes, moves and drops at random, and compares with the model all the time.
fn live(seed: u64, steps: usize) {
    let mut chance = Chance(seed);
    let mut alive: Vec<(Thin<Value>, Model)> = Vec::new();
    for _ in 0..steps {
        if alive.is_empty() || chance.below(3) == 0 {
            alive.push(make(&mut chance));
        }
        let place = chance.below(alive.len());
        match chance.below(6) {
            0 => drop(alive.swap_remove(place)),
            1 => {
                // One in the place of another: the one before is dropped.
                let (thin, model) = make(&mut chance);
                alive[place].0 = thin;
                alive[place].1 = model;
            }
            2 => {
                let (thin, model) = &mut alive[place];
                match (thin.view_mut(), model) {
                    (ViewMut::Bytes(_, slice), Model::Bytes(_, bytes)) => {
                        for byte in slice.iter_mut() {
                            *byte = byte.wrapping_add(1);
                        }
                        bytes.copy_from_slice(slice);
                    }
                    (ViewMut::Boxed(found), Model::Boxed(value)) => {
                        found.1.push_str(" and more of it, so that it lies elsewhere");
                        value.clone_from(found);
                    }
                    (_, model) => panic!("not {model:?}"),
                }
            }
            3 => {
                let (thin, model) = alive.swap_remove(place);
                match (thin.into_box(), model) {
                    (Ok(value), Model::Boxed(expected)) => assert_eq!(*value, expected),
                    (Err(found), Model::Bytes(mark, bytes)) => {
                        assert_eq!((found.mark(), found.as_slice()), (mark, &bytes[..]));
                    }
                    (found, model) => panic!("{found:?} is not {model:?}"),
                }
            }
            // A thread takes longer than all the rest.
            4 if chance.below(10) == 0 => {
                // Both ways into another thread: to look, and to go.
                let (thin, model) = alive.swap_remove(place);
                std::thread::scope(|scope| assert!(scope.spawn(|| model.is(&thin)).join().unwrap()));
                std::thread::spawn(move || drop(thin)).join().unwrap();
            }
            _ => {}
        }
        assert!(alive.iter().rev().take(8).all(|(thin, model)| model.is(thin)));
    }
    assert!(alive.iter().all(|(thin, model)| model.is(thin)));
}

#[test]
fn it_is_what_it_was_made_of() {
    // An interpreter takes some milliseconds a step.
    let (seeds, steps) = if cfg!(miri) { (3, 60) } else { (20, 2_000) };
    for seed in 1..=seeds {
        live(seed * 0x9E37_79B9, steps);
    }
}

#[test]
fn every_length_comes_back_and_nothing_more_is_allocated() {
    for length in LENGTHS {
        let bytes: Vec<u8> = (0..length).map(|number| number as u8).collect();
        let mut thin = Bytes::copy(&bytes);
        assert_eq!(thin.as_slice(), bytes);
        assert_eq!(thin.allocated(), length + if length < 255 { 1 } else { 5 });
        thin.as_mut_slice().fill(255);
        assert_eq!(thin.as_slice(), vec![255; length], "the length is out of reach");
    }
}

#[test]
fn it_is_one_word_and_so_is_none() {
    assert_eq!((size_of::<Bytes>(), size_of::<Option<Thin<Value>>>()), (8, 8));
    let boxed = Thin::boxed(Box::new(7u64));
    assert_eq!((boxed.allocated(), boxed.view()), (8, View::Boxed(&7)));
    assert_eq!(format!("{boxed:?} {:?}", Bytes::copy(b"a")), "Boxed(7) Bytes(0, [97])");
}

#[test]
#[should_panic(expected = "a mark is below 4")]
fn a_mark_that_is_a_boxs_is_refused() {
    drop(Thin::<u64>::bytes(MARKS, [b"an address"]));
}

#[test]
#[should_panic(expected = "at most 2^32 - 1 bytes")]
fn more_bytes_than_a_length_tells_are_refused() {
    let part = vec![0; 1 << 20];
    drop(Bytes::bytes(0, [&part[..]; 1 << 12]));
}

#[test]
fn a_copy_is_its_own() {
    for (length, mark) in LENGTHS.into_iter().flat_map(|length| (0..MARKS).map(move |mark| (length, mark))) {
        let mut one = Bytes::bytes(mark, [&vec![7; length][..]]);
        let copy = one.clone();
        one.as_mut_slice().fill(8);
        drop(one);
        assert_eq!((copy.mark(), copy.as_slice()), (mark, &vec![7; length][..]));
    }
}
