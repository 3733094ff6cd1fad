//! Where replicas go: a folder of our own below the one or the bucket that was named, which is removed at the end.

use super::wrong;
use rand::random;
use std::path::Path;
use std::process::Command;
use walsync::config::{ConfigError, Location, S3Options, S3Place};
use walsync::replica::Replica;

/// A place in a store. Each run of an arm has one of its own in it.
#[derive(Clone)]
pub struct Place {
    /// Without a slash at its end.
    url: String,
    s3: S3Options,
}

impl Place {
    /// Below `store`; where that is not named, below a folder.
    pub fn open(store: Option<&str>, s3: &S3Options, folder: &Path) -> Result<Place, ConfigError> {
        let default = format!("file://{}", folder.join("store").display());
        let given = store.unwrap_or(&default);
        let is_known = ["s3://", "file://"].iter().any(|scheme| given.starts_with(scheme));
        if given.contains("://") && !is_known {
            return Err(wrong(
                "store",
                format!("{given}: a bench knows s3://bucket/prefix, file:///folder and a folder's path"),
            ));
        }
        // What else is wrong in it is told in the words that other verbs have.
        Location::open(given, s3)?;
        let (url, s3) = match S3Place::parse(given, s3)? {
            Some(S3Place { bucket, prefix, options }) => (format!("s3://{bucket}/{prefix}"), options),
            None if is_known => (given.to_owned(), s3.clone()),
            None => {
                let folder = std::path::absolute(given).unwrap_or_else(|_| given.into());
                (format!("file://{}", folder.display()), s3.clone())
            }
        };
        Ok(Place { url: format!("{}/walsync-bench-{:016x}", url.trim_end_matches('/'), random::<u64>()), s3 })
    }

    pub fn is_s3(&self) -> bool {
        self.url.starts_with("s3://")
    }

    /// What a relay can stand before: a server without TLS, which has no host for each bucket.
    pub fn plain_endpoint(&self) -> Option<&str> {
        let is_reached = self.is_s3() && self.s3.path_style != Some(false);
        self.s3.endpoint.as_deref().filter(|_| is_reached)?.strip_prefix("http://")
    }

    /// The same, asked by another way.
    pub fn through(&self, endpoint: String) -> Place {
        Place { url: self.url.clone(), s3: S3Options { endpoint: Some(endpoint), ..self.s3.clone() } }
    }

    pub fn location(&self, run: &str) -> Result<Location, ConfigError> {
        Location::open(&format!("{}/{run}", self.url), &self.s3)
    }

    pub fn replica(&self, run: &str, name: &str) -> Result<Replica, ConfigError> {
        Ok(self.location(run)?.replica(name))
    }

    /// As walsync is told of it.
    pub fn for_walsync(&self, command: &mut Command, flag: Option<&str>, path: &str) {
        // There is no flag for it.
        let style = self.s3.path_style.filter(|_| self.is_s3());
        let words = style.map_or(String::new(), |style| format!("?force-path-style={style}"));
        command.args(flag).arg(format!("{}/{path}{words}", self.url));
        if self.is_s3() {
            command.args(self.s3.endpoint.iter().flat_map(|endpoint| ["--endpoint", endpoint]));
            command.args(self.s3.region.iter().flat_map(|region| ["--region", region]));
        }
    }

    /// As Litestream's `restore` is told of it.
    pub fn for_litestream(&self, path: &str) -> String {
        let mut url = format!("{}/{path}", self.url);
        let endpoint = self.s3.endpoint.as_ref().filter(|_| self.is_s3());
        if let Some(endpoint) = endpoint {
            let region = self.region();
            let style = self.s3.path_style.unwrap_or(true);
            url += &format!("?endpoint={endpoint}&force-path-style={style}&region={region}");
        }
        url
    }

