//! Comments and documents avoid the phrases that CONTRIBUTING.md retires.

use std::fs;
use std::path::Path;

use informer_hub_testing::texts_below;

/// Retired phrases in lower case, with what to write instead. A phrase matches whole words.
const RETIRED: &[(&str, &str)] = &[
    ("whoever", "the receiver, the caller, the operator"),
    ("nobody", "no receiver, no caller, no operator"),
    ("somebody", "the receiver, the caller, the operator"),
    ("is told", "is notified of"),
    ("are told", "are notified of"),
    ("told of", "notified of"),
    ("tells of", "notifies of"),
    ("put away", "saved"),
    ("puts away", "saves"),
    ("let go of", "released, dropped or evicted"),
    ("lets go of", "releases, drops or evicts"),
    ("has word of", "has acknowledged"),
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
    let sources = sources.iter().filter(|(file, _)| file != Path::new("tests/language.rs"));
    let in_sources = sources.map(|(file, text)| (file, in_comments(text)));
    let all = in_sources.chain(documents.iter().map(|(file, text)| (file, in_document(text))));
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
        found.extend(retired(comment).map(|problem| (number + 1, problem)));
    }
    found
}

/// The problems in the prose of a document: outside code blocks and backticks.
fn in_document(text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let prose: String = line.split('`').step_by(2).collect();
            found.extend(retired(&prose).map(|problem| (number + 1, problem)));
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
    let text = "/// Nobody waits.\nfn f() {} // fine\n    // A listener is told of it.\nlet nobody = \"is told\";\n";
    let lines: Vec<_> = in_comments(text).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 3, 3]);
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
