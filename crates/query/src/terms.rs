//! Parser of single conditions of a query.

use smol_str::SmolStr;
use winnow::Parser;
use winnow::combinator::{alt, opt};
use winnow::error::ErrMode;
use winnow::stream::Location as _;
use winnow::token::take;

use super::error::{ParseProblem, nearest};
use super::lex::{
    Fault, Input, Parsed, ahead, blanks, close, fault, list, literal, mark, path, peek_path, sizable_literal, text,
    unclosed, unexpected, word,
};
use super::words::{DISTINCTIVE, OPERATORS, TERMS, is_likely_typo};
use super::{Expr, Literal, Test, TextTest};
use informer_hub_types::{
    ClusterLabels, ClusterName, ClusterSelector, InvalidName, InvalidSelector, LabelSelector, Uid,
};

/// Operator between a field and a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operator {
    Is,
    IsNot,
    In,
    NotIn,
    Less,
    AtMost,
    More,
    AtLeast,
    Contains,
    NotContains,
    Prefix,
    NotPrefix,
    Exists,
    NotExists,
}

pub(super) fn operator(input: &mut Input<'_>) -> Parsed<Operator> {
    let marks = alt((
        alt((mark("=="), mark("="))).value(Operator::Is),
        mark("!=").value(Operator::IsNot),
        mark("<=").value(Operator::AtMost),
        mark("<").value(Operator::Less),
        mark(">=").value(Operator::AtLeast),
        mark(">").value(Operator::More),
    ));
    let words = alt((
        word("in").value(Operator::In),
        alt((word("notin").void(), (word("not"), word("in")).void())).value(Operator::NotIn),
        (word("not"), word("exists")).value(Operator::NotExists),
        (word("not"), word("contains")).value(Operator::NotContains),
        (word("not"), word("prefix")).value(Operator::NotPrefix),
        word("contains").value(Operator::Contains),
        word("prefix").value(Operator::Prefix),
        word("exists").value(Operator::Exists),
    ));
    alt((marks, words)).parse_next(input)
}

/// Parses one condition: a keyword and its arguments, or a path and a test.
pub(super) fn term(input: &mut Input<'_>) -> Parsed<Expr> {
    let first = peek_path(input).unwrap_or_default().to_ascii_lowercase();
    match first.as_str() {
        "all" => word("all").value(Expr::All).parse_next(input),
        "cluster" => {
            word("cluster").parse_next(input)?;
            cluster(input)
        }
        "namespace" => {
            word("namespace").parse_next(input)?;
            texts(input, Expr::Namespace)
        }
        "name" => {
            word("name").parse_next(input)?;
            texts(input, Expr::Name)
        }
        "labels" => {
            word("labels").parse_next(input)?;
            labels(input)
        }
        "index" => {
            word("index").parse_next(input)?;
            let index = text(input)?;
            let expr_of = |values| Expr::Index { index: index.clone(), values };
            names(input, "one of = != in \"not in\"", &["in", "not"], text, expr_of)
        }
        "uid" => {
            word("uid").parse_next(input)?;
            let one_of = |mut uids: Vec<Uid>| match uids.len() {
                1 => Expr::Uid(uids.remove(0)),
                _ => Expr::Or(uids.into_iter().map(Expr::Uid).collect()),
            };
            names(input, "one of = != in \"not in\"", &["in", "not"], uid, one_of)
        }
        "owned-by" => {
            (word("owned-by"), opt(alt((mark("=="), mark("="))))).parse_next(input)?;
            Ok(Expr::OwnedBy(uid(input)?))
        }
        "" => Err(unexpected(input, "a condition", TERMS)),
        _ => field(input),
    }
}

fn uid(input: &mut Input<'_>) -> Parsed<Uid> {
    Ok(Uid::new(&text(input)?))
}

