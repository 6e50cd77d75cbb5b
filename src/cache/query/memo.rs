//! Per-query memo of label selector results by label set. Most objects share their labels with many others.

use informer_hub_types::{LabelSelector, Labels};

/// Cache of selector results for recently seen label sets.
///
/// Label sets and selectors are identified by address. Addresses are valid only while the snapshot and the query exist,
/// so a memo serves one query of one snapshot. The table has a fixed size and replaces entries on collision, so the
/// cost of a lookup is constant.
pub(super) struct LabelMemo {
    /// Table of results, empty until the first lookup.
    entries: Vec<Entry>,
}

/// Addresses of a label set and a selector, and whether they match.
#[derive(Clone, Copy, Default)]
struct Entry {
    labels: usize,
    selector: usize,
    matches: bool,
}

/// Number of table entries. Their 24 KiB fit the L1 cache of a core.
const ENTRIES: usize = 1024;

impl LabelMemo {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Returns whether a selector matches a set of labels.
    pub(super) fn matches(&mut self, selector: &LabelSelector, labels: &Labels) -> bool {
        let evaluate = || selector.matches(|key| labels.get(key));
        let (address, selector_address) = (labels.address(), std::ptr::from_ref(selector) as usize);
        if address == 0 {
            return evaluate();
        }
        if self.entries.is_empty() {
            self.entries.resize(ENTRIES, Entry::default());
        }
        // The shift drops address bits that are equal for all; the product spreads allocations at regular distances.
        let hash = ((address >> 4) ^ (selector_address >> 3)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
        let entry = &mut self.entries[hash & (ENTRIES - 1)];
        if (entry.labels, entry.selector) != (address, selector_address) {
            *entry = Entry { labels: address, selector: selector_address, matches: evaluate() };
        }
        entry.matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_memo_agrees_with_the_selector() {
        let selectors: Vec<LabelSelector> =
            ["n in (1,7,70,700)", "!n", "n!=7"].iter().map(|text| text.parse().unwrap()).collect();
        let sets: Vec<_> =
            (0..5_000).map(|number: usize| Labels::new(vec![("n".into(), number.to_string().into())])).collect();
        let mut memo = LabelMemo::new();
        for _ in 0..2 {
            for labels in sets.iter().chain([&Labels::default()]) {
                for selector in &selectors {
                    let expected = selector.matches(|key| labels.get(key));
                    assert_eq!(memo.matches(selector, labels), expected, "{selector} {labels:?}");
                    assert_eq!(memo.matches(selector, &labels.clone()), expected, "{selector} {labels:?}, again");
                }
            }
        }
    }
}
