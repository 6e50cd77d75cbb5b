//! Dead letters: events whose delivery was given up, kept for inspection, replay or purge.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::event::{Event, InvalidRecord};

/// Event whose delivery was given up.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The complete event.
    pub event: Event,
    /// Number of attempts to deliver the event.
    pub attempts: u32,
    /// Error of the last attempt, without secrets.
    pub error: String,
    /// When the event was given up.
    pub at: jiff::Timestamp,
}

/// Dead letter as shown in lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterSummary {
    /// Number that identifies the letter within its sink. Later letters have greater numbers.
    pub number: u64,
    /// The event's id.
    pub id: String,
    /// The event's cluster.
    pub cluster: String,
    /// The event's subject.
    pub subject: String,
    /// The event's type.
    pub event: &'static str,
    /// Number of attempts to deliver the event.
    pub attempts: u32,
    /// Error of the last attempt, without secrets.
    pub error: String,
    /// When the event was given up.
    pub at: jiff::Timestamp,
    /// Size of the event in bytes.
    pub bytes: usize,
}

/// Selection of dead letters: all conditions that are set must hold. The default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LetterFilter {
    /// Event ids; empty selects any.
    #[serde(default)]
    pub ids: Vec<String>,
    /// Cluster of the event.
    pub cluster: Option<String>,
    /// Text that the event's subject contains.
    pub subject: Option<String>,
    /// Text that the error of the last attempt contains.
    pub error: Option<String>,
    /// Time: only events that were given up before it are selected.
    pub before: Option<jiff::Timestamp>,
}

impl LetterFilter {
    /// Returns whether a letter meets all conditions of the filter.
    #[must_use]
    pub fn fits(&self, letter: &DeadLetter) -> bool {
        let has = |part: &Option<String>, text: &str| part.as_ref().is_none_or(|part| text.contains(part.as_str()));
        let event = &letter.event;
        (self.ids.is_empty() || self.ids.iter().any(|id| id == event.id()))
            && self.cluster.as_ref().is_none_or(|cluster| cluster == event.cluster())
            && has(&self.subject, event.subject())
            && has(&self.error, &letter.error)
            && self.before.is_none_or(|before| letter.at < before)
    }
}

/// JSON object at the start of an encoded letter, after its length (four bytes, little endian) and before the event.
#[derive(Serialize, Deserialize)]
struct Head {
    attempts: u32,
    error: String,
    at: jiff::Timestamp,
}

impl DeadLetter {
    /// Returns the summary shown in lists.
    #[must_use]
    pub fn summary(&self, number: u64) -> LetterSummary {
        LetterSummary {
            number,
            id: self.event.id().to_owned(),
            cluster: self.event.cluster().to_owned(),
            subject: self.event.subject().to_owned(),
            event: self.event.event_type().as_str(),
            attempts: self.attempts,
            error: self.error.clone(),
            at: self.at,
            bytes: self.event.json().len(),
        }
    }

    /// Appends the encoded letter: the length of a JSON object in four bytes, little endian; `attempts`, `error` and
    /// `at` as that object; then the event's own record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = Head { attempts: self.attempts, error: self.error.clone(), at: self.at };
        let head = serde_json::to_vec(&head).unwrap_or_default();
        out.extend(u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(head);
        self.event.encode(out);
    }

    /// Decodes a letter that [`Self::encode`] wrote.
    ///
    /// # Errors
    /// [`InvalidRecord`] if the bytes are not a valid letter.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidRecord> {
        let short = InvalidRecord::TOO_SHORT;
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or(short)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (head, event) = rest.split_at_checked(length).ok_or(short)?;
        let Head { attempts, error, at } = serde_json::from_slice(head).map_err(|_| InvalidRecord::NO_LETTER)?;
        Ok(Self { event: Event::decode(event, None)?, attempts, error, at })
    }
}

/// The latest dead letters in memory, for a sink without a journal.
#[derive(Debug, Default)]
pub struct MemoryLetters {
    ring: VecDeque<(u64, DeadLetter)>,
    bytes: usize,
    next: u64,
}

