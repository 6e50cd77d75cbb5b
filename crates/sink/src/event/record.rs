//! Binary record of an event in a journal.
//!
//! ```text
//! 1 byte    format, 1
//! 1 byte    type: 0 added, 1 updated, 2 deleted, 3 synced; plus 128 for a replayed dead letter
//! 5 texts   id, cluster, subject, uid, resourceVersion: the length in 4 bytes, little endian, then the bytes
//! the rest  the JSON in wire form
//! ```

use std::sync::Arc;

use super::{Event, EventType, Parts, lane_hash, trace_parent_of};
use informer_hub_types::ResourceVersion;

const FORMAT: u8 = 1;
const REPLAYED: u8 = 0x80;
const TYPES: [EventType; 4] = [EventType::Added, EventType::Updated, EventType::Deleted, EventType::Synced];

/// Error for bytes that are not a valid event: damaged, or written by a later version of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode a stored event: {0}")]
pub struct InvalidRecord(&'static str);

impl InvalidRecord {
    pub(crate) const TOO_SHORT: Self = Self("too short");
    pub(crate) const NO_LETTER: Self = Self("the header of the dead letter is invalid");
}

impl Event {
    /// Appends the event to `out` as a binary record, in the format of the module documentation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let parts = &*self.0;
        let version = parts.version.to_string();
        let kind = TYPES.iter().position(|known| *known == parts.event_type).unwrap_or_default();
        out.reserve(parts.body.len() + 256);
        let replayed = if parts.is_replayed { REPLAYED } else { 0 };
        out.extend([FORMAT, u8::try_from(kind).unwrap_or_default() | replayed]);
        for text in [&*parts.id, &*parts.cluster, &*parts.subject, &*parts.uid, &version] {
            out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend(text.as_bytes());
        }
        out.extend(parts.body.as_bytes());
    }

    /// Decodes an event that [`Self::encode`] wrote. `sequence` is the event's number in the journal.
    ///
    /// # Errors
    /// [`InvalidRecord`] if the bytes are not a valid record.
    pub fn decode(bytes: &[u8], sequence: Option<u64>) -> Result<Self, InvalidRecord> {
        let (&[format, kind], mut rest) = bytes.split_first_chunk::<2>().ok_or(InvalidRecord::TOO_SHORT)?;
        if format != FORMAT {
            return Err(InvalidRecord("unknown format"));
        }
        let event_type = *TYPES.get(usize::from(kind & !REPLAYED)).ok_or(InvalidRecord("unknown event type"))?;
        let mut texts: [&str; 5] = [""; 5];
        for text in &mut texts {
            (*text, rest) = take_text(rest)?;
        }
        let [id, cluster, subject, uid, version] = texts;
        let body = std::str::from_utf8(rest).map_err(|_| InvalidRecord("text is not UTF-8"))?;
        Ok(Self(Arc::new(Parts {
            id: id.into(),
            event_type,
            lane_hash: lane_hash(cluster, subject),
            cluster: cluster.into(),
            subject: subject.into(),
            uid: uid.into(),
            version: ResourceVersion::new(version),
            sequence,
            sequence_at: 0,
            is_traced: trace_parent_of(body).is_some(),
            is_replayed: kind & REPLAYED != 0,
            body: body.into(),
        })))
    }
}

fn take_text(bytes: &[u8]) -> Result<(&str, &[u8]), InvalidRecord> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(InvalidRecord::TOO_SHORT)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (text, rest) = rest.split_at_checked(length).ok_or(InvalidRecord::TOO_SHORT)?;
    let text = std::str::from_utf8(text).map_err(|_| InvalidRecord("text is not UTF-8"))?;
    Ok((text, rest))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{added, pod, updated};
    use super::super::{Event, EventOptions};
    use super::*;

    fn event() -> Event {
        let update = updated(pod("web-0", "1", "Pending"), pod("web-0", "2", "Running"));
        Event::new(&update, jiff::Timestamp::UNIX_EPOCH, &EventOptions { sequence: true, ..EventOptions::default() })
            .unwrap()
    }

    fn bytes(event: &Event) -> Vec<u8> {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        bytes
    }

    #[test]
    fn event_decodes_as_encoded() {
        let mut event = event();
        event.set_sequence(17);
        let read = Event::decode(&bytes(&event), Some(17)).unwrap();
        assert_eq!((read.id(), read.subject(), read.cluster()), (event.id(), event.subject(), event.cluster()));
        assert_eq!((read.uid(), read.version(), read.event_type()), (event.uid(), event.version(), event.event_type()));
        assert_eq!((read.json(), read.lane_hash()), (event.json(), event.lane_hash()));
        assert_eq!(read.sequence(), Some(17));
        assert_eq!(bytes(&read), bytes(&event));
        assert!(!read.is_replayed() && Event::decode(&bytes(&read.replayed()), None).unwrap().is_replayed());
    }

    #[test]
    fn trace_parent_survives_encoding() {
        let parent = informer_hub_types::TraceParent { trace: 7, span: 9 };
        let options = EventOptions { sequence: true, ..EventOptions::default() };
        let text = ",\"data\":{\"traceparent\":\"00-1\"";
        let [first, second] = ["1", "2"].map(|version| pod(text, version, "Pending"));
        let update = updated(first.clone(), second.clone());
        let mut traced = Event::in_trace(&update, jiff::Timestamp::UNIX_EPOCH, &options, Some(parent)).unwrap();
        traced.set_sequence(4);
        let value: serde_json::Value = serde_json::from_str(traced.json()).unwrap();
        assert_eq!((value["traceparent"].as_str(), value["sequence"].is_string()), (Some(&*parent.to_string()), true));
        let read = Event::decode(&bytes(&traced), Some(4)).unwrap();
        assert_eq!(read.trace_parent(), Some(parent));
        let plain = |update| Event::new(update, jiff::Timestamp::UNIX_EPOCH, &options).unwrap();
        assert_eq!(plain(&update).trace_parent(), None);
        assert_eq!(Event::merge(plain(&added(first, false)), traced)[0].trace_parent(), Some(parent));
    }

    #[test]
    fn decoding_damaged_bytes_does_not_panic() {
        let good = bytes(&event());
        for length in 0..good.len().min(400) {
            let _ = Event::decode(&good[..length], None);
        }
        assert!(Event::decode(&good[..50], None).is_err());
        for at in 0..good.len() {
            for change in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= change;
                let _ = Event::decode(&bad, None);
            }
        }
        assert_eq!(Event::decode(&[9, 0], None).unwrap_err(), InvalidRecord("unknown format"));
    }

    #[test]
    fn sequence_is_written_into_the_reserved_digits() {
        let mut numbered = event();
        let length = numbered.json().len();
        numbered.set_sequence(u64::MAX);
        assert_eq!(numbered.json().len(), length);
        let value: serde_json::Value = serde_json::from_str(numbered.json()).unwrap();
        assert_eq!(value["sequence"], u64::MAX.to_string());
        let add = added(pod("web-0", "1", "Pending"), false);
        let mut plain = Event::new(&add, jiff::Timestamp::UNIX_EPOCH, &EventOptions::default()).unwrap();
        plain.set_sequence(3);
        assert_eq!(plain.sequence(), Some(3));
        assert!(!plain.json().contains("sequence"));
    }
}
