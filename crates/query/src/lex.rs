//! Lexer of the query language: blanks, words, quoted texts, paths, values.

use smol_str::SmolStr;
use winnow::combinator::{alt, opt, peek, preceded, repeat, terminated};
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{LocatingSlice, Location as _, Stateful};
use winnow::token::{any, one_of, take_while};
use winnow::{ModalResult, Parser};

use super::Literal;
use super::decimal::Decimal;
use super::error::{ParseProblem, nearest};
use informer_hub_types::FieldPath;

/// Parser input: the text, the position, and the counters.
pub(super) type Input<'t> = Stateful<LocatingSlice<&'t str>, Count>;

/// Current nesting depth and number of conditions, which have limits.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Count {
    pub(super) depth: usize,
    pub(super) terms: usize,
}

/// A failed parse and its position. Without a `problem`, the text does not have the form that this parser expects, and
/// an alternative parser is tried. With a `problem`, the query is invalid.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) problem: Option<ParseProblem>,
}

impl ParserError<Input<'_>> for Fault {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        Self { at: input.current_token_start(), problem: None }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

pub(super) type Parsed<T> = ModalResult<T, Fault>;

/// Returns an error that ends the parsing of the query: no alternative parser is tried after it.
pub(super) fn fault(at: usize, problem: ParseProblem) -> ErrMode<Fault> {
    ErrMode::Cut(Fault { at, problem: Some(problem) })
}

/// Returns the error that `expected` is missing at the next token. Suggests a similar word of `known`.
pub(super) fn unexpected(input: &Input<'_>, expected: &'static str, known: &[&'static str]) -> ErrMode<Fault> {
    let rest = input.input.trim_start();
    let at = input.current_token_start() + (input.input.len() - rest.len());
    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let (found, suggestion) = match rest.chars().next() {
        None => ("the end".into(), None),
        Some(c) if end == 0 => (smol_str::format_smolstr!("{:?}", SmolStr::from_iter([c])), None),
        Some(_) => {
            let word = &rest[..end];
            let shown = if word.len() > 32 { &word[..32] } else { word };
            (smol_str::format_smolstr!("{shown:?}"), nearest(shown, known).filter(|near| *near != shown))
        }
    };
    fault(at, ParseProblem::Unexpected { expected, found, suggestion })
}

/// Returns whether a character can be in a word. Words are ASCII, so they may be cut at any byte offset.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns whether a character can be in an unquoted value.
pub(super) fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:+@%$".contains(c)
}

pub(super) fn blanks(input: &mut Input<'_>) -> Parsed<()> {
    take_while(0.., char::is_whitespace).void().parse_next(input)
}

/// Returns a parser of the keyword `expected`, as a whole word in upper or lower case.
pub(super) fn word<'t>(expected: &'static str) -> impl Parser<Input<'t>, &'t str, ErrMode<Fault>> {
    preceded(blanks, take_while(1.., is_word)).verify(move |found: &str| found.eq_ignore_ascii_case(expected))
}

/// Returns a parser of the symbol `expected`, such as `(` or `<=`.
pub(super) fn mark<'t>(expected: &'static str) -> impl Parser<Input<'t>, &'t str, ErrMode<Fault>> {
    preceded(blanks, expected)
}

/// Returns whether `parser` would succeed at the current position, without consuming input.
pub(super) fn ahead<'t, O>(input: &mut Input<'t>, parser: impl Parser<Input<'t>, O, ErrMode<Fault>>) -> bool {
    let state = input.state;
    let found = opt(peek(parser)).parse_next(input).is_ok_and(|found| found.is_some());
    input.state = state;
    found
}

