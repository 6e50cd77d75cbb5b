//! The receivers that docs/webhooks.md shows are those that are tested.

use crate::pages::{Page, read};

#[test]
fn the_receivers_of_the_page_are_the_files() {
    let page = Page::of("docs/webhooks.md");
    for (language, file) in [
        ("python", "examples/receivers/python/receiver.py"),
        ("go", "examples/receivers/go/main.go"),
        ("rust", "examples/receivers/rust/main.rs"),
    ] {
        let blocks = page.blocks();
        let shown: Vec<_> = blocks.iter().filter(|block| block.language() == language).collect();
        let [block] = shown[..] else { panic!("{} blocks of {language}", shown.len()) };
        assert!(block.text == read(file), "docs/webhooks.md:{}: another text than {file}", block.line);
    }
}
