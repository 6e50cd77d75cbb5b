//! Checkpoints: the objects of one partition at a sequence of the log.
//!
//! A reader that starts with the newest checkpoint needs only the log's entries after it. Objects are written and read
//! one by one, so only one is in memory at a time.
//!
//! # Format
//! Four bytes `IHFC`, one byte with the format's version, then a zstd stream: the head, one length-prefixed
//! [`Record::Put`] per object, a zero length, and the number of objects.

use std::fmt;
use std::io::{self, BufReader, Read, Write};

use bytes::Bytes;
use informer_hub_types::ResourceVersion;

use super::entry::{MAX_BODY, MAX_WINDOW_LOG};
use super::reader::PartitionState;
use super::record::Record;
use super::wire::{DecodeError, put_bytes, put_integer, take_bytes, take_integer, take_text};

const MAGIC: &[u8; 4] = b"IHFC";
const FORMAT: u8 = 1;
/// zstd level of checkpoints. It is higher than that of log entries, because checkpoints are kept longer and written
/// rarely.
const LEVEL: i32 = 3;
/// Maximum length of the head, which encodes the partition's state, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// Error of reading a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The bytes cannot be read from their source, or are not a zstd stream.
    #[error("cannot read the checkpoint")]
    Read(#[source] io::Error),
    /// The bytes are not a checkpoint, or are damaged. The caller must use an older checkpoint, or list from the
    /// apiserver.
    #[error("cannot decode the checkpoint")]
    Decode(#[source] DecodeError),
}

impl From<DecodeError> for CheckpointError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// Writes a checkpoint.
pub struct CheckpointWriter<W: Write> {
    out: zstd::stream::write::Encoder<'static, W>,
    record: Vec<u8>,
    objects: u64,
}

impl<W: Write> fmt::Debug for CheckpointWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointWriter").field("objects", &self.objects).finish_non_exhaustive()
    }
}

impl<W: Write> CheckpointWriter<W> {
    /// Begins the checkpoint of a partition with this state. The state must be [settled](PartitionState::is_settled):
    /// complete, and without changes after its resume point.
    pub fn new(mut out: W, state: &PartitionState) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&[FORMAT])?;
        let mut bytes = Vec::new();
        for value in [state.epoch, state.applied] {
            put_integer(&mut bytes, value);
        }
        put_bytes(&mut bytes, state.owner.as_bytes());
        let resume = state.resume.as_ref().map(ToString::to_string);
        put_integer(&mut bytes, u64::from(resume.is_some()));
        put_bytes(&mut bytes, resume.unwrap_or_default().as_bytes());
        let mut out = zstd::stream::write::Encoder::new(out, LEVEL)?;
        write_block(&mut out, &bytes)?;
        Ok(Self { out, record: Vec::new(), objects: 0 })
    }

    /// Writes an object.
    ///
    /// # Errors
    /// The output fails, or the record is not a [`Record::Put`].
    pub fn put(&mut self, object: &Record) -> io::Result<()> {
        if !matches!(object, Record::Put { .. }) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "only objects belong in a checkpoint"));
        }
        self.record.clear();
        object.encode(&mut self.record);
        self.objects += 1;
        write_block(&mut self.out, &self.record)
    }

    /// Writes the end of the checkpoint: a zero length and the number of objects. Returns the output, without flushing
    /// it.
    pub fn finish(mut self) -> io::Result<W> {
        let mut end = Vec::new();
        put_integer(&mut end, 0);
        put_integer(&mut end, self.objects);
        self.out.write_all(&end)?;
        self.out.finish()
    }
}

fn write_block(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut length = Vec::new();
    put_integer(&mut length, bytes.len() as u64);
    out.write_all(&length)?;
    out.write_all(bytes)
}

/// Reads a checkpoint: an iterator over its objects. An error ends it.
pub struct CheckpointReader<R: Read> {
    from: zstd::stream::read::Decoder<'static, BufReader<R>>,
    state: PartitionState,
    objects: u64,
    ended: bool,
}

impl<R: Read> fmt::Debug for CheckpointReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointReader").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<R: Read> CheckpointReader<R> {
    /// Opens a checkpoint and reads its head, for [`Self::state`]. The objects follow, and are still to be read.
    pub fn new(mut from: R) -> Result<Self, CheckpointError> {
        let mut start = [0; 5];
        from.read_exact(&mut start).map_err(CheckpointError::Read)?;
        let [magic @ .., format] = start;
        if magic != *MAGIC || format == 0 {
            return Err(DecodeError::Invalid("start of the checkpoint").into());
        }
        if format > FORMAT {
            return Err(DecodeError::Newer { found: format, known: FORMAT }.into());
        }
        let mut from = zstd::stream::read::Decoder::new(from).map_err(CheckpointError::Read)?;
        from.window_log_max(MAX_WINDOW_LOG).map_err(CheckpointError::Read)?;
        let head = read_block(&mut from, MAX_HEAD)?;
        Ok(Self { from, state: decode_head(head)?, objects: 0, ended: false })
    }

    /// Returns the state of the partition. Its `applied` is the sequence of the last entry that the checkpoint contains.
    #[must_use]
    pub fn state(&self) -> &PartitionState {
        &self.state
    }

    fn read(&mut self) -> Result<Option<Record>, CheckpointError> {
        let mut block = read_block(&mut self.from, MAX_BODY)?;
        if block.is_empty() {
            let objects = read_integer(&mut self.from)?;
            return if objects == self.objects {
                Ok(None)
            } else {
                Err(DecodeError::Invalid("number of objects").into())
            };
        }
        self.objects += 1;
        match Record::decode(&mut block)? {
            record @ Record::Put { .. } if block.is_empty() => Ok(Some(record)),
            _ => Err(DecodeError::Invalid("object of the checkpoint").into()),
        }
    }
}

