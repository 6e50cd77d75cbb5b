//! The values of one index.

use std::cmp::Ordering;
use std::hash::BuildHasher;

use equivalent::{Comparable, Equivalent};
use hashbrown::DefaultHashBuilder;

use super::posting::{Location, Posting};
use crate::types::SharedStr;

/// Each value that any object carries, with where those are: a persistent map in the order of the values' hashes.
///
/// A hash trie would need a third of the steps, but leaves three quarters of its nodes empty, which at many values of
/// few objects is most of what an index costs. Numbers compare without a look at the texts, and texts of the same hash
/// cost no more than their comparison.
#[derive(Clone, Default)]
pub(super) struct Values {
    postings: imbl::OrdMap<Value, Posting>,
    hasher: DefaultHashBuilder,
}

/// A value in its place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Value {
    hash: u64,
    text: SharedStr,
}

/// A value that is looked for.
struct Wanted<'t> {
    hash: u64,
    text: &'t str,
}

impl Equivalent<Value> for Wanted<'_> {
    fn equivalent(&self, value: &Value) -> bool {
        self.compare(value).is_eq()
    }
}

impl Comparable<Value> for Wanted<'_> {
    fn compare(&self, value: &Value) -> Ordering {
        self.hash.cmp(&value.hash).then_with(|| self.text.cmp(&value.text))
    }
}

impl Values {
    fn wanted<'t>(&self, text: &'t str) -> Wanted<'t> {
        Wanted { hash: self.hasher.hash_one(text), text }
    }

    /// Where the objects are that carry a value.
    pub(super) fn get(&self, value: &str) -> Option<&Posting> {
        self.postings.get(&self.wanted(value))
    }

    /// The text of a value, of which there is one for all objects.
    pub(super) fn known(&self, value: &str) -> Option<&SharedStr> {
        self.postings.get_key_value(&self.wanted(value)).map(|(value, _)| &value.text)
    }

    pub(super) fn insert(&mut self, value: &SharedStr, at: Location) {
        let wanted = self.wanted(value);
        let hash = wanted.hash;
        match self.postings.get_mut(&wanted) {
            Some(posting) => posting.insert(at),
            None => drop(self.postings.insert(Value { hash, text: value.clone() }, Posting::One(at))),
        }
    }

    pub(super) fn remove(&mut self, value: &str, at: &Location) {
        let wanted = self.wanted(value);
        if self.postings.get_mut(&wanted).is_some_and(|posting| posting.remove(at)) {
            self.postings.remove(&wanted);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.postings.len()
    }

    /// All of them, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SharedStr, &Posting)> {
        self.postings.iter().map(|(value, posting)| (&value.text, posting))
    }
}
