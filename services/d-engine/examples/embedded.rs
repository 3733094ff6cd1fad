//! An engine within a program: `cargo run -p d-engine --example embedded -- /tmp/somewhere`.

use std::time::Duration;

use d_engine::{Engine, Options};
use d_engine_client::ReadLevel;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("say where the data shall be")?;
    let engine = Engine::start(Options::alone(directory))?;
    engine.wait_ready(Duration::from_secs(5)).await?;
    let client = engine.client();
    let mut watch = client.watch_prefix("greeting/").await?;
    let token = client.compare_and_swap("greeting/first", None, "hello").await?;
    println!("swapped: {token:?}");
    println!("visits: {}", client.add("visits", 1).await?);
    let seen = client.get_with("greeting/first", ReadLevel::Lease).await?;
    println!("read by {:?} at index {}: {:?}", seen.path, seen.index, seen.value);
    if token.is_some() {
        println!("happened: {:?}", watch.next().await);
    }
    engine.stop()?;
    Ok(())
}
