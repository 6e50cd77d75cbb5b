//! Display of queries as text. Parsing the text gives the same query.
//!
//! An empty `and` and an empty `or` have no syntax: they are written as `all` and `not all`. A number that is infinite
//! or NaN has no syntax either, and does not parse back.

use std::fmt::{self, Display, Formatter, Write as _};

use super::lex::{bare_literal, is_bare};
use super::words::{CLAUSES, OPERATORS, TERMS, is_likely_typo};
use super::{Column, Direction, Expr, Literal, Output, Question, Test, TextTest};
use informer_hub_types::{ClusterSelector, Condition, FieldPath, LabelSelector, Segment};

impl Display for Question {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut clauses = Clauses { f, any: false };
        if self.condition != Expr::All {
            clauses.put(&self.condition)?;
        }
        match &self.output {
            Output::Objects => {}
            Output::Columns(columns) if columns.is_empty() => {}
            Output::Columns(columns) => clauses.put(&format_args!("select {}", List(columns)))?,
            Output::Count => clauses.put(&"count")?,
            Output::CountBy(column) => clauses.put(&format_args!("count by {column}"))?,
            Output::Distinct(column) => clauses.put(&format_args!("distinct {column}"))?,
        }
        if !self.order.is_empty() {
            let order: Vec<_> = self.order.iter().map(|(column, direction)| Ordered(column, *direction)).collect();
            clauses.put(&format_args!("order by {}", List(&order)))?;
        }
        if let Some(limit) = self.limit {
            clauses.put(&format_args!("limit {limit}"))?;
        }
        if let Some(token) = &self.continue_token {
            clauses.put(&format_args!("continue {}", Quoted(token)))?;
        }
        if clauses.any { Ok(()) } else { f.write_str("all") }
    }
}

struct Clauses<'f, 'b> {
    f: &'f mut Formatter<'b>,
    any: bool,
}

impl Clauses<'_, '_> {
    fn put(&mut self, clause: &dyn Display) -> fmt::Result {
        if std::mem::replace(&mut self.any, true) {
            self.f.write_str(" ")?;
        }
        clause.fmt(self.f)
    }
}

struct Ordered<'a>(&'a Column, Direction);

impl Display for Ordered<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        f.write_str(if self.1 == Direction::Descending { " desc" } else { "" })
    }
}

impl Display for Column {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Path(path) => Path(path).fmt(f),
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Or(exprs) if exprs.is_empty() => f.write_str("not all"),
            Self::And(exprs) if exprs.is_empty() => f.write_str("all"),
            Self::And(exprs) | Self::Or(exprs) if exprs.len() == 1 => exprs[0].fmt(f),
            Self::And(exprs) => joined(f, exprs, " and ", |expr| precedence(expr) > 0),
            Self::Or(exprs) => joined(f, exprs, " or ", |expr| precedence(expr) > 1),
            Self::Not(expr) => {
                f.write_str("not ")?;
                parenthesised_if(f, expr, precedence(expr) > 0)
            }
            Self::Cluster(selector) => cluster(f, selector),
            Self::Namespace(test) => texts(f, "namespace", test),
            Self::Name(test) => texts(f, "name", test),
            Self::Labels(selector) => write!(f, "labels({})", expressible(selector)),
            Self::Index { index, values } => names(f, &format_args!("index {}", Name(index)), values.iter().map(Name)),
            Self::Uid(uid) => write!(f, "uid = {}", Name(&uid.to_string())),
            Self::OwnedBy(uid) => write!(f, "owned-by {}", Name(&uid.to_string())),
            Self::Field { path, test } => write!(f, "{} {test}", Path(path)),
        }
    }
}

/// Returns how loosely an operator binds: 0 for a single condition, 1 for `and`, 2 for `or`.
fn precedence(expr: &Expr) -> u8 {
    match expr {
        Expr::And(exprs) | Expr::Or(exprs) if exprs.len() == 1 => precedence(&exprs[0]),
        Expr::And(exprs) if !exprs.is_empty() => 1,
        Expr::Or(exprs) if !exprs.is_empty() => 2,
        _ => 0,
    }
}

fn joined(f: &mut Formatter<'_>, exprs: &[Expr], by: &str, parenthesise: fn(&Expr) -> bool) -> fmt::Result {
    for (i, expr) in exprs.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { by })?;
        parenthesised_if(f, expr, parenthesise(expr))?;
    }
    Ok(())
}

fn parenthesised_if(f: &mut Formatter<'_>, expr: &Expr, parenthesise: bool) -> fmt::Result {
    if parenthesise { write!(f, "({expr})") } else { expr.fmt(f) }
}

