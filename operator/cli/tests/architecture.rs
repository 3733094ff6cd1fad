//! Who may import whom. The layout in ARCHITECTURE.md is a promise; this keeps it.

// Helpers outside #[test] functions are test code all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// Each crate of the table in ARCHITECTURE.md, its folder, and the crates of this workspace that it may depend on.
fn allowed() -> BTreeMap<String, (PathBuf, BTreeSet<String>)> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate | folder | may use |")).skip(2);
    let crates: Vec<Vec<&str>> =
        rows.take_while(|line| line.starts_with('|')).map(|row| row.split('|').map(str::trim).collect()).collect();
    let full = |short: &str| match short {
        "crds" | "core" => format!("storebench-{short}"),
        name => name.to_owned(),
    };
    let row = |row: &Vec<&str>| {
        let [_, name, folder, uses, ..] = row[..] else { panic!("{row:?}") };
        let (name, folder) = (name.trim_matches('`').to_owned(), root().join(folder.trim_matches('`')));
        // What stands in brackets is said of the crate before them, and has commas of its own.
        let mut depth = 0;
        let plain = uses.chars().filter(|letter| {
            depth += i32::from(*letter == '(');
            let is_outside = depth == 0;
            depth -= i32::from(*letter == ')');
            is_outside
        });
        let plain: String = plain.collect();
        let uses = plain.split(',').map(str::trim).filter(|name| !name.is_empty()).map(full);
        (name, (folder, uses.collect()))
    };
    crates.iter().map(row).collect()
}

#[test]
fn crates_import_only_what_the_table_in_the_architecture_allows() {
    let (members, allowed) = (members(), allowed());
    for (name, dependencies) in &members {
        let (folder, uses) =
            allowed.get(name).unwrap_or_else(|| panic!("{name} is new: give it a row in ARCHITECTURE.md"));
        assert!(folder.join("Cargo.toml").is_file(), "{name} is not in {}", folder.display());
        for dependency in dependencies.iter().filter(|dependency| members.contains_key(*dependency)) {
            assert!(
                uses.contains(dependency),
                "{name} may not depend on {dependency}: see the table in ARCHITECTURE.md"
            );
        }
        for used in uses {
            assert!(dependencies.contains(used), "{name} does not use {used}, as the table in ARCHITECTURE.md says");
        }
    }
    assert_eq!(members.keys().collect::<Vec<_>>(), allowed.keys().collect::<Vec<_>>());
    let imports: BTreeMap<_, _> = allowed.into_iter().map(|(name, (_, uses))| (name, uses)).collect();
    assert_eq!(circle(&imports), None);
}

#[test]
fn the_judgement_stays_pure() {
    for name in ["storebench-core", "storebench-crds"] {
        for dependency in &members()[name] {
            assert!(!IMPURE.contains(&dependency.as_str()), "{name} may not depend on {dependency}: it is pure");
        }
    }
    for folder in ["crds/src", "operator/core/src"] {
        // Test modules may write what people want to look at.
        for file in rust_files(&root().join(folder)).into_iter().filter(|file| !file.ends_with("tests.rs")) {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = without_test_items(&text);
            assert_eq!(impure(&file, &code), None, "{} uses it: it is pure, take it as an argument", file.display());
        }
    }
}

/// What code of a pure crate would ask of the machine that it runs on.
fn impure(file: &Path, code: &str) -> Option<String> {
    let files_and_others = ["fs", "net", "process", "env"];
    let of_std = imported(code, "std::").find(|name| files_and_others.contains(&name.as_str()));
    let clocks = ["Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now", "TimeZone::system"];
    // Their rules are files of the machine. Crontabs read them all the same, as ARCHITECTURE.md says.
    let zones = ["TimeZone::get"].into_iter().filter(|_| !file.ends_with("operator/core/src/recurrence.rs"));
    let mut of_others = clocks.into_iter().chain(["rand::rng", "getrandom"]).chain(zones);
    of_std.or(of_others.find(|name| code.contains(name)).map(str::to_owned))
}

