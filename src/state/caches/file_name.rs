//! Names of the cache files and directories of a resource.

use std::fmt;
use std::path::{Path, PathBuf};

use informer_hub_types::{Gvr, View};

/// Upper bound for the numbers of files, partitions and dictionaries. A larger number means damage. Adding one to the
/// bound cannot overflow.
pub(super) const MAX_NUMBER: u64 = 1 << 62;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileName {
    /// `snapshot-N`: complete contents at one time, with the number of the snapshot.
    Snapshot(u64),
    /// `deltas-N-P`: changes since snapshot N. P numbers the files of changes of that snapshot from 0.
    Deltas(u64, u64),
}

impl FileName {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|number| *number <= MAX_NUMBER);
        let parsed = if let Some(snapshot) = name.strip_prefix("snapshot-") {
            Self::Snapshot(number(snapshot)?)
        } else {
            let (snapshot, part) = name.strip_prefix("deltas-")?.split_once('-')?;
            Self::Deltas(number(snapshot)?, number(part)?)
        };
        (parsed.to_string() == name).then_some(parsed)
    }

    pub(super) fn snapshot(&self) -> Option<u64> {
        match self {
            Self::Snapshot(number) => Some(*number),
            Self::Deltas(..) => None,
        }
    }

    pub(super) fn deltas_of(&self, snapshot: u64) -> Option<u64> {
        match self {
            Self::Deltas(number, part) if *number == snapshot => Some(*part),
            _ => None,
        }
    }

    pub(super) fn is_of(self, snapshot: u64) -> bool {
        let (Self::Snapshot(number) | Self::Deltas(number, _)) = self;
        number == snapshot
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(number) => write!(f, "snapshot-{number}"),
            Self::Deltas(number, part) => write!(f, "deltas-{number}-{part}"),
        }
    }
}

/// Returns the initial value of a file's checksums. It differs by file, so that records of another file are rejected.
pub(super) fn salt(name: FileName) -> u32 {
    let (kind, number, part) = match name {
        FileName::Snapshot(number) => (1_u64, number, 0),
        FileName::Deltas(number, part) => (2, number, part),
    };
    let mixed = (kind << 60 ^ number << 20 ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::from_be_bytes([mixed.to_be_bytes()[0], mixed.to_be_bytes()[1], mixed.to_be_bytes()[2], mixed.to_be_bytes()[3]])
}

/// Returns the directory of the files of a resource and view (form of its objects). `None` for the private view of one
/// subscriber's transform, which is never saved, or for a name that is invalid in Kubernetes.
pub(super) fn directory(root: &Path, gvr: &Gvr, view: &View) -> Option<PathBuf> {
    let suffix = match view {
        View::Shared => "",
        View::Whole => "+whole",
        View::Metadata => "+metadata",
        View::Private(_) => return None,
    };
    let group = if gvr.group.is_empty() { "core" } else { &gvr.group };
    let is_safe = |part: &str| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        !part.is_empty() && part.len() <= 253 && part.bytes().all(legal) && !part.starts_with('.')
    };
    let safe = [group, &gvr.version, &gvr.resource].into_iter().all(is_safe);
    safe.then(|| root.join(group).join(&*gvr.version).join(format!("{}{suffix}", gvr.resource)))
}
