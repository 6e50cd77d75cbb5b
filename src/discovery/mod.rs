//! Resources that come and go: what a cluster offers, what is asked for, and what follows for the informers. Pure.
//!
//! [`fate`] says what is to become of one resource that is asked for, [`share`] which of a cluster's resources belong to
//! which pattern, and [`Pace`] when a cluster is asked again for what it offers.
//!
//! # What is believed
//! A resource that discovery does not name is not served now, for whatever reason: its definition was deleted, or serves
//! no version, or an apiserver that has just been started does not know of it yet. Only of the first its objects are
//! gone. So they count as deleted when the definition itself is known to be gone, by a watch of definitions, and in no
//! other case.

mod pace;
mod plan;
mod signals;

#[cfg(test)]
mod plan_tests;

pub use pace::{Answer, Pace, Rhythm};
pub use plan::{Claim, Fate, Seen, Share, definition_of, fate, share};
pub use signals::{definitions, services};
