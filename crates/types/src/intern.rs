//! One allocation for strings that repeat: label keys and values, index values.

use std::borrow::Cow;

use hashbrown::HashSet;

use super::{Labels, SharedStr};

/// Hands out shared copies of strings and label sets, and forgets those that nobody else holds.
///
/// Costs one hash look-up per string. Churn does not leak: whenever the table has exponential_backoff, what only the table
/// still holds is dropped, so it never has more than twice the live strings (plus a small floor). What dies while
/// nothing new comes is dropped by [`Self::rest`].
#[derive(Debug)]
pub struct Interner {
    strings: HashSet<SharedStr>,
    labels: HashSet<Labels>,
    /// Where a label's text is put together.
    scratch: String,
    sweep_at: usize,
    /// Label sets that were asked for since the last sweep: about so many objects have come, or gone.
    asked: usize,
    /// Rests since then.
    rests: u32,
}

impl Default for Interner {
    fn default() -> Self {
        let (strings, labels) = (HashSet::default(), HashSet::default());
        Self { strings, labels, scratch: String::new(), sweep_at: Self::FLOOR, asked: 0, rests: 0 }
    }
}

impl Interner {
    /// Below this many entries no sweep is worth its while.
    const FLOOR: usize = 1024;

    /// Rests after which it is swept whatever has happened. An empty list can end a million objects at once, and nothing
    /// of them comes by here.
    const RESTS: u32 = 16;

    /// Drops what only the table still holds, where enough has come by for that to pay; to be called now and then when
    /// nothing else is to be done. A sweep costs some 20 ns an entry; it is due once an eighth as many objects as there are
    /// entries have come by, and every sixteenth time.
    pub fn rest(&mut self) {
        self.rests += 1;
        if self.asked * 8 >= self.len().max(8) || self.rests >= Self::RESTS {
            self.sweep();
        }
    }

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

    /// The shared copy of a set of labels, each given as key and value; of a repeated key the last one counts, and a key
    /// with a `=` in it does not.
    pub fn labels<'l>(&mut self, pairs: impl IntoIterator<Item = (Cow<'l, str>, Cow<'l, str>)>) -> Labels {
        self.asked += 1;
        let mut labels = Vec::new();
        let mut scratch = std::mem::take(&mut self.scratch);
        for (key, value) in pairs.into_iter().filter(|(key, _)| !key.contains('=')) {
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
        (self.asked, self.rests) = (0, 0);
        if self.strings.capacity() > 4 * self.strings.len().max(Self::FLOOR) {
            self.strings.shrink_to(2 * self.strings.len());
        }
        if self.labels.capacity() > 4 * self.labels.len().max(Self::FLOOR) {
            self.labels.shrink_to(2 * self.labels.len());
        }
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

    #[test]
    fn what_died_all_at_once_is_forgotten_at_rest() {
        let mut interner = Interner::default();
        let labels = |interner: &mut Interner, i: usize| interner.labels([("app".into(), format!("app-{i}").into())]);
        let lived: Vec<_> = (0..50_000).map(|i| labels(&mut interner, i)).collect();
        interner.rest();
        let kept = lived[7].clone();
        drop(lived);
        // Nothing has come by since: only time tells.
        for _ in 1..Interner::RESTS {
            interner.rest();
            assert_eq!(interner.len(), 100_000);
        }
        interner.rest();
        assert_eq!((interner.len(), interner.strings.len()), (2, 1));
        assert!(interner.strings.capacity() + interner.labels.capacity() < 100, "and the room they took");
        // Enough has come by.
        drop((0..100).map(|i| labels(&mut interner, i)).collect::<Vec<_>>());
        interner.rest();
        assert_eq!(interner.len(), 2);
        assert!(kept.ptr_eq(&labels(&mut interner, 7)));
    }
}
