//! What the node says of itself: which blocks it has, and what it has checked of them.

use std::sync::PoisonError;

use bytes::Bytes;
use service_kit::grpc::encode;
use wal::files::Directory;

use crate::block::{Nodes, ProofRules, RecordFileRule, RsaKey};
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
    let rules = node.proof_rules();
    let mut plugins = vec![
        plugin("verification", features(&rules, node.knows_all())),
        plugin("store", vec!["synced before acknowledgement".into(), "checksummed".into(), "zstd".into()]),
    ];
    let gap = node.gap.lock().unwrap_or_else(PoisonError::into_inner);
    plugins.extend(gap.map(|gap| plugin("backfill", vec![format!("stays behind: {gap}")])));
    let (node_address_book, ranged_address_book_history) = address_books(&rules.record_files);
    proto::ServerStatusDetailResponse {
        node_address_book,
        ranged_address_book_history,
        version_information: Some(proto::BlockNodeVersions {
            stream_proto_version: Some(version(STREAM_PROTO)),
            block_node_version: Some(software()),
            installed_plugin_versions: plugins,
        }),
        available_ranges: ranges.clone(),
        stored_ranges: ranges,
    }
}

/// The newest address book, and all of them where there are several.
fn address_books(rule: &RecordFileRule) -> (Option<proto::NodeAddressBook>, Option<proto::RangedAddressBookHistory>) {
    let RecordFileRule::Signers { books, .. } = rule else { return (None, None) };
    let address = |(id, key): (&u64, &RsaKey)| proto::NodeAddress { rsa_pub_key: key.given(), node_id: *id as i64 };
    let book = |nodes: &Nodes| proto::NodeAddressBook { node_address: nodes.iter().map(address).collect() };
    let ranged: Vec<_> = books
        .all()
        .map(|(blocks, nodes)| proto::RangedNodeAddressBook {
            address_book: Some(book(nodes)),
            start_block: *blocks.start(),
            // 0 is no end.
            end_block: if *blocks.end() == u64::MAX { 0 } else { *blocks.end() },
        })
        .collect();
    let newest = ranged.last().and_then(|ranged| ranged.address_book.clone());
    (newest, (ranged.len() > 1).then_some(proto::RangedAddressBookHistory { address_books: ranged }))
}

fn features(rules: &ProofRules, knows_all: bool) -> Vec<String> {
    let mut features = vec!["hash verified, signature unchecked".to_owned(), "previous root hash compared".into()];
    if let RecordFileRule::Signers { percent_min, .. } = rules.record_files {
        features.push(match percent_min {
            0 => "record files: RSA signatures verified, one suffices".into(),
            percent => format!("record files: RSA signatures of {percent} % of the nodes verified"),
        });
    }
    if knows_all {
        features.push("tree of all previous root hashes compared".into());
    }
    if rules.accepts_dummy {
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
    use crate::block::record_file_tests as record_file;
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
        let rules = |accepts_dummy| ProofRules::published(accepts_dummy, RecordFileRule::Refuse);
        assert!(features(&rules(true), false).contains(&"dummy proofs accepted".to_owned()));
        assert_eq!(features(&rules(false), true).len(), 3);
        let signed = ProofRules::published(false, record_file::rule(34));
        assert!(features(&signed, true).iter().any(|feature| feature.contains("34 % of the nodes")));
        let (newest, history) = address_books(&signed.record_files);
        let addresses = newest.unwrap().node_address;
        assert_eq!(addresses.iter().map(|address| address.node_id).collect::<Vec<_>>(), [0, 3, 7]);
        assert!(addresses[0].rsa_pub_key.starts_with("30820122") && history.is_none());
        assert_eq!(software().minor, 1);
    }
}
