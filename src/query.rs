//! The query language: expressions, questions and how they are written as text.

pub use informer_hub_query::{
    Column, Direction, Expr, InvalidExpr, InvalidQuestion, Literal, Mistake, Output, Picture, Question, Test, TextTest,
};
