//! Parser of JSONPath templates. It limits the nesting of a template, and so its own recursion.

use serde_json::{Number, Value};

use super::{Comparison, Filter, InvalidTemplate, Node, Operand, Path, Step};

/// Maximum length of a template in bytes.
const LONGEST: usize = 64 * 1024;
/// Maximum nesting of `range`, and of filters in filters.
const DEEPEST: usize = 16;

type Parsed<T> = Result<T, InvalidTemplate>;

struct Cursor {
    text: Vec<char>,
    at: usize,
    /// Current nesting of filters.
    depth: usize,
}

pub(super) fn template(text: &str) -> Parsed<Vec<Node>> {
    let mut cursor = Cursor { text: Vec::new(), at: 0, depth: 0 };
    if text.len() > LONGEST {
        return cursor.fail(format!("the template is longer than {LONGEST} bytes"));
    }
    if !text.contains('{') {
        return cursor.fail("a template has paths in braces, such as {.metadata.name}");
    }
    cursor.text = text.chars().collect();
    // Ranges whose `{end}` has not been read yet: position and path of each, and the nodes before it.
    let mut open: Vec<(usize, Path, Vec<Node>)> = Vec::new();
    let mut nodes = Vec::new();
    while cursor.at < cursor.text.len() {
        if cursor.peek() != Some('{') {
            nodes.push(Node::Text(cursor.take_while(|c| c != '{')));
            continue;
        }
        let start = cursor.at;
        cursor.at += 1;
        cursor.blanks();
        if cursor.word("range") {
            cursor.blanks();
            if open.len() == DEEPEST {
                return cursor.fail(format!("more than {DEEPEST} nested ranges"));
            }
            let path = cursor.path()?;
            open.push((start, path, std::mem::take(&mut nodes)));
        } else if cursor.word("end") {
            let Some((_, path, before)) = open.pop() else {
                cursor.at = start;
                return cursor.fail("{end} without {range}");
            };
            let body = std::mem::replace(&mut nodes, before);
            nodes.push(Node::Range(path, body));
        } else if let Some(quote @ ('"' | '\'')) = cursor.peek() {
            nodes.push(Node::Text(cursor.quoted(quote)?));
        } else {
            nodes.push(Node::Path(cursor.path()?));
        }
        cursor.blanks();
        cursor.expect('}', "expected }")?;
    }
    if let Some((start, ..)) = open.pop() {
        cursor.at = start;
        return cursor.fail("{range} without {end}");
    }
    Ok(nodes)
}

