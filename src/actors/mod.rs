//! The actors: thin shells around the pure parts, which translate message to call to effects.

pub mod sink;
