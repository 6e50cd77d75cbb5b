//! Interner for repeated strings: label keys and values, index values.

use hashbrown::HashSet;

use super::{Labels, SharedStr};

/// Table of shared strings and label sets. Entries that only the table still references are dropped.
///
/// Costs one hash look-up per string. When the table has doubled since the last sweep, a new sweep drops the unused
/// entries. So the table has at most twice as many entries as are in use, or 1,024 if that is more. If no entries are
/// added, [`Self::rest`] drops the unused ones.
#[derive(Debug)]
pub struct Interner {
    strings: HashSet<SharedStr>,
    labels: HashSet<Labels>,
    /// Reused buffer for composing a `key=value` text.
    scratch: String,
    sweep_at: usize,
    /// Number of label sets requested since unused entries were last dropped: roughly the number of decoded objects.
    asked: usize,
    /// Calls of `rest` since unused entries were last dropped.
    rests: u32,
}

impl Default for Interner {
    fn default() -> Self {
        let (strings, labels) = (HashSet::default(), HashSet::default());
        Self { strings, labels, scratch: String::new(), sweep_at: Self::FLOOR, asked: 0, rests: 0 }
    }
}

impl Interner {
    /// Number of entries below which a sweep (search for unused entries) is not worthwhile.
    const FLOOR: usize = 1024;

    /// Maximum number of [`Self::rest`] calls between two sweeps (searches for unused entries). Deletions leave unused
    /// entries without any request to the interner, e.g. when a list deletes a million objects.
    const RESTS: u32 = 16;

    /// Drops entries that only the table references, if a sweep (search for them) is due. Call it from time to time
    /// when idle.
    ///
    /// A sweep costs about 20 ns per entry. It is due if the label sets requested since the last sweep amount to an
    /// eighth of the entries. At the latest, it is due at the 16th call after the last sweep.
    pub fn rest(&mut self) {
        self.rests += 1;
        if self.asked * 8 >= self.len().max(8) || self.rests >= Self::RESTS {
            self.sweep();
        }
    }

    /// Returns the shared copy of `text`.
    pub fn string(&mut self, text: &str) -> SharedStr {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        self.sweep_if_due();
        let fresh: SharedStr = text.into();
        self.strings.insert(fresh.clone());
        fresh
    }

    /// Returns the shared copy of a label set, given as keys and values. The last value of a repeated key wins. Keys
    /// that contain `=` are dropped.
    pub fn labels<T: AsRef<str>>(&mut self, pairs: impl IntoIterator<Item = (T, T)>) -> Labels {
        self.asked += 1;
        let mut labels = Vec::new();
        let mut scratch = std::mem::take(&mut self.scratch);
        for (key, value) in pairs.into_iter().filter(|(key, _)| !key.as_ref().contains('=')) {
            scratch.clear();
            scratch.extend([key.as_ref(), "=", value.as_ref()]);
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

    /// Returns the number of entries, live or not yet swept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.strings.len() + self.labels.len()
    }

    /// Returns whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sweep_if_due(&mut self) {
        if self.len() >= self.sweep_at {
            self.sweep();
        }
    }

    /// Drops entries that only the table references, and frees the spare capacity.
    pub fn trim(&mut self) {
        self.sweep();
        self.labels.shrink_to_fit();
        self.strings.shrink_to_fit();
    }

    fn sweep(&mut self) {
        // Label sets first, since they reference strings.
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
    fn trim_keeps_only_referenced_entries() {
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
    fn rest_drops_entries_that_died_at_once() {
        let mut interner = Interner::default();
        let labels = |interner: &mut Interner, i: usize| interner.labels([("app", &*format!("app-{i}"))]);
        let lived: Vec<_> = (0..50_000).map(|i| labels(&mut interner, i)).collect();
        interner.rest();
        let kept = lived[7].clone();
        drop(lived);
        // No requests since then, so only the number of calls triggers the sweep.
        for _ in 1..Interner::RESTS {
            interner.rest();
            assert_eq!(interner.len(), 100_000);
        }
        interner.rest();
        assert_eq!((interner.len(), interner.strings.len()), (2, 1));
        assert!(interner.strings.capacity() + interner.labels.capacity() < 100, "the capacity is freed as well");
        // Enough requests trigger the sweep.
        drop((0..100).map(|i| labels(&mut interner, i)).collect::<Vec<_>>());
        interner.rest();
        assert_eq!(interner.len(), 2);
        assert!(kept.ptr_eq(&labels(&mut interner, 7)));
    }
}
