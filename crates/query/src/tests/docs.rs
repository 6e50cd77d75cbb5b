//! Checks the examples and error messages in docs/queries.md.

use super::super::{InvalidQuestion, Question};

const PAGE: &str = include_str!("../../../../docs/queries.md");

/// Returns the fenced blocks of one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default()).collect()
}

#[test]
fn every_documented_query_parses() {
    let blocks = blocks("query");
    assert!(blocks.len() > 10, "{} questions", blocks.len());
    for block in blocks {
        let question: Question = block.parse().unwrap_or_else(|error: InvalidQuestion| panic!("{}", error.annotated()));
        assert_eq!(question.to_string().parse::<Question>(), Ok(question.clone()));
    }
}

#[test]
fn every_documented_condition_parses() {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let mut conditions = 0;
    for row in rows {
        let cell = row.split(" | ").next().unwrap_or_default();
        for written in cell.split('`').skip(1).step_by(2) {
            conditions += 1;
            let question = written.parse::<Question>();
            question.unwrap_or_else(|error: InvalidQuestion| panic!("{}", error.annotated()));
        }
    }
    assert!(conditions > 30, "{conditions} conditions");
}

#[test]
fn every_documented_error_is_displayed_as_shown() {
    let blocks = blocks("error");
    assert!(blocks.len() > 2, "{} mistakes", blocks.len());
    for block in blocks {
        let text = block.lines().nth(1).unwrap_or_default().trim_start();
        let error = text.parse::<Question>().expect_err(text);
        assert_eq!(error.annotated().to_string(), block, "{text}");
    }
}