    /// As `litestream.yml` has it.
    pub fn in_litestream_yml(&self, path: &str) -> String {
        match self.url.strip_prefix("s3://") {
            None => format!("type: file, path: \"{}/{path}\"", self.url.trim_start_matches("file://")),
            Some(place) => {
                let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
                let endpoint = self.s3.endpoint.as_ref();
                let style = self.s3.path_style.unwrap_or(true);
                let endpoint =
                    endpoint.map(|endpoint| format!(", endpoint: \"{endpoint}\", force-path-style: {style}"));
                let (endpoint, region) = (endpoint.unwrap_or_default(), self.region());
                format!("type: s3, bucket: \"{bucket}\", path: \"{prefix}/{path}\", region: {region}{endpoint}")
            }
        }
    }

    fn region(&self) -> &str {
        self.s3.region.as_deref().unwrap_or("us-east-1")
    }

    /// Removes everything below it.
    pub fn remove(&self) -> anyhow::Result<()> {
        if let Some(folder) = self.url.strip_prefix("file://") {
            return match std::fs::remove_dir_all(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            };
        }
        let location = Location::open(&self.url, &self.s3)?;
        let (store, prefix) = location.store();
        let keys: Vec<String> = store.list(&format!("{prefix}/"))?.into_iter().map(|object| object.key).collect();
        Ok(store.delete_all(&keys)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(store: &str) -> Place {
        let s3 = S3Options {
            access_key_id: Some("id".into()),
            secret_access_key: Some("secret".into()),
            ..S3Options::default()
        };
        Place::open(Some(store), &s3, Path::new("/tmp/bench")).unwrap()
    }

    #[test]
    fn both_programs_are_told_of_one_place() {
        let place = place("s3://bucket/prefix?endpoint=http://127.0.0.1:7070&region=eu-west-1");
        let own = place.url.strip_prefix("s3://bucket/prefix/").unwrap();
        assert!(own.starts_with("walsync-bench-") && own.len() == 30, "{own}");
        let mut command = Command::new("walsync");
        place.for_walsync(&mut command, Some("--to"), "run");
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        let url = format!("s3://bucket/prefix/{own}/run");
        assert_eq!(words, ["--to", &url, "--endpoint", "http://127.0.0.1:7070", "--region", "eu-west-1"]);
        let query = "endpoint=http://127.0.0.1:7070&force-path-style=true&region=eu-west-1";
        assert_eq!(place.for_litestream("run"), format!("{url}?{query}"));
        let yml = format!(
            "type: s3, bucket: \"bucket\", path: \"prefix/{own}/run\", region: eu-west-1, endpoint: \"http://127.0.0.1:7070\", \
             force-path-style: true"
        );
        assert_eq!(place.in_litestream_yml("run"), yml);
        assert_eq!(place.plain_endpoint(), Some("127.0.0.1:7070"));
        let relayed = place.through("http://127.0.0.1:1".into());
        assert_eq!((relayed.plain_endpoint(), &relayed.url), (Some("127.0.0.1:1"), &place.url));
    }

    #[test]
    fn both_programs_are_told_of_hosts_that_are_buckets() {
        let place = place("s3://bucket?endpoint=http://store:7070&force-path-style=false");
        let mut command = Command::new("walsync");
        place.for_walsync(&mut command, None, "run");
        let url = command.get_args().next().unwrap().to_str().unwrap();
        assert!(url.ends_with("/run?force-path-style=false"), "{url}");
        assert!(place.for_litestream("run").contains("&force-path-style=false&"));
        assert!(place.in_litestream_yml("run").ends_with(", force-path-style: false"));
        assert_eq!(place.plain_endpoint(), None, "a relay is not called bucket.127.0.0.1");
    }

    #[test]
    fn a_folder_has_no_server_before_which_a_relay_could_stand() {
        for store in ["file:///backup/", "/backup"] {
            let place = place(store);
            assert!(place.url.starts_with("file:///backup/walsync-bench-"), "{}", place.url);
            assert_eq!((place.plain_endpoint(), place.is_s3()), (None, false));
            assert_eq!(place.for_litestream("run"), format!("{}/run", place.url));
        }
    }
}
