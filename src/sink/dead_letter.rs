//! Events that were given up, remembered for people to look at.
//!
//! In memory and without the events' bodies: enough to see what was lost and why, not enough to replay it. A durable
//! dead-letter queue is not part of this version.

use std::collections::VecDeque;

use serde::Serialize;

/// An event that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The event's id.
    pub id: String,
    /// The event's subject.
    pub subject: String,
    /// Attempts that were made.
    pub attempts: u32,
    /// What the last one came to, without secrets.
    pub error: String,
    /// When it was given up.
    pub at: jiff::Timestamp,
}

/// The latest dead letters, up to [`Self::CAPACITY`].
#[derive(Debug, Default)]
pub struct DeadLetters {
    ring: VecDeque<DeadLetter>,
}

impl DeadLetters {
    /// Letters remembered; of more, the oldest are forgotten (the sink's counter has them all).
    pub const CAPACITY: usize = 1000;

    /// Takes a letter in.
    pub fn push(&mut self, letter: DeadLetter) {
        if self.ring.len() == Self::CAPACITY {
            self.ring.pop_front();
        }
        self.ring.push_back(letter);
    }

    /// The letters, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &DeadLetter> {
        self.ring.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_letters_make_room() {
        let mut letters = DeadLetters::default();
        for attempts in 0..=1000 {
            let (id, subject, error) = (String::new(), String::new(), String::new());
            letters.push(DeadLetter { id, subject, attempts, error, at: jiff::Timestamp::UNIX_EPOCH });
        }
        assert_eq!(letters.len(), DeadLetters::CAPACITY);
        assert_eq!(letters.iter().next().map(|letter| letter.attempts), Some(1));
    }
}
