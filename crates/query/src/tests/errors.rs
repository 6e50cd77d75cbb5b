//! Tests of parse errors: message, position and excerpt.

use proptest::prelude::*;

use super::super::{Expr, InvalidQuestion, Question};

fn parse_error(text: &str) -> InvalidQuestion {
    match text.parse::<Question>() {
        Ok(question) => panic!("{text} is {question:?}"),
        Err(parse_error) => parse_error,
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn error_has_message_and_position() {
    let mut mismatches = Vec::new();
    for (text, at, message) in [
        ("namespce = shop", 0, r#"expected a condition, found "namespce"; did you mean "namespace"?"#),
        ("namespace", 9, r#"expected one of = != in "not in" prefix, found the end"#),
        ("namespace (a)", 10, r#"expected one of = != in "not in" prefix, found "(""#),
        ("namespace > a", 10, r#"expected one of = != in "not in" prefix, found ">""#),
        ("namespace prefx a", 10, r#"found "prefx"; did you mean "prefix"?"#),
        (
            "namespace = ",
            12,
            "expected a text, in quotes unless it is made of letters, digits and _-./:+@%$, found the end",
        ),
        ("namespace in shop", 13, r#"expected a list in parentheses, such as (a, b), found "shop""#),
        ("namespace in (shop pay)", 19, r#"expected a comma or the end of the list, found "pay""#),
        ("namespace in (shop", 13, "the parenthesis is not closed"),
        ("namespace in (a,)", 16, "expected a text"),
        ("namespace = a adn name = b", 14, r#"found "adn"; did you mean "and"?"#),
        ("namespace = a lmit 5", 14, r#"found "lmit"; did you mean "limit"?"#),
        ("namespace = a and", 17, "expected a condition, found the end"),
        ("namespace = a and or name = b", 21, "expected one of"),
        ("(namespace = a", 0, "the parenthesis is not closed"),
        ("(namespace = a limit 5", 15, r#"expected and, or, or ")", found "limit""#),
        ("namespace = a)", 13, "expected and, or, a clause"),
        ("not", 3, "expected a condition, found the end"),
        ("spec.nodeName", 13, r#"expected one of = != < <= > >= in "not in" contains prefix exists, found the end"#),
        ("spec.nodeName exist", 14, r#"found "exist"; did you mean "exists"?"#),
        ("spec.nodeName is x", 14, r#"found "is"; did you mean "in"?"#),
        ("spec..nodeName = x", 5, "not a path: a name is missing"),
        ("x exists and spec.containers[0].image = y", 29, "not a path: expected * or a quoted name after '['"),
        ("spec.é = x", 5, "not a path: this character needs quotes: write ['name']"),
        ("a['b = c", 2, "not a path: the quote is not closed"),
        ("a = 'b", 4, "the quote is not closed"),
        ("a = 'b\\", 4, "the quote is not closed"),
        (r#"a = "b\x""#, 6, r#"invalid escape sequence (allowed: \\ \" \' \n \r \t)"#),
        ("a = null", 4, "null is not a value: write"),
        ("a = 12345678901234567890123456789012345678901", 4, "a number this large cannot be compared"),
        ("a > 1GB", 4, r#""1GB" is neither a number nor a quantity such as 500m or 2Gi, nor a time; put it in quotes"#),
        ("a <= -30d and b exists", 5, r#""-30d" is neither a number nor a quantity"#),
        ("name not foo x", 5, r#"found "not""#),
        ("a = ?", 4, r#"expected a value, found "?""#),
        ("a = é", 4, r#"expected a value, found "é""#),
        ("a = quantity(x)", 4, "not a quantity: write it as Kubernetes does"),
        ("a = quantity(1", 4, "the parenthesis is not closed"),
        ("name = x and labels(app=web,)", 28, "not a label selector: expected a label key, found the end"),
        ("labels(app=web", 6, "the parenthesis is not closed"),
        ("labels app=web", 7, "expected a label selector in parentheses, such as (app=web, tier!=dev), found \"app\""),
        ("cluster(region!=eu)", 14, r#"expected "=", since cluster(…) compares a label with one value, found "!""#),
        ("cluster(a=b, a=c)", 13, r#"the label "a" is given twice"#),
        ("cluster(a=b c=d)", 12, r#"expected a comma or ")", found "c""#),
        ("cluster(a=b", 7, "the parenthesis is not closed"),
        ("cluster in (eu, -x)", 16, "not a cluster's name: 1 to 63 characters out of A-Z, a-z, 0-9, '.', '_' and '-'"),
        ("index = x", 6, "expected a text"),
        ("owned-by", 8, "expected a text"),
        ("order status.phase", 6, r#"expected by, found "status""#),
        ("order by", 8, "expected a path, such as spec.nodeName, found the end"),
        ("order by a desc b", 16, "expected a clause (order by, limit, continue, select, count, distinct) or the end"),
        ("order by a dsc", 11, "expected a clause"),
        ("limit 0", 6, "a limit is a whole number, 1 or more"),
        ("limit 1.5", 6, "a limit is a whole number, 1 or more"),
        ("limit 99999999999999999999999", 6, "a limit is a whole number, 1 or more"),
        ("limit 5 limit 6", 8, "limit is given twice"),
        ("count distinct a", 6, "an output (one of select, count, distinct) is given twice"),
        ("select", 6, "expected a path"),
        ("select a,", 9, "expected a path"),
        (", a", 0, r#"expected a condition, found ",""#),
        ("é", 0, "not a path"),
    ] {
        let error = parse_error(text).to_string();
        let right = error.contains(message) && error.ends_with(&format!(" (at position {})", at + 1));
        if !right {
            mismatches.push(format!("{text}: {error}\n  wanted at {at}: {message}"));
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[test]
fn expression_refuses_clauses() {
    let error = "name = a limit 5".parse::<Expr>().unwrap_err();
    assert_eq!(error.to_string(), r#"expected and, or, or the end, found "limit" (at position 10)"#);
}

#[test]
fn excerpt_marks_the_position() {
    let annotated = |text: &str| parse_error(text).annotated().to_string();
    assert_eq!(
        annotated("namespace in (shop, pay) adn name = x"),
        "expected and, or, a clause (order by, limit, continue, select, count, distinct) or the end, found \"adn\"; did \
         you mean \"and\"? (at position 26)\n  namespace in (shop, pay) adn name = x\n                           ^"
    );
    assert!(annotated("a = 'é' b").ends_with("(at position 9)\n  a = 'é' b\n          ^"));
    assert!(annotated("name = a and\n\tx ~ 5\nand y = 6").ends_with("\n   x ~ 5\n     ^"));
    assert!(annotated("name = a and").ends_with("\n  name = a and\n              ^"));
    let long = format!("name in ({}) adn x = '{}'", "a, ".repeat(200) + "a", "b".repeat(200));
    let annotated = annotated(&long);
    let lines: Vec<_> = annotated.lines().skip(1).collect();
    assert!(lines[0].starts_with("  …") && lines[0].ends_with('…') && lines[0].chars().count() < 130, "{annotated}");
    let mark = lines[1].find('^').unwrap();
    assert!(lines[0].chars().skip(mark).collect::<String>().starts_with("adn"), "{annotated}");
}

#[test]
fn excerpt_replaces_control_characters() {
    let error = parse_error("name = a \u{1b}[31m");
    assert!(!error.annotated().to_string().contains('\u{1b}'), "{}", error.annotated());
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(512))]

    #[test]
    fn parser_never_panics_and_display_round_trips(
        words in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "and", "or", "not", "(", ")", "[", "]", "in", "=", "!=", "<", ",", "'", "\"", "\\", "cluster", "labels(",
                    "namespace", "index", "owned-by", "order by", "limit", "count", "select", "a.b", "a['", "[*]", "1", "2Gi",
                    "quantity(", "exists", "x", " ", "\n", "é", "!", "&&", "||", "all", "uid", "continue",
                ]).prop_map(str::to_owned),
                "\\PC{0,4}",
            ],
            0..16,
        ),
        gap in " ?",
    ) {
        let text = words.join(&gap);
        match text.parse::<Question>() {
            Ok(question) => {
                let shown = question.to_string();
                let again = shown.parse::<Question>();
                prop_assert_eq!(again, Ok(question), "{} was {}", text, shown);
            }
            Err(parse_error) => {
                prop_assert!(text.is_char_boundary(parse_error.at), "{}", parse_error);
                prop_assert_eq!(parse_error.annotated().to_string().lines().count(), 3);
            }
        }
    }
}
