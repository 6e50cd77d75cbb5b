//! Parser of query texts: the grammar, and the limits on length, nesting and number of conditions.
//!
//! ```text
//! question  = [condition] { "order" "by" column ["asc"|"desc"] {"," …} | "limit" number | "continue" text | output }
//! output    = "select" column {"," column} | "count" ["by" column] | "distinct" column
//! column    = "cluster" | "namespace" | "name" | "uid" | path
//! condition = all {("or" | "||") all}         all = unary {("and" | "&&") unary}
//! unary     = ("not" | "!") unary | "(" condition ")" | "all" | head | path test
//! head      = "cluster" "(" key "=" value {"," …} ")" | "cluster" names | "labels" "(" selector ")"
//!           | ("namespace" | "name") texts | "uid" names | "index" name names | "owned-by" ["="] text
//! names     = ("=" | "==" | "!=") text | ["not"] "in" list            texts = names | ["not"] "prefix" text
//! test      = ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value | ["not"] "in" list
//!           | ["not"] ("contains" | "prefix") text | ["not"] "exists"
//! ```

use std::num::NonZeroUsize;
use std::str::FromStr;

use smol_str::SmolStr;
use winnow::combinator::{alt, opt};
use winnow::error::ErrMode;
use winnow::stream::{LocatingSlice, Location as _, Stateful};
use winnow::{ModalResult, Parser};

use super::error::{InvalidQuestion, ParseProblem, boundary};
use super::lex::{
    Count, Fault, Input, Parsed, ahead, at_end, blanks, fault, mark, path, peek_path, text, unexpected, word,
};
use super::words::CLAUSES;
use super::{Column, Direction, Expr, Output, Question, terms};

/// Longest query text, in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// Deepest nesting of parentheses and `not` in a query text.
const MAX_DEPTH: usize = 64;
/// Largest number of conditions in a query text.
const MAX_TERMS: usize = 1_000;

impl FromStr for Question {
    type Err = InvalidQuestion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, question)
    }
}

impl FromStr for Expr {
    type Err = InvalidQuestion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let whole = |input: &mut Input<'_>| {
            let condition = if at_end(input) { Self::All } else { condition(input)? };
            if !at_end(input) {
                return Err(unexpected(input, "and, or, or the end", &["and", "or"]));
            }
            Ok(condition)
        };
        parse(text, whole)
    }
}

fn parse<T>(text: &str, parser: impl Fn(&mut Input<'_>) -> Parsed<T>) -> Result<T, InvalidQuestion> {
    let error_at = |text: &str, at, problem| InvalidQuestion { text: text.to_owned(), at, problem };
    if text.len() > MAX_TEXT {
        let start = &text[..boundary(text, MAX_TEXT)];
        return Err(error_at(start, start.len(), ParseProblem::TooLong { max: MAX_TEXT }));
    }
    let mut input = Stateful { input: LocatingSlice::new(text), state: Count::default() };
    let problem_of = |error| match error {
        ErrMode::Cut(Fault { at, problem: Some(problem) }) => Some((at, problem)),
        _ => None,
    };
    // A fallback, although every parser error should have a problem.
    let fallback = |input: &Input<'_>| {
        problem_of(unexpected(input, "something else", &[])).unwrap_or((0, ParseProblem::OpenQuote))
    };
    parser(&mut input).map_err(|error| {
        let (at, problem) = problem_of(error).unwrap_or_else(|| fallback(&input));
        error_at(text, at, problem)
    })
}

fn question(input: &mut Input<'_>) -> Parsed<Question> {
    let mut question = Question::default();
    let starts_with_condition = !at_end(input) && !starts_clause(input);
    if starts_with_condition {
        question.condition = condition(input)?;
    }
    let mut seen_clauses = SeenClauses::default();
    while !at_end(input) {
        clause(input, &mut question, &mut seen_clauses, starts_with_condition)?;
    }
    Ok(question)
}

/// Returns whether the next word is a keyword that begins a clause, such as `order`. If an operator follows the word,
/// it is a field name instead.
fn starts_clause(input: &mut Input<'_>) -> bool {
    let is_clause = peek_path(input).is_ok_and(|text| CLAUSES.iter().any(|clause| text.eq_ignore_ascii_case(clause)));
    is_clause && !ahead(input, (super::lex::path_text, terms::operator))
}

/// Clauses parsed so far, to detect repetitions.
type SeenClauses = Vec<&'static str>;

fn once(seen_clauses: &mut SeenClauses, at: usize, what: &'static str) -> Parsed<()> {
    if seen_clauses.contains(&what) {
        return Err(fault(at, ParseProblem::ClauseTwice(what)));
    }
    seen_clauses.push(what);
    Ok(())
}

fn clause(
    input: &mut Input<'_>,
    question: &mut Question,
    seen_clauses: &mut SeenClauses,
    after_condition: bool,
) -> Parsed<()> {
    blanks(input)?;
    let at = input.current_token_start();
    let mut clause = opt(alt((
        word("order").value("order"),
        word("limit").value("limit"),
        word("continue").value("continue"),
        word("select").value("select"),
        word("count").value("count"),
        word("distinct").value("distinct"),
    )));
    let output = "an output (one of select, count, distinct)";
    match clause.parse_next(input)? {
        Some("order") => {
            once(seen_clauses, at, "order by")?;
            expect_by(input)?;
            question.order = separated(input, ordered)?;
        }
        Some("limit") => {
            once(seen_clauses, at, "limit")?;
            question.limit = Some(limit(input)?);
        }
        Some("continue") => {
            once(seen_clauses, at, "continue")?;
            question.continue_token = Some(text(input)?);
        }
        Some("select") => {
            once(seen_clauses, at, output)?;
            question.output = Output::Columns(separated(input, column)?);
        }
        Some("count") => {
            once(seen_clauses, at, output)?;
            question.output = match opt(word("by")).parse_next(input)? {
                Some(_) => Output::CountBy(column(input)?),
                None => Output::Count,
            };
        }
        Some(_) => {
            once(seen_clauses, at, output)?;
            question.output = Output::Distinct(column(input)?);
        }
        None => return Err(expected_clause(input, seen_clauses, after_condition)),
    }
    Ok(())
}

