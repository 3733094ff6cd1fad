//! The rules, one by one.

use super::*;
use crate::messages::PublishResponse::{Acknowledgement, Behind, EndOfStream, Resend, Skip};

fn start(settings: Settings) -> (Publishing<u64>, PublisherId, PublisherId) {
    let mut publishing = Publishing::new(settings, 0, Chain::from(0));
    let (one, two) = (publishing.join(""), publishing.join(""));
    (publishing, one, two)
}

/// The candidate that continues the chain of blocks whose roots are their numbers.
fn candidate(number: u64) -> Candidate<u64> {
    let mut chain = Chain::from(0);
    (0..number).for_each(|earlier| chain.extend([earlier as u8; 48]));
    Candidate { root: [number as u8; 48], footer: chain.footer(None), block: number }
}

fn send(publishing: &mut Publishing<u64>, id: PublisherId, number: u64) -> Vec<u64> {
    assert_eq!(publishing.header(id, number, 0), Verdict::Take);
    assert_eq!(publishing.reserve(id, 10, 0), Room::Granted);
    publishing.whole(id, candidate(number))
}

/// Stores blocks up to this one.
fn store(publishing: &mut Publishing<u64>, id: PublisherId, last: u64) {
    for number in publishing.base..=last {
        assert_eq!(send(publishing, id, number), [number]);
    }
    publishing.safe(last, 0);
}

#[test]
fn the_first_header_wins_and_everybody_is_acknowledged() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert_eq!(publishing.header(two, 0, 0), Verdict::Ignore);
    assert_eq!(publishing.take(two), [Skip(0)]);
    assert_eq!(publishing.whole(one, candidate(0)), [0]);
    assert_eq!(publishing.take(one), [], "not before it is safe");
    publishing.safe(0, 0);
    assert_eq!(publishing.take(one), [Acknowledgement(0)]);
    assert_eq!(publishing.take(two), [Acknowledgement(0)]);
    assert_eq!(publishing.take(two), []);
}

#[test]
fn blocks_are_pipelined_and_submitted_in_order() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert_eq!(send(&mut publishing, two, 1), [] as [u64; 0], "block 0 is not whole yet");
    assert_eq!(send(&mut publishing, two, 2), [] as [u64; 0]);
    assert_eq!(publishing.whole(one, candidate(0)), [0, 1, 2]);
    publishing.safe(1, 0);
    assert_eq!(publishing.take(one), [Acknowledgement(0), Acknowledgement(1)]);
    publishing.safe(2, 0);
    assert_eq!(publishing.take(one), [Acknowledgement(2)]);
    assert_eq!(publishing.held_bytes(), 0);
}

#[test]
fn a_duplicate_is_skipped_within_the_window_and_ends_the_stream_beyond() {
    let (mut publishing, one, _) = start(Settings::default());
    store(&mut publishing, one, 9);
    let late = publishing.join("");
    assert_eq!(publishing.header(late, 4, 0), Verdict::Ignore);
    assert_eq!(publishing.take(late), [Skip(4)]);
    assert_eq!(publishing.header(late, 3, 0), Verdict::Ignore);
    assert_eq!(publishing.take(late), [EndOfStream { code: EndCode::DuplicateBlock, last: 9 }]);
    assert_eq!(publishing.header(late, 10, 0), Verdict::Ignore, "its stream is over");
    publishing.take(one);
    assert_eq!(publishing.header(one, 3, 0), Verdict::Ignore, "it has sent this block itself");
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::DuplicateBlock, last: 9 }]);
}