impl Cursor {
    fn fail<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        Err(InvalidTemplate { at: self.at + 1, problem: problem.into() })
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, wanted: &str) -> bool {
        let found = wanted.chars().enumerate().all(|(at, c)| self.text.get(self.at + at) == Some(&c));
        if found {
            self.at += wanted.chars().count();
        }
        found
    }

    /// Reads a keyword if a blank, a brace or the end follows it. Returns whether it was read.
    fn word(&mut self, word: &str) -> bool {
        let end = self.text.get(self.at + word.len());
        end.is_none_or(|c| c.is_whitespace() || *c == '}') && self.eat(word)
    }

    fn expect(&mut self, wanted: char, problem: &str) -> Parsed<()> {
        if self.peek() == Some(wanted) {
            self.at += 1;
            return Ok(());
        }
        match self.peek() {
            Some(found) => self.fail(format!("{problem}, found {found:?}")),
            None => self.fail(format!("{problem}, found the end")),
        }
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&accept) {
            self.at += 1;
        }
        self.text[start..self.at].iter().collect()
    }

    fn blanks(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn quoted(&mut self, quote: char) -> Parsed<String> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(c) = self.peek() else {
                self.at = start;
                return self.fail("the quotation does not end");
            };
            self.at += 1;
            match c {
                c if c == quote => return Ok(text),
                '\\' => {
                    let escaped = self.peek();
                    self.at += 1;
                    text.push(match escaped {
                        Some('n') => '\n',
                        Some('t') => '\t',
                        Some('r') => '\r',
                        Some(c) => c,
                        None => return self.fail("the quotation does not end"),
                    });
                }
                c => text.push(c),
            }
        }
    }

    fn path(&mut self) -> Parsed<Path> {
        let mut path = Path::default();
        match self.peek() {
            Some('$') => (path.from_root, self.at) = (true, self.at + 1),
            Some('@') => self.at += 1,
            Some('.' | '[') => {}
            _ => return self.fail("expected a path such as .metadata.name"),
        }
        loop {
            match self.peek() {
                Some('.') => {
                    self.at += 1;
                    if self.peek() == Some('.') {
                        self.at += 1;
                        path.steps.push(Step::Descend);
                    }
                    match self.peek() {
                        Some('*') => {
                            self.at += 1;
                            path.steps.push(Step::Each);
                        }
                        Some('[') => {}
                        _ => match self.name()? {
                            Some(name) => path.steps.push(Step::Fields(vec![name])),
                            // `{.}` and `{@.}` are the current value.
                            None if path.steps.is_empty() => {}
                            None => return self.fail("expected the name of a field"),
                        },
                    }
                }
                Some('[') => {
                    self.at += 1;
                    let step = self.bracket()?;
                    path.steps.push(step);
                }
                _ => return Ok(path),
            }
        }
    }

    /// Reads the name of a field, in which a backslash escapes the next character. `None` if there is no name.
    fn name(&mut self) -> Parsed<Option<String>> {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            match c {
                '\\' => {
                    self.at += 1;
                    let Some(escaped) = self.peek() else { return self.fail("expected a character after \\") };
                    name.push(escaped);
                }
                '.' | '[' | ']' | '}' | '{' | ')' | '(' | '=' | '!' | '<' | '>' | '&' | '|' | '"' | '\'' | ',' => break,
                c if c.is_whitespace() => break,
                c => name.push(c),
            }
            self.at += 1;
        }
        Ok((!name.is_empty()).then_some(name))
    }

    /// Reads the rest of `[…]`, after the opening bracket.
    fn bracket(&mut self) -> Parsed<Step> {
        self.blanks();
        let step = match self.peek() {
            Some('*') => {
                self.at += 1;
                Step::Each
            }
            Some('?') => {
                self.at += 1;
                Step::Filter(Box::new(self.filter()?))
            }
            Some('"' | '\'') => {
                let mut names = Vec::new();
                while let Some(quote @ ('"' | '\'')) = self.peek() {
                    names.push(self.quoted(quote)?);
                    self.blanks();
                    if !self.eat(",") {
                        break;
                    }
                    self.blanks();
                }
                Step::Fields(names)
            }
            _ => self.elements()?,
        };
        self.blanks();
        self.expect(']', "expected ]")?;
        Ok(step)
    }

    fn elements(&mut self) -> Parsed<Step> {
        let start = self.number()?;
        if !self.eat(":") {
            let Some(first) = start else { return self.fail("expected a number, *, a quoted name or ?(…)") };
            let mut indexes = vec![first];
            while self.eat(",") {
                self.blanks();
                let Some(index) = self.number()? else { return self.fail("expected a number") };
                indexes.push(index);
            }
            return Ok(Step::Elements(indexes));
        }
        let end = self.number()?;
        let step = if self.eat(":") { self.number()?.unwrap_or(1) } else { 1 };
        match usize::try_from(step) {
            Ok(step) if step > 0 => Ok(Step::Slice { start, end, step }),
            _ => self.fail("the step of a slice must be greater than 0"),
        }
    }

    fn number(&mut self) -> Parsed<Option<i64>> {
        let text = self.take_while(|c| c == '-' || c.is_ascii_digit());
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).or_else(|_| self.fail(format!("{text:?} is not a number")))
    }

    fn filter(&mut self) -> Parsed<Filter> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.fail(format!("more than {DEEPEST} nested filters"));
        }
        self.expect('(', "expected ( after ?")?;
        let left = self.operand()?;
        self.blanks();
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = comparisons.into_iter().find(|(sign, _)| self.eat(sign));
        let test = match found {
            Some((_, comparison)) => Some((comparison, self.operand()?)),
            None => None,
        };
        self.blanks();
        if matches!(self.peek(), Some('&' | '|')) {
            return self.fail("a filter has one condition; write another filter [?(…)] for the next condition");
        }
        self.expect(')', "expected an operator or )")?;
        self.depth -= 1;
        Ok(Filter { left, test })
    }

    fn operand(&mut self) -> Parsed<Operand> {
        self.blanks();
        match self.peek() {
            Some('@' | '$' | '.') => self.path().map(Operand::Path),
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(|text| Operand::Literal(text.into())),
            _ => {
                let start = self.at;
                let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
                let number = || word.parse().ok().map(Value::Number);
                let float = || word.parse().ok().and_then(Number::from_f64).map(Value::Number);
                let literal = match word.as_str() {
                    "true" => Some(true.into()),
                    "false" => Some(false.into()),
                    _ => number().or_else(float),
                };
                literal.map(Operand::Literal).map_or_else(
                    || {
                        self.at = start;
                        self.fail("expected @.path, a number, true, false or a quoted text")
                    },
                    Ok,
                )
            }
        }
    }
}
