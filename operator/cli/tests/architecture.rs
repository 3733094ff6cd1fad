//! Who may import whom. The layout in ARCHITECTURE.md is a promise; this keeps it.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each crate and the crates of this workspace that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("storebench-crds", &[]),
    ("storebench-core", &["storebench-crds"]),
    ("storebench-operator", &["storebench-crds", "storebench-core"]),
    ("bench-jobs", &["storebench-crds", "service-kit", "ltx", "object-store-client"]),
    ("storebench", &["storebench-crds", "storebench-core", "bench-jobs", "object-store-client", "service-kit"]),
    ("service-kit", &[]),
    ("wal", &[]),
    ("persistent-tree", &[]),
    ("replog", &["wal"]),
    ("rusd", &["service-kit", "wal", "persistent-tree", "replog"]),
    ("d-engine-client", &[]),
    ("d-engine", &["d-engine-client", "service-kit", "wal", "persistent-tree", "replog"]),
    ("rsedis", &["service-kit", "thin", "wal"]),
    ("thin", &[]),
    ("ltx", &[]),
    ("object-store-client", &[]),
    ("walsync", &["ltx", "object-store-client", "service-kit"]),
    ("block-node", &["service-kit", "wal"]),
    ("faulty-store", &[]),
    // For tests of every crate, as a dev-dependency.
    ("harness", &[]),
];

