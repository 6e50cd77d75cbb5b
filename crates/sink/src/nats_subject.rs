//! Subjects of NATS, made from what an event is about. Pure.

use std::fmt::Write;
use std::str::FromStr;

use crate::Event;
use crate::event::subject_parts;

/// What a pattern can speak of.
const NAMES: [&str; 7] = ["cluster", "group", "version", "resource", "namespace", "name", "type"];
/// Bytes of a pattern at most: what it makes must fit a line of the protocol.
const MAX_LENGTH: usize = 256;

/// A pattern such as `k8s.{cluster}.{resource}.{namespace}.{name}`.
///
/// A value becomes part of one token of the subject: bytes other than letters, digits, `-` and `_` are written `%` and
/// two hex digits, and nothing at all (the core group, the namespace of what has none) is written `_`. So different
/// objects have different subjects, where the pattern names all that they differ in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectPattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(&'static str),
}

/// A text that is not a pattern; its author can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a pattern for subjects: {problem}; write e.g. \"k8s.{{cluster}}.{{resource}}.{{namespace}}.{{name}}\""
)]
pub struct InvalidSubject {
    /// The text that was given.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FromStr for SubjectPattern {
    type Err = InvalidSubject;

    fn from_str(text: &str) -> Result<Self, InvalidSubject> {
        parse(text).map(Self).map_err(|problem| InvalidSubject { text: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<Vec<Part>, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("it has {} bytes, of at most {MAX_LENGTH}", text.len()));
    }
    if text.split('.').any(str::is_empty) {
        return Err("one of its tokens is empty".to_owned());
    }
    if text.starts_with('$') {
        return Err("subjects with $ are NATS's own".to_owned());
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, after) = rest.split_at(open);
        let close = after.find('}').ok_or("a { is not closed")?;
        let name = &after[1..close];
        let known = NAMES.into_iter().find(|known| *known == name);
        let known = known.ok_or_else(|| format!("there is no {{{name}}} (there are {})", NAMES.join(", ")))?;
        parts.extend([Part::Text(before.to_owned()), Part::Value(known)]);
        rest = &after[close + 1..];
    }
    parts.push(Part::Text(rest.to_owned()));
    parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
    for part in &parts {
        if let Part::Text(text) = part
            && let Some(c) = text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '*' | '>' | '{' | '}'))
        {
            return Err(format!("{c:?} cannot be in a subject"));
        }
    }
    Ok(parts)
}

impl SubjectPattern {
    /// Returns the subject of an event.
    #[must_use]
    pub fn subject(&self, event: &Event) -> String {
        self.fill(event.cluster(), event.event_type().as_str(), event.subject())
    }

    /// `about` is an event's subject: group, version, resource, namespace and name.
    fn fill(&self, cluster: &str, event_type: &str, about: &str) -> String {
        let [group, version, resource, namespace, name] = subject_parts(about).unwrap_or_default();
        let mut subject = String::new();
        for token in &self.0 {
            match token {
                Part::Text(text) => subject.push_str(text),
                Part::Value(value) => escape(
                    match *value {
                        "cluster" => cluster,
                        "group" => group,
                        "version" => version,
                        "resource" => resource,
                        "namespace" => namespace,
                        "name" => name,
                        _ => event_type,
                    },
                    &mut subject,
                ),
            }
        }
        subject
    }
}

fn escape(value: &str, out: &mut String) {
    if value.is_empty() {
        out.push('_');
    }
    for byte in value.bytes() {
        // A lone `_` is what nothing is written as.
        if byte.is_ascii_alphanumeric() || byte == b'-' || (byte == b'_' && value.len() > 1) {
            out.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(pattern: &str, namespace: &str, name: &str) -> String {
        let pattern: SubjectPattern = pattern.parse().unwrap();
        pattern.fill("prod-eu", "added", &format!("/v1/pods/{namespace}/{name}"))
    }

    #[test]
    fn a_subject_has_as_many_tokens_as_its_pattern() {
        let pattern = "k8s.{cluster}.{resource}.{namespace}.{name}";
        assert_eq!(subject(pattern, "shop", "web-0"), "k8s.prod-eu.pods.shop.web-0");
        assert_eq!(subject(pattern, "", "node.example.com"), "k8s.prod-eu.pods._.node%2Eexample%2Ecom");
        for hostile in ["a.b", "*", ">", "a b", "a\r\nPUB x 0", "ü", "%2E", "_", "", "{name}"] {
            let subject = subject(pattern, "shop", hostile);
            assert_eq!(subject.split('.').count(), 5, "{subject}");
            assert!(subject.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'*' | b'>')), "{subject}");
        }
        assert_eq!(subject("{type}-{group}.x{version}", "", ""), "added-_.xv1");
    }

    #[test]
    fn different_names_have_different_subjects() {
        let names = ["", "_", "__", "%5F", "a.b", "a%2Eb", "a-b", "A-B", "ä", "%C3%A4"];
        let mut subjects: Vec<_> = names.iter().map(|name| subject("{name}", "", name)).collect();
        subjects.sort();
        subjects.dedup();
        assert_eq!(subjects.len(), names.len());
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_what_is_wrong() {
        for (bad, words) in [
            ("", "empty"),
            ("a..b", "empty"),
            (".a", "empty"),
            ("a.*", "'*' cannot"),
            ("a.>", "'>' cannot"),
            ("a b", "' ' cannot"),
            ("a.{nam}", "there is no {nam} (there are cluster, group"),
            ("a.{name", "not closed"),
            ("a.}", "'}' cannot"),
            ("$JS.{name}", "NATS's own"),
            (&"a".repeat(300), "300 bytes"),
        ] {
            let error = bad.parse::<SubjectPattern>().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
