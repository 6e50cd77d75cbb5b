//! Rust source as text: files, modules, production code without comments and strings, and the paths that it names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a folder, by their path from there.
pub(crate) type Tree = BTreeMap<PathBuf, String>;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads all `.rs` files below a folder.
pub(crate) fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a source folder can be read") {
            let path = entry.expect("an entry of a source folder can be read").path();
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

/// A module of another name than its file's, for tests (`#[path = …]`), or one that only some builds have.
pub(crate) fn is_declared(tree: &Tree, file: &Path) -> bool {
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

/// Every path from the crate's root that a text names: after `crate::`, or after as many `super::` as lead there.
pub(crate) fn crate_paths(code: &str, depth: usize) -> Vec<String> {
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
pub(crate) fn expand(text: &str, prefix: &str, found: &mut Vec<String>) -> usize {
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
        text.lines().take_while(|line| !is_test_mark(line)).flat_map(|line| [line, "\n"]).collect();
    blanked(&production)
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