fn quoted(input: &mut Input<'_>) -> Parsed<SmolStr> {
    let start = input.current_token_start();
    let quote = one_of(['"', '\'']).parse_next(input)?;
    let mut text = String::new();
    loop {
        let at = input.current_token_start();
        match opt(any).parse_next(input)? {
            None => return Err(fault(start, ParseProblem::OpenQuote)),
            Some(c) if c == quote => return Ok(text.into()),
            Some('\\') => text.push(match opt(any).parse_next(input)? {
                Some(c @ ('\\' | '"' | '\'')) => c,
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(_) => return Err(fault(at, ParseProblem::Escape)),
                None => return Err(fault(start, ParseProblem::OpenQuote)),
            }),
            Some(c) => text.push(c),
        }
    }
}

/// Parses a text. It must be quoted if it has a character that [`is_bare`] rejects.
pub(super) fn text(input: &mut Input<'_>) -> Parsed<SmolStr> {
    let bare = take_while(1.., is_bare).map(SmolStr::new);
    let found = opt(preceded(blanks, alt((quoted, bare)))).parse_next(input)?;
    found.ok_or_else(|| unexpected(input, "a text, in quotes unless it is made of letters, digits and _-./:+@%$", &[]))
}

/// Parses a value, whose syntax determines its kind.
pub(super) fn literal(input: &mut Input<'_>) -> Parsed<Literal> {
    blanks(input)?;
    let at = input.current_token_start();
    if ahead(input, (word("quantity"), mark("("))) {
        (word("quantity"), mark("(")).parse_next(input)?;
        let text = text(input)?;
        close(input, at)?;
        Decimal::quantity(&text).ok_or_else(|| fault(at, ParseProblem::Quantity))?;
        return Ok(Literal::Quantity(text));
    }
    match opt(quoted).parse_next(input)? {
        Some(text) => Ok(Literal::Text(text)),
        None => match opt(take_while(1.., is_bare)).parse_next(input)? {
            Some(bare) => bare_literal(bare).map_err(|problem| fault(at, problem)),
            None => Err(unexpected(input, "a value", &[])),
        },
    }
}

/// Parses a value to compare by size. An unquoted value that starts like a number must be a number, a quantity or a
/// date: `1GB` or `-30d` would otherwise be compared byte by byte.
pub(super) fn sizable_literal(input: &mut Input<'_>) -> Parsed<Literal> {
    blanks(input)?;
    let at = input.current_token_start();
    let is_like_number = input.input.trim_start_matches(['-', '+', '.']).starts_with(|c: char| c.is_ascii_digit());
    match literal(input)? {
        Literal::Text(text) if is_like_number && !is_date(&text) => Err(fault(at, ParseProblem::Size(text))),
        literal => Ok(literal),
    }
}

/// Returns whether a text begins like a date: `2026-01`.
fn is_date(text: &str) -> bool {
    let is_digit = |at: &usize| text.as_bytes().get(*at).is_some_and(u8::is_ascii_digit);
    [0, 1, 2, 3, 5, 6].iter().all(is_digit) && text.as_bytes()[4] == b'-'
}

/// Classifies an unquoted value: `true`, `false`, a JSON number, a quantity, or else a text.
pub(super) fn bare_literal(bare: &str) -> Result<Literal, ParseProblem> {
    match bare {
        "null" => return Err(ParseProblem::Null),
        "true" => return Ok(Literal::Bool(true)),
        "false" => return Ok(Literal::Bool(false)),
        _ => {}
    }
    if let Ok(number) = serde_json::from_str::<serde_json::Number>(bare) {
        // A large integer becomes a quantity, which keeps its last digits.
        let exact = |text: &str| text.parse::<i128>().is_ok_and(|int| int.unsigned_abs() <= 1 << 53);
        let is_integer = bare.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        return match number.as_f64() {
            Some(float) if !is_integer || exact(bare) => Ok(Literal::Number(float)),
            _ if Decimal::quantity(bare).is_some() => Ok(Literal::Quantity(bare.into())),
            _ => Err(ParseProblem::Number),
        };
    }
    match Decimal::quantity(bare) {
        Some(_) => Ok(Literal::Quantity(bare.into())),
        None => Ok(Literal::Text(bare.into())),
    }
}