/// Libraries that a pure crate may not depend on, because they do I/O or know a cluster.
const IMPURE: &[&str] = &["tokio", "procfs", "rustix", "h2", "tempfile", "jiff"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata() -> serde_json::Value {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Package names of all members, and where they are.
fn member_folders() -> Vec<(String, PathBuf)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let folder = |package: &serde_json::Value| {
        (text(&package["name"]), Path::new(&text(&package["manifest_path"])).parent().unwrap().to_owned())
    };
    metadata()["packages"].as_array().unwrap().iter().map(folder).collect()
}

/// Package names of all members, with the names of their normal dependencies.
fn members() -> BTreeMap<String, Vec<String>> {
    let metadata = metadata();
    let package = |package: &serde_json::Value| {
        let normal = |dependency: &&serde_json::Value| dependency["kind"].is_null();
        let names = package["dependencies"].as_array().unwrap().iter().filter(normal);
        let names = names.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect();
        (package["name"].as_str().unwrap().to_owned(), names)
    };
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

#[test]
fn crates_import_only_what_the_architecture_allows() {
    let members = members();
    for (name, dependencies) in &members {
        let allowed = ALLOWED.iter().find(|(member, _)| member == name);
        let (_, allowed) =
            allowed.unwrap_or_else(|| panic!("{name} is new: give it a place in ARCHITECTURE.md and here"));
        for dependency in dependencies.iter().filter(|dependency| members.contains_key(*dependency)) {
            assert!(allowed.contains(&dependency.as_str()), "{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn the_judgement_stays_pure() {
    for name in ["storebench-core", "storebench-crds"] {
        for dependency in &members()[name] {
            assert!(!IMPURE.contains(&dependency.as_str()), "{name} may not depend on {dependency}: it is pure");
        }
    }
    let clocks_files_and_chance = [
        "std::fs",
        "std::net",
        "std::process",
        "Instant::now",
        "SystemTime::now",
        "std::env::var",
        "rand::rng",
        "getrandom",
    ];
    for folder in ["crds/src", "operator/core/src"] {
        // Test modules may write what people want to look at.
        for file in rust_files(&root().join(folder)).into_iter().filter(|file| !file.ends_with("tests.rs")) {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = without_test_items(&text);
            for name in clocks_files_and_chance {
                assert!(!code.contains(name), "{} uses {name}: it is pure, take it as an argument", file.display());
            }
        }
    }
}

/// The one crate whose lints are its own, since it has `unsafe` code, and the one file of it that does.
const UNSAFE: (&str, &str) = ("thin", "services/rsedis/thin/src/lib.rs");

#[test]
fn unsafe_code_stands_in_one_file() {
    let root = root();
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""), "what is forbidden cannot be allowed further down");
    let takes_the_workspaces = |manifest: &str| manifest.contains("[lints]\nworkspace = true");
    for (name, folder) in member_folders() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert_eq!(takes_the_workspaces(&manifest), name != UNSAFE.0, "{name}: [lints] workspace = true");
    }
    let (_, folder) = member_folders().into_iter().find(|(name, _)| name == UNSAFE.0).unwrap();
    for file in rust_files(&folder) {
        let has_some = std::fs::read_to_string(&file).unwrap().contains("unsafe");
        let is_the_one = file.canonicalize().unwrap() == root.join(UNSAFE.1).canonicalize().unwrap();
        assert_eq!(has_some, is_the_one, "{}", file.display());
    }
    assert_eq!(members()[UNSAFE.0], Vec::<String>::new(), "what is checked is all there is");
}

/// The modules of a folder of sources, and which of the others each names in its code.
fn modules(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files(folder).into_iter().filter(|file| !file.ends_with("tests.rs") && !file.ends_with("lib.rs")) {
        let below = file.strip_prefix(folder).unwrap().components().next().unwrap();
        let module = below.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
        // Fixtures are of tests, too.
        if file.components().any(|part| ["fixture", "tests"].iter().any(|name| part.as_os_str() == *name)) {
            continue;
        }
        let code = without_test_items(&std::fs::read_to_string(&file).unwrap());
        let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let names = code.split("crate::").skip(1).map(|rest| {
            rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap().to_owned()
        });
        modules.entry(module.clone()).or_default().extend(names.filter(|name| *name != module));
    }
    modules
}

/// Modules that import one another in a circle; `None`: there is none.
fn circle(modules: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut rest = modules.clone();
    loop {
        let standing: BTreeSet<String> = rest.keys().cloned().collect();
        // Whoever imports none of those that stand is in no circle.
        rest.retain(|_, imports| imports.iter().any(|import| standing.contains(import)));
        if rest.len() == standing.len() {
            return (!rest.is_empty()).then(|| rest.into_keys().collect());
        }
    }
}

#[test]
fn modules_of_the_judgement_import_one_another_in_no_circle() {
    let modules = modules(&root().join("operator/core/src"));
    assert!(modules["validate"].contains("validated") && modules["report"].contains("judgement"), "{modules:?}");
    assert_eq!(circle(&modules), None, "{modules:?}");
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let planted = BTreeMap::from([
        ("a".to_owned(), set(&["b"])),
        ("b".to_owned(), set(&["c", "d"])),
        ("c".to_owned(), set(&["b"])),
        ("d".to_owned(), set(&[])),
    ]);
    assert!(circle(&planted).unwrap().contains(&"b".to_owned()));
}

/// A file holds one idea; beyond this it holds two.
const LINES_MAX: usize = 600;

/// Files that are longer, and how long they may be at most: each is to be divided, and none may join them.
const LONGER: [(&str, usize); 3] = [
    ("services/d-engine/src/state/tests.rs", 650),
    ("services/replog/src/sim/world.rs", 650),
    ("services/rsedis/src/protocol/request.rs", 650),
];

/// Whether a file is longer than it may be.
fn is_too_long(path: &str, lines: usize) -> bool {
    let most = LONGER.iter().find(|(longer, _)| *longer == path).map_or(LINES_MAX, |(_, most)| *most);
    lines > most
}

#[test]
fn no_file_is_so_long_that_it_holds_two_ideas() {
    let root = root();
    let folders = ["crds", "operator", "bench-jobs", "services", "testing", "fuzz"].map(|folder| root.join(folder));
    let mut count = 0;
    for file in folders.iter().flat_map(|folder| rust_files(folder)) {
        let path = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        // What a build of the fuzz targets left.
        if path.split('/').any(|part| part == "target") {
            continue;
        }
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(!is_too_long(&path, lines), "{path} has {lines} lines: divide it by subject");
        count += 1;
    }
    assert!(count > 500, "only {count} files were found");
    assert!(is_too_long("a.rs", 601) && !is_too_long("a.rs", 600) && is_too_long(LONGER[0].0, 651));
}

/// Code of a file without what stands under `#[cfg(test)]`, wherever in the file that is.
fn without_test_items(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            code.push_str(line);
            code.push('\n');
            continue;
        }
        let indentation = line.len() - line.trim_start().len();
        let is_last = |line: &&str| {
            let (before, rest) = line.split_at(indentation.min(line.len()));
            before.trim().is_empty() && !rest.starts_with(' ') && (rest.ends_with(';') || rest.starts_with('}'))
        };
        lines.find(is_last);
    }
    code
}

#[test]
fn test_items_are_left_out_and_what_follows_is_read() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\nmod more {\n    use d;\n    fn c() {}\n}\nfn e() {}\n";
    assert_eq!(without_test_items(text), "use a;\nfn b() {}\nfn e() {}\n");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
