//! Tests of parsing, parse errors, bounds and evaluation.

mod bounds;
mod docs;
mod errors;
mod matching;
mod text;
