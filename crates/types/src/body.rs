//! How an object's bytes lie in memory: as they came while young, packed with their neighbours once they have aged.
//!
//! Packed bodies lie end to end in chunks, so that none pays for an allocation of its own, and what is freed goes back
//! in whole pages. A chunk lives until its last body is gone; one that is mostly dead is emptied by packing the rest
//! once more ([`Packer`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::dictionary::Compressor;
use super::identifier_encoding::{KnownTexts, decode_identifiers, encode_identifiers};
use super::object::Loaded;
use super::{CodecError, Dictionary, StoredObject};

/// An object's bytes as they lie in memory. How they lie changes; what they say never does.
#[derive(Debug)]
pub(super) enum Body {
    /// As received, without what the projection dropped.
    Plain(Arc<[u8]>),
    /// In a chunk.
    Packed(Packed),
    /// Nowhere: memory has room for the head only.
    Unkept,
}

/// One body's place in a chunk, which counts it among its living until this is dropped.
#[derive(Debug)]
pub(super) struct Packed {
    chunk: Arc<Chunk>,
    at: u32,
}

impl Packed {
    /// Bytes it takes of its chunk.
    pub(super) fn size(&self) -> usize {
        self.chunk.entry(self.at).whole
    }

    /// Bytes of the JSON.
    pub(super) fn plain_size(&self) -> usize {
        self.chunk.entry(self.at).len
    }

    /// Whether packing it anew might gain something.
    pub(super) fn wants_packing(&self, dictionary: Option<&Arc<Dictionary>>) -> bool {
        self.chunk.is_sparse() || dictionary.is_some_and(|wanted| !Arc::ptr_eq(&self.chunk.dictionary, wanted))
    }

    /// For reading without the lock of the object that it is the body of.
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

/// A packed body to be read; it may be another's by now that is counted.
pub(super) struct PackedView {
    chunk: Arc<Chunk>,
    at: u32,
}

impl PackedView {
    /// What it is packed with.
    pub(super) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.chunk.dictionary
    }

    /// What lies in the chunk for it.
    pub(super) fn bytes(&self) -> &[u8] {
        let (at, whole) = (self.at as usize, self.entry().whole);
        self.chunk.bytes.get(at..at + whole).unwrap_or_default()
    }

    fn entry(&self) -> Entry<'_> {
        self.chunk.entry(self.at)
    }

    /// The JSON, given what its object's head has of it.
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

/// What lies in a chunk for one body: two numbers in LEB128 (length before packing and whether it was encoded;
/// length of the compressed bytes), then the compressed bytes.
pub(super) struct Entry<'c> {
    pub(super) len: usize,
    pub(super) is_encoded: bool,
    pub(super) packed: &'c [u8],
    /// With the numbers.
    pub(super) whole: usize,
}

impl<'c> Entry<'c> {
    /// Reads what [`Self::write`] wrote; of anything else some entry, or an empty one.
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

/// Packed bodies, end to end.
#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    dictionary: Arc<Dictionary>,
    /// Bytes of bodies that objects still have.
    live: AtomicUsize,
    totals: Arc<PackedTotals>,
}

impl Chunk {
    fn entry(&self, at: u32) -> Entry<'_> {
        Entry::read(self.bytes.get(at as usize..).unwrap_or_default())
    }

    /// Whether so little of it lives that emptying it frees more than it costs.
    fn is_sparse(&self) -> bool {
        self.live.load(Relaxed) * 3 < self.bytes.len() * 2
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.totals.bytes.fetch_sub(self.bytes.len(), Relaxed);
    }
}

/// How much is packed, in the chunks of one resource.
#[derive(Debug, Default)]
pub struct PackedTotals {
    bytes: AtomicUsize,
    live: AtomicUsize,
}

impl PackedTotals {
    /// Bytes of all chunks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Bytes of bodies that objects still have.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }
}

