//! Tests of the language: what texts mean, what is wrong with those that mean nothing, and what holds of objects.

mod bounds;
mod docs;
mod errors;
mod matching;
mod text;
