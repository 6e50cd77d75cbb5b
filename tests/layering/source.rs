//! Rust source as text: files, modules, production code without comments and strings, and the paths that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use informer_hub_testing::texts_below;

/// The segments of a module path, from the root of its crate.
pub(crate) type ModulePath = Vec<String>;

/// The files below a folder, by their paths from there.
pub(crate) type Tree = BTreeMap<PathBuf, String>;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The `.rs` files below a folder of the repository, by their paths from that folder.
pub(crate) fn read(folder: &str) -> Tree {
    texts_below(&root().join(folder), "", "rs")
}

/// The module path of a file: `sink/webhook/mod.rs` is `[sink, webhook]`, `lib.rs` is `[]`.
pub(crate) fn module(file: &Path) -> Vec<String> {
    let mut parts: Vec<_> = file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") || matches!(&parts[..], [one] if one == "lib" || one == "main") {
        parts.pop();
    }
    parts
}

/// Whether a file holds tests only.
pub(crate) fn is_test(file: &Path) -> bool {
    let is_test = |part: &String| {
        matches!(part.as_str(), "tests" | "contract" | "testing" | "arbitrary" | "samples") || part.ends_with("_tests")
    };
    module(file).iter().any(is_test)
}

/// Whether a line begins the tests at the end of a file.
pub(crate) fn is_test_mark(line: &str) -> bool {
    line.trim_start().starts_with("#[cfg(test)]")
}

/// Returns whether a `mod` item declares the file, by its name or with `#[path = …]`. The root of a crate needs none.
pub(crate) fn is_declared(tree: &Tree, file: &Path) -> bool {
    let module = module(file);
    let Some((name, parents)) = module.split_last() else { return true };
    let by_path = format!("#[path = \"{name}.rs\"]");
    if tree.iter().any(|(other, text)| other.parent() == file.parent() && text.contains(&by_path)) {
        return true;
    }
    let folder: PathBuf = parents.iter().collect();
    let candidates = if parents.is_empty() {
        vec![PathBuf::from("lib.rs"), PathBuf::from("main.rs"), PathBuf::from("mod.rs")]
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

/// A name in the scope of a module and the path it stands for.
pub(crate) struct Import {
    pub(crate) path: ModulePath,
    pub(crate) name: String,
}

/// The paths of this crate that a text names, with the name that each has there.
pub(crate) fn imports(code: &str, from: &[String], modules: &BTreeSet<ModulePath>) -> Vec<Import> {
    let mut found = Vec::new();
    let word = |c: char| c.is_alphanumeric() || c == '_';
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = &code[..at];
            if before.ends_with(word) || before.ends_with("::") {
                continue;
            }
            let mut rest = &code[at..];
            let mut base = if start == "crate::" { Vec::new() } else { from.to_vec() };
            loop {
                if let Some(next) = rest.strip_prefix("super::") {
                    base.pop();
                    rest = next;
                } else if let Some(next) = rest.strip_prefix("crate::").or_else(|| rest.strip_prefix("self::")) {
                    rest = next;
                } else {
                    break;
                }
            }
            use_tree(rest, &base, &mut found);
        }
    }
    // `use child::Name;` in the file that declares the child.
    for line in code.split(';').filter_map(|line| line.rsplit_once("use ").map(|(_, path)| path)) {
        let first: String = line.chars().take_while(|c| word(*c)).collect();
        let child = [from, std::slice::from_ref(&first)].concat();
        if modules.contains(&child) {
            use_tree(line, from, &mut found);
        }
    }
    found
}

/// Adds each path of a use tree (`a::{b, c::d as e}`) that starts here; returns the rest of the text.
fn use_tree<'t>(text: &'t str, base: &[String], found: &mut Vec<Import>) -> &'t str {
    let text = text.trim_start();
    if let Some(inner) = text.strip_prefix('{') {
        let mut rest = inner.trim_start();
        while !rest.is_empty() && !rest.starts_with('}') {
            let next = use_tree(rest, base, found).trim_start();
            let next = next.strip_prefix(',').unwrap_or(next).trim_start();
            if next.len() == rest.len() {
                return next;
            }
            rest = next;
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return rest.strip_prefix('*').unwrap_or(rest);
    }
    let path = if name == "self" { base.to_vec() } else { [base, &[name.to_owned()]].concat() };
    if let Some(deeper) = rest.strip_prefix("::")
        && deeper.trim_start().starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '{' | '*'))
    {
        if deeper.trim_start().starts_with('*') {
            found.push(Import { name: String::new(), path: path.clone() });
        }
        return use_tree(deeper, &path, found);
    }
    let after = rest.trim_start();
    let (alias, rest) = match after.strip_prefix("as ") {
        Some(alias) => {
            let alias = alias.trim_start();
            let end = alias.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(alias.len());
            (Some(alias[..end].to_owned()), &alias[end..])
        }
        None => (None, rest),
    };
    let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
    found.push(Import { path, name });
    rest
}

/// The words that stand right before `::` and begin a path.
pub(crate) fn words_before_colons(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("::").filter_map(|(at, _)| {
        let before = &code[..at];
        let start = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |i| i + 1);
        (!before[..start].ends_with("::")).then_some(&before[start..])
    })
}

/// The production part of a text, without comments and strings.
pub(crate) fn code(text: &str) -> String {
    let production: String =
        text.lines().take_while(|line| !is_test_mark(line)).flat_map(|line| [message_result(line), "\n"]).collect();
    blanked(&production)
}

/// Returns the type in a `#[rtype(result = "…")]`, which names paths inside a string; other lines as they are.
fn message_result(line: &str) -> &str {
    let inner = line.trim_start().strip_prefix("#[rtype(result = \"");
    inner.and_then(|inner| inner.strip_suffix("\")]")).unwrap_or(line)
}

/// A text without its comments and the insides of its strings.
pub(crate) fn blanked(text: &str) -> String {
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
pub(crate) fn raw_string(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|b| *b == b'#').count();
    let open = 1 + hashes;
    if !text[open..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    text[open + 1..].find(&close).map_or(text.len(), |at| open + 1 + at + close.len())
}

/// The length of the string that starts here.
pub(crate) fn plain_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}