/// Chunks in the making, all of one dictionary.
pub(super) struct Chunks {
    dictionary: Arc<Dictionary>,
    chunk: Vec<u8>,
    /// Whose bodies are in `chunk`, and where.
    pending: Vec<(Arc<StoredObject>, u32)>,
    totals: Arc<PackedTotals>,
}

impl Chunks {
    /// Bytes of a chunk: 70 pods, and a whole number of pages. A larger body has a chunk of its own.
    const SIZE: usize = 32 * 1024;

    pub(super) fn new(dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> Self {
        let (dictionary, totals) = (Arc::clone(dictionary), Arc::clone(totals));
        Self { dictionary, chunk: Vec::new(), pending: Vec::new(), totals }
    }

    /// Puts an object's body at the end; how many bytes it takes.
    pub(super) fn place(&mut self, object: &Arc<StoredObject>, entry: &Entry<'_>) -> usize {
        // Twice nine bytes are the longest numbers.
        if self.chunk.len() + entry.packed.len() + 18 > Self::SIZE {
            self.seal();
        }
        let at = self.chunk.len();
        entry.write(&mut self.chunk);
        self.pending.push((Arc::clone(object), u32::try_from(at).unwrap_or(u32::MAX)));
        self.chunk.len() - at
    }

    /// Makes a chunk of what there is, and gives the objects their new bodies.
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

/// Packs the bodies of objects into chunks, all with one dictionary. For one thread that nobody waits for, one of them
/// at a time for an object.
pub struct Packer {
    dictionary: Arc<Dictionary>,
    compressor: Compressor,
    encoded: Vec<u8>,
    frame: Vec<u8>,
    chunks: Chunks,
    outcome: PackOutcome,
}

/// What a [`Packer`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackOutcome {
    /// Bodies that were packed, or packed anew.
    pub packed: usize,
    /// Their bytes before any packing.
    pub plain_bytes: usize,
    /// Their bytes now.
    pub packed_bytes: usize,
    /// Bodies that stay as they came, since they do not get smaller.
    pub left: usize,
}

impl Packer {
    /// A packer that counts in `totals` what it makes.
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

    /// Packs a plain body. One that is packed is packed anew where its chunk is sparse, or with this packer's dictionary
    /// where that makes it no larger.
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

    /// Compresses `plain` and puts it in the chunk, unless that takes more than `limit` or is no smaller than it was.
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

    /// Packs what is still to be packed, and says what was done in all.
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
    fn packing_changes_the_size_and_nothing_else() {
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
        // Once more, nothing wants it.
        assert_eq!(pack(&objects, &dictionary, &totals), PackOutcome::default());
    }

    #[test]
    fn what_does_not_get_smaller_stays_as_it_came() {
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
        // A text with a byte that is a mark is packed, not encoded.
        assert_eq!(texts(&odd), before);
    }

    #[test]
    fn a_chunk_goes_with_its_last_body_and_a_sparse_one_is_emptied() {
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
    fn a_body_moves_to_a_new_dictionary_where_that_makes_it_no_larger() {
        let (objects, totals) = (objects(600), Arc::<PackedTotals>::default());
        let (poor, good) = (Arc::new(Dictionary::none()), trained(&objects));
        pack(&objects, &poor, &totals);
        let (before, held) = (texts(&objects), Arc::strong_count(&poor));
        assert!(held > 1 && objects.iter().all(|object| object.wants_packing(Some(&good))));
        assert_eq!(pack(&objects, &good, &totals).packed, 600);
        assert_eq!((texts(&objects), Arc::strong_count(&poor)), (before.clone(), 1));
        // Back to the poor one they would grow, so they stay.
        assert_eq!(pack(&objects, &poor, &totals), PackOutcome { left: 600, ..PackOutcome::default() });
        assert_eq!(texts(&objects), before);
    }

    #[test]
    fn readers_and_a_packer_do_not_disturb_each_other() {
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
