//! In-memory form of object bodies: plain while recently changed, then packed into chunks.
//!
//! Packed bodies are stored end to end in chunks. They need no allocation of their own, and freed memory returns in
//! whole pages. A chunk is freed with its last body. A chunk with little live data is emptied by packing its remaining
//! bodies again ([`Packer`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::dictionary::Compressor;
use super::identifier_encoding::{KnownTexts, decode_identifiers, encode_identifiers};
use super::object::Loaded;
use super::{CodecError, Dictionary, StoredObject};

/// Bytes of an object as stored in memory. The form changes, the content never does.
#[derive(Debug)]
pub(super) enum Body {
    /// As received, without the fields that the projection dropped.
    Plain(Arc<[u8]>),
    /// Compressed, in a chunk.
    Packed(Packed),
    /// Not stored: the memory limit leaves room for the head only.
    Unkept,
}

/// Location of one body in a chunk. The body counts as live until this is dropped.
#[derive(Debug)]
pub(super) struct Packed {
    chunk: Arc<Chunk>,
    at: u32,
}

impl Packed {
    /// Returns the bytes it occupies in its chunk.
    pub(super) fn size(&self) -> usize {
        self.chunk.entry(self.at).whole
    }

    /// Returns the length of the JSON in bytes.
    pub(super) fn plain_size(&self) -> usize {
        self.chunk.entry(self.at).len
    }

    /// Returns whether packing it again may save memory.
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

/// Readable view of a packed body. It stays valid after the object has moved to another chunk.
pub(super) struct PackedView {
    chunk: Arc<Chunk>,
    at: u32,
}

impl PackedView {
    /// Returns the dictionary it is compressed with.
    pub(super) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.chunk.dictionary
    }

    /// Returns its entry in the chunk.
    pub(super) fn bytes(&self) -> &[u8] {
        let (at, whole) = (self.at as usize, self.entry().whole);
        self.chunk.bytes.get(at..at + whole).unwrap_or_default()
    }

    fn entry(&self) -> Entry<'_> {
        self.chunk.entry(self.at)
    }

    /// Decodes the JSON. `known` are the texts of the object's head that the encoding left out.
    pub(super) fn json(&self, known: &KnownTexts<'_>) -> Result<Vec<u8>, CodecError> {
        let entry = self.entry();
        let mut encoded = Vec::new();
        self.chunk.dictionary.decompress(entry.packed, entry.len, &mut encoded)?;
        if !entry.is_encoded {
            return if encoded.len() == entry.len { Ok(encoded) } else { Err(CodecError("length differs")) };
        }
        let mut json = Vec::with_capacity(entry.len);
        decode_identifiers(&encoded, known, entry.len, &mut json)?;
        if json.len() == entry.len { Ok(json) } else { Err(CodecError("length differs")) }
    }
}

/// One body in a chunk: two LEB128 numbers, then the compressed bytes.
///
/// The first number is the length before compression, doubled, plus one if identifiers were encoded. The second is the
/// length of the compressed bytes.
pub(super) struct Entry<'c> {
    pub(super) len: usize,
    pub(super) is_encoded: bool,
    pub(super) packed: &'c [u8],
    /// Length of the whole entry, including the two numbers.
    pub(super) whole: usize,
}

impl<'c> Entry<'c> {
    /// Reads an entry. Input that [`Self::write`] did not produce gives an arbitrary or empty entry.
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

/// Packed bodies, stored end to end.
#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    dictionary: Arc<Dictionary>,
    /// Bytes of the bodies that objects still use.
    live: AtomicUsize,
    totals: Arc<PackedTotals>,
}

impl Chunk {
    fn entry(&self, at: u32) -> Entry<'_> {
        Entry::read(self.bytes.get(at as usize..).unwrap_or_default())
    }

    /// Returns whether so little of it is live that emptying it frees more than it costs.
    fn is_sparse(&self) -> bool {
        self.live.load(Relaxed) * 3 < self.bytes.len() * 2
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.totals.bytes.fetch_sub(self.bytes.len(), Relaxed);
    }
}

/// Totals of the packed bodies of one resource.
#[derive(Debug, Default)]
pub struct PackedTotals {
    bytes: AtomicUsize,
    live: AtomicUsize,
}

impl PackedTotals {
    /// Returns the bytes of all chunks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns the bytes of the bodies that objects still use.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }
}

/// Chunks under construction, all with one dictionary.
pub(super) struct Chunks {
    dictionary: Arc<Dictionary>,
    chunk: Vec<u8>,
    /// Objects of the bodies in `chunk`, with their offsets.
    pending: Vec<(Arc<StoredObject>, u32)>,
    totals: Arc<PackedTotals>,
}

impl Chunks {
    /// Chunk size in bytes: about 70 pods, and a whole number of pages. A larger body gets a chunk of its own.
    const SIZE: usize = 32 * 1024;

