//! Packer, which moves object bodies (the stored JSON or protobuf) into compressed chunks.

use std::fmt;
use std::sync::Arc;

use super::body::{Body, Chunk, Entry, Loaded, Packed};
use super::dictionary::Compressor;
use super::identifier_encoding::encode_identifiers;
use super::{Dictionary, PackedTotals, StoredObject};

/// Builder of chunks of compressed object bodies. All chunks use one dictionary.
pub(super) struct ChunkBuilder {
    dictionary: Arc<Dictionary>,
    chunk: Vec<u8>,
    /// Objects whose bodies are in `chunk`, each with the offset of its body.
    pending: Vec<(Arc<StoredObject>, u32)>,
    totals: Arc<PackedTotals>,
}

impl ChunkBuilder {
    /// Chunk size in bytes: about 70 pods, and a whole number of pages. A larger body gets a chunk of its own.
    const SIZE: usize = 32 * 1024;

    pub(super) fn new(dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> Self {
        let (dictionary, totals) = (Arc::clone(dictionary), Arc::clone(totals));
        Self { dictionary, chunk: Vec::new(), pending: Vec::new(), totals }
    }

    /// Appends an object's compressed body to the current chunk. Returns how many bytes it occupies in the chunk.
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

    /// Completes the current chunk and replaces the bodies of its objects with the compressed ones in it.
    pub(super) fn seal(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let chunk = Chunk::new(self.chunk.as_slice().into(), &self.dictionary, &self.totals);
        self.chunk.clear();
        for (object, at) in self.pending.drain(..) {
            object.exchange(Body::Packed(Packed::new(&chunk, at)));
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
    builder: ChunkBuilder,
    outcome: PackOutcome,
    /// Whether to recompress bodies that were compressed with other dictionaries even if this makes them larger, so
    /// that the other dictionaries can be dropped. Bodies that the packer's dictionary cannot shrink below their plain
    /// size are left unchanged.
    replaces: bool,
}

/// Counters of a finished [`Packer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackOutcome {
    /// Number of bodies packed (compressed), including those packed again.
    pub packed: usize,
    /// Bytes of the packed bodies before compression.
    pub plain_bytes: usize,
    /// Bytes of the packed bodies after compression.
    pub packed_bytes: usize,
    /// Number of bodies left as they were, because packing them would not make them smaller.
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
            builder: ChunkBuilder::new(dictionary, totals),
            outcome: PackOutcome::default(),
            replaces: false,
        }
    }

    /// Makes [`Self::add`] recompress bodies that were compressed with other dictionaries even if this makes them
    /// larger, so that the other dictionaries can be dropped. Bodies that the packer's dictionary cannot shrink below
    /// their plain size are left unchanged.
    pub fn replace_dictionaries(&mut self) {
        self.replaces = true;
    }

    /// Packs (compresses) the object's body if it is plain. A packed body is packed again if its chunk (block of
    /// bodies) has much unused space. It is also packed again if it was compressed with another dictionary than the
    /// packer's, unless this makes it larger.
    pub fn add(&mut self, object: &Arc<StoredObject>) {
        let view = match object.load() {
            Loaded::Plain(plain) => return self.compress(object, &plain, usize::MAX),
            Loaded::Packed(view) => view,
            Loaded::Unkept => return,
        };
        let (entry, is_sparse) = (view.entry(), view.is_in_sparse_chunk());
        if !Arc::ptr_eq(view.dictionary(), &self.dictionary) {
            let limit = if is_sparse || self.replaces { usize::MAX } else { entry.packed.len() };
            if let Ok(stored) = object.with_known_texts(|known| view.stored(known)) {
                self.compress(object, &stored, limit);
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
                // Such a body may stay plain for long, so its converted JSON would occupy memory for long.
                object.drop_converted();
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
        self.outcome.packed_bytes += self.builder.place(object, entry);
    }

    /// Packs the remaining bodies and returns the counters since the last call. The packer can be used again, which
    /// saves loading the dictionary.
    #[must_use]
    pub fn finish(&mut self) -> PackOutcome {
        self.builder.seal();
        std::mem::take(&mut self.outcome)
    }

    /// Returns the dictionary that compresses the bodies.
    #[must_use]
    pub fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
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
    fn finished_packer_packs_further_objects() {
        let (objects, totals) = (objects(1000), Arc::default());
        let (before, dictionary) = (texts(&objects), trained(&objects[..400]));
        let mut packer = Packer::new(&dictionary, &totals);
        let outcomes: Vec<_> = objects
            .chunks(300)
            .map(|objects| {
                for object in objects {
                    packer.add(object);
                }
                packer.finish()
            })
            .collect();
        assert!(outcomes.iter().map(|outcome| outcome.packed).eq([300, 300, 300, 100]));
        assert_eq!(outcomes.iter().map(|outcome| outcome.packed_bytes).sum::<usize>(), totals.bytes());
        assert!(objects.iter().all(|object| object.plain().is_none()), "an object waits for a later call");
        assert_eq!((texts(&objects), packer.finish()), (before, PackOutcome::default()));
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