/// Of sixteen publishers one was ended now and then: it had sent a header before it heard that this block and six behind it were safe.
#[test]
fn who_cannot_have_heard_that_a_block_is_safe_is_told_to_skip_it_however_late_it_comes() {
    let (mut publishing, one, two) = start(Settings::default());
    store(&mut publishing, one, 9);
    assert_eq!(publishing.header(two, 0, 0), Verdict::Ignore);
    assert_eq!(publishing.take(two).last(), Some(&Skip(0)), "it was not even told");
    assert_eq!(publishing.header(two, 1, 0), Verdict::Ignore);
    assert_eq!(publishing.take(two), [Skip(1)], "it was told a moment ago");
    assert_eq!(publishing.header(two, 1, 0), Verdict::Ignore);
    assert_eq!(publishing.take(two), [EndOfStream { code: EndCode::DuplicateBlock, last: 9 }], "it sends it again");
}

#[test]
fn who_was_told_long_ago_that_a_block_is_safe_sends_a_duplicate() {
    let (mut publishing, one, two) = start(Settings::default());
    store(&mut publishing, one, 9);
    publishing.take(two);
    for (number, seconds) in [(10, 31), (11, 62)] {
        send(&mut publishing, one, number);
        publishing.safe(number, seconds * 1_000_000);
        publishing.take(two);
    }
    assert_eq!(publishing.header(two, 2, 62_000_000), Verdict::Ignore);
    assert_eq!(publishing.take(two), [EndOfStream { code: EndCode::DuplicateBlock, last: 11 }]);
}

#[test]
fn who_is_asked_for_a_block_again_may_send_it_however_late() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    for number in 1..=9 {
        send(&mut publishing, two, number);
    }
    publishing.refuse(one, EndCode::BadBlockProof);
    let third = publishing.join("");
    assert_eq!(publishing.take(two), [Resend(0)]);
    send(&mut publishing, third, 0);
    publishing.safe(9, 0);
    assert_eq!(publishing.take(two).len(), 10);
    assert_eq!(publishing.header(two, 0, 0), Verdict::Ignore, "it was on its way");
    assert_eq!(publishing.take(two), [Skip(0)]);
}

#[test]
fn nobody_is_asked_for_a_block_that_is_safe_or_told_that_an_old_one_is_the_last() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    let third = publishing.join("");
    assert_eq!(publishing.header(third, 5, 0), Verdict::Ignore, "it is told that the node is behind");
    publishing.refuse(one, EndCode::BadBlockProof);
    send(&mut publishing, two, 0);
    publishing.safe(0, 0);
    assert_eq!(publishing.take(third), [Acknowledgement(0), Behind(0)]);
}

#[test]
fn who_is_ahead_is_told_the_last_block() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 1, 0), Verdict::Ignore);
    assert_eq!(publishing.take(one), [Behind(NO_BLOCK)]);
    store(&mut publishing, one, 2);
    assert_eq!(publishing.header(two, 5, 0), Verdict::Ignore);
    assert_eq!(publishing.take(two).last(), Some(&Behind(2)));
}

#[test]
fn before_0_25_the_stream_of_who_is_ahead_ends() {
    let (mut publishing, one, two) = start(Settings { behind_ends_stream: true, ..Settings::default() });
    assert_eq!(publishing.header(one, 1, 0), Verdict::Ignore);
    assert_eq!(publishing.take(one), [Behind(NO_BLOCK)]);
    assert_eq!(publishing.header(one, 0, 0), Verdict::Ignore, "its stream is over");
    assert_eq!(publishing.take(one), []);
    assert_eq!(send(&mut publishing, two, 0), [0]);
}

#[test]
fn a_block_that_is_refused_is_asked_of_the_others() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    publishing.refuse(one, EndCode::BadBlockProof);
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::BadBlockProof, last: NO_BLOCK }]);
    assert_eq!(publishing.take(two), [Resend(0)]);
    assert_eq!(send(&mut publishing, two, 0), [0]);
}

#[test]
fn a_block_of_another_history_is_refused_though_its_hash_is_right() {
    let (mut publishing, one, two) = start(Settings::default());
    store(&mut publishing, one, 0);
    publishing.take(one);
    publishing.take(two);
    assert_eq!(publishing.header(one, 1, 0), Verdict::Take);
    let forged = Candidate { footer: candidate(0).footer, ..candidate(1) };
    assert_eq!(publishing.whole(one, forged), [] as [u64; 0]);
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::BadBlockProof, last: 0 }]);
    assert_eq!(publishing.take(two), [Resend(1)]);
    assert_eq!(send(&mut publishing, two, 1), [1]);
}

