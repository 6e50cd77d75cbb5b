//! Position of a client in an event stream: for each resource, the version up to which the client has received the
//! changes.
//!
//! The client gets the position as text of letters, digits, `-` and `_`. A version is the number of a change in the
//! hub's window of recent changes; watches over several clusters use the same numbers as resource versions. They need
//! not be secret, since the client's rights filter each change.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::MAX_RESOURCES;
use informer_hub_types::Gvr;

const CHECKSUM: usize = 4;

/// Bytes of one resource in a position: 4 of its name's hash, 8 of its version.
const PART: usize = 4 + 8;

/// Position in a stream: for each resource, the hash of its name and the version that the client has reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Position(Vec<([u8; 4], u64)>);

/// Error: a text is not a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unreadable;

impl Position {
    /// Creates a position from the resources' hashes and versions.
    pub(super) fn new(versions: impl Iterator<Item = ([u8; 4], u64)>) -> Self {
        Self(versions.collect())
    }

    /// Parses the text of a position.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        if text.len() > (CHECKSUM + MAX_RESOURCES * PART) * 2 {
            return Err(Unreadable);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| Unreadable)?;
        let (parts, checksum) = bytes.split_at_checked(bytes.len().saturating_sub(CHECKSUM)).ok_or(Unreadable)?;
        if checksum != checksum_of(parts) || parts.is_empty() || parts.len() % PART != 0 {
            return Err(Unreadable);
        }
        let part = |part: &[u8]| {
            let (resource, version) = part.split_first_chunk::<4>()?;
            Some((*resource, u64::from_be_bytes(version.try_into().ok()?)))
        };
        parts.chunks(PART).map(part).collect::<Option<_>>().map(Self).ok_or(Unreadable)
    }

    /// Returns the version that the client has reached; `None` if the position lacks the resource with this hash.
    pub(super) fn version(&self, resource: [u8; 4]) -> Option<u64> {
        self.0.iter().find(|(known, _)| *known == resource).map(|(_, version)| *version)
    }

    /// Returns the position as text, for the client.
    pub(super) fn text(&self) -> String {
        let mut bytes = Vec::with_capacity(self.0.len() * PART + CHECKSUM);
        for (resource, version) in &self.0 {
            bytes.extend_from_slice(resource);
            bytes.extend_from_slice(&version.to_be_bytes());
        }
        let checksum = checksum_of(&bytes);
        bytes.extend_from_slice(&checksum);
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

pub(super) fn hash_of(gvr: &Gvr) -> [u8; 4] {
    first_bytes(format!("{}/{}/{}", gvr.group, gvr.version, gvr.resource).as_bytes())
}

fn checksum_of(bytes: &[u8]) -> [u8; CHECKSUM] {
    first_bytes(&[b"informer-hub position 1", bytes].concat())
}

fn first_bytes(bytes: &[u8]) -> [u8; 4] {
    let hash = Sha256::digest(bytes);
    [hash[0], hash[1], hash[2], hash[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_read_back_and_damaged_ones_are_recognised() {
        let [pods, nodes] = ["pods", "nodes"].map(|resource| hash_of(&Gvr::new("", "v1", resource)));
        let position = Position::new([(pods, 7), (nodes, u64::MAX)].into_iter());
        let text = position.text();
        assert_eq!(Position::parse(text.as_bytes()), Ok(position.clone()));
        assert_eq!((position.version(nodes), position.version([0; 4])), (Some(u64::MAX), None));
        for at in 0..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] = if damaged[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(Position::parse(&damaged), Err(Unreadable), "{at}");
        }
        let empty = Position(Vec::new()).text();
        for forged in ["", "0", "1700000000000000", "\u{0}\r\nid: 1", &text[1..], &empty, &"A".repeat(100_000)] {
            assert_eq!(Position::parse(forged.as_bytes()), Err(Unreadable), "{forged:.40}");
        }
    }
}
