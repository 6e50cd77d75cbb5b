//! Test that comments, texts of logs and errors, and documents avoid the phrases that CONTRIBUTING.md retires.

use std::fs;
use std::path::Path;

use informer_hub_testing::texts_below;

/// Retired phrases in lower case, with what to write instead. A phrase matches whole words.
const RETIRED: &[(&str, &str)] = &[
    ("whoever", "the receiver, the caller, the operator"),
    ("nobody", "no receiver, no caller, no operator"),
    ("somebody", "the receiver, the caller, the operator"),
    ("told", "notified of"),
    ("tells", "notifies, reports or shows"),
    ("anybody", "a receiver, a caller, an operator"),
    ("someone", "the receiver, the caller, the operator"),
    ("taken in", "accepted, ingested or decoded"),
    ("takes in", "accepts, ingests or decodes"),
    ("taken out", "removed"),
    ("takes out", "removes"),
    ("put back", "re-added or returned"),
    ("puts back", "re-adds or returns"),
    ("is away", "is unreachable or down"),
    ("are away", "are unreachable or down"),
    ("has word of", "has acknowledged"),
    ("that lies", "that drops synced writes"),
    ("what there is", "the present objects, the rest"),
    ("put away", "saved"),
    ("puts away", "saves"),
    ("let go of", "released, dropped or evicted"),
    ("lets go of", "releases, drops or evicts"),
    ("is held to", "is verified against"),
    ("are held to", "are verified against"),
    ("dice", "randomness"),
    ("the truth", "the expected state, the ground truth"),
    ("old news", "outdated"),
    ("comes to its other work", "yields"),
];

/// First words of a comment that make it a clause instead of a noun phrase.
const OPENINGS: [&str; 3] = ["What ", "Who ", "Whatever "];

/// A problem in a text: the line's number and what to change.
type Problem = (usize, String);

#[test]
fn comments_and_documents_are_plain_technical_english() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "crates", "tests", "benches", "examples", "docs"];
    let sources: Vec<_> = folders.iter().flat_map(|folder| texts_below(root, folder, "rs")).collect();
    let mut documents: Vec<_> = folders.iter().flat_map(|folder| texts_below(root, folder, "md")).collect();
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"] {
        documents.push((name.into(), fs::read_to_string(root.join(name)).expect("the document can be read")));
    }
    assert!(sources.len() > 500 && documents.len() > 25, "{} and {} files", sources.len(), documents.len());
    let sources: Vec<_> = sources.iter().filter(|(file, _)| file != Path::new("tests/language.rs")).collect();
    let in_sources = sources.iter().map(|(file, text)| (file, in_comments(text)));
    let product = sources.iter().filter(|(file, _)| is_product(file));
    let in_texts = product.map(|(file, text)| (file, in_literals(text)));
    let all = in_sources.chain(in_texts).chain(documents.iter().map(|(file, text)| (file, in_document(text))));
    let found: Vec<_> = all
        .flat_map(|(file, problems)| {
            problems.into_iter().map(move |(line, problem)| format!("{}:{line}: {problem}", file.display()))
        })
        .collect();
    assert!(found.is_empty(), "{} retired phrases:\n{}", found.len(), found.join("\n"));
}

/// The problems in the comments of a source file.
fn in_comments(text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut is_first = true;
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_first = true;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if is_first && OPENINGS.iter().any(|opening| comment.starts_with(opening)) {
            found.push((number + 1, format!("begins with a clause: {comment:?}")));
        }
        is_first = comment.is_empty();
        found.extend(retired(&outside_backticks(comment)).map(|problem| (number + 1, problem)));
    }
    found
}

/// Returns whether a file is part of the product, not of its tests.
fn is_product(file: &Path) -> bool {
    let path = file.to_string_lossy();
    (path.starts_with("src/") || path.starts_with("crates/")) && !path.contains("test")
}

/// The problems in the string literals of a source file, above its tests.
fn in_literals(text: &str) -> Vec<Problem> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    for (number, line) in product.lines().enumerate() {
        if !line.trim_start().starts_with("//") {
            let texts: Vec<_> = line.replace("\\\"", "").split('"').skip(1).step_by(2).map(str::to_owned).collect();
            let sentences = texts.iter().filter(|text| text.contains(' '));
            found.extend(sentences.flat_map(|text| retired(text)).map(|problem| (number + 1, problem)));
        }
    }
    found
}

/// A line without the code in it.
fn outside_backticks(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The problems in the prose of a document: outside code blocks and backticks.
fn in_document(text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            found.extend(retired(&outside_backticks(line)).map(|problem| (number + 1, problem)));
        }
    }
    found
}

/// The retired phrases in one line.
fn retired(line: &str) -> impl Iterator<Item = String> {
    let words: Vec<String> = line.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
    let words = format!(" {} ", words.iter().filter(|word| !word.is_empty()).cloned().collect::<Vec<_>>().join(" "));
    let line = line.to_owned();
    RETIRED
        .iter()
        .filter(move |(phrase, _)| words.contains(&format!(" {phrase} ")))
        .map(move |(phrase, instead)| format!("{phrase:?}; write {instead}: {line:?}"))
}

// === the check itself can fail ===

#[test]
fn retired_phrases_are_found_in_comments_only() {
    let text = "/// Nobody waits.\nfn f() {} // fine\n    // A listener is told `nobody`.\nlet nobody = \"is told\";\n";
    let lines: Vec<_> = in_comments(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 3]);
    assert_eq!(in_literals(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>(), [4]);
    assert!(in_literals("let told = \"fine\";\n#[cfg(test)]\nlet told = \"is told\";\n").is_empty());
    assert!(in_comments("/// Retold offline, with nobody's consent? No: nobodies.\n").len() == 1);
}

#[test]
fn comment_that_begins_with_a_clause_is_found_on_its_first_line() {
    let text = "/// What is kept.\nfn f() {}\n/// Returns\n/// What is kept.\n";
    assert_eq!(in_comments(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>(), [1]);
}

#[test]
fn documents_may_quote_phrases_as_code() {
    assert!(in_document("`nobody`\n```sh\nnobody\n```\n").is_empty());
    assert_eq!(in_document("a\nNobody, ever\n").len(), 1);
}
