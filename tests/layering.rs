//! Holds the crate to its layers: who may import whom, that every file is compiled, and that none grows too long.
//!
//! The table is the one of ARCHITECTURE.md. The check reads the text of `src/**.rs`, without comments, strings and
//! what follows the first `#[cfg(test)]`, and reports every violation at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each layer may import of the crate, besides itself. `*` is everything.
const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("codec", &["types"]),
    ("reflector", &["types", "codec"]),
    ("query", &["types"]),
    ("cache", &["types", "codec", "query"]),
    ("workqueue", &["types"]),
    ("budget", &["types"]),
    ("discovery", &["types", "reflector"]),
    ("disk", &["types"]),
    ("journal", &["types", "disk"]),
    ("state", &["types", "disk", "cache", "journal"]),
    ("dial", &[]),
    ("source", &["types", "codec", "reflector", "disk", "dial"]),
    ("sink", &["types", "disk", "journal", "dial"]),
    ("config", &["types"]),
    ("fleet", &["types", "config"]),
    ("telemetry", &["types"]),
    (
        "actors",
        &["types", "reflector", "cache", "budget", "discovery", "sink", "telemetry", "disk", "journal", "state"],
    ),
    ("informers", &["types", "reflector", "cache", "actors"]),
    ("api", &["types", "disk", "cache", "sink", "telemetry", "actors::messages", "actors::sink"]),
    ("sim", &["types", "disk"]),
    ("app", &["*"]),
    ("cli", &["*"]),
    ("lib", &["*"]),
    ("main", &["*"]),
];

