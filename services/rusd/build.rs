//! Makes Rust types of etcd's messages, and the tables that the JSON gateway goes by. `protox` parses the files, so that no
//! `protoc` is needed.

#![allow(clippy::panic, reason = "what is wrong with a .proto file ends the build")]

use std::error::Error;
use std::path::Path;

#[path = "build/schema.rs"]
mod schema;

const FILES: [&str; 5] = ["kv.proto", "auth.proto", "rpc.proto", "lock.proto", "election.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("gateway_schema.rs"), schema::tables(&descriptors.file))?;
    prost_build::Config::new()
        // Slices of what was received, or of what is stored.
        .bytes(["."])
        .disable_comments(["."])
        .include_file("proto.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