#[test]
fn who_leaves_within_a_block_leaves_no_part_of_it() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert_eq!(publishing.reserve(one, 1_000, 0), Room::Granted);
    publishing.leave(one);
    assert_eq!((publishing.held_bytes(), publishing.take(two)), (0, vec![Resend(0)]));
    assert_eq!(publishing.reserve(one, 1, 0), Room::Lost);
    assert_eq!(publishing.whole(one, candidate(0)), [] as [u64; 0]);
    assert_eq!(send(&mut publishing, two, 0), [0]);
}

#[test]
fn who_is_late_while_others_are_done_is_told_so() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    for number in 1..=3 {
        publishing.tick(4_000_000);
        assert_eq!(publishing.take(one), [], "{} later blocks are whole", number - 1);
        send(&mut publishing, two, number);
    }
    publishing.tick(3_999_999);
    assert_eq!(publishing.take(one), [], "not sooner than two block times");
    publishing.tick(4_000_000);
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }]);
    assert_eq!(publishing.take(two), [Resend(0)]);
    assert_eq!(send(&mut publishing, two, 0), [0, 1, 2, 3]);
    assert_eq!(publishing.header(two, 4, 5_000_000), Verdict::Take);
    publishing.tick(35_000_000);
    assert_eq!(publishing.take(two), [EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }], "nothing came for 30 s");
}

#[test]
fn a_block_that_was_asked_for_in_vain_is_asked_for_again() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 10), Verdict::Take);
    assert_eq!(publishing.header(two, 1, 10), Verdict::Take);
    publishing.leave(two);
    assert_eq!(publishing.take(one), [Resend(1)]);
    assert_eq!(publishing.whole(one, candidate(0)), [0]);
    publishing.tick(4_000_009);
    assert_eq!(publishing.take(one), []);
    publishing.tick(4_000_010);
    assert_eq!(publishing.take(one), [Resend(1)]);
    assert!(publishing.needs_tick());
    assert_eq!(send(&mut publishing, one, 1), [1]);
    assert!(!publishing.needs_tick(), "nothing is waited for but the disk");
}

#[test]
fn what_is_under_way_is_bounded() {
    let settings = Settings { window_blocks: 2, memory_bytes_max: 100, ..Settings::default() };
    let (mut publishing, one, two) = start(settings);
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert_eq!(publishing.header(two, 1, 0), Verdict::Take);
    assert_eq!(publishing.reserve(two, 90, 0), Room::Granted);
    assert_eq!(publishing.reserve(two, 20, 0), Room::Wait);
    assert_eq!(publishing.reserve(one, 200, 0), Room::Granted, "all others wait for this one");
    publishing.whole(one, candidate(0));
    assert_eq!(publishing.header(one, 2, 0), Verdict::Wait, "two blocks are under way");
    publishing.safe(0, 0);
    assert_eq!(publishing.reserve(two, 20, 0), Room::Granted);
    assert_eq!(publishing.header(one, 2, 0), Verdict::Take);
    publishing.leave(two);
    assert_eq!(publishing.reserve(one, 150, 0), Room::Lost, "only this publisher can send block 1 now");
    assert_eq!(publishing.take(one), [Acknowledgement(0), Resend(1), Behind(0)]);
    assert_eq!(publishing.header(one, 3, 0), Verdict::Ignore, "block 1 is wanted first");
    assert_eq!(publishing.take(one), [Behind(0)]);
    assert_eq!(send(&mut publishing, one, 1), [1]);
}