/// A pure crate could have asked jiff what time it is.
#[test]
fn a_clock_in_the_judgement_is_found_whoever_has_it() {
    let [zones, other] = ["recurrence.rs", "ledger.rs"].map(|name| root().join("operator/core/src").join(name));
    for clock in ["std::time::Instant::now()", "k8s_openapi::jiff::Timestamp::now()", "Zoned::now()"] {
        assert!(impure(&zones, clock).is_some() && impure(&other, clock).is_some(), "{clock}");
    }
    assert_eq!(impure(&zones, "TimeZone::get(zone)"), None);
    assert_eq!(impure(&other, "TimeZone::get(zone)").as_deref(), Some("TimeZone::get"));
    assert_eq!(impure(&other, "Timestamp::from_second(0)"), None);
}

/// What dev-dependencies ask of crates of others that no program does, `member: crate feature`: a crate that its member's programs use, too, may
/// have the features that they ask for, and any other those that all programs do.
fn asked_by_tests_alone(metadata: &serde_json::Value) -> Vec<String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let asked = |dependency: &serde_json::Value| -> BTreeSet<String> {
        let default = dependency["uses_default_features"] == true;
        let named = dependency["features"].as_array().unwrap().iter().map(text);
        named.chain(default.then(|| "default".to_owned())).collect()
    };
    let packages = metadata["packages"].as_array().unwrap();
    let of_others = |package: &serde_json::Value, kind: Option<&str>| -> Vec<(String, BTreeSet<String>)> {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let chosen = dependencies.filter(|one| !one["source"].is_null() && one["kind"].as_str() == kind);
        chosen.map(|one| (text(&one["name"]), asked(one))).collect()
    };
    let mut by_all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, features) in packages.iter().flat_map(|package| of_others(package, None)) {
        by_all.entry(name).and_modify(|known| known.retain(|one| features.contains(one))).or_insert(features);
    }
    let mut found = Vec::new();
    for package in packages {
        let own: BTreeMap<_, _> = of_others(package, None).into_iter().collect();
        for (name, features) in of_others(package, Some("dev")) {
            // What only tests use has the features that they give it.
            let Some(granted) = own.get(&name).or_else(|| by_all.get(&name)) else { continue };
            let more = features.difference(granted).map(|more| format!("{}: {name} {more}", text(&package["name"])));
            found.extend(more);
        }
    }
    found
}

/// Else a crate, and what depends on it, is compiled once for programs and once more for tests.
#[test]
fn tests_ask_for_no_features_that_programs_do_not() {
    assert_eq!(asked_by_tests_alone(&metadata()), Vec::<String>::new(), "put them into [workspace.dependencies]");
}

#[test]
fn a_feature_that_tests_alone_ask_for_is_found() {
    let dependency = |kind: Option<&str>, features: &[&str]| serde_json::json!({ "name": "nix", "source": "registry", "kind": kind, "features": features, "uses_default_features": false });
    let found = |first: Vec<serde_json::Value>, second: Vec<serde_json::Value>| {
        let package = |name: &str, dependencies| serde_json::json!({ "name": name, "dependencies": dependencies });
        asked_by_tests_alone(&serde_json::json!({ "packages": [package("a", first), package("b", second)] }))
    };
    let dev = |features: &[&str]| vec![dependency(Some("dev"), features)];
    let program = |features: &[&str]| vec![dependency(None, features)];
    assert_eq!(found(program(&["fs"]), dev(&["fs", "signal"])), ["b: nix signal"]);
    assert_eq!(found([program(&["fs"]), dev(&["fs", "signal"])].concat(), Vec::new()), ["a: nix signal"]);
    assert_eq!(found([program(&["fs", "signal"]), dev(&["signal"])].concat(), program(&["fs"])), [""; 0]);
    assert_eq!(found(dev(&["fs"]), dev(&["signal"])), [""; 0], "no program uses it");
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
    let is_test =
        |file: &Path| file.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.ends_with("tests"));
    for file in rust_files(folder).into_iter().filter(|file| !is_test(file) && !file.ends_with("lib.rs")) {
        let below = file.strip_prefix(folder).unwrap();
        let module = below.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = module.trim_end_matches(".rs").to_owned();
        // Fixtures are of tests, too.
        if file.components().any(|part| ["fixture", "tests"].iter().any(|name| part.as_os_str() == *name)) {
            continue;
        }
        let code = without_test_items(&std::fs::read_to_string(&file).unwrap());
        let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        // The way from there up to the crate.
        let up = "super::".repeat(below.components().count() - usize::from(below.ends_with("mod.rs")));
        let named = imported(&code, "crate::").chain(imported(&code, &up)).filter(|name| *name != module);
        modules.entry(module.clone()).or_default().extend(named);
    }
    modules
}

