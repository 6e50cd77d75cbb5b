//! The language of questions: what an object must be like, whoever keeps it.
//!
//! A [`Question`], and the [`Expr`] in it, is built in Rust or parsed from text, the same language for both. It knows
//! nothing of stores: which index answers it, and what has to be decompressed for it, is decided where the objects are
//! (`cache`).

mod expr;
mod question;

pub use expr::{Expr, Literal, Test, TextTest};
pub use question::{Column, Direction, Output, Question};
