//! The language of questions: what an object must be like, whoever keeps it.
//!
//! A [`Question`], and the [`Expr`] in it, is built in Rust or parsed from text, the same language for both. It knows
//! nothing of stores: which index answers it, and what has to be decompressed for it, is decided where the objects are
//! (`cache`).
//!
//! A [`Matcher`] is an expression made ready: it is put to an object's head first ([`Head`]), and to its bytes only
//! where that leaves it open. [`Columns`] are the same for what is shown, counted or sorted by; [`SortKey`] is the order.

#[cfg(any(test, feature = "testing"))]
pub mod arbitrary;
mod build;
mod columns;
mod decimal;
mod display;
mod error;
mod expr;
mod extract;
mod head;
mod lex;
mod matcher;
mod order;
mod parse;
mod question;
mod terms;
mod test;
#[cfg(test)]
mod tests;
mod trie;
mod walk;

pub use columns::Columns;
pub use error::{InvalidQuestion, Mistake, Picture};
pub use expr::{Expr, Literal, Test, TextTest};
pub use extract::{Extractor, Values};
pub use head::Head;
pub use matcher::{InvalidExpr, Matcher};
pub use order::SortKey;
pub use question::{Column, Direction, Output, Question};
pub use walk::Unreadable;
