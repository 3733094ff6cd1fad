//! Makes Rust types of etcd's messages. `protox` parses the files, so that no `protoc` is needed.

use std::error::Error;

const FILES: [&str; 6] = ["kv.proto", "auth.proto", "rpc.proto", "lock.proto", "election.proto", "health.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    prost_build::Config::new()
        // Slices of what was received, or of what is stored.
        .bytes(["."])
        .disable_comments(["."])
        .include_file("proto.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
