//! What the node says of itself: which blocks it has, and what it has checked of them.

use bytes::Bytes;
use service_kit::grpc::encode;
use wal::files::Directory;

use crate::messages::{NO_BLOCK, WireEra, proto};
use crate::node::Node;
use crate::store::Reader;

/// The block stream's protobufs that are spoken, and what the API of that time calls itself.
const STREAM_PROTO: (i32, i32, i32) = (0, 76, 1);

/// serverStatus in its frame. Until block node 0.27 field 4 was another: who reads that time's messages could not read today's.
pub fn status_frame<D: Directory>(reader: &Reader<D>, era: WireEra) -> Bytes {
    let today = status(reader);
    let version_information = match era {
        WireEra::Today => return encode(&today),
        WireEra::V013 => Some(proto::OldVersions {
            stream_proto_version: Some(version(STREAM_PROTO)),
            software_version: Some(software()),
        }),
        // How the versions stood in that message then is not known, and no client needs them.
        WireEra::V015 | WireEra::V020 => None,
    };
    encode(&proto::OldServerStatusResponse {
        first_available_block: today.first_available_block,
        last_available_block: today.last_available_block,
        only_latest_state: today.only_latest_state,
        version_information,
    })
}

/// serverStatus. Of an empty node first and last are 2^64-1.
pub fn status<D: Directory>(reader: &Reader<D>) -> proto::ServerStatusResponse {
    let last = reader.last();
    proto::ServerStatusResponse {
        first_available_block: last.map_or(NO_BLOCK, |_| reader.first()),
        last_available_block: last.unwrap_or(NO_BLOCK),
        only_latest_state: false,
        next_expected_block: reader.next(),
    }
}

/// serverStatusDetail. What is checked of blocks stands in the features of the plug-in `verification`.
pub fn detail(node: &Node) -> proto::ServerStatusDetailResponse {
    let range = |range: std::ops::RangeInclusive<u64>| proto::BlockRange {
        range_start: *range.start(),
        range_end: *range.end(),
    };
    let ranges: Vec<_> = node.reader.ranges().into_iter().map(range).collect();
    let plugin = |id: &str, features: Vec<String>| proto::PluginVersion {
        plugin_id: id.into(),
        plugin_software_version: Some(software()),
        plugin_feature_names: features,
    };
    proto::ServerStatusDetailResponse {
        version_information: Some(proto::BlockNodeVersions {
            stream_proto_version: Some(version(STREAM_PROTO)),
            block_node_version: Some(software()),
            installed_plugin_versions: vec![
                plugin("verification", features(node.settings.accept_dummy_proofs, node.knows_all())),
                plugin("store", vec!["synced before acknowledgement".into(), "checksummed".into(), "zstd".into()]),
            ],
        }),
        available_ranges: ranges.clone(),
        stored_ranges: ranges,
    }
}

fn features(accepts_dummy: bool, knows_all: bool) -> Vec<String> {
    let mut features = vec!["hash verified, signature unchecked".to_owned(), "previous root hash compared".into()];
    if knows_all {
        features.push("tree of all previous root hashes compared".into());
    }
    if accepts_dummy {
        features.push("dummy proofs accepted".into());
    }
    features
}

fn software() -> proto::SemanticVersion {
    let mut numbers = env!("CARGO_PKG_VERSION").split('.').map(|number| number.parse().unwrap_or_default());
    let mut next = || numbers.next().unwrap_or_default();
    version((next(), next(), next()))
}

fn version((major, minor, patch): (i32, i32, i32)) -> proto::SemanticVersion {
    proto::SemanticVersion { major, minor, patch, pre: String::new(), build: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Options, Store};
    use wal::files::SimulatedDirectory;

    #[test]
    fn an_empty_node_has_no_first_and_no_last_block() {
        let store =
            Store::open(SimulatedDirectory::default(), Options { first_block: 7, ..Options::default() }).unwrap();
        let empty = proto::ServerStatusResponse {
            first_available_block: u64::MAX,
            last_available_block: u64::MAX,
            only_latest_state: false,
            next_expected_block: 7,
        };
        assert_eq!(status(&store.reader()), empty);
    }

    #[test]
    fn older_eras_are_not_told_the_next_block_in_the_place_of_the_version() {
        let store = Store::open(SimulatedDirectory::default(), Options::default()).unwrap();
        let none = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let empty = [&[0x08][..], &none, &[0x10], &none].concat();
        let bytes = |era| status_frame(&store.reader(), era)[5..].to_vec();
        assert_eq!(bytes(WireEra::V015), empty);
        assert_eq!(bytes(WireEra::V020), empty);
        // Stream proto 0.76.1 and software 0.1.0.
        let versions = [0x22, 10, 0x12, 4, 0x10, 76, 0x18, 1, 0x1a, 2, 0x10, 1];
        assert_eq!(bytes(WireEra::V013), [&empty[..], &versions].concat());
    }

    #[test]
    fn what_is_not_checked_is_told() {
        assert!(features(true, false).contains(&"dummy proofs accepted".to_owned()));
        assert_eq!(features(false, true).len(), 3);
        assert_eq!(software().minor, 1);
    }
}
