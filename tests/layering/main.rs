//! Tests of the workspace's structure: allowed dependencies of crates and imports of folders, no import cycles, every
//! file compiled, no file too long.
//!
//! ARCHITECTURE.md shows both tables. The check reads the text of the sources, without comments, strings and everything
//! after the first `#[cfg(test)]`, and reports every violation at once.

mod cycles;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use source::{Tree, code, is_declared, is_test, is_test_mark, module, read, root, words_before_colons};

/// Workspace crates that each crate may depend on, tests and examples aside.
const CRATES: &[(&str, &[&str])] = &[
    ("testing", &[]),
    ("dial", &[]),
    ("tls", &[]),
    ("disk", &[]),
    ("protobuf", &[]),
    ("types", &["protobuf"]),
    ("query", &["types"]),
    ("workqueue", &["types"]),
    ("access", &["types"]),
    ("apiclient", &["types"]),
    ("screen", &["types"]),
    ("kubeapi", &["types"]),
    ("codec", &["protobuf", "types"]),
    ("dictionaries", &["types"]),
    ("cache", &["access", "codec", "dictionaries", "query", "types"]),
    ("reflector", &["codec", "types"]),
    ("config", &["types"]),
    ("pool", &["dial", "types"]),
    ("telemetry", &["tls", "types"]),
    ("audit", &["disk", "types"]),
    ("lease", &[]),
    ("journal", &["disk"]),
    ("fleet", &["lease", "types"]),
    ("sim", &["disk", "protobuf", "types"]),
    ("roles", &["codec", "fleet", "lease", "reflector", "tls", "types"]),
    ("source", &["codec", "dial", "disk", "pool", "reflector", "tls", "types"]),
    ("sink", &["dial", "disk", "journal", "sim", "tls", "types"]),
];

/// Folders that each folder of the root package may import from. `*` is every folder.
const LAYERS: &[(&str, &[&str])] = &[
    ("budget", &[]),
    ("discovery", &[]),
    ("state", &["cache"]),
    ("actors", &["cache", "budget", "discovery", "state"]),
    ("informers", &["cache", "actors"]),
    ("api", &["cache", "actors::messages", "actors::sinks"]),
    ("app", &["*"]),
    ("cli", &["*"]),
    ("lib", &["*"]),
    ("main", &["*"]),
    ("config", &[]),
    ("query", &[]),
    ("sink", &[]),
    ("types", &[]),
    ("durable", &["*"]),
    ("messages", &["*"]),
    ("queries", &["*"]),
    ("status", &["*"]),
];

/// Crates of actors, clients and servers. A pure folder uses none of them.
const IO: &[&str] = &["actix", "actix_rt", "kube", "axum", "hyper", "reqwest"];

/// The same with tokio, whose clock and synchronisation some pure folders use.
const IO_AND_TOKIO: &[&str] = &["actix", "actix_rt", "tokio", "kube", "axum", "hyper", "reqwest"];

