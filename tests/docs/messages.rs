//! Tests of docs/troubleshooting.md: it lists the errors, warnings and states of the program, word for word, and no
//! others.
//!
//! `self_explanatory.txt` lists the messages that the page omits, because they contain the advice themselves or need no
//! action.

use std::collections::BTreeSet;

use crate::literals::{Source, errors, literals, sources, warnings};
use crate::pages::{Page, read};

fn page() -> Page {
    Page::of("docs/troubleshooting.md")
}

/// Returns the messages of the page: code spans in the first cells of its tables.
fn explained() -> BTreeSet<String> {
    let messages: BTreeSet<_> = page().first_cells().into_iter().map(|(message, _)| message).collect();
    assert!(messages.len() > 50, "{} messages", messages.len());
    messages
}

/// Returns the messages that the page omits.
fn self_explanatory() -> BTreeSet<String> {
    read("tests/docs/self_explanatory.txt").lines().map(str::to_owned).collect()
}

/// Returns all known messages.
fn messages() -> BTreeSet<String> {
    &explained() | &self_explanatory()
}

#[test]
fn message_is_explained_or_self_explanatory_but_not_both() {
    let both: Vec<_> = explained().intersection(&self_explanatory()).cloned().collect();
    assert!(both.is_empty(), "docs/troubleshooting.md explains {both:#?}: remove them from self_explanatory.txt");
}

/// Returns whether a source belongs to tests, simulations or the demo.
fn is_of_tests(source: &Source) -> bool {
    let path = source.path.as_str();
    ["crates/sim/", "crates/testing/", "src/cli/demo/"].iter().any(|folder| path.starts_with(folder))
        || path.contains("/tests")
        || path.ends_with("tests.rs")
        || path.contains("/contract")
}

#[test]
fn troubleshooting_lists_only_messages_of_the_program() {
    let sources = sources();
    let texts: BTreeSet<_> =
        sources.iter().filter(|source| !is_of_tests(source)).flat_map(|source| literals(&source.text)).collect();
    let texts: Vec<_> = texts.iter().map(|literal| literal.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let unknown = |message: &String| !texts.iter().any(|literal| literal.contains(message.as_str()));
    let unknown: Vec<_> = messages().into_iter().filter(unknown).collect();
    assert!(unknown.is_empty(), "no source contains {unknown:#?}");
}

#[test]
fn troubleshooting_lists_every_public_error() {
    let known = messages();
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for source in sources().iter().filter(|source| !is_of_tests(source)) {
        // Skips messages that consist of arguments only.
        for message in errors(source).into_iter().filter(|message| message.chars().any(char::is_alphabetic)) {
            count += 1;
            if !known.contains(&message) {
                missing.insert(format!("{}: {message}", source.path));
            }
        }
    }
    assert!(count > 100, "{count} errors");
    assert!(missing.is_empty(), "docs/troubleshooting.md and self_explanatory.txt lack {missing:#?}");
}

#[test]
fn troubleshooting_lists_every_logged_warning() {
    let known = messages();
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for source in sources().iter().filter(|source| !is_of_tests(source)) {
        for message in warnings(source) {
            count += 1;
            // An argument at the start or the end may stand for words that the page spells out.
            let bare = message.trim_matches(['…', ' ', ':', ';']);
            if !known.iter().any(|known| known == &message || known.contains(bare)) {
                missing.insert(format!("{}: {message}", source.path));
            }
        }
    }
    assert!(count > 50, "{count} warnings");
    assert!(missing.is_empty(), "docs/troubleshooting.md and self_explanatory.txt lack {missing:#?}");
}

/// Returns whether a text contains a message's parts between its gaps, in order.
fn fits(message: &str, text: &str) -> bool {
    let mut rest = text;
    message.split('…').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

#[test]
fn troubleshooting_lists_every_configuration_mistake() {
    let messages = messages();
    let mistakes = read("crates/config/src/golden_mistakes.txt");
    let mistakes: Vec<_> = mistakes.lines().filter(|line| line.contains(": ")).collect();
    assert!(mistakes.len() > 30, "{} mistakes", mistakes.len());
    // A very short message would match every line.
    let long = |message: &str| message.chars().filter(|c| c.is_alphabetic()).count() > 8;
    let is_known = |line: &str| messages.iter().any(|message| long(message) && fits(message, line));
    let missing: Vec<_> = mistakes.into_iter().filter(|line| !is_known(line)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md and self_explanatory.txt lack {missing:#?}");
}

#[test]
fn troubleshooting_lists_every_state() {
    let known = explained();
    let http = Page::of("docs/http.md");
    for row in ["clusters[].state", "informers[].state"] {
        let line = http.text.lines().find(|line| line.starts_with(&format!("| `{row}`"))).expect(row);
        let states = line.split('`').skip(3).step_by(2);
        let missing: Vec<_> = states.filter(|state| !known.contains(*state)).collect();
        assert!(missing.is_empty(), "docs/troubleshooting.md lacks {missing:?} of {row}");
    }
}

#[test]
fn message_match_requires_all_parts() {
    assert!(fits("… is out of range: from … to …", "hub.toml:4: a: 2MiB is out of range: from 64MiB to 64TiB"));
    assert!(!fits("… is out of range: to …", "2MiB is out of range: from 64MiB to 64TiB"));
}

/// Field names that must not be used for the cause of a log line. The name is `error`, so that searches find it.
const OTHER_NAMES: [&str; 6] = ["why", "problem", "cause", "mistake", "err", "damage"];

#[test]
fn log_lines_have_their_cause_in_the_field_error() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for source in sources().iter().filter(|source| !is_of_tests(source)) {
        for (at, mark) in source.text.match_indices("tracing::") {
            let call = &source.text[at + mark.len()..];
            if !["info!(", "warn!(", "error!(", "debug!("].iter().any(|start| call.starts_with(start)) {
                continue;
            }
            count += 1;
            let fields =
                call.split_once('(').map_or("", |(_, rest)| rest.split_once('"').map_or(rest, |(head, _)| head));
            let names = fields.split(',').map(|field| field.split('=').next().unwrap_or_default());
            let names = names.map(|name| name.trim().trim_start_matches(['%', '?']));
            wrong
                .extend(names.filter(|name| OTHER_NAMES.contains(name)).map(|name| format!("{}: {name}", source.path)));
        }
    }
    assert!(count > 100, "{count} log lines");
    assert!(wrong.is_empty(), "the cause of a log line belongs in the field error: {wrong:#?}");
}
