//! Makes Rust types of the messages that are interpreted, and what reflection tells of them. `protox` parses the file, so that no `protoc` is
//! needed.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["block_node.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("block_node.descriptors"), descriptors.encode_to_vec())?;
    prost_build::Config::new()
        .bytes(["."])
        .disable_comments(["."])
        .include_file("proto.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