/// What code names of a crate, such as `crate::` or `std::`: the first name behind each, or all of those in brackets.
fn imported(code: &str, of: &str) -> impl Iterator<Item = String> {
    let name = |text: &str| {
        text.trim().split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap().to_owned()
    };
    code.split(of).skip(1).flat_map(move |rest| {
        let Some(list) = rest.strip_prefix('{') else { return vec![name(rest)] };
        let mut depth = 0;
        let end = list.find(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            depth < 0
        });
        let mut depth = 0;
        let items = list[..end.unwrap()].split(|letter| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            letter == ',' && depth == 0
        });
        items.map(name).filter(|name| !name.is_empty()).collect()
    })
}

/// Modules that import one another in a circle; `None`: there is none.
fn circle(modules: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut rest = modules.clone();
    loop {
        let standing: BTreeSet<String> = rest.keys().cloned().collect();
        let imported: BTreeSet<String> = rest.values().flatten().cloned().collect();
        // Whoever imports none of those that stand is in no circle, and neither is who is imported by none of them.
        rest.retain(|name, imports| imported.contains(name) && imports.iter().any(|import| standing.contains(import)));
        if rest.len() == standing.len() {
            return (!rest.is_empty()).then(|| rest.into_keys().collect());
        }
    }
}

/// Crates whose modules are not all rooms with an order yet, and how many of them import one another in circles, or stand between such: it may only
/// become less, and no crate may join them.
const WITH_CIRCLES: [(&str, usize); 1] = [("services/rsedis", 8)];

