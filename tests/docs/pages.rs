//! Markdown documents of the repository and their parts: links, blocks, code spans, headings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A document and its path from the root.
pub(crate) struct Page {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A link, or an image.
pub(crate) struct Link {
    pub(crate) target: String,
    pub(crate) line: usize,
}

/// A fenced block.
pub(crate) struct Block {
    /// Info string after the fence.
    pub(crate) info: String,
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Block {
    /// Returns the first word of the info string.
    pub(crate) fn language(&self) -> &str {
        self.info.split([',', ' ']).next().unwrap_or_default()
    }

    pub(crate) fn is(&self, mark: &str) -> bool {
        self.info.split([',', ' ']).skip(1).any(|word| word == mark)
    }
}

/// Returns all documents: those in the root and in docs/, and all below deploy/.
pub(crate) fn all() -> Vec<Page> {
    let mut paths: Vec<_> = files(root(), false).chain(files(&root().join("docs"), false)).collect();
    paths.extend(files(&root().join("deploy"), true));
    paths.sort();
    let page = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        Page { path, text }
    };
    let pages: Vec<_> = paths.into_iter().map(page).collect();
    assert!(pages.len() > 20, "{} documents", pages.len());
    pages
}

/// Lists the Markdown files of a folder, and of its subfolders if `deep`.
fn files(folder: &Path, deep: bool) -> Box<dyn Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    Box::new(entries.flat_map(move |path| -> Box<dyn Iterator<Item = PathBuf>> {
        if path.is_dir() && deep {
            return files(&path, deep);
        }
        let is_page = path.is_file() && path.extension().is_some_and(|extension| extension == "md");
        Box::new(is_page.then_some(path).into_iter())
    }))
}

fn parser(text: &str) -> impl Iterator<Item = (Event<'_>, std::ops::Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter()
}

impl Page {
    pub(crate) fn of(path: &str) -> Self {
        Self { path: path.to_owned(), text: read(path) }
    }

    fn line_at(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    pub(crate) fn links(&self) -> Vec<Link> {
        let link = |(event, range): (Event<'_>, std::ops::Range<usize>)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(Link { target: dest_url.into_string(), line: self.line_at(range.start) })
            }
            _ => None,
        };
        parser(&self.text).filter_map(link).collect()
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut found: Vec<Block> = Vec::new();
        let mut inside = false;
        for (event, range) in parser(&self.text) {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    inside = true;
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info.into_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    found.push(Block { info, text: String::new(), line: self.line_at(range.start) });
                }
                Event::End(TagEnd::CodeBlock) => inside = false,
                Event::Text(text) if inside => found.last_mut().unwrap().text.push_str(&text),
                _ => {}
            }
        }
        found
    }

    /// Returns the code spans with their lines.
    pub(crate) fn spans(&self) -> Vec<(String, usize)> {
        let span = |(event, range): (Event<'_>, std::ops::Range<usize>)| match event {
            Event::Code(text) => Some((text.into_string(), self.line_at(range.start))),
            _ => None,
        };
        parser(&self.text).filter_map(span).collect()
    }

    /// Returns the code spans in the first cell of each table row.
    pub(crate) fn first_cells(&self) -> Vec<(String, usize)> {
        let (mut found, mut cell) = (Vec::new(), usize::MAX);
        for (event, range) in parser(&self.text) {
            match event {
                Event::Start(Tag::TableRow) => cell = 0,
                Event::End(TagEnd::TableCell) => cell = cell.saturating_add(1),
                Event::End(TagEnd::TableRow) => cell = usize::MAX,
                Event::Code(text) if cell == 0 => found.push((text.into_string(), self.line_at(range.start))),
                _ => {}
            }
        }
        found
    }

    /// Returns the anchors of headings, as GitHub and mdBook generate them.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let (mut found, mut heading) = (BTreeSet::new(), None::<String>);
        for (event, _) in parser(&self.text) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap());
                    let count = seen.entry(anchor.clone()).or_default();
                    found.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                    *count += 1;
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the text of the first level-1 heading.
    pub(crate) fn title(&self) -> Option<String> {
        let mut inside = false;
        for (event, _) in parser(&self.text) {
            match event {
                Event::Start(Tag::Heading { level: HeadingLevel::H1, .. }) => inside = true,
                Event::Text(text) if inside => return Some(text.into_string()),
                _ => {}
            }
        }
        None
    }
}

fn anchor(heading: &str) -> String {
    let letter = |c: char| match c {
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_lowercase().next().unwrap_or(c)),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.chars().filter_map(letter).collect()
}

#[test]
fn anchors_match_those_of_github_and_mdbook() {
    let text = "# A `b.c`, and d\n\n## Twice\n\n## Twice\n\n```sh\n# none\n```\n";
    let page = Page { path: "a.md".to_owned(), text: text.to_owned() };
    assert_eq!(page.anchors(), ["a-bc-and-d", "twice", "twice-1"].map(str::to_owned).into());
    assert_eq!(page.title().as_deref(), Some("A "));
}
