//! The structures that values are made of. They know bytes and numbers, and nothing of commands.

pub mod intset;
pub mod listpack;
pub mod ordered;
pub mod room;
pub mod table;
