//! Object bodies for disk caches: saved in packed (compressed) form, and loaded into chunks (blocks of memory that
//! bodies share) without decompression.

use std::fmt;
use std::sync::Arc;

use super::body::{Entry, Loaded, PackedView};
use super::dictionary::Compressor;
use super::identifier_encoding::encode_identifiers;
use super::packer::ChunkBuilder;
use super::{Dictionary, PackedTotals, StoredObject};

/// Maximum bytes of a loaded body after decompression. A larger length results from damage, and must not cause an
/// allocation.
const MAX_PLAIN_LEN: usize = 64 << 20;

/// Form in which an object's body (JSON or protobuf) is currently in memory.
#[derive(Debug)]
pub enum StoredBody {
    /// Uncompressed JSON or protobuf, as [`StoredObject::plain`] returns it.
    Plain(Arc<[u8]>),
    /// Compressed JSON or protobuf.
    Packed(PackedBody),
    /// Not in memory, because the memory limit leaves no room for bodies.
    Unkept,
}

/// A packed (compressed) body whose bytes can be saved as they are.
pub struct PackedBody(PackedView);

impl PackedBody {
    /// Returns the dictionary that the body is compressed with.
    #[must_use]
    pub fn dictionary(&self) -> &Arc<Dictionary> {
        self.0.dictionary()
    }

    /// Returns the packed bytes, which [`BodyLoader::add`] accepts.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl fmt::Debug for PackedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedBody").field("len", &self.bytes().len()).finish()
    }
}

impl StoredObject {
    /// Returns the body in its current form.
    #[must_use]
    pub fn stored_body(&self) -> StoredBody {
        match self.load() {
            Loaded::Plain(bytes) => StoredBody::Plain(bytes),
            Loaded::Packed(view) => StoredBody::Packed(PackedBody(view)),
            Loaded::Unkept => StoredBody::Unkept,
        }
    }
}

/// Packs plain bodies for disk without changing them in memory.
pub struct DiskPacker {
    compressor: Compressor,
    encoded: Vec<u8>,
    frame: Vec<u8>,
}

impl DiskPacker {
    /// Creates a packer with one dictionary.
    #[must_use]
    pub fn new(dictionary: &Dictionary) -> Self {
        Self { compressor: Compressor::new(dictionary), encoded: Vec::new(), frame: Vec::new() }
    }

    /// Appends the packed form of `plain`, an object's plain body, to `out`. If packing does not shrink it, appends
    /// nothing and returns `false`. Costs about 20 µs for a pod.
    pub fn pack(&mut self, object: &StoredObject, plain: &[u8], out: &mut Vec<u8>) -> bool {
        self.encoded.clear();
        let is_encoded = object.with_known_texts(|known| encode_identifiers(plain, known, &mut self.encoded));
        let input = if is_encoded { &self.encoded } else { plain };
        let Some(packed) = self.compressor.compress(input, &mut self.frame) else { return false };
        if packed.len() >= plain.len() {
            return false;
        }
        Entry { len: plain.len(), is_encoded, packed, whole: packed.len() }.write(out);
        true
    }
}

impl fmt::Debug for DiskPacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskPacker").finish_non_exhaustive()
    }
}

/// Loads packed bodies from disk into chunks (blocks of memory that bodies share). All bodies must be compressed with
/// the same dictionary.
pub struct BodyLoader(ChunkBuilder);

impl BodyLoader {
    /// Creates a loader that adds its chunks to `totals`.
    #[must_use]
    pub fn new(dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> Self {
        Self(ChunkBuilder::new(dictionary, totals))
    }

    /// Adds `bytes` as the packed body of `object`. The object gets this body when the current chunk (block of
    /// memory that bodies share) is full, or by [`Self::finish`]. If `bytes` are not a packed body, does nothing and
    /// returns `false`.
    pub fn add(&mut self, object: &Arc<StoredObject>, bytes: &[u8]) -> bool {
        let entry = Entry::read(bytes);
        let is_valid = entry.whole == bytes.len() && !entry.packed.is_empty() && entry.len <= MAX_PLAIN_LEN;
        if is_valid {
            self.0.place(object, &entry);
        }
        is_valid
    }

    /// Completes the last chunk (block of memory that bodies share), and sets the bodies of its objects.
    pub fn finish(mut self) {
        self.0.seal();
    }
}

impl fmt::Debug for BodyLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyLoader").finish_non_exhaustive()
    }
}
