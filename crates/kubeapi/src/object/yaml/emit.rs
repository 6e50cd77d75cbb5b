//! Emitter of YAML in block style.

use std::fmt::Write;

use super::node::Node;
use super::scalar::{Style, is_break, is_printable, is_simple_key, style_of};

/// Column beyond which a long string is folded: its next space becomes a line break.
const WIDTH: usize = 80;

/// Writer that tracks its position on the line.
#[derive(Debug)]
pub(super) struct Emitter {
    out: String,
    column: usize,
    /// Whether the next token needs no space before it, because the line ends with white space or is empty.
    is_spaced: bool,
    /// Whether the line so far has only indentation and indicators such as `-`.
    is_indentation: bool,
}

impl Emitter {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { out: String::with_capacity(capacity), column: 0, is_spaced: true, is_indentation: true }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out.into_bytes()
    }

    pub(super) fn document(&mut self, node: &Node<'_>) {
        self.node(node, None, false);
        self.line(0);
    }

    /// Writes a value. `parent` is the indentation of its parent; `None` at the top level. `is_member` is true for the
    /// value of a mapping's key.
    fn node(&mut self, node: &Node<'_>, parent: Option<usize>, is_member: bool) {
        let inner = parent.map_or(0, |parent| parent + 2);
        match node {
            Node::Plain(text) => {
                self.indicator("", true);
                self.put_all(text);
            }
            Node::Text(text) => self.text(text, parent, false),
            Node::Sequence(elements) if elements.is_empty() => self.indicator("[]", true),
            Node::Mapping(members) if members.is_empty() => self.indicator("{}", true),
            Node::Sequence(elements) => {
                let indent = parent.filter(|_| is_member && !self.is_indentation).unwrap_or(inner);
                for element in elements {
                    self.line(indent);
                    self.block_indicator("-");
                    self.node(element, Some(indent), false);
                }
            }
            Node::Mapping(members) => {
                for (key, value) in members {
                    self.line(inner);
                    if is_simple_key(key) {
                        self.text(key, Some(inner), true);
                        self.indicator(":", false);
                    } else {
                        self.block_indicator("?");
                        self.text(key, Some(inner), false);
                        self.line(inner);
                        self.block_indicator(":");
                    }
                    self.node(value, Some(inner), true);
                }
            }
        }
    }

    /// Writes a string in the style that [`style_of`] chooses.
    fn text(&mut self, text: &str, parent: Option<usize>, is_key: bool) {
        let indent = parent.map_or(2, |parent| parent + 2);
        match style_of(text, is_key) {
            Style::Plain => {
                self.indicator("", true);
                self.folded(text, indent, !is_key, Self::put);
            }
            Style::Single => {
                self.indicator("'", true);
                self.folded(text, indent, !is_key, |out, c| {
                    if c == '\'' {
                        out.put(c);
                    }
                    out.put(c);
                });
                self.indicator("'", false);
            }
            Style::Double => {
                self.indicator("\"", true);
                self.escaped(text, indent, !is_key);
                self.indicator("\"", false);
            }
            Style::Literal => self.literal(text, indent),
        }
        if !text.is_empty() && !text.ends_with(is_break) {
            (self.is_spaced, self.is_indentation) = (false, false);
        }
    }

    /// Writes the content of a plain or single-quoted string. If `is_foldable`, long lines are folded. `put` writes one
    /// character, escaped if needed.
    fn folded(&mut self, text: &str, indent: usize, is_foldable: bool, put: impl Fn(&mut Self, char)) {
        let (mut is_first, mut follows_space, mut follows_break) = (true, false, false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let is_inner = !is_first && chars.peek().is_some_and(|&next| next != ' ');
            if c == ' ' {
                if is_foldable && !follows_space && self.column > WIDTH && is_inner {
                    self.line(indent);
                } else {
                    self.put(c);
                }
                follows_space = true;
            } else if is_break(c) {
                if !follows_break && c == '\n' {
                    self.line_break('\n');
                }
                self.line_break(c);
                self.is_indentation = true;
                follows_break = true;
            } else {
                if follows_break {
                    self.line(indent);
                }
                put(self, c);
                self.is_indentation = false;
                (follows_space, follows_break) = (false, false);
            }
            is_first = false;
        }
    }

    /// Writes the content of a double-quoted string.
    fn escaped(&mut self, text: &str, indent: usize, is_foldable: bool) {
        // go-yaml escapes every character of a text that starts with a byte order mark.
        let is_escaped = text.starts_with('\u{feff}');
        let (mut is_first, mut follows_space) = (true, false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let is_space = c == ' ';
            if is_escaped || !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                self.escape(c);
            } else if is_space
                && is_foldable
                && !follows_space
                && self.column > WIDTH
                && !is_first
                && chars.peek().is_some()
            {
                self.line(indent);
                if chars.peek() == Some(&' ') {
                    self.put('\\');
                }
            } else {
                self.put(c);
            }
            follows_space = is_space;
            is_first = false;
        }
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' | '\\' => c,
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => {
                let code = u32::from(c);
                let start = self.out.len();
                let written = match code {
                    0..=0xff => write!(self.out, "\\x{code:02X}"),
                    0x100..=0xffff => write!(self.out, "\\u{code:04X}"),
                    _ => write!(self.out, "\\U{code:08X}"),
                };
                debug_assert!(written.is_ok(), "writing to a string succeeds");
                self.column += self.out.len() - start;
                return;
            }
        };
        self.put('\\');
        self.put(short);
    }

    /// Writes a string as lines below `|`, with indicators for its indentation and its final line breaks.
    fn literal(&mut self, text: &str, indent: usize) {
        self.indicator("|", true);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false);
        }
        let mut end = text.chars().rev();
        match (end.next().is_some_and(is_break), end.next().is_none_or(is_break)) {
            (false, _) => self.indicator("-", false),
            (true, true) => self.indicator("+", false),
            (true, false) => {}
        }
        self.line_break('\n');
        (self.is_indentation, self.is_spaced) = (true, true);
        let mut follows_break = true;
        for c in text.chars() {
            if is_break(c) {
                self.line_break(c);
                self.is_indentation = true;
                follows_break = true;
            } else {
                if follows_break {
                    self.line(indent);
                }
                self.put(c);
                self.is_indentation = false;
                follows_break = false;
            }
        }
    }

    /// Starts a line, unless one is started already, and indents it.
    fn line(&mut self, indent: usize) {
        if !self.is_indentation || self.column > indent || (self.column == indent && !self.is_spaced) {
            self.line_break('\n');
        }
        while self.column < indent {
            self.put(' ');
        }
        (self.is_spaced, self.is_indentation) = (true, true);
    }

    /// Writes an indicator such as `-` or `:`, after a space if needed.
    fn indicator(&mut self, text: &str, needs_space: bool) {
        if needs_space && !self.is_spaced {
            self.put(' ');
        }
        self.put_all(text);
        (self.is_spaced, self.is_indentation) = (false, false);
    }

    /// Writes an indicator after which a nested block may start on the same line.
    fn block_indicator(&mut self, text: &str) {
        let is_indentation = self.is_indentation;
        self.indicator(text, true);
        self.is_indentation = is_indentation;
    }

    fn line_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_all(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }
}
