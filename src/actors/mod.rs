//! The actors: thin shells around the pure parts, which translate message to call to effects.

/// The actor of one sink.
pub mod sink;