impl MemoryLetters {
    /// Maximum number of letters; beyond it, the oldest are dropped.
    pub const CAPACITY: usize = 1000;

    /// Maximum bytes of the events of all letters. The newest letter is kept even if it is larger.
    pub const BYTES: usize = 16 * 1024 * 1024;

    /// Adds a letter. Returns how many old letters were dropped to make room.
    pub fn push(&mut self, letter: DeadLetter) -> u64 {
        self.bytes += letter.event.size();
        self.ring.push_back((self.next, letter));
        self.next += 1;
        let before = self.ring.len();
        while self.ring.len() > Self::CAPACITY || self.bytes > Self::BYTES && self.ring.len() > 1 {
            let gone = self.ring.pop_front();
            self.bytes -= gone.map_or(0, |(_, letter)| letter.event.size());
        }
        (before - self.ring.len()) as u64
    }

    /// Returns the letters and their numbers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, DeadLetter)> {
        self.ring.iter()
    }

    /// Removes the letters with these numbers.
    pub fn remove(&mut self, numbers: &[u64]) {
        self.ring.retain(|(number, _)| !numbers.contains(number));
        self.bytes = self.ring.iter().map(|(_, letter)| letter.event.size()).sum();
    }

    /// Returns the number of letters kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Returns whether no letter is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_objects::event;
    use super::*;

    fn letter(name: &str, version: u64, error: &str) -> DeadLetter {
        let at = jiff::Timestamp::from_second(i64::try_from(version).unwrap()).unwrap();
        DeadLetter { event: event(name, version, 0), attempts: 5, error: error.to_owned(), at }
    }

    #[test]
    fn oldest_letters_make_room() {
        let mut letters = MemoryLetters::default();
        for version in 0..=1000 {
            letters.push(letter("a", version, ""));
        }
        assert_eq!(letters.len(), MemoryLetters::CAPACITY);
        assert_eq!(letters.iter().next().map(|(number, _)| *number), Some(1));
        letters.remove(&[1, 2]);
        assert_eq!(letters.iter().next().map(|(number, _)| *number), Some(3));
    }

    #[test]
    fn letters_are_bounded_in_bytes_too() {
        let mut letters = MemoryLetters::default();
        for version in 0..40 {
            let event = event("a", version, 1024 * 1024);
            letters.push(DeadLetter { event, ..letter("a", version, "") });
        }
        assert!((10..=16).contains(&letters.len()), "{}", letters.len());
    }

    #[test]
    fn letter_decodes_as_encoded() {
        let letter = letter("a", 7, "receiver answered 422: \"no\"");
        let mut bytes = Vec::new();
        letter.encode(&mut bytes);
        let read = DeadLetter::decode(&bytes).unwrap();
        assert_eq!((read.summary(1), read.event.json()), (letter.summary(1), letter.event.json()));
        for at in 0..bytes.len() {
            let _ = DeadLetter::decode(&bytes[..at]);
        }
        assert!(DeadLetter::decode(&[0, 0, 0, 0]).is_err());
    }

    #[test]
    fn filter_selects_letters_that_meet_all_conditions() {
        let letter = letter("web-1", 7, "receiver answered 422");
        let fits = |json: &str| serde_json::from_str::<LetterFilter>(json).unwrap().fits(&letter);
        for yes in [
            "{}".to_owned(),
            format!(r#"{{"ids":["x","{}"]}}"#, letter.event.id()),
            r#"{"cluster":"prod-eu","subject":"/pods/shop/","error":"422"}"#.to_owned(),
            r#"{"before":"1970-01-01T00:00:08Z"}"#.to_owned(),
        ] {
            assert!(fits(&yes), "{yes}");
        }
        for no in [
            r#"{"ids":["x"]}"#,
            r#"{"cluster":"prod"}"#,
            r#"{"subject":"/nodes/"}"#,
            r#"{"error":"500"}"#,
            r#"{"before":"1970-01-01T00:00:07Z"}"#,
            r#"{"cluster":"prod-eu","error":"500"}"#,
        ] {
            assert!(!fits(no), "{no}");
        }
        assert!(serde_json::from_str::<LetterFilter>(r#"{"clutser":"a"}"#).is_err());
    }
}