/// Folders and crates that must not depend on actors, clients or servers, each with the crates that it must not use.
/// `types` may use `actix` for its trait `Message`.
const PURE: &[(&str, &[&str])] = &[
    ("crates/types", &["actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("crates/codec", IO),
    ("crates/protobuf", IO),
    ("crates/reflector", IO),
    ("crates/query", IO),
    ("crates/workqueue", IO),
    ("crates/access", IO),
    ("crates/apiclient", IO_AND_TOKIO),
    ("crates/screen", IO_AND_TOKIO),
    ("crates/config", IO),
    ("crates/audit", IO_AND_TOKIO),
    ("crates/disk", IO_AND_TOKIO),
    ("crates/lease", IO_AND_TOKIO),
    ("crates/journal", IO_AND_TOKIO),
    ("src/cache", IO),
    ("budget", IO_AND_TOKIO),
    ("discovery", IO),
    ("state", IO_AND_TOKIO),
];

/// Maximum number of lines of a file before its tests.
const MAX_LINES: usize = 500;

#[test]
fn folders_import_only_what_their_layer_may() {
    let tree = root_package();
    assert!(tree.contains_key(Path::new("lib.rs")), "no lib.rs found: this test looks in the wrong place");
    let found = violations("src", &tree, imports);
    assert!(found.is_empty(), "{} violations of the layers:\n{}", found.len(), found.join("\n"));
}

#[test]
fn crates_depend_only_on_what_their_layer_may() {
    let mut found = Vec::new();
    for name in crates() {
        let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == name) else {
            found.push(format!("{name} is not in the table of tests/layering; give it a row"));
            continue;
        };
        let (folder, sources) = places(&name);
        let manifest = fs::read_to_string(root().join(&folder).join("Cargo.toml")).expect("a manifest");
        found.extend(
            dependencies(&manifest)
                .into_iter()
                .filter(|on| !allowed.contains(&on.as_str()))
                .map(|on| format!("{folder} may not depend on {on}")),
        );
        found.extend(violations(&sources, &read(&sources), |_, code| impure(&folder, code)));
    }
    assert!(found.is_empty(), "{} violations of the layers:\n{}", found.len(), found.join("\n"));
}

#[test]
fn files_and_folders_do_not_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    let crates = crates().into_iter().map(|name| places(&name).1).map(|folder| (read(&folder), folder));
    for (tree, folder) in crates.chain([(root_package(), "src".to_owned())]) {
        found.extend(cycles::cycles(&tree).into_iter().map(|cycle| format!("{folder}/{cycle}")));
    }
    assert!(found.is_empty(), "{} import cycles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn architecture_shows_both_tables() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md can be read");
    let cell = |names: &[&str]| match names {
        [] => "–".to_owned(),
        ["*"] => "everything".to_owned(),
        _ => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let crates = CRATES.iter().map(|(name, may)| format!("| `{}` | {} |", places(name).0, cell(may)));
    let facade = |name: &str| root().join(format!("src/{name}.rs")).exists();
    let folders = LAYERS.iter().filter(|(name, _)| !facade(name));
    let folders = folders.map(|(name, may)| format!("| `src/{name}` | {} |", cell(may)));
    let missing: Vec<_> = crates.chain(folders).filter(|row| !text.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md has no row that begins with\n{}", missing.join("\n"));
}

fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("crates can be read");
    let mut names: Vec<_> =
        folders.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.push("cache".to_owned());
    names.sort();
    assert!(names.len() > 10, "{names:?}");
    names
}

/// Returns the folder of a crate, and that of its sources.
fn places(name: &str) -> (String, String) {
    match name {
        "cache" => ("src/cache".to_owned(), "src/cache".to_owned()),
        _ => (format!("crates/{name}"), format!("crates/{name}/src")),
    }
}

/// Returns the sources of the root package. The cache in `src/cache` is a crate of its own.
fn root_package() -> Tree {
    read("src").into_iter().filter(|(file, _)| !file.starts_with("cache")).collect()
}

/// The crates of the workspace that the `[dependencies]` of a manifest name.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[").find(|section| section.starts_with("dependencies]"));
    let names = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("informer-hub-"));
    names.map(|name| name.chars().take_while(|c| c.is_alphanumeric()).collect()).collect()
}

/// Violations in the files of a folder: undeclared and long files, and what `check` finds in a file's code.
fn violations(root: &str, tree: &Tree, check: impl Fn(&Path, &str) -> Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree {
        let mut report = |problem: String| found.push(format!("{root}/{}: {problem}", file.display()));
        if !is_declared(tree, file) {
            report("no `mod` declares it, so it is never compiled".to_owned());
        }
        if is_test(file) {
            continue;
        }
        let lines = text.lines().position(is_test_mark).unwrap_or(text.lines().count());
        if lines > MAX_LINES {
            report(format!("{lines} lines before its tests, at most {MAX_LINES}: split it"));
        }
        let code = code(text);
        for problem in check(file, &code) {
            report(problem);
        }
    }
    found
}

/// Returns the imports of a file that its layer may not have.
fn imports(file: &Path, code: &str) -> Vec<String> {
    let layer = file.iter().next().map(|first| Path::new(first).with_extension("").to_string_lossy().into_owned());
    let layer = layer.unwrap_or_default();
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return vec![format!("layer {layer:?} is not in the table of tests/layering; give it a row")];
    };
    let mut found = Vec::new();
    for import in source::imports(code, &module(file), &BTreeSet::new()) {
        let path = import.path.join("::");
        let own = path == layer || path.starts_with(&format!("{layer}::"));
        let may = |allowed: &&str| *allowed == "*" || path == **allowed || path.starts_with(&format!("{allowed}::"));
        if !own && !allowed.iter().any(may) {
            found.push(format!("{layer} may not import crate::{path}"));
        }
    }
    found.extend(impure(&layer, code));
    found.sort();
    found.dedup();
    found
}

/// Returns the crates with I/O that a pure folder uses.
fn impure(folder: &str, code: &str) -> Vec<String> {
    let banned = PURE.iter().filter(|(name, _)| *name == folder).flat_map(|(_, crates)| *crates);
    banned
        .filter(|name| words_before_colons(code).any(|word| word == **name))
        .map(|name| format!("{folder} is pure and may not use {name}"))
        .collect()
}

