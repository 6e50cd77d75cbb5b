//! Tests that the reference has all keys and valid examples.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::examples::EXAMPLES;
use super::{Key, keys};
use crate::schema::samples::{around, load};

#[test]
fn reference_keys_have_a_value_an_example_and_an_effect() {
    let keys: Vec<_> = keys().into_iter().map(|(key, _)| key).collect();
    assert!(keys.len() > 80, "{} keys", keys.len());
    let lacks = |what: &str, lacks: fn(&Key) -> bool| {
        let lacking: Vec<_> = keys.iter().filter(|key| lacks(key)).map(|key| key.path.as_str()).collect();
        assert!(lacking.is_empty(), "without {what}: {lacking:?}");
    };
    lacks("words for what it takes (reference.rs)", |key| key.takes.is_empty());
    lacks("an example (examples.rs)", |key| key.example.is_none());
    lacks("what becomes of a change (reference.rs)", |key| key.effect.is_none());
}

#[test]
fn examples_belong_to_existing_keys() {
    let known: BTreeSet<_> = keys().into_iter().map(|(key, _)| key.path).collect();
    for (path, example) in EXAMPLES {
        let path = ["nats", "webhook"]
            .into_iter()
            .fold((*path).to_owned(), |path, kind| path.replace(&format!("*.{kind}."), "*."));
        assert!(known.contains(&path), "there is no key {path}");
        serde_json::from_str::<Value>(example).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

#[test]
fn reader_accepts_every_example() {
    for (key, of) in keys() {
        let example = key.example.clone().expect("every key has an example");
        load(&around(&key, of.as_deref(), Some(&example)));
    }
}
