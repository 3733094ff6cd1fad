//! What connections may take, and what they cannot.

use std::pin::pin;
use std::task::{Context, Waker};

use proptest::prelude::*;

use super::*;

/// Each of thousands of watches of a connection that were not read kept its next frame in memory.
#[test]
fn streams_that_nobody_reads_wait_together() {
    let memory = Memory::with_own(3 * STREAMED_WAITING_BYTES, 0);
    let share = memory.of_connection(10, "a");
    let is_ready = |turn: &mut std::pin::Pin<&mut dyn Future<Output = ()>>| {
        turn.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    let take = |bytes| share.take_streamed(bytes).map_err(|status| status.message).unwrap();
    let small = take(1);
    assert!(is_ready(&mut (pin!(share.stream_turn()) as _)));
    let large = take(STREAMED_WAITING_BYTES);
    let (mut one, mut other) = (pin!(share.stream_turn()), pin!(share.stream_turn()));
    assert!(!is_ready(&mut (one.as_mut() as _)) && !is_ready(&mut (other.as_mut() as _)));
    assert!(share.is_open(), "calls that are no streams go on");
    drop(large);
    // Each lets the next one look.
    assert!(is_ready(&mut (one as _)) && is_ready(&mut (other as _)));
    let all = take(3 * STREAMED_WAITING_BYTES);
    let refused = memory.of_connection(10, "a").take_streamed(1).err().unwrap();
    assert_eq!(refused.code, Code::ResourceExhausted);
    drop((small, all));
    assert_eq!(memory.taken(), 0);
}

/// Keys of watches were kept for as long as their streams, and counted while their requests came.
#[test]
fn what_is_kept_of_requests_counts_until_it_is_given_back() {
    let memory = Memory::with_own(100, 0);
    let share = memory.of_connection(60, "a");
    let mut kept = share.keep();
    assert!(kept.resize(50).is_ok() && memory.taken() == 50);
    assert_eq!(kept.resize(61).err().map(|status| status.code), Some(Code::ResourceExhausted));
    assert!(share.take(11).is_err() && memory.taken() == 50);
    assert!(kept.resize(40).is_ok() && share.take(20).is_ok() && memory.taken() == 40);
    drop(kept);
    assert_eq!(memory.taken(), 0);
}

#[test]
fn a_connection_cannot_take_what_all_have() {
    let memory = Memory::with_own(100, 0);
    let (one, other) = (memory.of_connection(60, "a"), memory.of_connection(60, "a"));
    let first = one.take(50).map_err(|status| status.message).unwrap();
    let said = one.take(11).err().unwrap();
    assert_eq!(said.code, Code::ResourceExhausted);
    assert_eq!(said.message, "grpc: no room for a message of 11 bytes: messages under way on a connection may take 60");
    let second = other.take(50).map_err(|status| status.message).unwrap();
    assert!(one.take(10).err().unwrap().message.ends_with("on all connections may take 100"));
    drop(first);
    assert_eq!(memory.taken(), 50);
    assert!(one.take(50).is_ok());
    drop((one, other, second));
    assert_eq!(memory.taken(), 0);
}

#[test]
fn a_small_call_has_room_whatever_others_hold() {
    let memory = Memory::with_own(100, 10);
    let (one, other) = (memory.of_connection(1_000, "a"), memory.of_connection(1_000, "a"));
    let held = one.take(110).map_err(|status| status.message).unwrap();
    assert_eq!(memory.taken(), 100);
    assert!(one.take(1).is_err() && other.take(11).is_err());
    let small = other.take(10).map_err(|status| status.message).unwrap();
    assert!(other.take(1).is_err());
    drop((held, small));
    assert_eq!((memory.taken(), one.0.taken.get(), other.0.taken.get()), (0, 0, 0));
}

#[test]
fn a_large_answer_goes_where_nothing_else_waits() {
    let memory = Memory::with_own(100, 0);
    let (one, other) = (memory.of_connection(50, "a"), memory.of_connection(50, "a"));
    let large = one.take_answer(200).map_err(|status| status.message).unwrap();
    assert!(one.take_answer(1).is_err() && other.take_answer(1).is_err(), "now there is no room");
    drop(large);
    assert!(other.take_answer(1).is_ok());
    assert_eq!(memory.taken(), 0);
}

#[test]
fn answers_that_nobody_takes_leave_room_for_requests() {
    let memory = Memory::with_own(100, 0);
    let connections = [(); 8].map(|()| memory.of_connection(50, "a"));
    let held: Vec<_> = connections.iter().filter_map(|connection| connection.take_answer(20).ok()).collect();
    assert!(held.len() <= 3 && memory.taken() <= 60, "{} bytes", memory.taken());
    assert!(memory.of_connection(50, "a").take(40).is_ok());
    drop(held);
    let half = memory.of_connection(100, "a").take(50).map_err(|status| status.message).unwrap();
    assert!(connections[0].take_answer(40).is_ok(), "requests leave room for answers");
    drop(half);
    assert_eq!((memory.taken(), memory.0.answers.load(Ordering::Relaxed)), (0, 0));
}

/// One client that read none of its answers kept those above a connection's own from everybody.
#[test]
fn answers_that_one_host_does_not_take_leave_a_quarter_of_their_room_to_others() {
    let memory = Memory::with_own(160, 0);
    let connections = [(); 10].map(|()| memory.of_connection(50, "a"));
    let mut held: Vec<_> = connections.iter().filter_map(|connection| connection.take_answer(20).ok()).collect();
    assert_eq!((held.len(), memory.taken()), (3, 60));
    let refused = connections[9].take_answer(20).err().unwrap();
    assert_eq!(
        refused.message,
        "grpc: no room for an answer of 20 bytes: answers that clients of this host do not take may take 60"
    );
    let other = memory.of_connection(50, "b").take_answer(20);
    assert!(other.is_ok());
    held.pop();
    assert!(connections[9].take_answer(20).is_ok(), "what is taken makes room");
    drop((held, other, connections));
    assert_eq!((memory.taken(), memory.0.answers.load(Ordering::Relaxed)), (0, 0));
    assert!(memory.0.answers_of.lock().unwrap().values().all(|answers| answers.strong_count() == 0));
}

#[test]
fn a_call_whose_turn_is_not_yet_takes_no_wake_up_from_an_answer_that_goes_on() {
    let share = Memory::new(ANSWERS_WAITING_BYTES * 2).of_connection(ANSWERS_WAITING_BYTES * 2, "a");
    let waiting = share.take_answer(ANSWERS_WAITING_BYTES).map_err(|status| status.message).unwrap();
    share.set_written(true);
    let context = &mut Context::from_waker(Waker::noop());
    let (mut turn, mut first, mut second) = (pin!(share.turn()), pin!(share.unblocked()), pin!(share.unblocked()));
    assert!(turn.as_mut().poll(context).is_pending());
    assert!(first.as_mut().poll(context).is_pending() && second.as_mut().poll(context).is_pending());
    share.set_written(false);
    assert!(turn.as_mut().poll(context).is_pending(), "too many answers wait");
    assert!(first.as_mut().poll(context).is_ready() && second.as_mut().poll(context).is_ready());
    drop(waiting);
    assert!(turn.poll(context).is_ready());
}

#[test]
fn what_is_taken_on_another_thread_counts_as_what_a_connection_takes() {
    let memory = Memory::with_own(100, 10);
    let (one, other) = (memory.of_connection(60, "a"), memory.of_connection(100, "b"));
    let mut taken = one.take(5).map_err(|status| status.message).unwrap();
    let mut room = one.room_elsewhere();
    assert!(room.grow(40).is_ok());
    assert!(room.grow(16).err().unwrap().message.ends_with("on a connection may take 60"));
    assert_eq!(memory.taken(), 40, "what is a connection's own does not count there");
    let _held = other.take(60).map_err(|status| status.message).unwrap();
    assert!(room.grow(15).err().unwrap().message.ends_with("on all connections may take 100"));
    taken.adopt(room);
    assert_eq!((taken.bytes(), one.0.taken.get(), memory.taken()), (45, 45, 35 + 50));
    taken.shrink(40);
    assert_eq!((taken.bytes(), one.0.taken.get(), memory.taken()), (5, 5, 50));
}

#[test]
fn what_leaves_is_room_for_others_up_to_a_part_of_all() {
    let memory = Memory::with_own(800, 0);
    let (one, other) = (memory.of_connection(800, "a"), memory.of_connection(800, "b"));
    let mut places = Vec::new();
    for _ in 0..4 {
        let place = one.place();
        place.holds(200);
        places.push((one.take(200).map_err(|status| status.message).unwrap(), place));
    }
    std::thread::sleep(std::time::Duration::from_millis(2));
    let is_told = |context: &Context<'_>| {
        places.iter().filter(|(_, place)| place.message().poll_must_go(context).is_ready()).count()
    };
    let context = Context::from_waker(Waker::noop());
    assert!(other.take(101).is_err(), "more than an eighth");
    assert_eq!(is_told(&context), 0, "none goes in vain");
    let first = other.take(60).map_err(|status| status.message).unwrap();
    let second = other.take(40).map_err(|status| status.message).unwrap();
    assert!(other.take(1).is_err());
    assert_eq!((is_told(&context), memory.taken()), (1, 900));
    places.retain(|(_, place)| place.message().poll_must_go(&context).is_pending());
    assert_eq!(memory.taken(), 700);
    assert!(other.take(100).is_ok());
    drop((first, second));
}

