//! Records of the log, and their binary form.

use std::fmt;

use bytes::{Buf, Bytes};
use informer_hub_types::{ObjectKey, ResourceVersion, Uid};

use super::wire::{DecodeError, put_bytes, put_integer, take_byte, take_bytes, take_integer, take_text};

/// Record of a partition: a change of an object, or of the partition's state.
///
/// `Debug` shows sizes instead of objects, since an object may be a Secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Record {
    /// A collector took the partition over. It is the first record of each epoch (owner's term).
    Owner {
        /// Name of the collector, for operators.
        collector: String,
    },
    /// An object was added or changed.
    Put {
        /// Key of the object within the partition.
        key: ObjectKey,
        /// UID of the object. If the same key gets another UID, the object was deleted and created again.
        uid: Uid,
        /// resourceVersion of the object.
        version: ResourceVersion,
        /// The object as JSON.
        body: Bytes,
    },
    /// An object was deleted.
    Delete {
        /// Key of the deleted object within the partition.
        key: ObjectKey,
        /// UID of the deleted object.
        uid: Uid,
        /// resourceVersion of the deletion. For a tombstone, the last known resourceVersion of the object.
        version: ResourceVersion,
        /// Last known state of the object as JSON.
        last_state: Bytes,
        /// Whether a list found the deletion instead of the watch.
        tombstone: bool,
    },
    /// All changes up to a resourceVersion are in the log, so a watch can resume from it.
    Progress {
        /// resourceVersion up to which the log has all changes. It comes from a list, a bookmark or the last event.
        version: ResourceVersion,
    },
    /// A list begins, or the resource is gone. Until the next [`Record::Progress`], no watch can resume.
    Reset {
        /// Reason of the reset. It decides whether readers keep their objects.
        reason: ResetReason,
    },
    /// A checkpoint of the partition is in the object store.
    Checkpoint {
        /// Name of the stored object.
        object: String,
        /// Sequence of the last entry that the checkpoint contains.
        sequence: u64,
    },
}

/// Reason of a [`Record::Reset`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetReason {
    /// The collector lists the resource again. Readers keep their objects: records follow only for objects whose state
    /// in the log differs from the list.
    Relist,
    /// The collector does not know which objects readers have, so records of all present objects follow. Readers delete
    /// each object that has no record before the next [`Record::Progress`]. A reader that lacked entries is complete
    /// again after this record.
    Restart,
    /// The cluster no longer serves the resource: all objects are gone.
    Gone,
}

const OWNER: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const PROGRESS: u8 = 4;
const RESET: u8 = 5;
const CHECKPOINT: u8 = 6;

const UID_TEXT: u8 = 0;
const UID_UUID: u8 = 1;

impl Record {
    /// Appends the record in binary form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Owner { collector } => {
                out.push(OWNER);
                put_bytes(out, collector.as_bytes());
            }
            Self::Put { key, uid, version, body } => {
                out.push(PUT);
                put_identity(out, key, uid, version);
                put_bytes(out, body);
            }
            Self::Delete { key, uid, version, last_state, tombstone } => {
                out.push(DELETE);
                put_identity(out, key, uid, version);
                out.push(u8::from(*tombstone));
                put_bytes(out, last_state);
            }
            Self::Progress { version } => {
                out.push(PROGRESS);
                put_version(out, version);
            }
            Self::Reset { reason } => {
                out.push(RESET);
                out.push(match reason {
                    ResetReason::Relist => 1,
                    ResetReason::Restart => 2,
                    ResetReason::Gone => 3,
                });
            }
            Self::Checkpoint { object, sequence } => {
                out.push(CHECKPOINT);
                put_bytes(out, object.as_bytes());
                put_integer(out, *sequence);
            }
        }
    }

    /// Decodes one record and removes it from the front of `from`. Objects share the memory of `from`.
    pub fn decode(from: &mut Bytes) -> Result<Self, DecodeError> {
        Ok(match take_byte(from, "record")? {
            OWNER => Self::Owner { collector: take_text(from, "collector")? },
            PUT => {
                let (key, uid, version) = take_identity(from)?;
                Self::Put { key, uid, version, body: take_bytes(from, "object")? }
            }
            DELETE => {
                let (key, uid, version) = take_identity(from)?;
                let tombstone = match take_byte(from, "tombstone")? {
                    0 => false,
                    1 => true,
                    _ => return Err(DecodeError::Invalid("tombstone")),
                };
                Self::Delete { key, uid, version, last_state: take_bytes(from, "object")?, tombstone }
            }
            PROGRESS => Self::Progress { version: take_version(from)? },
            RESET => Self::Reset {
                reason: match take_byte(from, "reason")? {
                    1 => ResetReason::Relist,
                    2 => ResetReason::Restart,
                    3 => ResetReason::Gone,
                    _ => return Err(DecodeError::Invalid("reason")),
                },
            },
            CHECKPOINT => {
                let object = take_text(from, "object name")?;
                Self::Checkpoint { object, sequence: take_integer(from, "sequence")? }
            }
            _ => return Err(DecodeError::Invalid("kind of record")),
        })
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { collector } => write!(f, "Owner({collector:?})"),
            Self::Put { key, version, body, .. } => write!(f, "Put({key}@{version}, {} bytes)", body.len()),
            Self::Delete { key, version, last_state, tombstone, .. } => {
                let tombstone = if *tombstone { ", tombstone" } else { "" };
                write!(f, "Delete({key}@{version}, {} bytes{tombstone})", last_state.len())
            }
            Self::Progress { version } => write!(f, "Progress({version})"),
            Self::Reset { reason } => write!(f, "Reset({reason:?})"),
            Self::Checkpoint { object, sequence } => write!(f, "Checkpoint({object:?}, {sequence})"),
        }
    }
}

