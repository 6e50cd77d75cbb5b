//! Tests of the bounds on texts and expressions.

use std::time::Duration;

use super::super::{Expr, InvalidExpr, InvalidQuestion, Matcher, ParseProblem, Question, Test};

fn refused(text: &str) -> ParseProblem {
    text.parse::<Question>().expect_err("this is too much").problem
}

#[test]
fn text_length_nesting_and_conditions_are_bounded() {
    assert_eq!(refused(&"a".repeat(16 * 1024 + 1)), ParseProblem::TooLong { max: 16 * 1024 });
    assert_eq!(refused(&"é".repeat(9 * 1024)), ParseProblem::TooLong { max: 16 * 1024 });
    for bomb in ["(", "not ", "!", "not (", "((("] {
        assert_eq!(refused(&bomb.repeat(16 * 1024 / bomb.len())), ParseProblem::TooDeep { max: 64 }, "{bomb}");
    }
    let deep = format!("{}a exists{}", "(".repeat(64), ")".repeat(64));
    assert!(deep.parse::<Question>().is_ok());
    assert_eq!(refused(&format!("({deep})")), ParseProblem::TooDeep { max: 64 });
    let many = vec!["a exists"; 1_000].join(" or ");
    assert!(many.parse::<Question>().is_ok());
    assert_eq!(refused(&format!("{many} and a exists")), ParseProblem::TooManyTerms { max: 1_000 });
}

#[test]
fn only_open_parentheses_count_as_depth() {
    let text = vec!["not (a exists)"; 900].join(" or ");
    assert!(text.parse::<Question>().is_ok());
}

/// The texts repeat patterns that could make a parser backtrack. The slowest takes 0.2 s unoptimized on a busy machine.
/// The bound of 10 s fails only if the time grows with the square of the length.
#[test]
fn longest_texts_parse_in_linear_time() {
    let parts = [
        "(",
        ")",
        "[",
        "]",
        "[*]",
        "['",
        "a['b'",
        "'",
        "\"",
        "\\",
        "'\\'",
        "not ",
        "!",
        "a ",
        "a.",
        ".",
        "a=",
        "a = 1 or ",
        "a in (b) and ",
        "a,",
        "(a,",
        "labels(",
        "labels() or ",
        "labels(a in (",
        "cluster(a=b,",
        "cluster() or ",
        " ",
        "\n",
        "é",
        "order by a ",
        "limit 5 ",
        "count ",
        "select a, ",
        "quantity(",
        "a = quantity(1) or ",
        "0",
        "1e",
        "name in (a,",
    ];
    for prefix in ["", "a = ", "a in (", "labels(", "cluster(", "order by ", "a = '", "a = \""] {
        for part in parts {
            let text = prefix.to_owned() + &part.repeat((16 * 1024 - prefix.len()) / part.len());
            let started = informer_hub_types::clock::now();
            let _ = text.parse::<Question>().map_err(|error: InvalidQuestion| error.annotated().to_string());
            let took = informer_hub_types::clock::now() - started;
            assert!(took < Duration::from_secs(10), "{prefix}{part}…: {took:?}");
        }
    }
}

#[test]
fn oversized_expression_is_refused() {
    let mut deep = Expr::All;
    for _ in 0..300 {
        deep = Expr::Not(Box::new(deep));
    }
    assert_eq!(Matcher::new(&deep).unwrap_err(), InvalidExpr::TooDeep);
    let many = Expr::Or(vec![Expr::All; Matcher::MAX_TERMS]);
    assert_eq!(Matcher::new(&many).unwrap_err(), InvalidExpr::TooManyTerms);
    let literal = super::super::Literal::Quantity("5 apples".into());
    let test = Test::AtLeast(literal);
    let error = Matcher::new(&Expr::Field { path: "a".parse().unwrap(), test }).unwrap_err();
    assert!(error.to_string().starts_with("\"5 apples\" is not a quantity"), "{error}");
}

#[test]
fn parsed_expression_always_builds_a_matcher() {
    let deepest = format!("{}a exists{}", "not (b exists or b exists and ".repeat(32), ")".repeat(32));
    let most = vec!["not (a exists)"; 900].join(" or ");
    for text in [deepest, most] {
        let question: Question = text.parse().unwrap_or_else(|error: InvalidQuestion| panic!("{}", error.annotated()));
        assert!(Matcher::new(&question.condition).is_ok());
        assert_eq!(question.to_string().parse::<Question>(), Ok(question.clone()));
    }
}