#[test]
fn what_comes_piece_by_piece_elsewhere_makes_room_until_it_is_whole() {
    let memory = Memory::with_own(800, 0);
    let context = Context::from_waker(Waker::noop());
    let (mut still, mut whole, mut new) = (memory.arriving("a"), memory.arriving("a"), memory.arriving("b"));
    assert!((0..4).all(|_| still.grow(100)) && (0..4).all(|_| whole.grow(100)));
    whole.has_come();
    assert!(new.grow(100) && memory.taken() == 900, "what leaves is room for others");
    assert!(still.poll_must_go(&context).is_ready() && whole.poll_must_go(&context).is_pending());
    drop(still);
    assert!((0..3).all(|_| new.grow(100)) && !new.grow(100), "now it holds the most itself");
    new.shrink(400);
    drop((whole, new));
    assert_eq!(memory.taken(), 0);
}

proptest! {
    #[test]
    fn never_more_than_there_is_and_all_of_it_comes_back(
        steps in proptest::collection::vec((0..3_usize, 0..50_usize, any::<bool>()), 0..60),
    ) {
        let memory = Memory::with_own(100, 0);
        let connections = [40, 60, 100].map(|bytes_max| memory.of_connection(bytes_max, "a"));
        let mut held: Vec<Taken> = Vec::new();
        for (connection, bytes, gives_back) in steps {
            if gives_back && !held.is_empty() {
                held.swap_remove(bytes % held.len());
            } else {
                held.extend(connections[connection].take(bytes));
            }
            let sum = held.iter().map(|taken| taken.bytes).sum::<usize>();
            prop_assert!(sum <= 100);
            prop_assert_eq!(sum, memory.taken());
            for Share(connection) in &connections {
                prop_assert!(connection.taken.get() <= connection.bytes_max);
            }
        }
        drop(held);
        prop_assert_eq!(memory.taken(), 0);
    }
}

#[test]
fn answers_that_anybody_may_ask_for_take_a_small_part_and_short_ones_go_whatever_waits() {
    let memory = Memory::with_own(160_000, 0);
    let (one, other) = (memory.of_connection(160_000, "a"), memory.of_connection(160_000, "b"));
    let held = [&one, &other].map(|share| share.take_open(5_000).map_err(|status| status.message).unwrap());
    let refused = one.take_open(1_025).err().unwrap();
    assert_eq!(
        refused.message,
        "grpc: no room for an answer of 1025 bytes: answers of health and reflection that clients do not take may take 10000"
    );
    assert!(other.take_open(12).is_ok());
    assert_eq!(memory.taken(), 10_000);
    drop(held);
    assert!(one.take_open(10_000).is_ok());
    assert_eq!((memory.taken(), memory.0.open.load(Ordering::Relaxed)), (0, 0));
}
