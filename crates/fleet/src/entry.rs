//! Entries of the log: messages with a header and a batch of records.
//!
//! # Format
//! The header is one byte with the format's version, one byte of flags, and three integers: epoch, number, and sequence
//! of the previous entry.
//!
//! The body follows: one byte that is 1 if it is compressed and 0 if not, then the encoded records. Before compressed
//! records is an integer with their uncompressed size. A body that is too long for one message continues in the next
//! entries.

use std::fmt;
use std::io::Read;

use bytes::Bytes;

use super::partition::Partition;
use super::record::Record;
use super::wire::{DecodeError, put_integer, take_byte, take_integer};

/// Number of an entry in the log. All partitions take their numbers from one sequence, so the numbers of one partition
/// have gaps. Zero precedes the first entry.
///
/// A number is never used again, even if the log is deleted and created anew: appending by compare-and-set relies on
/// this.
pub type Sequence = u64;

/// Version of the entry format that this program writes, and the newest that it reads.
const FORMAT: u8 = 1;
const COMPRESSED: u8 = 1;
const CONTINUES: u8 = 2;
/// Size in bytes below which the body of an entry, its encoded records, is not compressed.
const LEAST_TO_COMPRESS: usize = 512;
/// zstd level of entry bodies: the fastest. The log keeps entries for a short time, so speed counts more than size.
const LEVEL: i32 = 1;
/// Largest uncompressed body of one batch, in bytes. An apiserver accepts objects of about 3 MiB.
pub const MAX_BODY: usize = 64 << 20;
/// Maximum initial allocation in bytes for an uncompressed body, however large it claims to be.
const MAX_ALLOCATION: usize = 1 << 20;
/// Largest zstd window that a decoder accepts, as a power of two: 8 MiB. It bounds the decoder's memory. The zstd
/// levels of this program use smaller windows.
pub(crate) const MAX_WINDOW_LOG: u32 = 23;
/// Upper bound for the bytes that [`Header::encode`] adds to a body.
pub(crate) const MAX_HEADER: usize = 32;

/// Stored message of the log: a batch of records of one partition, or, if the batch is long, a part of it.
///
/// `Debug` shows the size of the payload, since an object may be a Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Partition of the entry.
    pub partition: Partition,
    /// Sequence of the entry in the log.
    pub sequence: Sequence,
    /// Header and records, encoded.
    pub payload: Bytes,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} of {}, {} bytes)", self.sequence, self.partition, self.payload.len())
    }
}

/// Header of an entry of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Epoch, the term number, of the collector that appended the entry.
    pub epoch: u64,
    /// Number of the entry, counted from 0 since its collector claimed the partition. Entry 0 has [`Record::Owner`].
    pub number: u64,
    /// Sequence of the partition's previous entry; zero if there was none. Readers use it to detect missing entries.
    pub previous: Sequence,
    /// Whether the encoded batch of records (body) continues in the next entry.
    pub continues: bool,
}

impl Header {
    /// Returns the payload of an entry: this header, then `body`, which [`pack`] has encoded.
    #[must_use]
    pub fn encode(&self, body: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(MAX_HEADER + body.len());
        out.push(FORMAT);
        out.push(if self.continues { CONTINUES } else { 0 });
        for value in [self.epoch, self.number, self.previous] {
            put_integer(&mut out, value);
        }
        out.extend_from_slice(body);
        out.into()
    }

    /// Decodes the header of a payload. Also returns the remaining bytes: the encoded records (body), or a part of
    /// them.
    pub fn decode(payload: &Bytes) -> Result<(Self, Bytes), DecodeError> {
        let mut rest = payload.clone();
        let found = take_byte(&mut rest, "entry")?;
        if found > FORMAT {
            return Err(DecodeError::Newer { found, known: FORMAT });
        }
        let flags = take_byte(&mut rest, "flags")?;
        if found == 0 || flags & !CONTINUES != 0 {
            return Err(DecodeError::Invalid("flags"));
        }
        let epoch = take_integer(&mut rest, "epoch")?;
        let number = take_integer(&mut rest, "number")?;
        let previous = take_integer(&mut rest, "previous sequence")?;
        Ok((Self { epoch, number, previous, continues: flags & CONTINUES != 0 }, rest))
    }
}

/// Returns the body of an entry for these encoded records. If `compress` is true and it saves space, the body is
/// compressed.
#[must_use]
pub fn pack(records: &[u8], compress: bool) -> Vec<u8> {
    if compress
        && records.len() >= LEAST_TO_COMPRESS
        && let Ok(small) = zstd::bulk::compress(records, LEVEL)
        && small.len() + 8 < records.len()
    {
        let mut body = Vec::with_capacity(small.len() + 8);
        body.push(COMPRESSED);
        put_integer(&mut body, records.len() as u64);
        body.extend_from_slice(&small);
        return body;
    }
    let mut body = Vec::with_capacity(records.len() + 1);
    body.push(0);
    body.extend_from_slice(records);
    body
}