/// Layers that stay pure, and the crates that would make them something else. `types` knows actix's `Message`, so
/// that a notification can be one.
const PURE: &[(&str, &[&str])] = &[
    ("types", &["actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("codec", &["actix", "actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("reflector", &["actix", "actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("cache", &["actix", "actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("query", &["actix", "actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("workqueue", &["actix", "actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("budget", &["actix", "actix_rt", "tokio", "kube", "axum", "hyper", "reqwest"]),
    ("discovery", &["actix", "actix_rt", "kube", "axum", "hyper", "reqwest"]),
    ("fleet", &["actix", "actix_rt", "tokio", "kube", "axum", "hyper", "reqwest"]),
    ("disk", &["actix", "actix_rt", "tokio", "kube", "axum", "hyper", "reqwest"]),
    ("journal", &["actix", "actix_rt", "tokio", "kube", "axum", "hyper", "reqwest"]),
    ("state", &["actix", "actix_rt", "tokio", "kube", "axum", "hyper", "reqwest"]),
];

/// Lines of a file before its tests.
const MAX_LINES: usize = 500;

/// The files below `src`, by their path from there.
type Tree = BTreeMap<PathBuf, String>;

#[test]
fn the_crate_keeps_to_its_layers() {
    let tree = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(tree.contains_key(Path::new("lib.rs")), "no lib.rs found: this test looks in the wrong place");
    let found = violations(&tree);
    assert!(found.is_empty(), "{} violations of the layers:\n{}", found.len(), found.join("\n"));
}

fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of src can be read") {
            let path = entry.expect("an entry of src can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a source file is UTF-8");
                tree.insert(path.strip_prefix(root).expect("it was found below root").to_owned(), text);
            }
        }
    }
    tree
}

fn violations(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree {
        let mut report = |problem: String| found.push(format!("src/{}: {problem}", file.display()));
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
        for problem in imports(file, &code) {
            report(problem);
        }
    }
    found
}

/// The module path of a file: `sink/webhook/mod.rs` is `[sink, webhook]`, `lib.rs` is `[]`.
fn module(file: &Path) -> Vec<String> {
    let mut parts: Vec<_> = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || matches!(&parts[..], [one] if one == "lib" || one == "main") {
        parts.pop();
    }
    parts
}

fn is_test(file: &Path) -> bool {
    module(file).iter().any(|part| part == "tests" || part == "contract" || part.ends_with("_tests"))
}

fn is_test_mark(line: &str) -> bool {
    line.trim_start().starts_with("#[cfg(test)]")
}

/// Whether some file has the `mod` line that makes this one part of the crate.
fn is_declared(tree: &Tree, file: &Path) -> bool {
    let module = module(file);
    let Some((name, parents)) = module.split_last() else { return true };
    let by_path = format!("#[path = \"{name}.rs\"]");
    if tree.iter().any(|(other, text)| other.parent() == file.parent() && text.contains(&by_path)) {
        return true;
    }
    let folder: PathBuf = parents.iter().collect();
    let candidates = if parents.is_empty() {
        vec![PathBuf::from("lib.rs"), PathBuf::from("main.rs")]
    } else {
        vec![folder.join("mod.rs"), folder.with_extension("rs")]
    };
    let declares = |text: &String| {
        let blank = blanked(text);
        let words: Vec<_> = blank.split_whitespace().collect();
        words.windows(2).any(|pair| pair[0] == "mod" && pair[1].trim_end_matches(';') == name)
    };
    candidates.iter().filter_map(|candidate| tree.get(candidate)).any(declares)
}

/// What a file imports that its layer may not.
fn imports(file: &Path, code: &str) -> Vec<String> {
    let layer = file.iter().next().map(|first| Path::new(first).with_extension("").to_string_lossy().into_owned());
    let layer = layer.unwrap_or_default();
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return vec![format!("layer {layer:?} is not in the table of tests/layering.rs; give it a row")];
    };
    let mut found = Vec::new();
    for path in crate_paths(code, module(file).len()) {
        let own = path == layer || path.starts_with(&format!("{layer}::"));
        let may = |allowed: &&str| *allowed == "*" || path == **allowed || path.starts_with(&format!("{allowed}::"));
        if !own && !allowed.iter().any(may) {
            found.push(format!("{layer} may not import crate::{path}"));
        }
    }
    for name in PURE.iter().filter(|(name, _)| *name == layer).flat_map(|(_, crates)| *crates) {
        if words_before_colons(code).any(|word| word == *name) {
            found.push(format!("{layer} is pure and may not use {name}"));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Every path from the crate's root that a text names: after `crate::`, or after as many `super::` as lead there.
fn crate_paths(code: &str, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            expand(&code[at + "crate::".len()..], "", &mut found);
        }
    }
    let climb = "super::".repeat(depth);
    for (at, _) in code.match_indices(&climb).filter(|_| depth > 0) {
        let rest = &code[at + climb.len()..];
        if !code[..at].ends_with("super::") && !rest.starts_with("super::") {
            expand(rest, "", &mut found);
        }
    }
    found
}

/// Adds each path of a use tree (`a::{b, c::d}`) that starts here; gives back how much of the text it took.
fn expand(text: &str, prefix: &str, found: &mut Vec<String>) -> usize {
    let trimmed = text.trim_start();
    let mut taken = text.len() - trimmed.len();
    if let Some(inner) = trimmed.strip_prefix('{') {
        taken += 1;
        let mut rest = inner;
        loop {
            let used =
                expand(rest, prefix, found).max(usize::from(rest.starts_with(|c: char| !matches!(c, '}' | ','))));
            taken += used;
            rest = &rest[used..];
            match rest.chars().next() {
                Some(',') => (taken, rest) = (taken + 1, &rest[1..]),
                Some('}') => return taken + 1,
                Some(_) if used > 0 => {}
                _ => return taken,
            }
        }
    }
    let end = trimmed.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(trimmed.len());
    let name = &trimmed[..end];
    taken += end;
    if name.is_empty() {
        return taken;
    }
    let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    match trimmed[end..].strip_prefix("::") {
        Some(rest) if rest.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '{')) => {
            taken + 2 + expand(rest, &path, found)
        }
        _ => {
            found.push(path);
            taken
        }
    }
}

/// The words that stand right before `::` and begin a path.
fn words_before_colons(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("::").filter_map(|(at, _)| {
        let before = &code[..at];
        let start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |i| i + 1);
        (!before[..start].ends_with("::")).then_some(&before[start..])
    })
}

