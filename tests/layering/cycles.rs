//! Import cycles between the files and folders of one folder.
//!
//! Nodes are the children of a folder: `store.rs` and everything below `store/` form one node. A `mod.rs` is no node:
//! an import of a name that it re-exports counts as an import of the file that the name comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{Import, ModulePath, Tree, code, imports, is_test, module};

/// The modules of a crate and the names that each imports.
struct Graph {
    imports: BTreeMap<ModulePath, Vec<Import>>,
}

/// Returns all cycles, as `folder: a, b`.
pub(crate) fn cycles(tree: &Tree) -> Vec<String> {
    let files: Vec<_> = tree.iter().filter(|(file, _)| !is_test(file)).collect();
    let modules: BTreeSet<ModulePath> = files.iter().map(|(file, _)| module(file)).collect();
    let mut graph = Graph { imports: BTreeMap::new() };
    let texts: Vec<_> = files.iter().map(|(file, text)| (module(file), without_modules(&code(text)))).collect();
    for (from, text) in &texts {
        let found = imports(text, from, &modules);
        graph.imports.entry(from.clone()).or_default().extend(found);
    }
    let mut folders: BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, imports) in &graph.imports {
        for import in imports {
            let target = graph.resolve(&import.path, 8);
            let common = from.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(common), target.get(common)) {
                let edges = folders.entry(from[..common].to_vec()).or_default();
                edges.entry(a.clone()).or_default().insert(b.clone());
            }
        }
    }
    let mut found = Vec::new();
    for (folder, edges) in &folders {
        for cycle in components(edges) {
            found.push(format!("{}: {}", folder.join("/"), cycle.join(", ")));
        }
    }
    found
}

impl Graph {
    /// Returns the module that defines the item of a path. Follows re-exports.
    fn resolve(&self, path: &[String], depth: usize) -> ModulePath {
        let mut length = path.len();
        while length > 0 && !self.imports.contains_key(&path[..length]) {
            length -= 1;
        }
        let (at, rest) = path.split_at(length);
        if let (Some(name), true) = (rest.first(), depth > 0)
            && let Some(import) = self.imports.get(at).into_iter().flatten().find(|import| import.name == *name)
            && import.path != path
        {
            let mut path = import.path.clone();
            path.extend(rest[1..].iter().cloned());
            return self.resolve(&path, depth - 1);
        }
        at.to_vec()
    }
}

/// Returns the code without its `extern crate` lines.
fn without_modules(code: &str) -> String {
    code.lines().filter(|line| !line.trim_start().starts_with("extern crate")).collect::<Vec<_>>().join("\n")
}

/// Sets of at least two nodes that reach each other.
fn components(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|node| (node.as_str(), reached(edges, node))).collect();
    let mut found = BTreeSet::new();
    for (node, reached) in &reach {
        let circle: Vec<String> = reached
            .iter()
            .filter(|other| *other != node && reach.get(**other).is_some_and(|back| back.contains(node)))
            .chain([node])
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reached<'e>(edges: &'e BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'e str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(node) = open.pop() {
        for next in edges.get(node).into_iter().flatten() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

// === the check itself can fail ===

fn found(files: &[(&str, &str)]) -> Vec<String> {
    cycles(&files.iter().map(|(path, text)| (Path::new(path).to_owned(), (*text).to_owned())).collect())
}

#[test]
fn files_that_import_each_other_are_found_through_re_exports_and_aliases() {
    let facade = ("a/mod.rs", "mod x;\nmod y;\npub use x::{X as Z, V};\n");
    for (x, y) in [
        ("use super::y::Y;", "use super::x::X;"),
        ("use crate::a::y;", "use super::Z;"),
        ("fn f() -> super::y::Y {}", "use crate::{a::{V, W}};"),
        ("use super::y::*;", "fn f() { super::x::f() }"),
    ] {
        assert_eq!(found(&[("lib.rs", "mod a;"), facade, ("a/x.rs", x), ("a/y.rs", y)]), ["a: x, y"], "{x} {y}");
    }
}

#[test]
fn imports_one_way_or_of_tests_are_no_cycle() {
    let facade = ("a/mod.rs", "mod x;\nmod y;\npub use x::X;\npub struct Own;\n");
    for (x, y) in [
        ("use super::y::Y;", "use super::Own;"),
        ("use super::y::Y;", "// use super::x::X;\nconst S: &str = \"super::x::X\";"),
        ("use super::y::Y;", "fn f() {}\n#[cfg(test)]\nmod tests { use super::super::x::X; }"),
        ("use super::y::Y;", "use other::x::X;"),
    ] {
        assert_eq!(found(&[("lib.rs", "mod a;"), facade, ("a/x.rs", x), ("a/y.rs", y)]), Vec::<String>::new());
    }
}

#[test]
fn folders_that_import_each_other_are_found() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a/mod.rs", "mod x;"),
        ("a/x.rs", "use crate::b::B;"),
        ("b.rs", "use crate::c::C;"),
        ("c/mod.rs", "use crate::a::x::X;"),
    ];
    assert_eq!(found(&files), [": a, b, c"]);
}
