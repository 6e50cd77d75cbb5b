//! The smallest parts of the text form: blanks, words, quoted texts, paths, values.

use smol_str::SmolStr;
use winnow::combinator::{alt, opt, peek, preceded, repeat, terminated};
use winnow::error::{ErrMode, ParserError};
use winnow::stream::{LocatingSlice, Location as _, Stateful};
use winnow::token::{any, one_of, take_while};
use winnow::{ModalResult, Parser};

use super::Literal;
use super::decimal::Decimal;
use super::error::{Mistake, nearest};
use informer_hub_types::FieldPath;

/// What parsers read from: the text, how far they are, and what they have counted.
pub(super) type Input<'t> = Stateful<LocatingSlice<&'t str>, Count>;

/// What is bounded.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Count {
    pub(super) depth: usize,
    pub(super) terms: usize,
}

/// A mistake and where it is. One without a mistake is a parser that found nothing of its own: another may.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) mistake: Option<Mistake>,
}

impl ParserError<Input<'_>> for Fault {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        Self { at: input.current_token_start(), mistake: None }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

pub(super) type Parsed<T> = ModalResult<T, Fault>;

/// A mistake that no other parser can make good.
pub(super) fn fault(at: usize, mistake: Mistake) -> ErrMode<Fault> {
    ErrMode::Cut(Fault { at, mistake: Some(mistake) })
}

/// Something else should stand at the next token: `expected`, perhaps one of the words in `known`.
pub(super) fn unexpected(input: &Input<'_>, expected: &'static str, known: &[&'static str]) -> ErrMode<Fault> {
    let rest = input.input.trim_start();
    let at = input.current_token_start() + (input.input.len() - rest.len());
    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let (found, meant) = match rest.chars().next() {
        None => ("the end".into(), None),
        Some(c) if end == 0 => (smol_str::format_smolstr!("{:?}", SmolStr::from_iter([c])), None),
        Some(_) => {
            let word = &rest[..end];
            let shown = if word.len() > 32 { &word[..32] } else { word };
            (smol_str::format_smolstr!("{shown:?}"), nearest(shown, known))
        }
    };
    fault(at, Mistake::Unexpected { expected, found, meant })
}

/// ASCII only, so that a word may be cut anywhere.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// What a value may be made of without quotes.
pub(super) fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:+@%$".contains(c)
}

pub(super) fn blanks(input: &mut Input<'_>) -> Parsed<()> {
    take_while(0.., char::is_whitespace).void().parse_next(input)
}

/// A word of the language, whatever its case, where no letter or digit follows.
pub(super) fn word<'t>(wanted: &'static str) -> impl Parser<Input<'t>, &'t str, ErrMode<Fault>> {
    preceded(blanks, take_while(1.., is_word)).verify(move |found: &str| found.eq_ignore_ascii_case(wanted))
}

/// A mark such as `(` or `<=`.
pub(super) fn mark<'t>(wanted: &'static str) -> impl Parser<Input<'t>, &'t str, ErrMode<Fault>> {
    preceded(blanks, wanted)
}

/// Whether a parser would succeed here; nothing is taken.
pub(super) fn ahead<'t, O>(input: &mut Input<'t>, parser: impl Parser<Input<'t>, O, ErrMode<Fault>>) -> bool {
    let state = input.state;
    let found = opt(peek(parser)).parse_next(input).is_ok_and(|found| found.is_some());
    input.state = state;
    found
}

/// A text in either quotes.
fn quoted(input: &mut Input<'_>) -> Parsed<SmolStr> {
    let start = input.current_token_start();
    let quote = one_of(['"', '\'']).parse_next(input)?;
    let mut text = String::new();
    loop {
        let at = input.current_token_start();
        match opt(any).parse_next(input)? {
            None => return Err(fault(start, Mistake::OpenQuote)),
            Some(c) if c == quote => return Ok(text.into()),
            Some('\\') => text.push(match opt(any).parse_next(input)? {
                Some(c @ ('\\' | '"' | '\'')) => c,
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(_) => return Err(fault(at, Mistake::Escape)),
                None => return Err(fault(start, Mistake::OpenQuote)),
            }),
            Some(c) => text.push(c),
        }
    }
}

/// A text, in quotes where it needs them.
pub(super) fn text(input: &mut Input<'_>) -> Parsed<SmolStr> {
    let bare = take_while(1.., is_bare).map(SmolStr::new);
    let found = opt(preceded(blanks, alt((quoted, bare)))).parse_next(input)?;
    found.ok_or_else(|| unexpected(input, "a text, in quotes unless it is made of letters, digits and _-./:+@%$", &[]))
}

