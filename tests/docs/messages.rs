//! docs/troubleshooting.md has what the program says, and nothing that it does not say.

use std::collections::BTreeSet;

use crate::literals::{Source, errors, literals, sources, warnings};
use crate::pages::{Page, read};

fn page() -> Page {
    Page::of("docs/troubleshooting.md")
}

/// The messages of the page: what stands in backticks in the first cells of its tables.
fn messages() -> Vec<(String, usize)> {
    let messages = page().first_cells();
    assert!(messages.len() > 150, "{} messages", messages.len());
    messages
}

/// What only tests, simulations and the demo say.
fn is_of_tests(source: &Source) -> bool {
    let path = source.path.as_str();
    ["crates/sim/", "crates/testing/", "src/cli/demo/"].iter().any(|folder| path.starts_with(folder))
        || path.contains("/tests")
        || path.ends_with("tests.rs")
        || path.contains("/contract")
}

#[test]
fn every_message_of_the_page_is_one_of_the_program() {
    let sources = sources();
    let said: BTreeSet<_> =
        sources.iter().filter(|source| !is_of_tests(source)).flat_map(|source| literals(&source.text)).collect();
    let said: Vec<_> = said.iter().map(|literal| literal.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let unknown = |(message, _): &(String, usize)| !said.iter().any(|literal| literal.contains(message.as_str()));
    let unknown: Vec<_> = messages().into_iter().filter(unknown).collect();
    assert!(unknown.is_empty(), "nothing in src says {unknown:#?}");
}

#[test]
fn every_public_error_is_on_the_page() {
    let known: BTreeSet<_> = messages().into_iter().map(|(message, _)| message).collect();
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for source in sources().iter().filter(|source| !is_of_tests(source)) {
        // One that only repeats what is in it has no words of its own.
        for message in errors(source).into_iter().filter(|message| message.chars().any(char::is_alphabetic)) {
            count += 1;
            if !known.contains(&message) {
                missing.insert(format!("{}: {message}", source.path));
            }
        }
    }
    assert!(count > 100, "{count} errors");
    assert!(missing.is_empty(), "docs/troubleshooting.md lacks {missing:#?}");
}

#[test]
fn every_warning_of_the_log_is_on_the_page() {
    let known: Vec<_> = messages().into_iter().map(|(message, _)| message).collect();
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for source in sources().iter().filter(|source| !is_of_tests(source)) {
        for message in warnings(source) {
            count += 1;
            // What is filled in at an end may be more of the sentence.
            let bare = message.trim_matches(['…', ' ', ':', ';']);
            if !known.iter().any(|known| known == &message || known.contains(bare)) {
                missing.insert(format!("{}: {message}", source.path));
            }
        }
    }
    assert!(count > 50, "{count} warnings");
    assert!(missing.is_empty(), "docs/troubleshooting.md lacks {missing:#?}");
}

/// Whether a text has the parts of a message between its gaps, in their order.
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
fn every_mistake_of_a_configuration_is_on_the_page() {
    let messages = messages();
    let mistakes = read("crates/config/src/golden_mistakes.txt");
    let mistakes: Vec<_> = mistakes.lines().filter(|line| line.contains(": ")).collect();
    assert!(mistakes.len() > 30, "{} mistakes", mistakes.len());
    // A message of next to no words would fit everything.
    let long = |message: &str| message.chars().filter(|c| c.is_alphabetic()).count() > 8;
    let is_known = |line: &str| messages.iter().any(|(message, _)| long(message) && fits(message, line));
    let missing: Vec<_> = mistakes.into_iter().filter(|line| !is_known(line)).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md lacks {missing:#?}");
}

#[test]
fn every_state_is_on_the_page() {
    let known: BTreeSet<_> = messages().into_iter().map(|(message, _)| message).collect();
    let http = Page::of("docs/http.md");
    for row in ["clusters[].state", "informers[].state"] {
        let line = http.text.lines().find(|line| line.starts_with(&format!("| `{row}`"))).expect(row);
        let states = line.split('`').skip(3).step_by(2);
        let missing: Vec<_> = states.filter(|state| !known.contains(*state)).collect();
        assert!(missing.is_empty(), "docs/troubleshooting.md lacks {missing:?} of {row}");
    }
}

#[test]
fn what_does_not_fit_is_told_apart() {
    assert!(fits("… is out of range: from … to …", "hub.toml:4: a: 2MiB is out of range: from 64MiB to 64TiB"));
    assert!(!fits("… is out of range: to …", "2MiB is out of range: from 64MiB to 64TiB"));
}

/// Words that were used for the cause of a log line. The field's name is `error`, of which searches and alerts are made.
const OTHER_NAMES: [&str; 6] = ["why", "problem", "cause", "mistake", "err", "damage"];

#[test]
fn the_cause_of_a_log_line_is_in_its_field_error() {
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
