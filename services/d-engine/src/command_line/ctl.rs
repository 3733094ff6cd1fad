//! `d-engine ctl`: looks at a group, and changes a key.

use anyhow::Context as _;
use d_engine_client::grpc::Channel;
use d_engine_client::{Client, Options, ReadLevel, wire};

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Addresses of members.
    #[arg(long = "endpoints", default_value = "127.0.0.1:9081", value_delimiter = ',')]
    endpoints: Vec<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Says what each member is.
    Status,
    /// Gives a key a value; its revision.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: String,
        /// linearizable, lease or eventual; or l, s, e.
        #[arg(long, default_value = "linearizable", value_parser = level)]
        consistency: ReadLevel,
    },
}

/// The level with this name; `s` is the report's word for lease reads.
pub(super) fn level(name: &str) -> Result<ReadLevel, String> {
    match name {
        "l" | "linearizable" => Ok(ReadLevel::Linearizable),
        "s" | "lease" => Ok(ReadLevel::Lease),
        "e" | "eventual" => Ok(ReadLevel::Eventual),
        _ => Err("expected l (linearizable), s (lease) or e (eventual)".into()),
    }
}

/// What a member says of itself.
pub(super) async fn status(endpoint: &str) -> anyhow::Result<wire::StatusReply> {
    let channel = Channel::connect(endpoint).await?;
    Ok(channel.unary("/storebench.dengine.v1.Store/Status", &wire::StatusRequest {}).await?)
}

pub(super) async fn run(Arguments { endpoints, verb }: Arguments) -> anyhow::Result<()> {
    match verb {
        Verb::Status => {
            let mut answered = 0;
            for endpoint in &endpoints {
                match status(endpoint).await {
                    Ok(status) => {
                        answered += 1;
                        let role = if status.leader_id == status.member_id { "leader" } else { "follower" };
                        println!(
                            "{endpoint}: member {} {role} term {} committed {} applied {} leader {} durability {} ready {} \
                             version {}",
                            status.member_id,
                            status.term,
                            status.committed,
                            status.applied,
                            status.leader_id,
                            status.durability,
                            status.is_ready,
                            status.version
                        );
                    }
                    Err(error) => println!("{endpoint}: {error:#}"),
                }
            }
            anyhow::ensure!(answered > 0, "no member answers");
        }
        Verb::Put { key, value } => {
            let client = Client::connect(&endpoints, Options::default()).await?;
            println!("{}", client.put(key, value).await?);
        }
        Verb::Get { key, consistency } => {
            let client = Client::connect(&endpoints, Options::default()).await?;
            let seen = client.get_with(key.clone(), consistency).await?;
            let item = seen.value.with_context(|| format!("{key}: no such key"))?;
            println!("{}", String::from_utf8_lossy(&item.value));
        }
    }
    Ok(())
}
