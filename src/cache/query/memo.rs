//! What is known of a set of labels already: most objects share theirs with many others.

use informer_hub_types::{LabelSelector, Labels};

/// Remembers, for the label sets seen last, whether a selector matches them.
///
/// Sets and selectors are known by their addresses, which are good for as long as they are held: a memo is of one
/// question to one snapshot. A table of a fixed size in which a set pushes another one out: however many different
/// ones there are, a look costs the same.
pub(super) struct LabelMemo {
    /// Made with the first look.
    entries: Vec<Entry>,
}

/// Of which set and selector, and whether they match.
#[derive(Clone, Copy, Default)]
struct Entry {
    labels: usize,
    selector: usize,
    matches: bool,
}

/// 24 KiB: it stays in the first cache of a core.
const ENTRIES: usize = 1024;

impl LabelMemo {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Whether a selector matches a set of labels.
    pub(super) fn matches(&mut self, selector: &LabelSelector, labels: &Labels) -> bool {
        let look = || selector.matches(|key| labels.get(key));
        let (address, of) = (labels.address(), std::ptr::from_ref(selector) as usize);
        if address == 0 {
            return look();
        }
        if self.entries.is_empty() {
            self.entries.resize(ENTRIES, Entry::default());
        }
        // Allocations are apart by sixteen bytes at least, and often by a power of two.
        let hash = ((address >> 4) ^ (of >> 3)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        let entry = &mut self.entries[hash & (ENTRIES - 1)];
        if (entry.labels, entry.selector) != (address, of) {
            *entry = Entry { labels: address, selector: of, matches: look() };
        }
        entry.matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_sets_there_are_each_is_told_as_the_selector_tells_it() {
        let selectors: Vec<LabelSelector> =
            ["n in (1,7,70,700)", "!n", "n!=7"].iter().map(|text| text.parse().unwrap()).collect();
        let sets: Vec<_> =
            (0..5_000).map(|number: usize| Labels::new(vec![("n".into(), number.to_string().into())])).collect();
        let mut memo = LabelMemo::new();
        for _ in 0..2 {
            for labels in sets.iter().chain([&Labels::default()]) {
                for selector in &selectors {
                    let told = selector.matches(|key| labels.get(key));
                    assert_eq!(memo.matches(selector, labels), told, "{selector} {labels:?}");
                    assert_eq!(memo.matches(selector, &labels.clone()), told, "{selector} {labels:?}, again");
                }
            }
        }
    }
}
