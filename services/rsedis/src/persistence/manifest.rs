//! The manifest of the append-only file: which files there are, in which order.

use std::borrow::Cow;
use std::fmt;

use crate::protocol::split_words;

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

/// A line that is none of a manifest. Redis's words: tools look for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}.manifest, line {line}: {what}: restore the manifest from a backup")]
pub struct ManifestError {
    name: String,
    line: usize,
    what: &'static str,
}

/// A line is no longer than this, bytes.
const LINE_BYTES_MAX: usize = 1024;
const INVALID: &str = "Invalid AOF manifest file format";

impl Manifest {
    /// Without files.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), files: Vec::new() }
    }

    /// From a manifest's text.
    pub fn parse(name: &str, text: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest = Self::new(name);
        let failed = |line: usize, what| ManifestError { name: name.to_owned(), line, what };
        if text.is_empty() {
            return Err(failed(1, "Found an empty AOF manifest"));
        }
        for (before, line) in text.strip_suffix(b"\n").unwrap_or(text).split(|&byte| byte == b'\n').enumerate() {
            if !line.starts_with(b"#") {
                manifest.add_line(line).map_err(|what| failed(before + 1, what))?;
            }
        }
        Ok(manifest)
    }

    /// Errors: what is wrong with the line.
    fn add_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        if line.len() >= LINE_BYTES_MAX {
            return Err("The AOF manifest file contains too long line");
        }
        let file = parse_line(line)?;
        let has_base = self.files.iter().any(|before| before.kind == Kind::Base);
        let last = self.files.iter().rfind(|before| before.kind == Kind::Increment).map_or(0, |before| before.number);
        match file.kind {
            Kind::Base if has_base => Err("Found duplicate base file information"),
            Kind::Increment if file.number <= last => Err("Found a non-monotonic sequence number"),
            _ => {
                self.files.push(file);
                Ok(())
            }
        }
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
        let bases = self.files.iter().filter(|file| file.kind == Kind::Base || file.name.contains(".base."));
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

fn parse_line(line: &[u8]) -> Result<Named, &'static str> {
    let mut words = Vec::new();
    split_words(line, |word| words.push(String::from_utf8_lossy(word).into_owned())).ok_or(INVALID)?;
    // Later versions may add pairs.
    if words.len() < 6 || words.len() % 2 != 0 {
        return Err(INVALID);
    }
    let (mut name, mut number, mut kind) = (None, None, None);
    for pair in words.chunks_exact(2) {
        let value = &pair[1];
        match pair[0].to_ascii_lowercase().as_str() {
            "file" if value.contains(['/', '\\']) => return Err("File can't be a path, just a filename"),
            "file" => name = Some(value.clone()),
            "seq" => number = value.parse().ok().filter(|number| *number > 0),
            "type" => kind = value.chars().next(),
            _ => {}
        }
    }
    let (Some(name), Some(number), Some(kind)) = (name, number, kind) else { return Err(INVALID) };
    let kind = match kind {
        'b' => Kind::Base,
        'h' => Kind::History,
        'i' => Kind::Increment,
        _ => return Err("Unknown AOF file type"),
    };
    Ok(Named { name, number, kind })
}

/// A name as one word of a line: in quotes where it has spaces, quotes or what is not printed.
fn word_of(name: &str) -> Cow<'_, str> {
    let needs_quotes = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'\'' | b'\\');
    if !name.bytes().any(needs_quotes) {
        return Cow::Borrowed(name);
    }
    let mut quoted = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b'\n' => quoted.push_str("\\n"),
            b'\r' => quoted.push_str("\\r"),
            b'\t' => quoted.push_str("\\t"),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    Cow::Owned(quoted)
}

impl fmt::Display for Manifest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Named { name, number, kind } in &self.files {
            let kind = match kind {
                Kind::Base => 'b',
                Kind::History => 'h',
                Kind::Increment => 'i',
            };
            writeln!(formatter, "file {} seq {number} type {kind}", word_of(name))?;
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
    fn names_of_any_characters_come_back() {
        let name = " file seq \n\n.aof \"'\u{fc}\u{7}";
        let mut manifest = Manifest::new(name);
        manifest.add_increment();
        let text = manifest.to_string();
        assert!(text.starts_with(r#"file " file seq \n\n.aof \""#), "{text}");
        assert_eq!(Manifest::parse(name, text.as_bytes()).unwrap(), manifest);
        let later = "# a remark\nFILE a SEQ 1 TYPE b other words\n";
        assert_eq!(Manifest::parse("a", later.as_bytes()).unwrap().files.len(), 1);
    }

    #[test]
    fn damaged_manifests_are_refused() {
        let long = format!("file {} seq 1 type b\n", "a".repeat(1024));
        for (text, expected) in [
            ("", "line 1: Found an empty AOF manifest"),
            ("file a seq 1\n", "line 1: Invalid AOF manifest file format"),
            ("file a seq 0 type i\n", "line 1: Invalid AOF manifest file format"),
            ("filx a seq 1 type i\n", "line 1: Invalid AOF manifest file format"),
            ("file a seq 1 type i other\n", "line 1: Invalid AOF manifest file format"),
            ("file a seq 1 type i\n\nfile b seq 2 type i\n", "line 2: Invalid AOF manifest file format"),
            ("file a seq 1 type x\n", "line 1: Unknown AOF file type"),
            ("file a seq 1 type i\nfile b seq 1 type i\n", "line 2: Found a non-monotonic sequence number"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", "line 2: Found duplicate base file information"),
            ("file ../a seq 1 type b\n", "line 1: File can't be a path, just a filename"),
            (&long, "line 1: The AOF manifest file contains too long line"),
        ] {
            let error = Manifest::parse("x", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
