//! Tests of the pages that show example programs: they link to all of them and show tested lines.

use crate::pages::{Page, read};

/// Example receivers that `tests/receivers` runs.
const RECEIVERS: [&str; 3] =
    ["examples/receivers/python/receiver.py", "examples/receivers/go/main.go", "examples/receivers/rust/main.rs"];

#[test]
fn webhooks_page_links_all_tested_receivers() {
    let links: Vec<_> = Page::of("docs/webhooks.md").links().into_iter().map(|link| link.target).collect();
    for file in RECEIVERS {
        assert!(links.contains(&format!("../{file}")), "docs/webhooks.md does not link to {file}");
    }
}

/// Example readers that `tests/readers` runs.
const READERS: [(&str, &str); 3] = [
    ("python", "examples/readers/python/reader.py"),
    ("go", "examples/readers/go/main.go"),
    ("rust", "examples/readers/rust/main.rs"),
];

#[test]
fn kubernetes_api_page_links_all_tested_readers_and_shows_their_lines() {
    let page = Page::of("docs/kubernetes-api.md");
    let links: Vec<_> = page.links().into_iter().map(|link| link.target).collect();
    let mut shown = 0;
    for (language, file) in READERS {
        assert!(links.contains(&format!("../{file}")), "docs/kubernetes-api.md does not link to {file}");
        for block in page.blocks().iter().filter(|block| block.language() == language) {
            assert!(read(file).contains(&block.text), "docs/kubernetes-api.md:{}: not in {file}", block.line);
            shown += 1;
        }
    }
    assert_eq!(shown, 2, "docs/kubernetes-api.md shows lines in Go and Python");
}

/// Clients of the query API that `tests/readers` runs.
const CLIENTS: [&str; 3] = ["examples/clients/follow.sh", "examples/clients/follow.py", "examples/clients/follow.mjs"];

#[test]
fn query_api_page_links_all_tested_clients() {
    let links: Vec<_> = Page::of("docs/query-api.md").links().into_iter().map(|link| link.target).collect();
    for file in CLIENTS {
        assert!(links.contains(&format!("../{file}")), "docs/query-api.md does not link to {file}");
    }
}
