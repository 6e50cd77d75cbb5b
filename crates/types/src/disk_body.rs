//! Bodies as they are kept on disk: read as they lie, and laid into chunks again without a look into them.

use std::fmt;
use std::sync::Arc;

use super::body::{Chunks, Entry, PackedView};
use super::dictionary::Compressor;
use super::identifier_encoding::encode_identifiers;
use super::object::Loaded;
use super::{Dictionary, PackedTotals, StoredObject};

/// No body is longer: what says that it is has come to harm, and memory must not be taken for it.
const LONGEST: usize = 64 << 20;

/// A body as it lies now.
#[derive(Debug)]
pub enum StoredBody {
    /// As it came.
    Plain(Arc<[u8]>),
    /// Packed.
    Packed(PackedBody),
    /// Not there.
    Unkept,
}

/// A packed body to be read as it lies.
pub struct PackedBody(PackedView);

impl PackedBody {
    /// What it is packed with.
    #[must_use]
    pub fn dictionary(&self) -> &Arc<Dictionary> {
        self.0.dictionary()
    }

    /// Its bytes; [`BodyLoader::add`] takes them back.
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
    /// The body as it lies.
    #[must_use]
    pub fn stored_body(&self) -> StoredBody {
        match self.load() {
            Loaded::Plain(bytes) => StoredBody::Plain(bytes),
            Loaded::Packed(view) => StoredBody::Packed(PackedBody(view)),
            Loaded::Unkept => StoredBody::Unkept,
        }
    }
}

/// Packs plain bodies for the disk, and leaves them plain in memory.
pub struct DiskPacker {
    compressor: Compressor,
    encoded: Vec<u8>,
    frame: Vec<u8>,
}

impl DiskPacker {
    /// A packer with one dictionary.
    #[must_use]
    pub fn new(dictionary: &Dictionary) -> Self {
        Self { compressor: Compressor::new(dictionary), encoded: Vec::new(), frame: Vec::new() }
    }

    /// Adds the packed form of a plain body to `out`; `false`, and nothing added, where it gets no smaller by that. Costs
    /// about 20 µs for a pod.
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

/// Gives objects that come from disk their packed bodies, end to end in chunks, all of one dictionary.
pub struct BodyLoader(Chunks);

impl BodyLoader {
    /// A shelf that counts in `totals` what lies on it.
    #[must_use]
    pub fn new(dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> Self {
        Self(Chunks::new(dictionary, totals))
    }

    /// Gives an object a body, at [`Self::finish`] at the latest. `false`, and nothing done, where the bytes are none.
    pub fn add(&mut self, object: &Arc<StoredObject>, bytes: &[u8]) -> bool {
        let entry = Entry::read(bytes);
        let is_one = entry.whole == bytes.len() && !entry.packed.is_empty() && entry.len <= LONGEST;
        if is_one {
            self.0.place(object, &entry);
        }
        is_one
    }

    /// Gives the last ones theirs.
    pub fn finish(mut self) {
        self.0.seal();
    }
}

impl fmt::Debug for BodyLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyLoader").finish_non_exhaustive()
    }
}