#[test]
fn who_waits_for_room_is_not_ended_for_sending_nothing() {
    let (mut publishing, one, two) = start(Settings { memory_bytes_max: 100, ..Settings::default() });
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert_eq!(publishing.header(two, 1, 0), Verdict::Take);
    assert_eq!(publishing.reserve(two, 200, 0), Room::Wait);
    for second in 1..30 {
        assert_eq!(publishing.reserve(one, 1, second * 1_000_000), Room::Granted, "it sends steadily");
        publishing.tick(second * 1_000_000);
        assert_eq!(publishing.take(two), [], "after {second} s");
    }
    publishing.whole(one, candidate(0));
    publishing.safe(0, 31_000_000);
    publishing.tick(31_000_001);
    assert_eq!(publishing.take(two), [Acknowledgement(0)]);
    assert_eq!(publishing.reserve(two, 200, 31_000_002), Room::Granted);
}

#[test]
fn who_sends_too_slowly_is_ended_where_fewer_later_blocks_fit_than_usually_tell() {
    let (mut publishing, one, two) = start(Settings { window_blocks: 3, ..Settings::default() });
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    send(&mut publishing, two, 1);
    send(&mut publishing, two, 2);
    assert_eq!(publishing.header(two, 3, 0), Verdict::Wait);
    for second in 1..4 {
        assert_eq!(publishing.reserve(one, 1, second * 1_000_000), Room::Granted);
        publishing.tick(second * 1_000_000);
        assert_eq!(publishing.take(one), []);
    }
    publishing.tick(4_000_000);
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }]);
    assert_eq!(publishing.take(two), [Resend(0)]);
}

#[test]
fn who_sends_too_slowly_is_ended_when_another_has_no_room_for_long() {
    let (mut publishing, one, two) = start(Settings { memory_bytes_max: 100, ..Settings::default() });
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert_eq!(publishing.header(two, 1, 0), Verdict::Take);
    assert_eq!(publishing.reserve(two, 200, 0), Room::Wait);
    publishing.reserve(one, 1, 29_000_000);
    publishing.tick(29_999_999);
    assert_eq!(publishing.take(one), []);
    publishing.tick(30_000_000);
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }]);
    assert_eq!(publishing.take(two), [Resend(0)], "who waited is not ended");
}

#[test]
fn an_empty_node_begins_elsewhere_though_somebody_has_begun_a_block_and_gone() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert!(!publishing.begin_at(100), "somebody sends a block");
    publishing.leave(one);
    assert!(publishing.begin_at(100));
    publishing.take(two);
    let next = candidate(0);
    assert_eq!(publishing.header(two, 100, 0), Verdict::Take);
    assert_eq!(publishing.whole(two, Candidate { block: 100, ..next }), [100]);
}

#[test]
fn who_is_silent_for_long_makes_place_for_another_and_nobody_else_does() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(two, 0, 1_000_000), Verdict::Take);
    assert!(publishing.has_place("", 3, 0));
    assert!(!publishing.has_place("", 2, 59_999_999));
    assert_eq!(publishing.due(), [] as [PublisherId; 0]);
    assert!(publishing.has_place("", 2, 60_000_000));
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }]);
    publishing.join("");
    assert!(!publishing.has_place("", 2, 90_000_000), "one sends a block, the other has just come");
}

#[test]
fn one_client_with_silent_streams_in_every_place_does_not_keep_others_out() {
    let mut publishing = Publishing::<u64>::new(Settings::default(), 0, Chain::from(0));
    let honest = ["a", "b"].map(|client| publishing.join(client));
    let silent: Vec<_> = (0..6).map(|_| publishing.join("c")).collect();
    assert_eq!(publishing.header(honest[0], 0, 1_000), Verdict::Take);
    for (place, id) in silent[..4].iter().enumerate() {
        assert!(publishing.has_place("", 8, 2_000), "place {place}");
        assert_eq!(publishing.take(*id), [EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }]);
        publishing.leave(*id);
        publishing.join(&place.to_string());
    }
    assert!(!publishing.has_place("", 8, 3_000), "two streams are no more than a quarter");
    // Who has begun blocks is silent a while later, and who sends one is not.
    for (number, id) in [(1, silent[4]), (2, silent[5])] {
        assert_eq!(publishing.header(id, number, 4_000), Verdict::Take);
        publishing.whole(id, candidate(number));
    }
    let third = publishing.join("c");
    assert!(!publishing.has_place("", 9, 5_000) && !publishing.has_place("", 9, 10_004_000 - 1_001));
    publishing.header(third, 0, 6_000);
    assert!(publishing.has_place("", 9, 10_006_000));
    assert_eq!(publishing.take(silent[4]).last(), Some(&EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }));
    assert!(honest.iter().all(|id| !publishing.take(*id).iter().any(|told| matches!(told, EndOfStream { .. }))));
}

