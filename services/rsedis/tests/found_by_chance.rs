//! Differences from Redis 7.0.15 that random commands have met (`tests/differential.rs`), or might: each as a conversation of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::lines::compare;

/// A sum with a fraction is text, also where it is whole; its copy was an integer.
#[test]
fn a_copy_of_a_sum_is_text_as_the_sum_is() {
    compare(&[
        "SET sum 10",
        "OBJECT ENCODING sum",
        "INCRBYFLOAT sum 7",
        "OBJECT ENCODING sum",
        "COPY sum other",
        "OBJECT ENCODING other",
        "COPY sum other DB 1 REPLACE",
        "SELECT 1",
        "OBJECT ENCODING other",
        "RENAME other third",
        "PEXPIREAT third 33000000000000",
        "OBJECT ENCODING third",
        "COPY third fourth",
        "OBJECT ENCODING fourth",
        "INCR fourth",
        "OBJECT ENCODING fourth",
        "SET text short",
        "APPEND text er",
        "OBJECT ENCODING text",
        "COPY text more",
        "OBJECT ENCODING more",
    ]);
}