fn put_identity(out: &mut Vec<u8>, key: &ObjectKey, uid: &Uid, version: &ResourceVersion) {
    put_bytes(out, key.as_str().as_bytes());
    if let Some(bytes) = uid.bytes() {
        out.push(UID_UUID);
        out.extend_from_slice(&bytes);
    } else {
        out.push(UID_TEXT);
        put_bytes(out, uid.to_string().as_bytes());
    }
    put_version(out, version);
}

fn take_identity(from: &mut Bytes) -> Result<(ObjectKey, Uid, ResourceVersion), DecodeError> {
    let key = ObjectKey::of(&take_text(from, "key")?);
    let uid = match take_byte(from, "uid")? {
        UID_TEXT => Uid::new(&take_text(from, "uid")?),
        UID_UUID if from.len() >= 16 => {
            let mut bytes = [0; 16];
            from.copy_to_slice(&mut bytes);
            Uid::of_bytes(bytes)
        }
        UID_UUID => return Err(DecodeError::Truncated("uid")),
        _ => return Err(DecodeError::Invalid("uid")),
    };
    Ok((key, uid, take_version(from)?))
}

/// Appends a resourceVersion. An integer `n`, the form of almost all servers, is written as `n + 1`. Any other text is
/// written as 0 and the text.
fn put_version(out: &mut Vec<u8>, version: &ResourceVersion) {
    if let Some(number) = version.as_number().and_then(|number| number.checked_add(1)) {
        put_integer(out, number);
    } else {
        out.push(0);
        put_bytes(out, version.to_string().as_bytes());
    }
}

fn take_version(from: &mut Bytes) -> Result<ResourceVersion, DecodeError> {
    match take_integer(from, "version")? {
        0 => Ok(ResourceVersion::new(&take_text(from, "version")?)),
        number => Ok(ResourceVersion::new(&(number - 1).to_string())),
    }
}

#[cfg(test)]
pub(crate) mod arbitrary {
    use proptest::prelude::*;

    use super::*;

    fn identity() -> impl Strategy<Value = (ObjectKey, Uid, ResourceVersion)> {
        let uid = prop_oneof![any::<[u8; 16]>().prop_map(Uid::of_bytes), "[a-z]{0,8}".prop_map(|text| Uid::new(&text))];
        let version = prop_oneof!["[0-9]{1,20}", "[a-z0-9]{0,6}", Just(u64::MAX.to_string())];
        ("[a-z]{0,5}/[a-z]{1,9}", uid, version)
            .prop_map(|(key, uid, version)| (ObjectKey::of(&key), uid, ResourceVersion::new(&version)))
    }

    fn body() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
    }

    /// Returns a strategy that generates any record.
    pub(crate) fn record() -> impl Strategy<Value = Record> {
        let reason = prop_oneof![Just(ResetReason::Relist), Just(ResetReason::Restart), Just(ResetReason::Gone)];
        prop_oneof![
            "[a-z]{0,9}".prop_map(|collector| Record::Owner { collector }),
            (identity(), body()).prop_map(|((key, uid, version), body)| Record::Put { key, uid, version, body }),
            (identity(), body(), any::<bool>()).prop_map(|((key, uid, version), last_state, tombstone)| {
                Record::Delete { key, uid, version, last_state, tombstone }
            }),
            identity().prop_map(|(_, _, version)| Record::Progress { version }),
            reason.prop_map(|reason| Record::Reset { reason }),
            ("[a-z]{0,9}", any::<u64>()).prop_map(|(object, sequence)| Record::Checkpoint { object, sequence }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_objects() {
        let body = Bytes::from_static(b"hunter2");
        let (key, uid, version) = (ObjectKey::of("a/b"), Uid::new("u"), ResourceVersion::new("7"));
        let put = Record::Put { key: key.clone(), uid: uid.clone(), version: version.clone(), body: body.clone() };
        let delete = Record::Delete { key, uid, version, last_state: body, tombstone: true };
        assert_eq!(format!("{put:?} {delete:?}"), "Put(a/b@7, 7 bytes) Delete(a/b@7, 7 bytes, tombstone)");
    }
}