    pub(super) fn new(dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> Self {
        let (dictionary, totals) = (Arc::clone(dictionary), Arc::clone(totals));
        Self { dictionary, chunk: Vec::new(), pending: Vec::new(), totals }
    }

    /// Appends an object's body and returns its size in bytes.
    pub(super) fn place(&mut self, object: &Arc<StoredObject>, entry: &Entry<'_>) -> usize {
        // Two LEB128 numbers take at most 18 bytes.
        if self.chunk.len() + entry.packed.len() + 18 > Self::SIZE {
            self.seal();
        }
        let at = self.chunk.len();
        entry.write(&mut self.chunk);
        self.pending.push((Arc::clone(object), u32::try_from(at).unwrap_or(u32::MAX)));
        self.chunk.len() - at
    }

    /// Completes the current chunk and replaces the bodies of its objects.
    pub(super) fn seal(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let bytes: Box<[u8]> = self.chunk.as_slice().into();
        self.chunk.clear();
        self.totals.bytes.fetch_add(bytes.len(), Relaxed);
        self.totals.live.fetch_add(bytes.len(), Relaxed);
        let (dictionary, totals) = (Arc::clone(&self.dictionary), Arc::clone(&self.totals));
        let chunk = Arc::new(Chunk { live: AtomicUsize::new(bytes.len()), bytes, dictionary, totals });
        for (object, at) in self.pending.drain(..) {
            object.exchange(Body::Packed(Packed { chunk: Arc::clone(&chunk), at }));
        }
    }
}

/// Packs the bodies of objects into chunks with one dictionary. Runs on one background thread; an object must not be in
/// two packers at the same time.
pub struct Packer {
    dictionary: Arc<Dictionary>,
    compressor: Compressor,
    encoded: Vec<u8>,
    frame: Vec<u8>,
    chunks: Chunks,
    outcome: PackOutcome,
}

/// Result of a [`Packer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackOutcome {
    /// Bodies packed, including those packed again.
    pub packed: usize,
    /// Their bytes before compression.
    pub plain_bytes: usize,
    /// Their bytes after compression.
    pub packed_bytes: usize,
    /// Bodies left as they were, because compression does not shrink them.
    pub left: usize,
}

