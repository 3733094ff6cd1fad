//! Makes Rust types of the messages of health and reflection, and of the example. `protox` parses the files, so that no `protoc` is
//! needed. A client alone needs none of them.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "server")]
    {
        use prost::Message;
        let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
        for (name, files, folder) in
            [("kit", &["health.proto", "reflection.proto"][..], "proto"), ("example", &["echo.proto"], "examples")]
        {
            println!("cargo:rerun-if-changed={folder}");
            let descriptors = protox::compile(files, [folder])?;
            std::fs::write(out.join(format!("{name}.descriptors")), descriptors.encode_to_vec())?;
            prost_build::Config::new()
                .bytes(["."])
                .disable_comments(["."])
                .include_file(format!("{name}.rs"))
                .compile_fds(descriptors)?;
        }
    }
    Ok(())
}
