//! In-memory forms of an object's body. The body of a recently changed object is plain. Later it is compressed and
//! packed into a chunk, a block of memory that bodies share.
//!
//! A body is JSON, or protobuf in an envelope. Its first bytes show which of the two it is, so the encoding is not
//! stored separately.
//!
//! Packed bodies are stored end to end in chunks. They need no allocation of their own, and freed memory returns in
//! whole pages. A chunk is freed together with its last body. A chunk with little live data is emptied by packing its
//! remaining bodies again ([`Packer`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::identifier_encoding::{KnownTexts, decode_identifiers};
use super::{CodecError, Dictionary};

/// Body of an object as stored in memory. A stored body can change its form, e.g. when it is compressed, but never its
/// content.
#[derive(Debug)]
pub(super) enum Body {
    /// Uncompressed JSON or protobuf from the apiserver. The fields that the informer drops are already removed.
    Plain(Arc<[u8]>),
    /// Plain protobuf together with the JSON that a reader has converted it to. Boxed to keep this enum small, which
    /// every object contains.
    Converted(Box<Converted>),
    /// Compressed, in a chunk (block of memory that bodies share).
    Packed(Packed),
    /// Not stored: the memory limit leaves room for the head only (name, version, labels and index values).
    Unkept,
}

/// A plain protobuf body and its JSON, kept so that the next reader need not convert it again.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) protobuf: Arc<[u8]>,
    pub(super) json: Arc<[u8]>,
}

impl Body {
    /// Returns how many bytes the body currently occupies.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Converted(converted) => converted.protobuf.len() + converted.json.len(),
            Self::Packed(packed) => packed.size(),
            Self::Unkept => 0,
        }
    }

    /// Returns the uncompressed length of the stored bytes.
    pub(super) fn plain_size(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Converted(converted) => converted.protobuf.len(),
            Self::Packed(packed) => packed.plain_size(),
            Self::Unkept => 0,
        }
    }

    /// Returns the stored body, JSON or protobuf. A protobuf body is returned as protobuf, even if its JSON is stored
    /// too.
    pub(super) fn load(&self) -> Loaded {
        match self {
            Self::Plain(bytes) => Loaded::Plain(Arc::clone(bytes)),
            Self::Converted(converted) => Loaded::Plain(Arc::clone(&converted.protobuf)),
            Self::Packed(packed) => Loaded::Packed(packed.view()),
            Self::Unkept => Loaded::Unkept,
        }
    }
}

/// Body that a reader has loaded from an object: the stored bytes, JSON or protobuf. It stays readable after the object
/// has replaced its body.
pub(super) enum Loaded {
    Plain(Arc<[u8]>),
    Packed(PackedView),
    Unkept,
}

/// Place of one compressed body in its [`Chunk`], a block of memory that bodies share. The body's bytes count as live
/// (in use) until this is dropped.
#[derive(Debug)]
pub(super) struct Packed {
    chunk: Arc<Chunk>,
    at: u32,
}

impl Packed {
    pub(super) fn new(chunk: &Arc<Chunk>, at: u32) -> Self {
        Self { chunk: Arc::clone(chunk), at }
    }

    /// Returns how many bytes the body occupies in its chunk.
    pub(super) fn size(&self) -> usize {
        self.chunk.entry(self.at).whole
    }

    /// Returns the uncompressed length of the stored bytes.
    pub(super) fn plain_size(&self) -> usize {
        self.chunk.entry(self.at).len
    }

    /// Returns whether packing the body again may save memory: its chunk has much unused space, or the body is not
    /// compressed with `dictionary`. If `dictionary` is `None`, only the chunk is checked.
    pub(super) fn wants_packing(&self, dictionary: Option<&Arc<Dictionary>>) -> bool {
        self.chunk.is_sparse() || dictionary.is_some_and(|wanted| !Arc::ptr_eq(&self.chunk.dictionary, wanted))
    }

    /// Returns a view that can be read without holding the object's lock.
    pub(super) fn view(&self) -> PackedView {
        PackedView { chunk: Arc::clone(&self.chunk), at: self.at }
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let size = self.size();
        self.chunk.live.fetch_sub(size, Relaxed);
        self.chunk.totals.live.fetch_sub(size, Relaxed);
    }
}

/// Readable view of a packed body. It stays valid even after the object's body has moved to another chunk.
pub(super) struct PackedView {
    chunk: Arc<Chunk>,
    at: u32,
}

