//! The query language: expressions, questions and how they are written as text.

pub use informer_hub_query::{
    Annotated, Column, Direction, Expr, InvalidExpr, InvalidQuestion, Literal, Output, ParseProblem, Question, Test,
    TextTest,
};
