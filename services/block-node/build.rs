//! Makes Rust types of the messages that are interpreted. `protox` parses the file, so that no `protoc` is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["block_node.proto"], ["proto"])?;
    prost_build::Config::new()
        .bytes(["."])
        .disable_comments(["."])
        .include_file("proto.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
