//! Test of docs/webhooks.md: it shows a tested example receiver and links to all three.

use crate::pages::{Page, read};

/// Example receivers that `tests/receivers` runs.
const RECEIVERS: [(&str, &str); 3] = [
    ("python", "examples/receivers/python/receiver.py"),
    ("go", "examples/receivers/go/main.go"),
    ("rust", "examples/receivers/rust/main.rs"),
];

#[test]
fn webhooks_page_shows_one_and_links_all_tested_receivers() {
    let page = Page::of("docs/webhooks.md");
    let links: Vec<_> = page.links().into_iter().map(|link| link.target).collect();
    let mut shown = 0;
    for (language, file) in RECEIVERS {
        assert!(links.contains(&format!("../{file}")), "docs/webhooks.md does not link to {file}");
        for block in page.blocks().iter().filter(|block| block.language() == language) {
            assert!(block.text == read(file), "docs/webhooks.md:{}: differs from {file}", block.line);
            shown += 1;
        }
    }
    assert_eq!(shown, 1, "docs/webhooks.md must show one receiver in full");
}