fn expected_clause(input: &Input<'_>, seen_clauses: &[&str], after_condition: bool) -> ErrMode<Fault> {
    if after_condition && seen_clauses.is_empty() {
        let known = [&["and", "or"], CLAUSES].concat();
        return unexpected(
            input,
            "and, or, a clause (order by, limit, continue, select, count, distinct) or the end",
            &known,
        );
    }
    unexpected(input, "a clause (order by, limit, continue, select, count, distinct) or the end", CLAUSES)
}

fn expect_by(input: &mut Input<'_>) -> Parsed<()> {
    match opt(word("by")).parse_next(input)? {
        Some(_) => Ok(()),
        None => Err(unexpected(input, "by", &["by"])),
    }
}

fn limit(input: &mut Input<'_>) -> Parsed<NonZeroUsize> {
    blanks(input)?;
    let at = input.current_token_start();
    let text: SmolStr = text(input)?;
    text.parse().map_err(|_| fault(at, ParseProblem::Limit))
}

/// Parses one or more items separated by commas.
fn separated<'t, T>(input: &mut Input<'t>, item: fn(&mut Input<'t>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let mut items = vec![item(input)?];
    while opt(mark(",")).parse_next(input)?.is_some() {
        items.push(item(input)?);
    }
    Ok(items)
}

/// Parses a column: a path, or the short name of a field in the head.
fn column(input: &mut Input<'_>) -> Parsed<Column> {
    let short = peek_path(input).unwrap_or_default().to_ascii_lowercase();
    let field = match short.as_str() {
        "cluster" => return word("cluster").value(Column::Cluster).parse_next(input),
        "name" => "metadata.name",
        "namespace" => "metadata.namespace",
        "uid" => "metadata.uid",
        _ => return Ok(Column::Path(path(input)?)),
    };
    let at = input.current_token_start();
    path(input)?;
    Ok(Column::Path(super::lex::read_path(field, at)?))
}

fn ordered(input: &mut Input<'_>) -> Parsed<(Column, Direction)> {
    let column = column(input)?;
    let mut direction = opt(alt((
        word("asc").value(Direction::Ascending),
        word("ascending").value(Direction::Ascending),
        word("desc").value(Direction::Descending),
        word("descending").value(Direction::Descending),
    )));
    Ok((column, direction.parse_next(input)?.unwrap_or_default()))
}

/// Parses a condition. `and` binds tighter than `or`.
pub(super) fn condition(input: &mut Input<'_>) -> Parsed<Expr> {
    let or = |input: &mut Input<'_>| opt(alt((word("or").void(), mark("||").void()))).parse_next(input);
    let and = |input: &mut Input<'_>| opt(alt((word("and").void(), mark("&&").void()))).parse_next(input);
    joined(input, or, Expr::Or, |input| joined(input, and, Expr::And, unary))
}

fn joined<'t>(
    input: &mut Input<'t>,
    separator: impl Fn(&mut Input<'t>) -> ModalResult<Option<()>, Fault>,
    join: fn(Vec<Expr>) -> Expr,
    item: impl Fn(&mut Input<'t>) -> Parsed<Expr>,
) -> Parsed<Expr> {
    let first = item(input)?;
    if separator(input)?.is_none() {
        return Ok(first);
    }
    let mut exprs = vec![first, item(input)?];
    while separator(input)?.is_some() {
        exprs.push(item(input)?);
    }
    Ok(join(exprs))
}

fn unary(input: &mut Input<'_>) -> Parsed<Expr> {
    blanks(input)?;
    let at = input.current_token_start();
    // `not.x` is a path, not the keyword.
    let is_not_keyword = peek_path(input).is_ok_and(|first| first.eq_ignore_ascii_case("not"));
    let not = opt(alt((word("not").verify(|_: &str| is_not_keyword).void(), mark("!").void()))).parse_next(input)?;
    if not.is_some() {
        return nested(input, at, |input| Ok(Expr::Not(Box::new(unary(input)?))));
    }
    if opt(mark("(")).parse_next(input)?.is_some() {
        return nested(input, at, |input| {
            let inner = condition(input)?;
            close(input, at)?;
            Ok(inner)
        });
    }
    input.state.terms += 1;
    if input.state.terms > MAX_TERMS {
        return Err(fault(at, ParseProblem::TooManyTerms { max: MAX_TERMS }));
    }
    terms::term(input)
}

fn close(input: &mut Input<'_>, start: usize) -> Parsed<()> {
    match opt(mark(")")).parse_next(input)? {
        Some(_) => Ok(()),
        None if at_end(input) => Err(fault(start, ParseProblem::OpenParenthesis)),
        None => Err(unexpected(input, "and, or, or \")\"", &["and", "or"])),
    }
}

fn nested<'t>(input: &mut Input<'t>, at: usize, inner: impl Fn(&mut Input<'t>) -> Parsed<Expr>) -> Parsed<Expr> {
    input.state.depth += 1;
    if input.state.depth > MAX_DEPTH {
        return Err(fault(at, ParseProblem::TooDeep { max: MAX_DEPTH }));
    }
    let expr = inner(input)?;
    input.state.depth -= 1;
    Ok(expr)
}