/// The production part of a text, without comments and strings.
fn code(text: &str) -> String {
    let production: String =
        text.lines().take_while(|line| !is_test_mark(line)).flat_map(|line| [line, "\n"]).collect();
    blanked(&production)
}

/// A text without its comments and the insides of its strings.
fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            'r' if !out.ends_with(|c: char| c.is_alphanumeric() || c == '_') => raw_string(rest),
            '"' => plain_string(rest),
            '\'' if rest.starts_with("'\"'") => 3,
            '\'' if rest.starts_with("'\\\"'") => 4,
            _ => 0,
        };
        if skip == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            out.push(' ');
            rest = &rest[skip..];
        }
    }
    out
}

/// The length of a raw string that starts here; zero if none does.
fn raw_string(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|b| *b == b'#').count();
    let open = 1 + hashes;
    if !text[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len())
}

/// The length of the string that starts here.
fn plain_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
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
        "use crate::{types::A, actors::{self}};",
        "use crate::{\n    types::{A, B as C},\n    actors::X,\n};",
        "fn f() -> crate::actors::X {}",
        "use super::actors::X;",
        "/* c */ use crate::actors::*;",
        "const S: &str = \"\\\"\"; const C: char = '\"'; use crate::actors::X; // \"",
    ] {
        let found = imports_of("cache/mod.rs", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with("cache may not import crate::actors"), "{text}: {found:?}");
    }
    assert_eq!(imports_of("sink/webhook/mod.rs", "use super::super::cache::X;").len(), 1);
    assert_eq!(imports_of("api/mod.rs", "use crate::actors::{messages::Get, registry::Registry};").len(), 1);
}

#[test]
fn what_a_layer_may_import_is_not_reported() {
    for (file, text) in [
        ("cache/mod.rs", "use crate::types::{A, b::{C, D}}; use crate::cache::store; use super::types::B;"),
        ("cache/store.rs", "use super::indexer::X; use super::super::types::Y;"),
        (
            "cache/store.rs",
            "//! crate::actors\n// use crate::actors;\nconst S: &str = \"crate::actors\"; use my_crate::actors::X;",
        ),
        (
            "cache/store.rs",
            "const S: &str = r#\"use \"crate::actors\" \"#;\n#[cfg(test)]\nmod tests { use crate::sim::X; }",
        ),
        ("api/mod.rs", "use crate::actors::messages::{Get, List};"),
        ("app.rs", "use crate::{actors, source, config, api};"),
    ] {
        assert_eq!(imports_of(file, text), Vec::<String>::new(), "{file}: {text}");
    }
}

#[test]
fn a_pure_layer_may_not_use_an_actor_or_a_client() {
    assert_eq!(imports_of("cache/mod.rs", "use actix::Actor;"), ["cache is pure and may not use actix"]);
    assert_eq!(imports_of("types/mod.rs", "fn f(c: kube::Client) {}"), ["types is pure and may not use kube"]);
    assert_eq!(imports_of("cache/mod.rs", "use crate::types::kube::X; use mykube::Y;"), Vec::<String>::new());
    assert_eq!(imports_of("source/mod.rs", "use kube::Client;"), Vec::<String>::new());
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
        ("cache/mod.rs", ""),
    ];
    let found = violations(&tree(&files));
    let lost = |file: &str| format!("src/{file}: no `mod` declares it, so it is never compiled");
    assert_eq!(found, [lost("cache/mod.rs"), lost("types/lost.rs")]);
}

#[test]
fn only_lines_before_the_tests_count() {
    let long = "x();\n".repeat(501);
    let found = violations(&tree(&[("lib.rs", &long)]));
    assert_eq!(found, ["src/lib.rs: 501 lines before its tests, at most 500: split it"]);
    let tests = format!("x();\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert_eq!(violations(&tree(&[("lib.rs", &tests)])), Vec::<String>::new());
}

#[test]
fn all_violations_are_reported_at_once() {
    let text = "use crate::{actors::X, api::Y};\nuse actix::Z;";
    let found = violations(&tree(&[("lib.rs", ""), ("cache/mod.rs", text)]));
    assert_eq!(found.len(), 4, "{found:?}");
}