impl<R: Read> Iterator for CheckpointReader<R> {
    type Item = Result<Record, CheckpointError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

fn decode_head(mut from: Bytes) -> Result<PartitionState, DecodeError> {
    let epoch = take_integer(&mut from, "epoch")?;
    let applied = take_integer(&mut from, "sequence")?;
    let owner = take_text(&mut from, "owner")?;
    let has_resume = take_integer(&mut from, "version")? == 1;
    let resume = take_bytes(&mut from, "version")?;
    let resume = std::str::from_utf8(&resume).map_err(|_| DecodeError::Invalid("version"))?;
    let resume = has_resume.then(|| ResourceVersion::new(resume));
    Ok(PartitionState { epoch, owner, last: applied, applied, resume, complete: true, ..PartitionState::default() })
}

fn read_integer(from: &mut impl Read) -> Result<u64, CheckpointError> {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        from.read_exact(&mut byte).map_err(CheckpointError::Read)?;
        bytes.push(byte[0]);
        if byte[0] & 0x80 == 0 || bytes.len() > 10 {
            return Ok(take_integer(&mut Bytes::from(bytes), "length")?);
        }
    }
}

/// Reads a length-prefixed block. Memory grows with the bytes that arrive, not with the claimed length.
fn read_block(from: &mut impl Read, limit: usize) -> Result<Bytes, CheckpointError> {
    let length = read_integer(from)?;
    if length > limit as u64 {
        return Err(DecodeError::TooLarge("block", limit).into());
    }
    let mut bytes = Vec::new();
    from.take(length).read_to_end(&mut bytes).map_err(CheckpointError::Read)?;
    if bytes.len() as u64 == length { Ok(bytes.into()) } else { Err(DecodeError::Truncated("block").into()) }
}

#[cfg(test)]
mod tests {
    use informer_hub_types::{ObjectKey, Uid};
    use proptest::prelude::*;

    use super::*;

    fn object(name: u32) -> Record {
        Record::Put {
            key: ObjectKey::new("shop", &name.to_string()),
            uid: Uid::new("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
            version: ResourceVersion::new("17"),
            body: vec![b'x'; name as usize].into(),
        }
    }

    fn state(resume: Option<&str>) -> PartitionState {
        let resume = resume.map(ResourceVersion::new);
        let owner = "a".to_owned();
        PartitionState { epoch: 3, owner, last: 9, applied: 9, resume, complete: true, ..PartitionState::default() }
    }

    fn written(state: &PartitionState, objects: u32) -> Vec<u8> {
        let mut writer = CheckpointWriter::new(Vec::new(), state).unwrap();
        (0..objects).for_each(|name| writer.put(&object(name)).unwrap());
        writer.finish().unwrap()
    }

    fn all(bytes: &[u8]) -> Result<Vec<Record>, CheckpointError> {
        CheckpointReader::new(bytes)?.collect()
    }

    #[test]
    fn checkpoint_reads_back() {
        for resume in [None, Some("41"), Some("x"), Some("")] {
            let bytes = written(&state(resume), 50);
            assert_eq!(*CheckpointReader::new(&*bytes).unwrap().state(), state(resume));
            assert_eq!(all(&bytes).unwrap(), (0..50).map(object).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = written(&state(Some("41")), 20);
        for length in 0..bytes.len() {
            assert!(all(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn missing_object_is_an_error() {
        let mut writer = CheckpointWriter::new(Vec::new(), &state(None)).unwrap();
        writer.put(&object(1)).unwrap();
        writer.objects += 1;
        assert!(all(&writer.finish().unwrap()).is_err());
    }

    #[test]
    fn newer_format_is_refused() {
        let mut bytes = written(&state(None), 1);
        bytes[4] = FORMAT + 1;
        let error = CheckpointReader::new(&*bytes).unwrap_err();
        assert!(matches!(error, CheckpointError::Decode(DecodeError::Newer { .. })), "{error:?}");
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn damaged_checkpoints_never_panic(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        ) {
            let mut bytes = written(&state(Some("41")), 10);
            for (at, with) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= with;
            }
            let _ = all(&bytes);
        }
    }
}
