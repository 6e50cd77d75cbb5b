//! The receiver that docs/webhooks.md shows is the tested one, and the page links to all three.

use crate::pages::{Page, read};

/// The receivers that `tests/receivers` runs.
const RECEIVERS: [(&str, &str); 3] = [
    ("python", "examples/receivers/python/receiver.py"),
    ("go", "examples/receivers/go/main.go"),
    ("rust", "examples/receivers/rust/main.rs"),
];

#[test]
fn page_on_webhooks_shows_or_links_the_tested_receivers() {
    let page = Page::of("docs/webhooks.md");
    let links: Vec<_> = page.links().into_iter().map(|link| link.target).collect();
    let mut shown = 0;
    for (language, file) in RECEIVERS {
        assert!(links.contains(&format!("../{file}")), "docs/webhooks.md does not link to {file}");
        for block in page.blocks().iter().filter(|block| block.language() == language) {
            assert!(block.text == read(file), "docs/webhooks.md:{}: another text than {file}", block.line);
            shown += 1;
        }
    }
    assert_eq!(shown, 1, "docs/webhooks.md shows one receiver in full");
}