#[test]
fn modules_import_one_another_in_no_circle() {
    let mut found = Vec::new();
    // Of fuzz/ each file is a program of its own.
    for (_, folder) in member_folders().into_iter().filter(|(name, _)| name != "fuzz") {
        let path = folder.strip_prefix(root().canonicalize().unwrap()).unwrap().to_string_lossy().into_owned();
        found.extend(circle(&modules(&folder.join("src"))).map(|circle| (path, circle)));
    }
    let counted: BTreeMap<&str, usize> = found.iter().map(|(path, circle)| (path.as_str(), circle.len())).collect();
    assert_eq!(counted, BTreeMap::from(WITH_CIRCLES), "{found:#?}");
    let judgement = modules(&root().join("operator/core/src"));
    assert!(judgement["validate"].contains("validated") && judgement["report"].contains("judgement"), "{judgement:?}");
    let load = modules(&root().join("bench-jobs/src"));
    assert!(load["sidecar"].contains("family") && load["family"].contains("load"), "{load:?}");
    let command_line = modules(&root().join("operator/cli/src"));
    assert!(command_line["commands"].contains("saved") && command_line["find"].contains("saved"), "{command_line:?}");
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A circle could be closed by `super::`, which nobody followed.
#[test]
fn what_modules_import_by_the_way_up_is_found() {
    let folder = harness::folder();
    std::fs::create_dir(folder.path().join("b")).unwrap();
    for (path, text) in [
        ("a.rs", "use super::b::own;\n"),
        ("b/mod.rs", "mod deep;\nuse super::{c, d::e};\n"),
        ("b/deep.rs", "use super::own;\nfn f() { super::super::a::g() }\n"),
        ("c.rs", "#[cfg(test)]\nmod tests {\n    use super::a;\n}\n"),
    ] {
        std::fs::write(folder.path().join(path), text).unwrap();
    }
    let found = modules(folder.path());
    let expected = [("a", set(&["b"])), ("b", set(&["a", "c", "d"])), ("c", set(&[]))];
    assert_eq!(found, BTreeMap::from(expected.map(|(module, imports)| (module.to_owned(), imports))));
    assert_eq!(circle(&found).unwrap(), ["a", "b"]);
}

#[test]
fn a_circle_is_found_and_so_is_what_is_imported_in_brackets() {
    let planted = BTreeMap::from([
        ("a".to_owned(), set(&["b"])),
        ("b".to_owned(), set(&["c", "d"])),
        ("c".to_owned(), set(&["b"])),
        ("d".to_owned(), set(&[])),
    ]);
    assert!(circle(&planted).unwrap().contains(&"b".to_owned()));
    let imports = |code: &str| imported(code, "crate::").collect::<BTreeSet<_>>();
    assert_eq!(imports("use crate::a::b;\nuse crate::{c, d::{e, f}, g as h};"), set(&["a", "c", "d", "g"]));
    let of_std = imported("use std::{fs, io};\nlet a = std::env::var(b);", "std::").collect::<BTreeSet<_>>();
    assert_eq!(of_std, set(&["env", "fs", "io"]));
}

#[test]
fn paths_that_the_architecture_names_are_there() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    // What is in capitals stands for a name.
    let is_path = |quoted: &&str| quoted.contains('/') && !quoted.starts_with(char::is_uppercase);
    // A block in three backticks counts as quoted, too, and has several lines.
    let paths: Vec<&str> =
        text.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains('\n')).filter(is_path).collect();
    assert!(paths.len() > 50, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which is not there");
    }
}

/// Real runs beside others are disturbed, and say so: `.config/nextest.toml` gives them the machine.
#[test]
fn tests_that_run_storebench_for_real_have_the_machine_alone() {
    let settings = std::fs::read_to_string(root().join(".config/nextest.toml")).unwrap();
    let (_, rest) = settings.split_once("package(storebench) and binary(/^(").unwrap();
    let alone: BTreeSet<&str> = rest.split_once(")$/)").unwrap().0.split('|').collect();
    let tests = root().join("operator/cli/tests");
    for entry in std::fs::read_dir(&tests).unwrap().flatten() {
        let path = entry.path();
        let program = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let file = if path.is_dir() { path.join("main.rs") } else { path };
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        // Nothing is measured there; or in clusters, by themselves.
        let measures_nothing = ["help", "kubernetes", "architecture"].contains(&program.as_str());
        if text.contains("\nmod world;") && !measures_nothing {
            assert!(alone.contains(program.as_str()), "{program}: name it in .config/nextest.toml");
        }
    }
    for program in alone {
        let is_there = tests.join(program).is_dir() || tests.join(format!("{program}.rs")).is_file();
        assert!(is_there, ".config/nextest.toml names {program}, which is no test");
    }
    // Of those that are content with a busy machine, one that has another name by now would have the machine again, and nobody would know why.
    let (_, rest) = settings.split_once("package(storebench) and (").unwrap();
    let (beside_others, _) = rest.split_once("'''").unwrap();
    let texts = rust_files(&tests).into_iter().map(|file| std::fs::read_to_string(file).unwrap());
    let all: String = texts.collect();
    let names = beside_others.split("test(=").skip(1).map(|rest| rest.split_once(')').unwrap().0);
    for name in names {
        assert!(
            all.contains(&format!("#[test]\nfn {name}() {{")),
            ".config/nextest.toml names {name}, which is no test"
        );
    }
}