#[test]
fn one_client_that_sends_in_every_place_does_not_keep_others_out() {
    let mut publishing = Publishing::<u64>::new(Settings::default(), 0, Chain::from(0));
    let sending: Vec<_> = (0..8).map(|_| publishing.join("c")).collect();
    for (number, id) in (0..).zip(&sending) {
        assert_eq!(publishing.header(*id, number, 1_000 + number), Verdict::Take);
    }
    assert!(!publishing.has_place("c", 8, 2_000), "it has more than its part");
    for gone in &sending[..2] {
        assert!(publishing.has_place("a", 8, 2_000), "for {gone}");
        publishing.leave(*gone);
        publishing.join("a");
    }
    assert!(!publishing.has_place("a", 8, 2_000), "a quarter is all that it may take of others");
    for client in ["d", "e", "f", "g"] {
        assert!(publishing.has_place(client, 8, 2_000), "{client}");
        let gone =
            sending.iter().find(|id| publishing.take(**id).iter().any(|told| matches!(told, EndOfStream { .. })));
        publishing.leave(*gone.unwrap());
        publishing.join(client);
    }
    assert!(!publishing.has_place("h", 8, 2_000), "nobody has more than a quarter");
}

#[test]
fn who_holds_blocks_for_long_while_none_is_made_leaves_them_to_others() {
    let mut publishing = Publishing::<u64>::new(Settings::default(), 0, Chain::from(0));
    let [honest, one, two] = ["a", "c", "c"].map(|client| publishing.join(client));
    for (number, id) in [(0, one), (1, two)] {
        assert_eq!(publishing.header(id, number, 0), Verdict::Take);
    }
    publishing.leave(honest);
    for seconds in 0..60 {
        [one, two].iter().for_each(|id| assert_eq!(publishing.reserve(*id, 1, seconds * 1_000_000), Room::Granted));
        publishing.tick(seconds * 1_000_000);
    }
    assert!([one, two].iter().all(|id| publishing.take(*id).is_empty()), "nobody else is there");
    let honest = publishing.join("a");
    publishing.tick(60_000_000);
    for id in [one, two] {
        assert_eq!(publishing.take(id).last(), Some(&EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }));
    }
    assert_eq!(publishing.take(honest), [Resend(1), Resend(0)]);
    assert_eq!(send(&mut publishing, honest, 0), [0]);
}

/// Who sent without a pause was ended all the same, since one message took half a minute; so was who waited for this node to hash it.
#[test]
fn who_sends_a_long_message_is_not_ended_as_long_as_something_comes_of_it_or_it_is_hashed() {
    let (mut publishing, one, _) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    let mut seconds = 0;
    for _ in 0..100 {
        seconds += 1;
        publishing.moves(one, seconds * 1_000_000);
        publishing.tick(seconds * 1_000_000);
    }
    publishing.hashes(one, true, seconds * 1_000_000);
    for _ in 0..100 {
        seconds += 1;
        publishing.tick(seconds * 1_000_000);
    }
    publishing.hashes(one, false, seconds * 1_000_000);
    publishing.tick((seconds + 29) * 1_000_000);
    assert_eq!(publishing.take(one), []);
    publishing.tick((seconds + 30) * 1_000_000);
    assert_eq!(publishing.take(one), [EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }]);
}

