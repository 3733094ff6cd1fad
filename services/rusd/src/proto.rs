//! The messages of etcd's API, made by `build.rs` from the files in `proto/`. Fields of type `bytes` are [`bytes::Bytes`]:
//! what is decoded from `Bytes` shares its memory with what was received.

#![allow(missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/proto.rs"));
