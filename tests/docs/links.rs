//! Tests of links: each target exists, and the book lists every page once.

use std::collections::{BTreeMap, BTreeSet};

use crate::pages::{Page, all, read, root};

/// Returns the broken links of these pages. `exists` returns whether a file or folder exists.
fn broken(pages: &[Page], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let anchors: BTreeMap<_, _> = pages.iter().map(|page| (page.path.as_str(), page.anchors())).collect();
    let mut wrong = Vec::new();
    for page in pages {
        for link in page.links() {
            let mut report =
                |problem: &str| wrong.push(format!("{}:{}: {}: {problem}", page.path, link.line, link.target));
            if link.target.contains("://") {
                let uri = link.target.parse::<http::Uri>();
                let web = uri.as_ref().is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
                if !web || link.target.contains(' ') {
                    report("not an HTTP URL");
                }
                continue;
            }
            let (file, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let Some(path) = (if file.is_empty() { Some(page.path.clone()) } else { resolve(&page.path, file) }) else {
                report("leads outside the repository");
                continue;
            };
            match anchors.get(path.as_str()) {
                _ if !exists(&path) => report("there is no such file"),
                _ if anchor.is_empty() => {}
                Some(known) if known.contains(anchor) => {}
                Some(_) => report("there is no such heading"),
                None => report("only headings of documents can be linked to"),
            }
        }
    }
    wrong
}

/// Resolves a relative link of a page to a path from the root.
fn resolve(page: &str, link: &str) -> Option<String> {
    let mut steps: Vec<_> = page.split('/').collect();
    steps.pop();
    for step in link.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()?),
            step => steps.push(step),
        }
    }
    Some(steps.join("/"))
}

#[test]
fn links_resolve() {
    let wrong = broken(&all(), |path| root().join(path).exists());
    assert!(wrong.is_empty(), "{} links:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn link_check_finds_broken_links() {
    let text = "# One\n[a](b.md) [b](../README.md#one) [c](#two) [d](gone.md) [e](../../x) [f](ftp://x.org/a) \
                [g](a.rs#L1) ![h](gone.svg) [i](https://x.org/a?b#c)\n";
    let page = |path: &str, text: &str| Page { path: path.to_owned(), text: text.to_owned() };
    let pages = [page("README.md", "# One\n"), page("docs/a.md", text), page("docs/b.md", "")];
    let there = ["README.md", "docs/a.md", "docs/b.md", "docs/a.rs"];
    let wrong = broken(&pages, |path| there.contains(&path));
    assert_eq!(
        wrong,
        [
            "docs/a.md:2: #two: there is no such heading",
            "docs/a.md:2: gone.md: there is no such file",
            "docs/a.md:2: ../../x: leads outside the repository",
            "docs/a.md:2: ftp://x.org/a: not an HTTP URL",
            "docs/a.md:2: a.rs#L1: only headings of documents can be linked to",
            "docs/a.md:2: gone.svg: there is no such file",
        ]
    );
}

/// Documents in docs/ that are not pages of the book.
const NOT_IN_BOOK: [&str; 1] = ["docs/SUMMARY.md"];

#[test]
fn book_lists_every_page_once() {
    let summary = Page { path: "docs/SUMMARY.md".to_owned(), text: without_comments(&read("docs/SUMMARY.md")) };
    let listed: Vec<_> = summary.links().iter().filter_map(|link| resolve(&summary.path, &link.target)).collect();
    let once: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(once.len(), listed.len(), "a page is in docs/SUMMARY.md twice");
    let in_docs = |page: &Page| page.path.starts_with("docs/") && !NOT_IN_BOOK.contains(&page.path.as_str());
    let pages: BTreeSet<_> = all().into_iter().filter(in_docs).map(|page| page.path).collect();
    let missing: Vec<_> = pages.difference(&once).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
    let untitled: Vec<_> = once.iter().filter(|path| Page::of(path).title().is_none()).collect();
    assert!(untitled.is_empty(), "without a title: {untitled:?}");
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("<!--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once("-->").map_or("", |(_, after)| after))
}

#[test]
fn pages_open_with_their_reader_and_their_use() {
    let without: Vec<_> = all()
        .into_iter()
        .filter(|page| page.path.starts_with("docs/") && !page.path.ends_with("SUMMARY.md"))
        .filter(|page| {
            let opening: String = page.text.lines().skip(2).take_while(|line| !line.is_empty()).collect();
            !(opening.starts_with("For ") && opening.contains(". After "))
        })
        .map(|page| page.path)
        .collect();
    assert_eq!(without, [""; 0], "open with \"For …. After this page you …\"");
}
