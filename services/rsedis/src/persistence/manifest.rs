//! The manifest of the append-only file: which files there are, in which order.

use std::fmt;

use crate::protocol::request::split_words;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The state when the increments began.
    Base,
    /// No longer needed.
    History,
    /// Commands since.
    Increment,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name in the directory.
    pub name: String,
    /// Its number; increments ascend.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
}

/// All files, in the order in which they are replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The setting `appendfilename`.
    pub name: String,
    /// In order.
    pub files: Vec<Named>,
}

/// A line that is none of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}.manifest, line {line}: {what}: restore the manifest from a backup")]
pub struct ManifestError {
    name: String,
    line: usize,
    what: String,
}

impl Manifest {
    /// Without files.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), files: Vec::new() }
    }

    /// From a manifest's text.
    pub fn parse(name: &str, text: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest = Self::new(name);
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let failed = |what: &str| ManifestError { name: name.to_owned(), line: number + 1, what: what.to_owned() };
            manifest.files.push(parse_line(line).ok_or_else(|| failed("not `file NAME seq N type b|h|i`"))?);
            let Some((last, before)) = manifest.files.split_last() else { continue };
            if last.kind == Kind::Base && before.iter().any(|file| file.kind == Kind::Base) {
                return Err(failed("a second base"));
            }
            let before = before.iter().rfind(|file| file.kind == Kind::Increment);
            if last.kind == Kind::Increment && before.is_some_and(|before| before.number >= last.number) {
                return Err(failed("the increments' numbers do not ascend"));
            }
            if last.name.contains('/') {
                return Err(failed("a file in another directory"));
            }
        }
        if manifest.files.is_empty() {
            return Err(ManifestError { name: name.to_owned(), line: 1, what: "no files".to_owned() });
        }
        Ok(manifest)
    }

    /// The base, then the increments.
    pub fn replayed(&self) -> impl Iterator<Item = &Named> {
        let of = |kind| self.files.iter().filter(move |file| file.kind == kind);
        of(Kind::Base).chain(of(Kind::Increment))
    }

    /// The increment that is written to.
    pub fn last_increment(&self) -> Option<&str> {
        self.files.iter().rfind(|file| file.kind == Kind::Increment).map(|file| file.name.as_str())
    }

    /// Adds an increment behind the last; its name.
    pub fn add_increment(&mut self) -> String {
        let increments = self.files.iter().filter(|file| file.kind == Kind::Increment);
        let number = increments.map(|file| file.number).max().unwrap_or(0) + 1;
        let name = format!("{}.{number}.incr.aof", self.name);
        self.files.push(Named { name: name.clone(), number, kind: Kind::Increment });
        name
    }
}

impl Manifest {
    /// The name of the base that comes after the last one.
    pub fn next_base(&self, is_rdb: bool) -> Named {
        let bases = self.files.iter().filter(|file| file.name.contains(".base."));
        let number = bases.map(|file| file.number).max().unwrap_or(0) + 1;
        let extension = if is_rdb { "rdb" } else { "aof" };
        Named { name: format!("{}.{number}.base.{extension}", self.name), number, kind: Kind::Base }
    }

    /// Puts a base in the place of the one before and of all increments but the last; these are history then.
    pub fn set_base(&mut self, base: Named) {
        let last = self.last_increment().map(str::to_owned);
        for file in &mut self.files {
            if Some(&file.name) != last.as_ref() {
                file.kind = Kind::History;
            }
        }
        self.files.insert(0, base);
    }

    /// Takes what is no longer needed out of the manifest.
    pub fn take_history(&mut self) -> Vec<Named> {
        self.files.extract_if(.., |file| file.kind == Kind::History).collect()
    }
}

fn parse_line(line: &[u8]) -> Option<Named> {
    let mut words = Vec::new();
    split_words(line, |word| words.push(String::from_utf8_lossy(word).into_owned()))?;
    let (mut name, mut number, mut kind) = (None, None, None);
    for pair in words.chunks(2) {
        let [key, value] = pair else { return None };
        match key.as_str() {
            "file" => name = Some(value.clone()),
            "seq" => number = value.parse().ok().filter(|number| *number > 0),
            "type" => {
                kind = Some(match value.as_str() {
                    "b" => Kind::Base,
                    "h" => Kind::History,
                    "i" => Kind::Increment,
                    _ => return None,
                });
            }
            _ => {}
        }
    }
    Some(Named { name: name?, number: number?, kind: kind? })
}

impl fmt::Display for Manifest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Named { name, number, kind } in &self.files {
            let kind = match kind {
                Kind::Base => 'b',
                Kind::History => 'h',
                Kind::Increment => 'i',
            };
            let quoted = if name.contains([' ', '"', '\'', '\\']) { format!("{name:?}") } else { name.clone() };
            writeln!(formatter, "file {quoted} seq {number} type {kind}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_of_redis_is_read_and_written() {
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.1.incr.aof seq 1 type h\n\
                    file appendonly.aof.2.incr.aof seq 2 type i\n";
        let mut manifest = Manifest::parse("appendonly.aof", text.as_bytes()).unwrap();
        assert_eq!(manifest.to_string(), text);
        assert_eq!(manifest.last_increment(), Some("appendonly.aof.2.incr.aof"));
        assert_eq!(manifest.add_increment(), "appendonly.aof.3.incr.aof");
        let order: Vec<u64> = manifest.replayed().map(|file| file.number).collect();
        assert_eq!(order, [2, 2, 3]);
    }

    #[test]
    fn damaged_manifests_are_refused() {
        for (text, expected) in [
            ("", "line 1: no files"),
            ("file a seq 1\n", "line 1: not `file NAME"),
            ("file a seq 0 type i\n", "line 1: not `file NAME"),
            ("file a seq 1 type i\nfile b seq 1 type i\n", "line 2: the increments' numbers do not ascend"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", "line 2: a second base"),
            ("file ../a seq 1 type b\n", "line 1: a file in another directory"),
        ] {
            let error = Manifest::parse("x", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