// === the check itself can fail ===

fn tree(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
}

fn imports_of(file: &str, text: &str) -> Vec<String> {
    imports(Path::new(file), &code(text))
}

#[test]
fn an_import_against_the_layers_is_found_however_it_is_written() {
    for text in [
        "use crate::actors::X;",
        "pub(crate) use crate::actors;",
        "use crate::{budget::A, actors::{self}};",
        "use crate::{\n    budget::{A, B as C},\n    actors::X,\n};",
        "fn f() -> crate::actors::X {}",
        "use super::actors::X;",
        "/* c */ use crate::actors::*;",
        "    #[rtype(result = \"Option<crate::actors::X>\")]\n    struct S;",
        "const S: &str = \"\\\"\"; const C: char = '\"'; use crate::actors::X; // \"",
    ] {
        let found = imports_of("budget/mod.rs", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with("budget may not import crate::actors"), "{text}: {found:?}");
    }
    assert_eq!(imports_of("budget/shares/mod.rs", "use super::super::cache::X;").len(), 1);
    assert_eq!(imports_of("api/mod.rs", "use crate::actors::{messages::Get, registry::Registry};").len(), 1);
}

#[test]
fn what_a_layer_may_import_is_not_reported() {
    for (file, text) in [
        ("budget/mod.rs", "use crate::budget::{A, b::{C, D}}; use crate::budget::share; use super::budget::B;"),
        ("state/caches/store.rs", "use super::indexer::X; use super::super::super::cache::Y;"),
        (
            "budget/share.rs",
            "//! crate::actors\n// use crate::actors;\nconst S: &str = \"crate::actors\"; use my_crate::actors::X;",
        ),
        (
            "budget/share.rs",
            "const S: &str = r#\"use \"crate::actors\" \"#;\n#[cfg(test)]\nmod tests { use crate::sim::X; }",
        ),
        ("api/mod.rs", "use crate::actors::messages::{Get, List};"),
        ("app.rs", "use crate::{actors, config, api};"),
    ] {
        assert_eq!(imports_of(file, text), Vec::<String>::new(), "{file}: {text}");
    }
}

#[test]
fn a_pure_layer_may_not_use_an_actor_or_a_client() {
    assert_eq!(imports_of("budget/mod.rs", "use actix::Actor;"), ["budget is pure and may not use actix"]);
    assert_eq!(impure("crates/types", "fn f(c: kube::Client) {}"), ["crates/types is pure and may not use kube"]);
    assert_eq!(imports_of("budget/mod.rs", "use crate::budget::kube::X; use mykube::Y;"), Vec::<String>::new());
    assert_eq!(impure("crates/source", "use kube::Client;"), Vec::<String>::new());
}

#[test]
fn a_layer_without_a_row_is_reported() {
    assert_eq!(imports_of("misc/mod.rs", "").len(), 1);
}

#[test]
fn a_file_that_nothing_declares_is_found() {
    let files = [
        ("lib.rs", "pub mod types;\n// mod cache;\n"),
        ("main.rs", ""),
        ("types/mod.rs", "mod key;\n#[cfg(test)]\nmod tests;\n"),
        ("types/key.rs", "#[cfg(test)]\n#[path = \"key_tests.rs\"]\nmod tests;\n"),
        ("types/key_tests.rs", "use crate::sim::X;"),
        ("types/tests.rs", "use crate::sim::X;"),
        ("types/lost.rs", ""),
        ("budget/mod.rs", ""),
    ];
    let found = violations("src", &tree(&files), imports);
    let lost = |file: &str| format!("src/{file}: no `mod` declares it, so it is never compiled");
    assert_eq!(found, [lost("budget/mod.rs"), lost("types/lost.rs")]);
}

#[test]
fn only_lines_before_the_tests_count() {
    let long = "x();\n".repeat(501);
    let found = violations("src", &tree(&[("lib.rs", &long)]), imports);
    assert_eq!(found, ["src/lib.rs: 501 lines before its tests, at most 500: split it"]);
    let tests = format!("x();\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(violations("src", &tree(&[("lib.rs", &tests)]), imports), Vec::<String>::new());
}

#[test]
fn all_violations_are_reported_at_once() {
    let text = "use crate::{actors::X, api::Y};\nuse actix::Z;";
    let found = violations("src", &tree(&[("lib.rs", ""), ("budget/mod.rs", text)]), imports);
    assert_eq!(found.len(), 4, "{found:?}");
}