/// Decodes the records of a complete body.
pub fn unpack(body: &Bytes) -> Result<Vec<Record>, DecodeError> {
    let mut rest = unpack_bytes(body)?;
    let mut records = Vec::new();
    while !rest.is_empty() {
        records.push(Record::decode(&mut rest)?);
    }
    Ok(records)
}

/// Returns the uncompressed bytes of a body.
pub(crate) fn unpack_bytes(body: &Bytes) -> Result<Bytes, DecodeError> {
    let mut rest = body.clone();
    match take_byte(&mut rest, "body")? {
        0 => Ok(rest),
        COMPRESSED => decompress(&mut rest),
        _ => Err(DecodeError::Invalid("body")),
    }
}

fn decompress(from: &mut Bytes) -> Result<Bytes, DecodeError> {
    let size = take_integer(from, "size of the body")?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_BODY {
        return Err(DecodeError::TooLarge("body", MAX_BODY));
    }
    let invalid = |_| DecodeError::Invalid("compressed body");
    let mut plain = Vec::with_capacity(size.min(MAX_ALLOCATION));
    let mut decoder = zstd::stream::read::Decoder::with_buffer(from.as_ref()).map_err(invalid)?;
    decoder.window_log_max(MAX_WINDOW_LOG).map_err(invalid)?;
    decoder.take(size as u64 + 1).read_to_end(&mut plain).map_err(invalid)?;
    if plain.len() == size { Ok(plain.into()) } else { Err(DecodeError::Invalid("size of the body")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::arbitrary::record;

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        for record in records {
            record.encode(&mut out);
        }
        out
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn entries_read_back(
            records in prop::collection::vec(record(), 0..6),
            (epoch, number, previous) in any::<(u64, u64, u64)>(),
            (continues, compress) in any::<(bool, bool)>(),
        ) {
            let header = Header { epoch, number, previous, continues };
            let payload = header.encode(&pack(&encoded(&records), compress));
            let (found, body) = Header::decode(&payload).unwrap();
            prop_assert_eq!(found, header);
            prop_assert_eq!(unpack(&body), Ok(records));
        }

        #[test]
        fn damaged_entries_are_errors_or_other_records_but_never_panic(
            records in prop::collection::vec(record(), 1..4),
            compress in any::<bool>(),
            cut in any::<prop::sample::Index>(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let header = Header { epoch: 1, number: 2, previous: 3, continues: false };
            let mut bytes = header.encode(&pack(&encoded(&records), compress)).to_vec();
            for (at, with) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= with;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok((_, body)) = Header::decode(&bytes.into()) {
                let _ = unpack(&body);
            }
        }

        #[test]
        fn truncated_batch_is_an_error(records in prop::collection::vec(record(), 1..4), cut in any::<prop::sample::Index>()) {
            let whole = pack(&encoded(&records), false);
            let kept = cut.index(whole.len());
            let read = unpack(&Bytes::copy_from_slice(&whole[..kept]));
            // A cut between two records cannot be seen; every other one is an error.
            prop_assert!(read.is_err() || read.is_ok_and(|read| records.starts_with(&read) && read.len() < records.len()));
        }
    }

    #[test]
    fn newer_format_is_refused_with_the_remedy() {
        let mut payload = Header { epoch: 1, number: 0, previous: 0, continues: false }.encode(&[]).to_vec();
        payload[0] = FORMAT + 1;
        let error = Header::decode(&payload.into()).unwrap_err();
        assert_eq!(error, DecodeError::Newer { found: FORMAT + 1, known: FORMAT });
        assert!(error.to_string().contains("upgrade"), "{error}");
    }

    #[test]
    fn compression_shrinks_json_and_leaves_noise() {
        let json = br#"{"metadata":{"name":"web","labels":{"app":"web"}}}"#.repeat(40);
        assert!(pack(&json, true).len() < json.len() / 4);
        assert_eq!(pack(&json, false).len(), json.len() + 1);
        let mut state = 1_u64;
        let noise: Vec<u8> = (0..2000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_le_bytes()[7]
            })
            .collect();
        assert_eq!(pack(&noise, true)[0], 0);
    }

    #[test]
    fn claimed_size_is_verified() {
        let bomb = zstd::bulk::compress(&vec![0; 4 << 20], 1).unwrap();
        for claimed in [10, u64::MAX, (MAX_BODY + 1) as u64] {
            let mut body = vec![COMPRESSED];
            put_integer(&mut body, claimed);
            body.extend_from_slice(&bomb);
            assert!(unpack(&body.into()).is_err(), "{claimed}");
        }
    }
}