/// A file holds one idea; beyond so many lines it holds two. CONTRIBUTING.md says how many.
fn lines_max() -> usize {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (before, _) = text.split_once(" lines at most").expect("CONTRIBUTING.md says how long a file may be");
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Files that are longer, and how long they may be at most: each is to be divided, and none may join them.
const LONGER: [(&str, usize); 1] = [("services/replog/src/sim/world.rs", 650)];

/// Whether a file is longer than it may be, where most may have so many lines.
fn is_too_long(path: &str, lines: usize, lines_max: usize) -> bool {
    let most = LONGER.iter().find(|(longer, _)| *longer == path).map_or(lines_max, |(_, most)| *most);
    lines > most
}

#[test]
fn no_file_is_so_long_that_it_holds_two_ideas() {
    let (root, most) = (root(), lines_max());
    let folders = ["crds", "operator", "bench-jobs", "services", "testing", "fuzz"].map(|folder| root.join(folder));
    let mut count = 0;
    for file in folders.iter().flat_map(|folder| rust_files(folder)) {
        let path = file.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        // What a build of the fuzz targets left.
        if path.split('/').any(|part| part == "target") {
            continue;
        }
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(!is_too_long(&path, lines, most), "{path} has {lines} lines: divide it by subject");
        count += 1;
    }
    assert!(count > 500, "only {count} files were found");
    for (path, _) in LONGER {
        let lines = std::fs::read_to_string(root.join(path)).unwrap().lines().count();
        assert!(lines > most, "{path} has {lines} lines: it needs no exemption");
    }
    assert!(is_too_long("a.rs", 601, 600) && !is_too_long("a.rs", 600, 600) && is_too_long(LONGER[0].0, 651, 600));
}

/// Names of measures that the code of `crds` declares, each in one line.
fn declared_measures(code: &str) -> Vec<&str> {
    let declared = code.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": "));
    let is_measure =
        |value: &str| ["Total = ", "Largest = ", "Durations = "].iter().any(|kind| value.starts_with(kind));
    declared.filter(|(_, value)| is_measure(value)).map(|(name, _)| name).collect()
}

/// Whether code, of which the blanks were left out, records a measure.
fn records(code: &str, measure: &str) -> bool {
    let calls = [".count(", ".largest(", ".took("].map(|call| format!("{call}{measure},"));
    // What meters count is no load's own.
    calls.iter().any(|call| code.contains(call)) || code.contains(&format!(".report_measure({measure}.0,"))
}

/// A measure that is declared and never recorded is absent from every report, and so is each metric that reads it.
#[test]
fn every_measure_that_is_declared_is_recorded_by_its_load() {
    let code = |folder: &Path| -> String {
        let texts = rust_files(folder).into_iter().map(|file| std::fs::read_to_string(file).unwrap());
        texts.map(|text| without_test_items(&text).split_whitespace().collect::<String>()).collect()
    };
    let jobs = root().join("bench-jobs/src");
    let of_all = code(&jobs);
    let mut count = 0;
    for file in rust_files(&root().join("crds/src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        // What every family may measure, anyone may record.
        let of_family = jobs.join("family").join(file.file_stem().unwrap());
        let loads = if of_family.is_dir() { code(&of_family) } else { of_all.clone() };
        for measure in declared_measures(&text) {
            assert!(records(&loads, measure), "{}: no load records {measure}", file.display());
            count += 1;
        }
    }
    assert!(count >= 25, "only {count} measures were found");
    let planted = "/// Never seen.\npub const LAG: Durations = Durations(\"lag\");\npub const MOST: u64 = 5;\n";
    assert_eq!(declared_measures(planted), ["LAG"]);
    assert!(!records("session.took(LAG_OF_OTHERS,lag)", "LAG") && records("session.took(LAG,lag)", "LAG"));
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
