//! Processes of later versions of the program, which write other formats of log, checkpoints and documents.

use bytes::{Bytes, BytesMut};
use informer_hub_fleet::{Answer, Entry, Request};

/// Offset of the format number in entries and documents.
const AT_BEGIN: usize = 0;
const IN_CHECKPOINT: usize = 4;

/// Version of the program that a simulated process runs: 0 for this version, more for a later one. A later version's
/// format numbers are higher by this amount; its formats are otherwise the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Later(pub(crate) u8);

impl Later {
    pub(super) fn request(self, request: Request) -> Request {
        match request {
            Request::Append { partition, expected, payload } => {
                Request::Append { partition, expected, payload: self.write(payload) }
            }
            request @ Request::ReadLast { .. } => request,
        }
    }

    pub(super) fn answer(self, answer: Answer) -> Answer {
        match answer {
            Answer::Last(last) => Answer::Last(last.map(|last| self.entry(last))),
            answer => answer,
        }
    }

    /// Returns an entry as this later process reads it: its format number is lowered, so that this program can decode
    /// it.
    pub(crate) fn entry(self, entry: Entry) -> Entry {
        Entry { payload: self.read(entry.payload), ..entry }
    }

    pub(super) fn write(self, bytes: Bytes) -> Bytes {
        self.renumber(bytes, AT_BEGIN, |format| format + self.0)
    }

    pub(super) fn read(self, bytes: Bytes) -> Bytes {
        self.renumber(bytes, AT_BEGIN, |format| format.saturating_sub(self.0).max(1))
    }

    pub(super) fn write_checkpoint(self, bytes: Bytes) -> Bytes {
        self.renumber(bytes, IN_CHECKPOINT, |format| format + self.0)
    }

    pub(super) fn read_checkpoint(self, bytes: Bytes) -> Bytes {
        self.renumber(bytes, IN_CHECKPOINT, |format| format.saturating_sub(self.0).max(1))
    }

    fn renumber(self, bytes: Bytes, at: usize, number: impl FnOnce(u8) -> u8) -> Bytes {
        if self.0 == 0 || bytes.len() <= at {
            return bytes;
        }
        let mut bytes = BytesMut::from(bytes);
        bytes[at] = number(bytes[at]);
        bytes.freeze()
    }
}
