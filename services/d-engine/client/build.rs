//! Makes Rust types of the messages in `../proto`. `protox` parses the files, so that no `protoc` is needed.

use std::error::Error;

use prost::Message;

const FILES: [&str; 9] = [
    "d_engine/client.proto",
    "d_engine/cluster.proto",
    "d_engine/common.proto",
    "d_engine/error.proto",
    "raft/client.proto",
    "raft/cluster.proto",
    "raft/common.proto",
    "raft/error.proto",
    "storebench/dengine/v1.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../proto");
    let descriptors = protox::compile(FILES, ["../proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("d-engine.descriptors"), descriptors.encode_to_vec())?;
    prost_build::Config::new()
        // Slices of what was received, or of what is stored.
        .bytes(["."])
        .disable_comments(["."])
        .include_file("proto.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
