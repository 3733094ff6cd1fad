//! A client of members elsewhere: `cargo run -p d-engine --example remote -- 127.0.0.1:9081`, with one address or several.

use std::time::Duration;

use d_engine_client::{Client, Operation, OperationResult, Options, Transaction};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members: Vec<String> = std::env::args().skip(1).collect();
    let client = Client::connect(&members, Options::default()).await?;
    let mut watch = client.watch_prefix("jobs/done/").await?;

    // Whoever else runs this waits meanwhile.
    let lock = client.lock("jobs/lock", Duration::from_secs(5), Duration::from_secs(60)).await?;
    let lock = lock.ok_or("others had the lock all the time")?;

    // Counted once, also if it has to be sent again.
    let session = client.session().await?;
    let count = Transaction::of(Operation::Add { key: "jobs/count".into(), delta: 1 });
    let counted = session.transact(count, Duration::from_secs(10)).await?;
    let [OperationResult::Sum(number)] = counted.applied.results[..] else { return Err("no sum was answered".into()) };
    session.close().await?;

    // Not done if the lock was lost meanwhile, though nobody may have noticed.
    let done = Transaction::put(format!("jobs/done/{number}"), "by this program");
    let written = client.transact(Transaction { compares: vec![lock.fence()], ..done }).await?;
    println!("job {number}, token {}, still held: {}", lock.token(), written.applied.succeeded);
    lock.release().await?;

    if written.applied.succeeded {
        let event = watch.next().await.ok_or("the member has ended")??;
        println!("happened: {:?} {:?} at revision {}", event.kind, event.key, event.revision);
    }
    Ok(())
}