impl PackedView {
    /// Returns the dictionary that the body is compressed with.
    pub(super) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.chunk.dictionary
    }

    /// Returns the body as it is stored in the chunk, an encoded [`Entry`].
    pub(super) fn bytes(&self) -> &[u8] {
        let (at, whole) = (self.at as usize, self.entry().whole);
        self.chunk.bytes.get(at..at + whole).unwrap_or_default()
    }

    /// Returns whether less than two thirds of the chunk's bytes are live. Then it pays to pack the live bodies into a
    /// new chunk.
    pub(super) fn is_in_sparse_chunk(&self) -> bool {
        self.chunk.is_sparse()
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        self.chunk.entry(self.at)
    }

    /// Returns the stored bytes (JSON or protobuf), decompressed and decoded. `known` are the object's UID, name and
    /// version, which the encoding left out.
    pub(super) fn stored(&self, known: &KnownTexts<'_>) -> Result<Vec<u8>, CodecError> {
        let entry = self.entry();
        let mut encoded = Vec::new();
        self.chunk.dictionary.decompress(entry.packed, entry.len, &mut encoded)?;
        if !entry.is_encoded {
            return if encoded.len() == entry.len { Ok(encoded) } else { Err(CodecError("decoded length is wrong")) };
        }
        let mut stored = Vec::with_capacity(entry.len);
        decode_identifiers(&encoded, known, entry.len, &mut stored)?;
        if stored.len() == entry.len { Ok(stored) } else { Err(CodecError("decoded length is wrong")) }
    }
}

/// Layout of one object body in a chunk: two LEB128 numbers, then the compressed bytes.
///
/// The first number is twice the length of the plain body. One is added if identifiers in the body, such as UUIDs, were
/// encoded in binary form before compression. The second number is the length of the compressed bytes.
pub(super) struct Entry<'c> {
    pub(super) len: usize,
    pub(super) is_encoded: bool,
    pub(super) packed: &'c [u8],
    /// Length of the entry in bytes: both length numbers and the compressed bytes.
    pub(super) whole: usize,
}

impl<'c> Entry<'c> {
    /// Reads an entry, one compressed body with its lengths. Input that [`Self::write`] did not produce gives an
    /// arbitrary or empty entry.
    pub(super) fn read(bytes: &'c [u8]) -> Self {
        let (first, rest) = number(bytes);
        let (size, rest) = number(rest);
        let packed = rest.get(..size).unwrap_or_default();
        Self { len: first >> 1, is_encoded: first & 1 == 1, packed, whole: bytes.len() - rest.len() + packed.len() }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_number(self.len << 1 | usize::from(self.is_encoded), out);
        put_number(self.packed.len(), out);
        out.extend_from_slice(self.packed);
    }
}

fn number(bytes: &[u8]) -> (usize, &[u8]) {
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return (value, &bytes[at + 1..]);
        }
    }
    (0, &[])
}

fn put_number(mut value: usize, out: &mut Vec<u8>) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

/// Block of memory with compressed bodies, stored end to end.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Box<[u8]>,
    dictionary: Arc<Dictionary>,
    /// How many bytes of the chunk belong to bodies that objects still use.
    live: AtomicUsize,
    totals: Arc<PackedTotals>,
}

impl Chunk {
    /// Creates a chunk whose bodies are all live, and adds it to `totals`.
    pub(super) fn new(bytes: Box<[u8]>, dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> Arc<Self> {
        totals.bytes.fetch_add(bytes.len(), Relaxed);
        totals.live.fetch_add(bytes.len(), Relaxed);
        let (dictionary, totals) = (Arc::clone(dictionary), Arc::clone(totals));
        Arc::new(Self { live: AtomicUsize::new(bytes.len()), bytes, dictionary, totals })
    }

    fn entry(&self, at: u32) -> Entry<'_> {
        Entry::read(self.bytes.get(at as usize..).unwrap_or_default())
    }

    /// Returns whether less than two thirds of the chunk's bytes are live. Then it pays to pack the live bodies into a
    /// new chunk.
    fn is_sparse(&self) -> bool {
        self.live.load(Relaxed) * 3 < self.bytes.len() * 2
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.totals.bytes.fetch_sub(self.bytes.len(), Relaxed);
    }
}

/// Memory totals of the packed (compressed) bodies of one resource.
#[derive(Debug, Default)]
pub struct PackedTotals {
    bytes: AtomicUsize,
    live: AtomicUsize,
}

impl PackedTotals {
    /// Returns the size of all chunks in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns the size in bytes of the bodies that objects still use.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }
}