/// Parses a closing parenthesis. `start` is the position of the opening one, which the error names if the text ends.
pub(super) fn close(input: &mut Input<'_>, start: usize) -> Parsed<()> {
    match opt(mark(")")).parse_next(input)? {
        Some(_) => Ok(()),
        None => Err(unclosed(input, start, "\")\"")),
    }
}

/// Returns the error for a missing token, described by `expected`, inside a parenthesis. If the text has ended, the
/// error is instead that the parenthesis opened at `start` is not closed.
pub(super) fn unclosed(input: &Input<'_>, start: usize, expected: &'static str) -> ErrMode<Fault> {
    if input.input.trim_start().is_empty() {
        return fault(start, ParseProblem::OpenParenthesis);
    }
    unexpected(input, expected, &[])
}

/// Parses a list `(a, b)` or `[a, b]` of any length.
pub(super) fn list<'t, T>(input: &mut Input<'t>, item: fn(&mut Input<'t>) -> Parsed<T>) -> Parsed<Vec<T>> {
    blanks(input)?;
    let start = input.current_token_start();
    let Some(open) = opt(one_of(['(', '['])).parse_next(input)? else {
        return Err(unexpected(input, "a list in parentheses, such as (a, b)", &[]));
    };
    let end = if open == '(' { ")" } else { "]" };
    let mut items = Vec::new();
    if opt(mark(end)).parse_next(input)?.is_some() {
        return Ok(items);
    }
    loop {
        items.push(item(input)?);
        if opt(mark(end)).parse_next(input)?.is_some() {
            return Ok(items);
        }
        if opt(mark(",")).parse_next(input)?.is_none() {
            return Err(unclosed(input, start, "a comma or the end of the list"));
        }
    }
}

/// Parses the longest text that may be a path, without checking its syntax.
pub(super) fn path_text<'t>(input: &mut Input<'t>) -> Parsed<&'t str> {
    let stops = |c: char| c.is_whitespace() || "=!<>(),[\"'&|".contains(c);
    let escaped = |quote: char| repeat::<_, _, (), _, _>(0.., alt((('\\', any).void(), none_of(&['\\', quote]))));
    let name = |quote: char| (quote, escaped(quote), opt(quote)).void();
    let other = repeat::<_, _, (), _, _>(0.., none_of(&[']', ' ', '"', '\'']));
    let bracket = ('[', alt((name('"'), name('\''), other)), opt(']')).void();
    let step = alt((take_while(1.., move |c| !stops(c)).void(), bracket));
    preceded(blanks, repeat::<_, _, (), _, _>(1.., step).take()).parse_next(input)
}

fn none_of<'t>(excluded: &[char]) -> impl Parser<Input<'t>, (), ErrMode<Fault>> + use<'t> {
    let excluded: Vec<char> = excluded.to_vec();
    any.verify(move |c| !excluded.contains(c)).void()
}

pub(super) fn path(input: &mut Input<'_>) -> Parsed<FieldPath> {
    blanks(input)?;
    let at = input.current_token_start();
    match opt(path_text).parse_next(input)? {
        Some(text) => read_path(text, at),
        None => Err(unexpected(input, "a path, such as spec.nodeName", &[])),
    }
}

/// Parses the text of a path. `at` is its position, for errors.
pub(super) fn read_path(text: &str, at: usize) -> Parsed<FieldPath> {
    text.parse()
        .map_err(|wrong: informer_hub_types::InvalidPath| fault(at + wrong.at, ParseProblem::Path(wrong.problem)))
}

pub(super) fn at_end(input: &mut Input<'_>) -> bool {
    input.input.trim_start().is_empty()
}

/// Returns the next path or word, without consuming it.
pub(super) fn peek_path<'t>(input: &mut Input<'t>) -> Parsed<&'t str> {
    peek(terminated(path_text, blanks)).parse_next(input)
}