impl Packer {
    /// Creates a packer that adds its chunks to `totals`.
    #[must_use]
    pub fn new(dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> Self {
        Self {
            compressor: Compressor::new(dictionary),
            dictionary: Arc::clone(dictionary),
            encoded: Vec::new(),
            frame: Vec::new(),
            chunks: Chunks::new(dictionary, totals),
            outcome: PackOutcome::default(),
        }
    }

    /// Packs a plain body. A packed body is packed again if its chunk is sparse, or if this packer's dictionary makes
    /// it no larger.
    pub fn add(&mut self, object: &Arc<StoredObject>) {
        let view = match object.load() {
            Loaded::Plain(plain) => return self.compress(object, &plain, usize::MAX),
            Loaded::Packed(view) => view,
            Loaded::Unkept => return,
        };
        let (entry, is_sparse) = (view.entry(), view.chunk.is_sparse());
        if !Arc::ptr_eq(&view.chunk.dictionary, &self.dictionary) {
            let limit = if is_sparse { usize::MAX } else { entry.packed.len() };
            if let Ok(json) = object.with_known_texts(|known| view.json(known)) {
                self.compress(object, &json, limit);
            }
        } else if is_sparse {
            self.place(object, &entry);
        }
    }

    /// Compresses `plain` into the chunk, unless the result exceeds `limit` or is not smaller than `plain`.
    fn compress(&mut self, object: &Arc<StoredObject>, plain: &[u8], limit: usize) {
        self.encoded.clear();
        let is_encoded = object.with_known_texts(|known| encode_identifiers(plain, known, &mut self.encoded));
        let mut frame = std::mem::take(&mut self.frame);
        let input = if is_encoded { &self.encoded } else { plain };
        if let Some(packed) = self.compressor.compress(input, &mut frame) {
            if packed.len() > limit || packed.len() >= plain.len() {
                self.outcome.left += 1;
            } else {
                self.place(object, &Entry { len: plain.len(), is_encoded, packed, whole: packed.len() });
            }
        }
        self.frame = frame;
    }

    fn place(&mut self, object: &Arc<StoredObject>, entry: &Entry<'_>) {
        self.outcome.packed += 1;
        self.outcome.plain_bytes += entry.len;
        self.outcome.packed_bytes += self.chunks.place(object, entry);
    }

    /// Packs the remaining bodies and returns the totals.
    #[must_use]
    pub fn finish(mut self) -> PackOutcome {
        self.chunks.seal();
        self.outcome
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Labels, ObjectKey, ResourceVersion, StoredObjectParts, Uid};

    fn object(i: usize, tail: &str) -> Arc<StoredObject> {
        let uid = format!("f81d4fae-7dec-11d0-a765-{i:012x}");
        let json = format!(
            r#"{{"metadata":{{"name":"web-{i}","uid":"{uid}","resourceVersion":"{i}"}},"spec":{{"image":"registry.example.com/web:{}","digest":"{:064x}","data":"{tail}"}}}}"#,
            i % 7,
            i * 7919,
        );
        Arc::new(StoredObject::new(StoredObjectParts {
            key: ObjectKey::new("ns", &format!("web-{i}")),
            uid: Uid::new(&uid),
            resource_version: ResourceVersion::new(&i.to_string()),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: json.into_bytes(),
        }))
    }

    fn objects(count: usize) -> Vec<Arc<StoredObject>> {
        (0..count).map(|i| object(i, "some text that is in all of them")).collect()
    }

    fn trained(objects: &[Arc<StoredObject>]) -> Arc<Dictionary> {
        let samples: Vec<_> = objects.iter().map(|object| object.sample()).collect();
        Arc::new(Dictionary::train(&samples).unwrap())
    }

    fn pack(objects: &[Arc<StoredObject>], dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> PackOutcome {
        let mut packer = Packer::new(dictionary, totals);
        for object in objects {
            packer.add(object);
        }
        packer.finish()
    }

    fn texts(objects: &[Arc<StoredObject>]) -> Vec<String> {
        objects.iter().map(|object| object.json_text().unwrap()).collect()
    }

    #[test]
    fn packing_changes_only_the_size() {
        let (objects, totals) = (objects(2000), Arc::default());
        let (before, dictionary) = (texts(&objects), trained(&objects[..400]));
        let plain: usize = objects.iter().map(|object| object.body_size()).sum();
        let outcome = pack(&objects, &dictionary, &totals);
        let sizes: usize = objects.iter().map(|object| object.body_size()).sum();
        assert_eq!((outcome.packed, outcome.plain_bytes, outcome.packed_bytes, outcome.left), (2000, plain, sizes, 0));
        assert_eq!((totals.bytes(), totals.live()), (sizes, sizes));
        assert!(sizes * 3 < plain, "{sizes} of {plain}");
        assert_eq!(texts(&objects), before);
        assert!(objects.iter().all(|object| object.plain().is_none()));
        // A second run packs nothing.
        assert_eq!(pack(&objects, &dictionary, &totals), PackOutcome::default());
    }

    #[test]
    fn incompressible_bodies_stay_plain() {
        let letters: String =
            (0..400_u32).map(|i| char::from(33 + (i * i * 7919 % 89) as u8)).filter(|c| !"\"\\".contains(*c)).collect();
        let (tiny, totals) = (
            [Arc::new(StoredObject::head_only(ObjectKey::new("", "a"), Uid::new(""), ResourceVersion::new("1")))],
            Arc::default(),
        );
        let none = Arc::new(Dictionary::none());
        assert_eq!(pack(&tiny, &none, &totals), PackOutcome { left: 1, ..PackOutcome::default() });
        let odd = [object(1, &format!("\u{1}{letters}"))];
        let before = texts(&odd);
        assert_eq!(pack(&odd, &none, &totals).packed + pack(&tiny, &none, &totals).left, 2);
        // A text with a marker byte is compressed without encoding.
        assert_eq!(texts(&odd), before);
    }

    #[test]
    fn chunk_is_freed_with_its_last_body_and_emptied_when_sparse() {
        let (mut objects, totals) = (objects(2000), Arc::<PackedTotals>::default());
        let dictionary = trained(&objects[..400]);
        pack(&objects, &dictionary, &totals);
        let full = totals.bytes();
        let mut at = 0;
        objects.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        assert_eq!(totals.bytes(), full);
        assert!(totals.live().abs_diff(full / 2) < full / 20, "{} of {full}", totals.live());
        assert!(objects.iter().all(|object| object.wants_packing(None)));
        let before = texts(&objects);
        let outcome = pack(&objects, &dictionary, &totals);
        assert_eq!((outcome.packed, totals.bytes(), totals.live()), (1000, outcome.packed_bytes, outcome.packed_bytes));
        assert_eq!(texts(&objects), before);
        drop(objects);
        assert_eq!((totals.bytes(), totals.live()), (0, 0));
    }

    #[test]
    fn body_moves_to_a_new_dictionary_unless_that_makes_it_larger() {
        let (objects, totals) = (objects(600), Arc::<PackedTotals>::default());
        let (poor, good) = (Arc::new(Dictionary::none()), trained(&objects));
        pack(&objects, &poor, &totals);
        let (before, held) = (texts(&objects), Arc::strong_count(&poor));
        assert!(held > 1 && objects.iter().all(|object| object.wants_packing(Some(&good))));
        assert_eq!(pack(&objects, &good, &totals).packed, 600);
        assert_eq!((texts(&objects), Arc::strong_count(&poor)), (before.clone(), 1));
        // The first dictionary would make the bodies larger, so they stay.
        assert_eq!(pack(&objects, &poor, &totals), PackOutcome { left: 600, ..PackOutcome::default() });
        assert_eq!(texts(&objects), before);
    }

    #[test]
    fn bodies_are_readable_while_a_packer_runs() {
        let (objects, totals) = (objects(400), Arc::<PackedTotals>::default());
        let (before, dictionary) = (texts(&objects), trained(&objects));
        std::thread::scope(|threads| {
            threads.spawn(|| pack(&objects, &dictionary, &totals));
            for _ in 0..20 {
                assert_eq!(texts(&objects), before);
            }
        });
    }
}
