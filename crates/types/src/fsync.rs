//! Policy for making written bytes durable.

use std::time::Duration;

/// When written bytes are made durable against a crash of the machine. A crash of the process alone loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Immediately, but not earlier than this time after the previous fsync. One fsync covers all bytes written in
    /// between. With zero, each fsync starts as soon as the previous one ends.
    Within(Duration),
    /// When the operating system decides to, usually within 30 s.
    Never,
}

impl Default for Fsync {
    fn default() -> Self {
        Self::Within(Duration::from_millis(10))
    }
}
