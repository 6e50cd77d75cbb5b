//! Fuzz target: texts that users write (selectors, paths, queries, resources, sizes, subjects). Accepted texts
//! round-trip.
//!
//! The first byte selects the type of the text.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use informer_hub::cache::{Fingerprint, Query, TokenKey};
use informer_hub_config::{ByteSize, HumanDuration};
use informer_hub_query::{Expr, Head, Matcher, Question};
use informer_hub_sink::nats::SubjectPattern;
use informer_hub_types::{ClusterLabels, ClusterName, FieldPath, LabelSelector, Object, ObjectKey, ResourceRef, Uid};
use smol_str::SmolStr;

use super::input::Input;
use super::objects::{notifications, pods};

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let which = input.byte();
    let Ok(text) = std::str::from_utf8(input.0) else { return };
    match which % 10 {
        0 => round_trips::<LabelSelector>(text),
        1 => round_trips::<FieldPath>(text),
        2 => round_trips::<Question>(text),
        3 => question(text),
        4 => parses::<ResourceRef>(text),
        5 => parses::<HumanDuration>(text),
        6 => parses::<ByteSize>(text),
        7 => parses::<SubjectPattern>(text),
        8 => parses::<ClusterName>(text),
        _ => {
            let _ = text.parse::<ObjectKey>();
            token(text);
        }
    }
}

/// Verifies that a text parses or is rejected with a message.
fn parses<T: FromStr<Err: Display>>(text: &str) {
    if let Err(error) = text.parse::<T>() {
        assert!(!error.to_string().is_empty());
    }
}

/// Verifies that a text is rejected with a message, or parses, and that its `Display` form parses to the same value.
fn round_trips<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let shown = value.to_string();
            let read = shown.parse::<T>().unwrap_or_else(|error| panic!("{shown:?} does not parse: {error}"));
            assert_eq!(read, value, "{shown:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn question(text: &str) {
    let Ok(expr) = text.parse::<Expr>() else { return };
    let shown = expr.to_string();
    assert_eq!(shown.parse::<Expr>().ok().as_ref(), Some(&expr), "{shown:?}");
    let Ok(matcher) = Matcher::new(&expr) else { return };
    let object = notifications().swap_remove(0).object().expect("the notification carries an object").clone();
    let head = HeadOnly(&object);
    let body = object.json().expect("the object has its body");
    let on_body = matcher.on_body(&head, &body).expect("the body is JSON");
    assert!(matcher.on_head(&head).is_none_or(|on_head| on_head == on_body), "{shown:?}");
}

/// Head fields of an object, without its body.
struct HeadOnly<'o>(&'o Object);

impl Head for HeadOnly<'_> {
    fn cluster(&self) -> &ClusterName {
        &self.0.origin().cluster
    }

    fn cluster_labels(&self) -> &ClusterLabels {
        &self.0.origin().cluster_labels
    }

    fn namespace(&self) -> &str {
        self.0.namespace().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.0.labels().get(key)
    }

    fn uid(&self) -> &Uid {
        self.0.stored().uid()
    }

    fn in_index(&self, index: &str, values: &[SmolStr]) -> bool {
        let values_here = self.0.index_values().iter().filter(|entry| entry.index == *index);
        values_here.into_iter().any(|entry| values.iter().any(|value| **value == *entry.value))
    }
}

fn token(text: &str) {
    let fingerprint = Fingerprint::new(&Query::list(), &pods().gvr);
    assert!(TokenKey::new([7; 32]).verify(text, fingerprint).is_err(), "an unsigned token");
}
