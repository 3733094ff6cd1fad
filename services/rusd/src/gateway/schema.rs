//! What messages look like: tables that `build.rs` makes of the `.proto` files.

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Its fields, in the order of their declaration.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// As it was declared: `range_end`.
    pub name: &'static str,
    /// As JSON has it: `rangeEnd`.
    pub json: &'static str,
    /// Its number on the wire.
    pub number: u32,
    /// What it holds.
    pub kind: Kind,
    /// Whether it holds many.
    pub is_repeated: bool,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after protobuf's types")]
pub enum Kind {
    Int64,
    Uint64,
    Uint32,
    Bool,
    String,
    Bytes,
    /// By its place in [`ENUMS`].
    Enum(usize),
    /// By its place in [`MESSAGES`].
    Message(usize),
}

/// A method of a service.
#[derive(Debug)]
pub struct Call {
    /// `/PACKAGE.SERVICE/METHOD`.
    pub path: &'static str,
    /// The place of the request in [`MESSAGES`].
    pub request: usize,
    /// The place of the response.
    pub response: usize,
}

include!(concat!(env!("OUT_DIR"), "/gateway_schema.rs"));

/// The method with this path.
pub fn call(path: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.path == path)
}
