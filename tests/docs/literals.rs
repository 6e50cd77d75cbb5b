//! Extracts texts from the Rust sources: string literals, error messages and logged warnings, with `…` for arguments.

use informer_hub_testing::texts_below;

use crate::pages::root;

/// A source file of the workspace.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) fn sources() -> Vec<Source> {
    let texts = ["src", "crates"].into_iter().flat_map(|folder| texts_below(root(), folder, "rs"));
    let found: Vec<_> = texts.map(|(path, text)| Source { path: path.to_string_lossy().into_owned(), text }).collect();
    assert!(found.len() > 200, "{} files", found.len());
    found
}

/// Returns the string literals of a source, unescaped, with `…` for each `{…}`.
pub(crate) fn literals(text: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find(['"', '/', '\'', 'r']) {
        let here = &rest[at..];
        let word_before = rest[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        rest = if here.starts_with("//") {
            here.find('\n').map_or("", |end| &here[end..])
        } else if let Some(quote) = here.strip_prefix('"') {
            let (literal, after) = quoted(quote);
            found.push(with_gaps(&literal));
            after
        } else if !word_before && (here.starts_with("r\"") || here.starts_with("r#")) {
            let marks = here[1..].chars().take_while(|c| *c == '#').count();
            let end = format!("\"{}", "#".repeat(marks));
            match here[1 + marks..].strip_prefix('"').and_then(|inner| inner.split_once(&end)) {
                Some((literal, after)) => {
                    found.push(with_gaps(literal));
                    after
                }
                None => &here[1..],
            }
        } else if let Some(escape) = here.strip_prefix("'\\") {
            // A character literal: '\'' or '"' must not begin or end a string.
            escape.find('\'').map_or("", |end| &escape[end.max(1) + 1..])
        } else if let Some(after) = here.strip_prefix("'\"'") {
            after
        } else {
            &here[1..]
        };
    }
    found
}

/// Splits a text after an opening quote into the unescaped literal and the rest.
fn quoted(text: &str) -> (String, &str) {
    let mut literal = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (literal, &text[at + 1..]),
            '\\' => match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => literal.push('\n'),
                // A line continuation skips the next line's leading blanks.
                Some('\n') => {
                    let at = characters.offset();
                    let blanks = text[at..].len() - text[at..].trim_start().len();
                    characters.by_ref().take(text[at..at + blanks].chars().count()).for_each(drop);
                }
                Some(escaped) => literal.push(escaped),
                None => {}
            },
            c => literal.push(c),
        }
    }
    (literal, "")
}

fn with_gaps(literal: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0);
    let mut characters = literal.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '{' | '}' if depth == 0 && characters.peek() == Some(&c) => {
                characters.next();
                text.push(c);
            }
            // Literal braces: `{ env = "NAME" }`.
            '{' if depth == 0 && characters.peek().is_some_and(|next| next.is_whitespace()) => text.push(c),
            '}' if depth == 0 => text.push(c),
            '{' => {
                depth += 1;
                if !text.ends_with('…') {
                    text.push('…');
                }
            }
            '}' => depth -= 1,
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text
}

/// Returns the messages of a source's public error types.
pub(crate) fn errors(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (at, mark) in source.text.match_indices("#[error(") {
        let (before, rest) = (&source.text[..at], &source.text[at + mark.len()..]);
        let message = match rest.trim_start() {
            literal if literal.starts_with(['"', 'r']) => literals(literal).into_iter().next().unwrap_or_default(),
            _ => continue,
        };
        let is_struct =
            rest.lines().skip(1).find(|line| !line.trim_start().starts_with(['#', '/', '"', ')'])).map(str::trim);
        let owner = match is_struct {
            Some(line) if line.contains("struct ") => Some(line.to_owned()),
            _ => before
                .lines()
                .rev()
                .map(str::trim)
                .find(|line| line.contains("enum ") && !line.starts_with("//"))
                .map(str::to_owned),
        };
        if owner.is_some_and(|line| line.starts_with("pub ")) {
            found.push(message);
        }
    }
    found
}

/// Returns the messages that a source logs as warnings and errors.
pub(crate) fn warnings(source: &Source) -> Vec<String> {
    let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
    let calls = ["warn!(", "error!("].into_iter().flat_map(|call| code.match_indices(call));
    // Fields come before the message, and their values have no spaces.
    let message = |(at, call): (usize, &str)| {
        literals(arguments(&code[at + call.len()..])).into_iter().find(|literal| literal.contains(' '))
    };
    calls.filter_map(message).collect()
}

/// Returns the text up to the closing parenthesis of a call.
fn arguments(text: &str) -> &str {
    let (mut depth, mut rest) = (1, text);
    while let Some(at) = rest.find(['(', ')', '"']) {
        let after = &rest[at + 1..];
        match rest.as_bytes()[at] {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {
                rest = quoted(after).1;
                continue;
            }
        }
        if depth == 0 {
            return &text[..text.len() - rest.len() + at];
        }
        rest = after;
    }
    text
}

#[test]
fn literals_are_unescaped_as_by_the_compiler() {
    let text = r##"let a = "one {b:?} two {{c}} \"d\""; // "no"
        let e = 'r'; let f = '"'; let g = '\''; let h: &'static str = r#"a "raw" {x}"#; format!("on \
            one {}{}", "line"); i = "{ j }";"##;
    assert_eq!(literals(text), ["one … two {c} \"d\"", "a \"raw\" …", "on one …", "line", "{ j }"]);
}

#[test]
fn warnings_are_the_messages_of_log_calls() {
    let text = "fn f() {\n    warn!(a = b(\"x)\"), %c, \"it failed, {d}\", d = \"e f\");\n    error!(\n        \"one\"\n    );\n    \
                error!(\"two (3) four\");\n}\n#[cfg(test)]\nwarn!(\"five six\");";
    let source = Source { path: String::new(), text: text.to_owned() };
    assert_eq!(warnings(&source), ["it failed, …", "two (3) four"]);
}

#[test]
fn errors_are_the_messages_of_public_types() {
    let text = "#[derive(thiserror::Error)]\n#[error(\"alone {0}\")]\npub struct A(u8);\n\npub enum B {\n    /// One.\n    \
                #[error(\"first\")]\n    One,\n    #[error(transparent)]\n    Two(C),\n    #[error(\n        \"third {x}\"\n    \
                )]\n    Three,\n}\nenum C {\n    #[error(\"hidden\")]\n    D,\n}\n";
    let source = Source { path: String::new(), text: text.to_owned() };
    assert_eq!(errors(&source), ["alone …", "first", "third …"]);
}
