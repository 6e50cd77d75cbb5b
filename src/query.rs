//! The query language: conditions on objects ([`Expr`]), whole queries ([`Question`]), and their text form.

pub use informer_hub_query::{
    Annotated, Column, Direction, Expr, InvalidExpr, InvalidQuestion, Literal, Output, ParseProblem, Question, Test,
    TextTest,
};
