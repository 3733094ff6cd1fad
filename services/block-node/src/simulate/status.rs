//! `block-node status`: what a node says of itself, in lines for people.

use std::fmt;

use clap::Args;
use service_kit::client::GrpcError;
use service_kit::grpc::Code;

use super::{STATUS, TlsFlags, connect_with};
use crate::messages::{NO_BLOCK, STATUS_DETAIL, proto};

/// Who is asked.
#[derive(Clone, Debug, Args)]
pub struct StatusFlags {
    /// HOST:PORT of the node, or https://HOST:PORT
    #[arg(value_name = "URL", default_value = "127.0.0.1:40840")]
    pub address: String,
    /// With an address that begins with https
    #[command(flatten)]
    pub tls: TlsFlags,
}

/// What it answers.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// serverStatus.
    pub status: proto::ServerStatusResponse,
    /// serverStatusDetail, which old nodes do not have.
    pub detail: Option<proto::ServerStatusDetailResponse>,
}

/// Asks a node.
pub async fn ask(flags: &StatusFlags) -> Result<NodeStatus, GrpcError> {
    let mut channel = connect_with(&flags.address, &flags.tls).await?;
    let call = channel.call(STATUS);
    let status = channel.unary(&call, &proto::ServerStatusRequest {}).await?;
    let call = channel.call(STATUS_DETAIL);
    let detail = match channel.unary(&call, &proto::ServerStatusRequest {}).await {
        Ok(detail) => Some(detail),
        Err(GrpcError::Status(status)) if status.code == Code::Unimplemented => None,
        Err(error) => return Err(error),
    };
    Ok(NodeStatus { status, detail })
}

impl fmt::Display for NodeStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, what: &str| writeln!(formatter, "{name:<13} {what}");
        let proto::ServerStatusResponse { first_available_block, last_available_block, next_expected_block, .. } =
            self.status;
        let blocks = match last_available_block {
            NO_BLOCK => "none yet".to_owned(),
            last => format!("{first_available_block} to {last}"),
        };
        line("blocks", &format!("{blocks}; next {next_expected_block}"))?;
        let Some(detail) = &self.detail else { return Ok(()) };
        let gaps: Vec<String> = detail.stored_ranges.windows(2).map(gap).collect();
        line("gaps", &if gaps.is_empty() { "none".to_owned() } else { gaps.join(", ") })?;
        let Some(versions) = &detail.version_information else { return Ok(()) };
        let of = |version: &Option<proto::SemanticVersion>| {
            version
                .as_ref()
                .map_or_else(|| "unknown".to_owned(), |of| format!("{}.{}.{}", of.major, of.minor, of.patch))
        };
        let node = of(&versions.block_node_version);
        line("version", &format!("{node}; block stream {}", of(&versions.stream_proto_version)))?;
        for plugin in &versions.installed_plugin_versions {
            line(&plugin.plugin_id, &plugin.plugin_feature_names.join(", "))?;
        }
        match &detail.node_address_book {
            Some(book) => line("address book", &format!("{} nodes", book.node_address.len())),
            None => Ok(()),
        }
    }
}

/// What is missing between two ranges.
fn gap(two: &[proto::BlockRange]) -> String {
    format!("{} to {}", two[0].range_end + 1, two[1].range_start - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let range = |range_start, range_end| proto::BlockRange { range_start, range_end };
        let status = proto::ServerStatusResponse {
            first_available_block: 3,
            last_available_block: 90,
            only_latest_state: false,
            next_expected_block: 91,
        };
        let detail = proto::ServerStatusDetailResponse {
            stored_ranges: vec![range(3, 6), range(9, 20), range(22, 90)],
            ..Default::default()
        };
        let said = NodeStatus { status, detail: Some(detail) }.to_string();
        assert_eq!(said, "blocks        3 to 90; next 91\ngaps          7 to 8, 21 to 21\n");
    }
}
