//! One allocation for strings that repeat: label keys and values, index values.

use std::borrow::Cow;

use hashbrown::HashSet;

use super::{Labels, SharedStr};

/// Hands out shared copies of strings and label sets, and forgets those that nobody else holds.
///
/// Costs one hash look-up per string. Churn does not leak: whenever the table has doubled, what only the table
/// still holds is dropped, so it never has more than twice the live strings (plus a small floor).
#[derive(Debug)]
pub struct Interner {
    strings: HashSet<SharedStr>,
    labels: HashSet<Labels>,
    /// Where a label's text is put together.
    scratch: String,
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Self { strings: HashSet::default(), labels: HashSet::default(), scratch: String::new(), sweep_at: Self::FLOOR }
    }
}

impl Interner {
    /// Below this many entries no sweep is worth its while.
    const FLOOR: usize = 1024;

    /// The shared copy of `text`.
    pub fn string(&mut self, text: &str) -> SharedStr {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        self.sweep_if_due();
        let fresh: SharedStr = text.into();
        self.strings.insert(fresh.clone());
        fresh
    }

    /// The shared copy of a set of labels, each given as key and value; of a repeated key the last one counts.
    pub fn labels<'l>(&mut self, pairs: impl IntoIterator<Item = (Cow<'l, str>, Cow<'l, str>)>) -> Labels {
        let mut labels = Vec::new();
        let mut scratch = std::mem::take(&mut self.scratch);
        for (key, value) in pairs {
            scratch.clear();
            scratch.extend([&*key, "=", &*value]);
            labels.push(self.string(&scratch));
        }
        self.scratch = scratch;
        let labels = Labels::of(labels);
        if labels.is_empty() {
            return Labels::default();
        }
        if let Some(known) = self.labels.get(&labels) {
            return known.clone();
        }
        self.sweep_if_due();
        self.labels.insert(labels.clone());
        labels
    }

    /// Entries in the table, live or not yet swept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strings.len() + self.labels.len()
    }

    /// Whether nothing has been interned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sweep_if_due(&mut self) {
        if self.len() >= self.sweep_at {
            self.sweep();
        }
    }

    /// Drops what nobody else holds, and the room that it took.
    pub fn trim(&mut self) {
        self.sweep();
        self.labels.shrink_to_fit();
        self.strings.shrink_to_fit();
    }

    fn sweep(&mut self) {
        // Label sets first: they hold strings.
        self.labels.retain(Labels::is_shared);
        self.strings.retain(|text| SharedStr::strong_count(text).is_none_or(|holders| holders > 1));
        self.sweep_at = (self.len() * 2).max(Self::FLOOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_one_allocation() {
        let mut interner = Interner::default();
        assert!(SharedStr::ptr_eq(&interner.string("app"), &interner.string("app")));
    }

    #[test]
    fn what_is_trimmed_has_what_others_hold_and_nothing_else() {
        let mut interner = Interner::default();
        let kept = interner.string("kept");
        (0..500).for_each(|i| drop(interner.string(&format!("gone-{i}"))));
        interner.trim();
        assert_eq!(interner.len(), 1);
        assert!(interner.strings.capacity() < 100, "{}", interner.strings.capacity());
        assert!(SharedStr::ptr_eq(&kept, &interner.string("kept")));
    }

    #[test]
    fn churn_does_not_leak() {
        let mut interner = Interner::default();
        let kept: Vec<_> = (0..100).map(|i| interner.string(&format!("kept-{i}"))).collect();
        for i in 0..1_000_000 {
            drop(interner.string(&format!("churn-{i}")));
        }
        assert!(interner.len() <= Interner::FLOOR, "{}", interner.len());
        assert!(SharedStr::ptr_eq(&kept[0], &interner.string("kept-0")));
    }
}