fn negated(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

/// Parses `= x`, `!= x`, `in (x, y)` or `not in (x, y)`.
fn names<'t, T>(
    input: &mut Input<'t>,
    expected: &'static str,
    known: &[&'static str],
    item: fn(&mut Input<'t>) -> Parsed<T>,
    make: impl Fn(Vec<T>) -> Expr,
) -> Parsed<Expr> {
    let before = *input;
    match opt(operator).parse_next(input)? {
        Some(Operator::Is) => Ok(make(vec![item(input)?])),
        Some(Operator::IsNot) => Ok(negated(make(vec![item(input)?]))),
        Some(Operator::In) => Ok(make(list(input, item)?)),
        Some(Operator::NotIn) => Ok(negated(make(list(input, item)?))),
        _ => Err(unexpected(&before, expected, known)),
    }
}

/// Parses `= x`, `!= x`, `in (x, y)`, `not in (x, y)`, `prefix x` or `not prefix x`.
fn texts(input: &mut Input<'_>, make: fn(TextTest) -> Expr) -> Parsed<Expr> {
    let before = *input;
    match opt(operator).parse_next(input)? {
        Some(Operator::Prefix) => return Ok(make(TextTest::Prefix(text(input)?))),
        Some(Operator::NotPrefix) => return Ok(negated(make(TextTest::Prefix(text(input)?)))),
        _ => *input = before,
    }
    let expected = "one of = != in \"not in\" prefix";
    names(input, expected, &["in", "not", "prefix"], text, |texts| make(TextTest::In(texts)))
}

fn cluster(input: &mut Input<'_>) -> Parsed<Expr> {
    blanks(input)?;
    let start = input.current_token_start();
    if opt(mark("(")).parse_next(input)?.is_none() {
        let expected = "one of = != in \"not in\", or labels in parentheses, such as (region=eu)";
        return names(input, expected, &["in", "not"], cluster_name, |names| {
            Expr::Cluster(ClusterSelector::Names(names))
        });
    }
    let mut selected = ClusterLabels::new();
    while !ahead(input, mark(")")) {
        if !selected.is_empty() && opt(mark(",")).parse_next(input)?.is_none() {
            return Err(unclosed(input, start, "a comma or \")\""));
        }
        blanks(input)?;
        let at = input.current_token_start();
        let key = text(input)?;
        if opt(alt((mark("=="), mark("=")))).parse_next(input)?.is_none() {
            return Err(unexpected(input, "\"=\", since cluster(…) compares a label with one value", &[]));
        }
        let value = text(input)?;
        if selected.insert(key.to_string(), value.to_string()).is_some() {
            return Err(fault(at, ParseProblem::LabelTwice(key)));
        }
    }
    close(input, start)?;
    let all = selected.is_empty();
    Ok(Expr::Cluster(if all { ClusterSelector::All } else { ClusterSelector::Labels(selected) }))
}

fn cluster_name(input: &mut Input<'_>) -> Parsed<ClusterName> {
    blanks(input)?;
    let at = input.current_token_start();
    let name: SmolStr = text(input)?;
    ClusterName::new(&name).map_err(|invalid: InvalidName| fault(at, ParseProblem::Cluster(invalid.rule)))
}

/// Parses a label selector in kubectl's grammar, with the parentheses around it.
fn labels(input: &mut Input<'_>) -> Parsed<Expr> {
    blanks(input)?;
    let start = input.current_token_start();
    if opt(mark("(")).parse_next(input)?.is_none() {
        return Err(unexpected(input, "a label selector in parentheses, such as (app=web, tier!=dev)", &[]));
    }
    let mut open = 1_usize;
    let end = input.input.char_indices().find(|(_, c)| {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        open == 0
    });
    let Some((length, _)) = end else { return Err(fault(start, ParseProblem::OpenParenthesis)) };
    let at = input.current_token_start();
    let inner: &str = take(length).parse_next(input)?;
    let invalid = |invalid: InvalidSelector| fault(at + invalid.at, ParseProblem::Selector(invalid.problem));
    let selector: LabelSelector = inner.parse().map_err(invalid)?;
    mark(")").parse_next(input)?;
    Ok(Expr::Labels(selector))
}

fn field(input: &mut Input<'_>) -> Parsed<Expr> {
    let word = peek_path(input)?;
    let at = *input;
    if is_likely_typo(word) {
        return Err(unexpected(input, "a condition", DISTINCTIVE));
    }
    let path = path(input)?;
    let Some(operator) = opt(operator).parse_next(input)? else {
        return Err(missing_operator(input, &at, word));
    };
    let test = match operator {
        Operator::Is => Test::Is(literal(input)?),
        Operator::IsNot => Test::IsNot(literal(input)?),
        Operator::In => Test::In(list::<Literal>(input, literal)?),
        Operator::NotIn => Test::NotIn(list::<Literal>(input, literal)?),
        Operator::Less => Test::Less(sizable_literal(input)?),
        Operator::AtMost => Test::AtMost(sizable_literal(input)?),
        Operator::More => Test::More(sizable_literal(input)?),
        Operator::AtLeast => Test::AtLeast(sizable_literal(input)?),
        Operator::Contains | Operator::NotContains => Test::Contains(text(input)?),
        Operator::Prefix | Operator::NotPrefix => Test::Prefix(text(input)?),
        Operator::Exists | Operator::NotExists => Test::Exists,
    };
    let is_negated = matches!(operator, Operator::NotContains | Operator::NotPrefix | Operator::NotExists);
    let field = Expr::Field { path, test };
    Ok(if is_negated { negated(field) } else { field })
}

/// Returns the error for a path without an operator after it. If the path `first` is spelled nearly like a keyword,
/// suggests that keyword; otherwise suggests an operator.
fn missing_operator(input: &Input<'_>, start: &Input<'_>, first: &str) -> ErrMode<Fault> {
    match nearest(first, TERMS) {
        Some(_) => unexpected(start, "a condition", TERMS),
        None => unexpected(input, "one of = != < <= > >= in \"not in\" contains prefix exists", OPERATORS),
    }
}