fn cluster(f: &mut Formatter<'_>, selector: &ClusterSelector) -> fmt::Result {
    match selector {
        ClusterSelector::All => f.write_str("cluster()"),
        ClusterSelector::Names(wanted) => names(f, &"cluster", wanted.iter()),
        ClusterSelector::Labels(labels) => {
            f.write_str("cluster(")?;
            for (i, (key, value)) in labels.iter().enumerate() {
                write!(f, "{}{}={}", if i == 0 { "" } else { ", " }, Name(key), Name(value))?;
            }
            f.write_str(")")
        }
    }
}

fn texts(f: &mut Formatter<'_>, what: &str, test: &TextTest) -> fmt::Result {
    match test {
        TextTest::In(texts) => names(f, &what, texts.iter().map(Name)),
        TextTest::Prefix(start) => write!(f, "{what} prefix {}", Name(start)),
    }
}

fn names(f: &mut Formatter<'_>, what: &dyn Display, names: impl ExactSizeIterator<Item: Display>) -> fmt::Result {
    let names: Vec<_> = names.collect();
    match names.as_slice() {
        [name] => write!(f, "{what} = {name}"),
        names => write!(f, "{what} in ({})", List(names)),
    }
}

/// Returns an equivalent selector without empty sets of values, for which the grammar has no syntax.
fn expressible(selector: &LabelSelector) -> LabelSelector {
    let requirements = selector.requirements();
    if requirements.iter().any(|of| matches!(&of.condition, Condition::In(values) if values.is_empty())) {
        return LabelSelector::nothing();
    }
    let is_expressible = |condition: &Condition| !matches!(condition, Condition::NotIn(values) if values.is_empty());
    requirements.iter().filter(|of| is_expressible(&of.condition)).cloned().collect()
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(literal) => write!(f, "= {literal}"),
            Self::IsNot(literal) => write!(f, "!= {literal}"),
            Self::In(literals) => write!(f, "in ({})", List(literals)),
            Self::NotIn(literals) => write!(f, "not in ({})", List(literals)),
            Self::Less(literal) => write!(f, "< {literal}"),
            Self::AtMost(literal) => write!(f, "<= {literal}"),
            Self::More(literal) => write!(f, "> {literal}"),
            Self::AtLeast(literal) => write!(f, ">= {literal}"),
            Self::Contains(text) => write!(f, "contains {}", Quoted(text)),
            Self::Prefix(text) => write!(f, "prefix {}", Quoted(text)),
            Self::Exists => f.write_str("exists"),
        }
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            // A larger integer would be parsed as a quantity, to keep its last digits.
            Self::Number(value) if value.abs() > 9_007_199_254_740_992.0 => write!(f, "{value:e}"),
            Self::Number(value) => value.fmt(f),
            Self::Text(text) => Quoted(text).fmt(f),
            Self::Quantity(text) => match bare_literal(text) {
                Ok(Self::Quantity(_)) => f.write_str(text),
                _ => write!(f, "quantity({})", Quoted(text)),
            },
        }
    }
}

struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            item.fmt(f)?;
        }
        Ok(())
    }
}

/// Formatter of a text, which is quoted if necessary.
struct Name<T>(T);

impl<T: AsRef<str>> Display for Name<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = self.0.as_ref();
        let is_plain = !text.is_empty() && text.chars().all(is_bare);
        if is_plain { f.write_str(text) } else { Quoted(text).fmt(f) }
    }
}

struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A field path as text. In two cases, the name of its first field is written in brackets, such as `['select']`:
///
/// - The path has only this field, and the name is a keyword or is spelled nearly like one.
/// - The name is that of an operator. Without brackets, `select in.x` would be parsed as the field `select` and the
///   operator `in`.
struct Path<'a>(&'a FieldPath);

impl Display for Path<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_any = |name: &str, words: &[&str]| words.iter().any(|word| name.eq_ignore_ascii_case(word));
        let is_word = |name: &str| [TERMS, CLAUSES, &["and", "or"]].iter().any(|words| is_any(name, words));
        let text = self.0.to_string();
        match self.0.segments() {
            [Segment::Field(name)] if is_word(name) || is_likely_typo(name) => write!(f, "['{name}']"),
            [Segment::Field(name), ..] if is_any(name, OPERATORS) => {
                write!(f, "['{name}']{}", text.strip_prefix(name.as_str()).unwrap_or_default())
            }
            _ => f.write_str(&text),
        }
    }
}