/// A client with two streams stood in everybody's way: whenever one was ended, the other had the block before anybody else.
#[test]
fn a_client_that_has_not_finished_a_block_leaves_it_to_others_for_a_while() {
    let mut publishing = Publishing::<u64>::new(Settings::default(), 0, Chain::from(0));
    let [honest, one, two, three] = ["a", "b", "b", "b"].map(|client| publishing.join(client));
    assert_eq!(publishing.header(one, 0, 1_000), Verdict::Take);
    publishing.refuse(one, EndCode::Timeout);
    assert_eq!(publishing.header(two, 0, 2_000), Verdict::Ignore);
    assert_eq!(publishing.take(two), [Resend(0), Skip(0)]);
    assert_eq!(publishing.header(honest, 0, 3_000), Verdict::Take);
    publishing.leave(honest);
    assert_eq!(publishing.header(three, 0, 4_000), Verdict::Take, "nobody else is there");
    let honest = publishing.join("a");
    publishing.leave(three);
    // Twice as long for the second block that it has not finished.
    assert_eq!(publishing.header(two, 0, 8_003_999), Verdict::Ignore);
    assert_eq!(publishing.header(two, 0, 8_004_000), Verdict::Take, "nobody else wants it");
    publishing.whole(two, Candidate { footer: candidate(1).footer, ..candidate(0) });
    assert_eq!(publishing.header(honest, 0, 8_005_000), Verdict::Take, "it was wrong");
}

/// Two clients that began each block with its header alone handed it to each other, and whoever finished his blocks came too late each time.
#[test]
fn clients_that_finish_no_block_leave_the_next_ones_to_who_does() {
    let mut publishing = Publishing::<u64>::new(Settings::default(), 0, Chain::from(0));
    let honest = publishing.join("honest");
    let mut others = ["one", "two"].map(|client| (client, publishing.join(client)));
    let mut seconds = 0;
    // Each of them may do so once.
    for (client, id) in &mut others {
        assert_eq!(publishing.header(*id, 0, seconds * 1_000_000), Verdict::Take);
        seconds += 30;
        publishing.tick(seconds * 1_000_000);
        assert_eq!(publishing.take(*id).last(), Some(&EndOfStream { code: EndCode::Timeout, last: NO_BLOCK }));
        publishing.leave(*id);
        *id = publishing.join(client);
    }
    for number in 0..20 {
        seconds += 1;
        let now = seconds * 1_000_000;
        // A block that was left to others is skipped; one that nobody has begun is waited for.
        let verdict = if number == 0 { Verdict::Ignore } else { Verdict::Wait };
        others.iter().for_each(|(_, id)| assert_eq!(publishing.header(*id, number, now), verdict));
        assert!(publishing.needs_tick());
        publishing.tick(now + 900_000);
        assert_eq!(publishing.header(honest, number, now + 900_000), Verdict::Take);
        assert_eq!(publishing.whole(honest, candidate(number)), [number]);
        others.iter().for_each(|(_, id)| drop(publishing.take(*id)));
        publishing.due();
        publishing.safe(number, now + 950_000);
        others.iter().for_each(|(_, id)| assert!(number == 0 || publishing.due.contains(id), "it must look again"));
        others.iter().for_each(|(_, id)| assert_eq!(publishing.header(*id, number, now + 950_000), Verdict::Ignore));
    }
    let now = (seconds + 1) * 1_000_000;
    let [(_, one), (_, two)] = others;
    assert_eq!(publishing.header(one, 20, now), Verdict::Wait);
    assert_eq!(publishing.header(one, 20, now + 3_999_999), Verdict::Wait);
    publishing.take(one);
    publishing.due();
    publishing.tick(now + 4_000_000);
    assert_eq!(publishing.due(), [one]);
    assert_eq!(publishing.header(one, 20, now + 4_000_000), Verdict::Take, "nobody else has begun it");
    publishing.whole(one, candidate(20));
    assert_eq!(publishing.header(one, 21, now + 4_000_000), Verdict::Take, "it has finished one");
    publishing.leave(honest);
    publishing.leave(one);
    assert_eq!(publishing.header(two, 21, now + 4_000_000), Verdict::Take, "nobody is better");
}