/// A value of any kind, told apart by how it looks.
pub(super) fn literal(input: &mut Input<'_>) -> Parsed<Literal> {
    blanks(input)?;
    let at = input.current_token_start();
    if ahead(input, (word("quantity"), mark("("))) {
        (word("quantity"), mark("(")).parse_next(input)?;
        let text = text(input)?;
        close(input, at)?;
        Decimal::quantity(&text).ok_or_else(|| fault(at, Mistake::Quantity))?;
        return Ok(Literal::Quantity(text));
    }
    match opt(quoted).parse_next(input)? {
        Some(text) => Ok(Literal::Text(text)),
        None => match opt(take_while(1.., is_bare)).parse_next(input)? {
            Some(bare) => bare_literal(bare).map_err(|mistake| fault(at, mistake)),
            None => Err(unexpected(input, "a value", &[])),
        },
    }
}

/// What a value without quotes is: `true`, `false`, a number of JSON, a quantity, or else a text.
pub(super) fn bare_literal(bare: &str) -> Result<Literal, Mistake> {
    match bare {
        "null" => return Err(Mistake::Null),
        "true" => return Ok(Literal::Bool(true)),
        "false" => return Ok(Literal::Bool(false)),
        _ => {}
    }
    if let Ok(number) = serde_json::from_str::<serde_json::Number>(bare) {
        // An integer that would lose its last digits as a number keeps them as a quantity.
        let exact = |text: &str| text.parse::<i128>().is_ok_and(|int| int.unsigned_abs() <= 1 << 53);
        let is_integer = bare.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        return match number.as_f64() {
            Some(float) if !is_integer || exact(bare) => Ok(Literal::Number(float)),
            _ if Decimal::quantity(bare).is_some() => Ok(Literal::Quantity(bare.into())),
            _ => Err(Mistake::Number),
        };
    }
    match Decimal::quantity(bare) {
        Some(_) => Ok(Literal::Quantity(bare.into())),
        None => Ok(Literal::Text(bare.into())),
    }
}

/// The end of a parenthesis that was opened at `start`.
pub(super) fn close(input: &mut Input<'_>, start: usize) -> Parsed<()> {
    match opt(mark(")")).parse_next(input)? {
        Some(_) => Ok(()),
        None => Err(unclosed(input, start, "\")\"")),
    }
}

/// What opened at `start` goes on neither with what is `expected` nor at all.
pub(super) fn unclosed(input: &Input<'_>, start: usize, expected: &'static str) -> ErrMode<Fault> {
    if input.input.trim_start().is_empty() {
        return fault(start, Mistake::OpenParenthesis);
    }
    unexpected(input, expected, &[])
}

/// `(a, b)` or `[a, b]`, of any number of items.
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

/// The text of a path, as far as it reaches; whether it is one is not looked at.
pub(super) fn path_text<'t>(input: &mut Input<'t>) -> Parsed<&'t str> {
    let stops = |c: char| c.is_whitespace() || "=!<>(),[\"'&|".contains(c);
    let escaped = |quote: char| repeat::<_, _, (), _, _>(0.., alt((('\\', any).void(), any_but(&['\\', quote]))));
    let name = |quote: char| (quote, escaped(quote), opt(quote)).void();
    let other = repeat::<_, _, (), _, _>(0.., any_but(&[']', ' ', '"', '\'']));
    let bracket = ('[', alt((name('"'), name('\''), other)), opt(']')).void();
    let step = alt((take_while(1.., move |c| !stops(c)).void(), bracket));
    preceded(blanks, repeat::<_, _, (), _, _>(1.., step).take()).parse_next(input)
}

fn any_but<'t>(these: &[char]) -> impl Parser<Input<'t>, (), ErrMode<Fault>> + use<'t> {
    let these: Vec<char> = these.to_vec();
    any.verify(move |c| !these.contains(c)).void()
}

/// A path.
pub(super) fn path(input: &mut Input<'_>) -> Parsed<FieldPath> {
    blanks(input)?;
    let at = input.current_token_start();
    match opt(path_text).parse_next(input)? {
        Some(text) => read_path(text, at),
        None => Err(unexpected(input, "a path, such as spec.nodeName", &[])),
    }
}

/// The path that stands at `at`.
pub(super) fn read_path(text: &str, at: usize) -> Parsed<FieldPath> {
    text.parse().map_err(|wrong: informer_hub_types::InvalidPath| fault(at + wrong.at, Mistake::Path(wrong.problem)))
}

/// Nothing but blanks until the end.
pub(super) fn at_end(input: &mut Input<'_>) -> bool {
    input.input.trim_start().is_empty()
}

/// A word that is no part of the language, as it is written.
pub(super) fn peek_path<'t>(input: &mut Input<'t>) -> Parsed<&'t str> {
    peek(terminated(path_text, blanks)).parse_next(input)
}
