//! When bytes that were written are made durable.

use std::time::Duration;

/// When what was written is made to survive a crash of the machine. A crash of the process alone loses nothing that was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// At once, but no sooner after the last time than this, and then together with what else has come by then; zero: at
    /// once, with what has come meanwhile.
    Within(Duration),
    /// When the operating system sees fit: half a minute, as a rule.
    Never,
}

impl Default for Fsync {
    fn default() -> Self {
        Self::Within(Duration::from_millis(10))
    }
}