#[test]
fn after_a_failure_every_stream_ends_and_nothing_is_taken() {
    let (mut publishing, one, two) = start(Settings::default());
    store(&mut publishing, one, 0);
    assert_eq!(publishing.header(one, 1, 0), Verdict::Take);
    publishing.end_all(EndCode::PersistenceFailed);
    let end = EndOfStream { code: EndCode::PersistenceFailed, last: 0 };
    for id in [one, two] {
        assert_eq!(publishing.take(id), [Acknowledgement(0), end]);
    }
    let late = publishing.join("");
    assert_eq!(publishing.take(late), [end]);
    assert_eq!(publishing.whole(one, candidate(1)), [] as [u64; 0]);
}

#[test]
fn an_empty_node_begins_elsewhere_and_no_other_does() {
    let (mut publishing, one, _) = start(Settings::default());
    assert!(publishing.begin_at(100));
    assert!(publishing.begin_at(200) && publishing.begin_at(50) && publishing.begin_at(100), "where no block came");
    assert_eq!(publishing.header(one, 99, 0), Verdict::Ignore);
    assert_eq!(publishing.take(one), [Skip(99)]);
    assert_eq!(publishing.header(one, 100, 0), Verdict::Take);
    assert!(!publishing.begin_at(200), "somebody sends a block");
    assert_eq!(publishing.whole(one, candidate(100)), [100]);
    publishing.safe(100, 0);
    assert_eq!(publishing.take(one), [Acknowledgement(100)]);
    assert!(!publishing.begin_at(200), "there is a block");
}

#[test]
fn who_has_sent_a_block_hears_at_once_that_it_is_safe_and_the_others_with_the_next_message() {
    let (mut publishing, one, two) = start(Settings::default());
    assert_eq!(publishing.header(one, 0, 0), Verdict::Take);
    assert_eq!(publishing.header(two, 0, 0), Verdict::Ignore);
    assert_eq!(publishing.due(), [two]);
    assert_eq!(publishing.take(two), [Skip(0)]);
    publishing.whole(one, candidate(0));
    publishing.safe(0, 0);
    assert_eq!(publishing.due(), [one], "nobody else is woken");
    assert!(publishing.owes());
    assert_eq!(publishing.take(one), [Acknowledgement(0)]);
    assert_eq!(publishing.header(one, 1, 5_000), Verdict::Take);
    assert_eq!(publishing.header(two, 1, 5_000), Verdict::Ignore);
    assert_eq!(publishing.take(two), [Acknowledgement(0), Skip(1)]);
    assert!(!publishing.owes());
}

#[test]
fn an_acknowledgement_waits_for_another_message_neither_long_nor_for_many_blocks() {
    let (mut publishing, one, two) = start(Settings::default());
    send(&mut publishing, one, 0);
    publishing.safe(0, 1_000);
    assert_eq!(publishing.due(), [one]);
    assert_eq!(publishing.settle(2_000), Some(19_000));
    assert_eq!(publishing.due(), [] as [PublisherId; 0]);
    assert_eq!(publishing.settle(21_000), None);
    assert_eq!(publishing.due(), [two]);
    assert_eq!(publishing.settle(22_000), None, "it is told once");
    assert_eq!((publishing.due(), publishing.take(two)), (vec![], vec![Acknowledgement(0)]));
    publishing.take(one);
    for number in 1..=3 {
        send(&mut publishing, one, number);
        publishing.safe(number, 22_000);
        assert_eq!(publishing.due(), if number == 1 { vec![one] } else { vec![] });
    }
    send(&mut publishing, one, 4);
    publishing.safe(4, 22_000);
    assert_eq!(publishing.due(), [two], "or it would be too far behind to be told to skip");
}
