//! Output of objects for people and scripts. Pure: no I/O, no clock.
//!
//! # Layout
//!
//! - [`Layout`]: tables that fit a terminal. The least informative columns are omitted or shortened first.
//! - [`Tone`]: colours of status words.
//! - [`csv_record`]: CSV as in RFC 4180.
//! - [`CellKey`]: order of cells and values, with numbers, durations and quantities.
//! - [`Template`]: JSONPath templates in kubectl's syntax.
//! - [`diff`]: paths at which two versions of an object differ.
//! - [`SeenObjects`]: last versions of objects in bounded memory.

mod csv;
mod diff;
mod jsonpath;
mod layout;
mod order;
mod seen;
mod text;
mod tone;

pub use csv::csv_record;
pub use diff::{Difference, diff, summary};
pub use jsonpath::{InvalidTemplate, Template, TooManyValues};
pub use layout::{Column, Layout};
pub use order::CellKey;
pub use seen::{SeenKey, SeenObjects};
pub use text::{cut, cut_middle, width_of};
pub use tone::{Tone, paint};
