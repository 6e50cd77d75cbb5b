//! What docs/queries.md shows is so.

use super::super::{InvalidQuestion, Question};

const PAGE: &str = include_str!("../../../../docs/queries.md");

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    PAGE.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default()).collect()
}

#[test]
fn every_question_of_the_page_is_one() {
    let blocks = blocks("query");
    assert!(blocks.len() > 10, "{} questions", blocks.len());
    for block in blocks {
        let question: Question = block.parse().unwrap_or_else(|wrong: InvalidQuestion| panic!("{}", wrong.picture()));
        assert_eq!(question.to_string().parse::<Question>(), Ok(question.clone()));
    }
}

#[test]
fn every_condition_of_the_tables_is_one() {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let mut conditions = 0;
    for row in rows {
        let cell = row.split(" | ").next().unwrap_or_default();
        for written in cell.split('`').skip(1).step_by(2) {
            conditions += 1;
            let question = written.parse::<Question>();
            question.unwrap_or_else(|wrong: InvalidQuestion| panic!("{}", wrong.picture()));
        }
    }
    assert!(conditions > 30, "{conditions} conditions");
}

#[test]
fn every_mistake_of_the_page_looks_as_it_is_shown() {
    let blocks = blocks("error");
    assert!(blocks.len() > 4, "{} mistakes", blocks.len());
    for block in blocks {
        let text = block.lines().nth(1).unwrap_or_default().trim_start();
        let wrong = text.parse::<Question>().expect_err(text);
        assert_eq!(wrong.picture().to_string(), block, "{text}");
    }
}
