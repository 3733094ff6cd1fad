//! Who founds a group, by the flags; and the numbers of members and groups, which are etcd's.

use std::collections::BTreeSet;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::flags::{Flags, Mistake, Url};

/// A member that a group is founded with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founder {
    /// Its name.
    pub name: String,
    /// Where other members find it.
    pub peer_urls: Vec<Url>,
}

impl Founder {
    /// Its number, made of what all founders know.
    pub fn id(&self, token: &str) -> u64 {
        let urls = self.peer_urls.iter().map(Url::to_string).collect();
        member_id(urls, token)
    }
}

/// The number of a member: etcd's `computeMemberID`. `distinction` is the token of the group that it founds, or the time, in
/// seconds, at which it was added.
pub fn member_id(mut peer_urls: Vec<String>, distinction: &str) -> u64 {
    peer_urls.sort_unstable();
    peer_urls.push(distinction.to_owned());
    hash(peer_urls.concat().as_bytes())
}

/// The number of a group with these founders: etcd's `genID`. Where several begin with something that was taken over, its checksum goes in:
/// a member that begins with something else, or with nothing, is of another group then, and no other talks to it.
pub fn cluster_id(founders: &[Founder], token: &str, taken: Option<u32>) -> u64 {
    let mut ids = founders.iter().map(|founder| founder.id(token)).collect::<Vec<_>>();
    ids.sort_unstable();
    ids.extend(taken.filter(|_| founders.len() > 1).map(u64::from));
    hash(&ids.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<_>>())
}

/// The number of a member or of a group, as etcd writes it.
pub fn hex(id: u64) -> String {
    format!("{id:x}")
}

/// Whether both have the same URLs, in whatever order.
pub(super) fn has_same(one: &[Url], other: &[Url]) -> bool {
    let [one, other] = [one, other].map(|urls| urls.iter().map(Url::to_string).collect::<BTreeSet<_>>());
    one == other
}

pub(super) fn with_commas(urls: &[Url]) -> String {
    urls.iter().map(Url::to_string).collect::<Vec<_>>().join(",")
}

/// Never 0.
fn hash(bytes: &[u8]) -> u64 {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
    let first = digest.as_ref().first_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(first).max(1)
}

/// Reads `NAME=URL,NAME=URL`: a name may stand several times.
pub(super) fn of(flags: &Flags, own_name: &str, own_urls: &[Url]) -> Result<Vec<Founder>, Mistake> {
    const FLAG: &str = "initial-cluster";
    let Some(text) = flags.given(FLAG) else {
        return Ok(vec![Founder { name: own_name.to_owned(), peer_urls: own_urls.to_vec() }]);
    };
    let mut founders: Vec<Founder> = Vec::new();
    for part in text.split(',') {
        let wrong = || Mistake::new(FLAG, format!("expected NAME=URL with commas between them, found {part:?}"));
        let (name, url) = part.split_once('=').ok_or_else(wrong)?;
        let url = crate::flags::url(FLAG, url)?;
        match founders.iter_mut().find(|founder| founder.name == name) {
            Some(founder) => founder.peer_urls.push(url),
            None => founders.push(Founder { name: name.to_owned(), peer_urls: vec![url] }),
        }
    }
    Ok(founders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    /// As etcd 3.7.3 told them with these flags.
    #[test]
    fn numbers_are_those_of_etcd() {
        let settings = settings(&[]).unwrap();
        assert_eq!(format!("{:x}", settings.founders[0].id(&settings.token)), "8e9e05c52164694d");
        assert_eq!(format!("{:x}", cluster_id(&settings.founders, &settings.token, None)), "cdf818194e3a8c32");
    }

    #[test]
    fn numbers_of_members_follow_from_what_all_of_them_know() {
        let founder = |name: &str, url: &str| Founder {
            name: name.into(),
            peer_urls: vec![Url { is_tls: false, is_unix: false, host: url.into(), port: 1 }],
        };
        let (a, b) = (founder("a", "x"), founder("b", "y"));
        assert_ne!(a.id("t"), b.id("t"));
        assert_ne!(a.id("t"), a.id("u"));
        let both = [a.clone(), b.clone()];
        assert_eq!(cluster_id(&both, "t", None), cluster_id(&[b, a.clone()], "t", None));
        let numbers = [None, Some(1), Some(2)].map(|taken| cluster_id(&both, "t", taken));
        assert!(numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[2] != numbers[0]);
        assert_eq!(
            cluster_id(std::slice::from_ref(&a), "t", Some(1)),
            cluster_id(&[a], "t", None),
            "one that is alone differs from nobody"
        );
    }

    #[test]
    fn members_of_a_group_are_read_from_the_flags() {
        let settings = settings(&[
            "--name=b",
            "--initial-cluster=a=http://a:1,b=http://b:1,b=http://b:2,c=http://c:1",
            "--initial-cluster-state=existing",
            "--strict-reconfig-check=false",
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.founders.iter().map(|founder| founder.peer_urls.len()).collect::<Vec<_>>(), [1, 2, 1]);
        assert!(settings.joins && !settings.strict_reconfig_check);
    }
}
