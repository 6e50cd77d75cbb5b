//! NATS subjects built from events. No I/O.

use std::fmt::Write;
use std::str::FromStr;

use crate::Event;
use crate::event::subject_parts;

/// Placeholders that a subject pattern may have.
const NAMES: [&str; 7] = ["cluster", "group", "version", "resource", "namespace", "name", "type"];
/// Maximum bytes of a pattern, so that subjects fit into a protocol line.
const MAX_LENGTH: usize = 256;

/// Subject pattern such as `k8s.{cluster}.{resource}.{namespace}.{name}`.
///
/// The value of a placeholder becomes part of one token of the subject. Bytes other than letters, digits, `-` and `_`
/// are percent-encoded; an empty value (the core group, no namespace) is written `_`. So different objects have
/// different subjects if the pattern has placeholders for everything in which they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectPattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(&'static str),
}

/// Error for text that is not a valid subject pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a subject pattern: {problem}; write e.g. \"k8s.{{cluster}}.{{resource}}.{{namespace}}.{{name}}\""
)]
pub struct InvalidSubject {
    /// The rejected text.
    pub text: String,
    /// Description of the error.
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
        return Err(format!("it has {} bytes; the limit is {MAX_LENGTH} bytes", text.len()));
    }
    if text.split('.').any(str::is_empty) {
        return Err("one of its tokens is empty".to_owned());
    }
    if text.starts_with('$') {
        return Err("NATS reserves subjects that begin with $".to_owned());
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, after) = rest.split_at(open);
        let close = after.find('}').ok_or("a { is not closed")?;
        let name = &after[1..close];
        let known = NAMES.into_iter().find(|known| *known == name);
        let known = known.ok_or_else(|| format!("unknown placeholder {{{name}}} (known are {})", NAMES.join(", ")))?;
        parts.extend([Part::Text(before.to_owned()), Part::Value(known)]);
        rest = &after[close + 1..];
    }
    parts.push(Part::Text(rest.to_owned()));
    parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
    for part in &parts {
        if let Part::Text(text) = part
            && let Some(c) = text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '*' | '>' | '{' | '}'))
        {
            return Err(format!("{c:?} is not allowed in a subject"));
        }
    }
    Ok(parts)
}

impl SubjectPattern {
    /// Returns the NATS subject of an event.
    #[must_use]
    pub fn subject(&self, event: &Event) -> String {
        self.fill(event.cluster(), event.event_type().as_str(), event.subject())
    }

    /// Returns the NATS subject for these values. `about` is the CloudEvents subject, which names the object.
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
        // A value that is just `_` is encoded, since `_` stands for an empty value.
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
    fn subject_has_as_many_tokens_as_its_pattern() {
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
    fn invalid_pattern_is_rejected_with_a_reason() {
        for (bad, words) in [
            ("", "empty"),
            ("a..b", "empty"),
            (".a", "empty"),
            ("a.*", "'*' is not allowed"),
            ("a.>", "'>' is not allowed"),
            ("a b", "' ' is not allowed"),
            ("a.{nam}", "unknown placeholder {nam} (known are cluster, group"),
            ("a.{name", "not closed"),
            ("a.}", "'}' is not allowed"),
            ("$JS.{name}", "NATS reserves subjects"),
            (&"a".repeat(300), "300 bytes"),
        ] {
            let error = bad.parse::<SubjectPattern>().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
