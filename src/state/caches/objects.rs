//! Object records in cache files. A record has the heads of several objects (key, UID, version, labels, index values),
//! compressed together, and their bodies (JSON or protobuf) as stored in memory.

use std::sync::Arc;

use hashbrown::HashMap;
use zstd::bulk::{Compressor, Decompressor};

use super::codec::{Bytes, put_block, put_number, put_objects, put_version};
use informer_hub_types::{
    BodyLoader, Dictionary, DiskPacker, IndexEntry, Interner, Labels, ObjectKey, PackedTotals, StoredBody,
    StoredObject, StoredObjectParts, Uid,
};

/// Code in an object's record for a body (JSON or protobuf) that is not stored.
const UNKEPT: u64 = 0;
/// Code in an object's record for a body that is stored uncompressed.
const PLAIN: u64 = 1;
/// Least code in an object's record for a compressed body. The code minus this number is the number of the dictionary
/// with which the body is compressed.
const PACKED: u64 = 2;

/// Size in bytes of the bodies at which a record is complete. It is also complete at [`RECORD_OBJECTS`] objects. Small
/// records limit the loss from damage.
const RECORD_BYTES: usize = 32 * 1024;
const RECORD_OBJECTS: usize = 256;

/// Compression dictionaries in the files, by their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Dictionaries {
    known: Vec<(u64, Arc<Dictionary>)>,
    next: u64,
}

impl Dictionaries {
    pub(super) fn new(known: Vec<(u64, Arc<Dictionary>)>) -> Self {
        let next = known.iter().map(|(id, _)| id + 1).max().unwrap_or(0);
        Self { known, next }
    }

    /// Returns the dictionary added last, which compresses new bodies.
    pub(super) fn last(&self) -> Option<&Arc<Dictionary>> {
        self.known.last().map(|(_, dictionary)| dictionary)
    }

    fn id(&self, dictionary: &Arc<Dictionary>) -> Option<u64> {
        self.known.iter().rev().find(|(_, known)| Arc::ptr_eq(known, dictionary)).map(|(id, _)| *id)
    }

    /// Returns the known dictionary with this number. `None` if there is none, or if its bytes differ from `bytes`.
    fn of(&self, id: u64, bytes: &[u8]) -> Option<Arc<Dictionary>> {
        let known = self.known.iter().find(|(known, _)| *known == id);
        known.filter(|(_, dictionary)| dictionary.bytes() == bytes).map(|(_, dictionary)| Arc::clone(dictionary))
    }

    fn add(&mut self, dictionary: &Arc<Dictionary>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.known.push((id, Arc::clone(dictionary)));
        id
    }
}

pub(super) enum RecordToWrite<'o> {
    Dictionary(u64, &'o [u8]),
    Objects(&'o [u8]),
}

pub(super) struct ObjectWriter<'w> {
    dictionaries: &'w mut Dictionaries,
    packer: Option<(Arc<Dictionary>, DiskPacker)>,
    compressor: Compressor<'static>,
    heads: Vec<u8>,
    bodies: Vec<u8>,
    record: Vec<u8>,
    count: usize,
}

impl<'w> ObjectWriter<'w> {
    /// Creates a writer. If `with` is given, uncompressed bodies are compressed with that dictionary.
    pub(super) fn new(dictionaries: &'w mut Dictionaries, with: Option<&Arc<Dictionary>>) -> std::io::Result<Self> {
        let packer = with.filter(|it| it.size() > 0).map(|it| (Arc::clone(it), DiskPacker::new(it)));
        Ok(Self {
            dictionaries,
            packer,
            compressor: Compressor::new(1)?,
            heads: Vec::new(),
            bodies: Vec::new(),
            record: Vec::new(),
            count: 0,
        })
    }

    /// Adds an object to the current record. If the record is then full, passes it to `out`. A dictionary that is not
    /// in the files yet is passed to `out` first.
    pub(super) fn add(
        &mut self,
        partition: u64,
        object: &Arc<StoredObject>,
        out: &mut impl FnMut(RecordToWrite<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let from = self.bodies.len();
        let form = match object.stored_body() {
            StoredBody::Unkept => UNKEPT,
            StoredBody::Packed(body) => {
                self.bodies.extend_from_slice(body.bytes());
                self.dictionary(body.dictionary(), out)?
            }
            StoredBody::Plain(plain) => {
                let packer = self.packer.as_mut();
                let with = packer
                    .and_then(|(with, packer)| packer.pack(object, &plain, &mut self.bodies).then(|| Arc::clone(with)));
                if let Some(with) = with {
                    self.dictionary(&with, out)?
                } else {
                    self.bodies.extend_from_slice(&plain);
                    PLAIN
                }
            }
        };
        put_head(object, &mut self.heads);
        put_number(form, &mut self.heads);
        put_number((self.bodies.len() - from) as u64, &mut self.heads);
        self.count += 1;
        if self.bodies.len() >= RECORD_BYTES || self.count >= RECORD_OBJECTS {
            self.finish(partition, out)?;
        }
        Ok(())
    }

    fn dictionary(
        &mut self,
        dictionary: &Arc<Dictionary>,
        out: &mut impl FnMut(RecordToWrite<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<u64> {
        if let Some(id) = self.dictionaries.id(dictionary) {
            return Ok(PACKED + id);
        }
        let id = self.dictionaries.add(dictionary);
        out(RecordToWrite::Dictionary(id, dictionary.bytes()))?;
        Ok(PACKED + id)
    }

    /// Passes the last, partly filled record of a partition to `out`.
    pub(super) fn finish(
        &mut self,
        partition: u64,
        out: &mut impl FnMut(RecordToWrite<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let heads = self.compressor.compress(&self.heads)?;
        self.record.clear();
        put_objects(partition, self.heads.len(), &heads, &self.bodies, &mut self.record);
        self.heads.clear();
        self.bodies.clear();
        self.count = 0;
        out(RecordToWrite::Objects(&self.record))
    }
}

fn put_head(object: &StoredObject, out: &mut Vec<u8>) {
    put_block(object.key().as_str().as_bytes(), out);
    if let Some(bytes) = object.uid().bytes() {
        out.push(1);
        out.extend_from_slice(&bytes);
    } else {
        out.push(0);
        put_block(object.uid().to_string().as_bytes(), out);
    }
    put_version(object.resource_version(), out);
    put_later(out, |out| {
        for (key, value) in object.labels().iter() {
            put_block(key.as_bytes(), out);
            put_block(value.as_bytes(), out);
        }
    });
    put_later(out, |out| {
        for entry in object.index_values() {
            put_block(entry.index.as_bytes(), out);
            put_block(entry.value.as_bytes(), out);
        }
    });
}

/// Writes a block before its length is known, then inserts the length.
fn put_later(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    fill(out);
    let mut len = Vec::with_capacity(4);
    put_number((out.len() - start) as u64, &mut len);
    out.splice(start..start, len);
}

pub(super) struct ObjectReader {
    dictionaries: HashMap<u64, (Arc<Dictionary>, BodyLoader)>,
    /// Dictionaries already in memory, shared instead of restored again.
    known: Dictionaries,
    totals: Arc<PackedTotals>,
    decompressor: Decompressor<'static>,
    heads: Vec<u8>,
    interner: Interner,
    /// Label sets that were decoded before, by their encoded bytes.
    labels: HashMap<Box<[u8]>, Labels>,
    /// Objects whose bodies are uncompressed in the files, and therefore also in memory.
    pub(super) plain: Vec<Arc<StoredObject>>,
    /// Whether any body in the records could not be restored.
    pub(super) lost: bool,
    /// Objects whose bodies were written with an older schema.
    older: Vec<Arc<StoredObject>>,
    /// Whether a body of an older schema cannot be read.
    pub(super) unreadable: bool,
}

impl ObjectReader {
    pub(super) fn new(totals: Arc<PackedTotals>, known: &Dictionaries) -> std::io::Result<Self> {
        Ok(Self {
            dictionaries: HashMap::new(),
            known: known.clone(),
            totals,
            decompressor: Decompressor::new()?,
            heads: Vec::new(),
            interner: Interner::default(),
            labels: HashMap::new(),
            plain: Vec::new(),
            lost: false,
            older: Vec::new(),
            unreadable: false,
        })
    }

    /// Restores a dictionary. Returns false if `bytes` are not a valid dictionary.
    pub(super) fn dictionary(&mut self, id: u64, bytes: &[u8]) -> bool {
        let restored = || Dictionary::restore(bytes.to_vec()).map(Arc::new);
        let Some(dictionary) = self.known.of(id, bytes).or_else(restored) else { return false };
        let bodies = BodyLoader::new(&dictionary, &self.totals);
        if let Some((_, before)) = self.dictionaries.insert(id, (dictionary, bodies)) {
            before.finish();
        }
        true
    }

    /// Passes the objects of a record to `take`. If the record has an older schema (`is_older`), [`Self::finish`] will
    /// check their bodies. Returns `None` if the record is malformed.
    pub(super) fn objects(
        &mut self,
        (heads_len, heads, bodies): (usize, &[u8], &[u8]),
        is_older: bool,
        mut take: impl FnMut(Arc<StoredObject>),
    ) -> Option<()> {
        let mut plain = std::mem::take(&mut self.heads);
        plain.clear();
        plain.reserve(heads_len);
        let read = self.decompressor.decompress_to_buffer(heads, &mut plain);
        let done = read.ok().filter(|len| *len == heads_len).and_then(|_| {
            let (mut heads, mut bodies) = (Bytes(&plain), Bytes(bodies));
            while !heads.0.is_empty() {
                let object = self.object(&mut heads, &mut bodies)?;
                if is_older {
                    self.older.push(Arc::clone(&object));
                }
                take(object);
            }
            Some(())
        });
        self.heads = plain;
        done
    }

    fn object(&mut self, heads: &mut Bytes<'_>, bodies: &mut Bytes<'_>) -> Option<Arc<StoredObject>> {
        let mut parts = self.head(heads)?;
        let (form, len) = (heads.number()?, heads.size()?);
        let body = bodies.take(len)?;
        if form == PLAIN {
            parts.json = body.to_vec();
            let object = Arc::new(StoredObject::new(parts));
            self.plain.push(Arc::clone(&object));
            return Some(object);
        }
        let object = Arc::new(StoredObject::bare(parts));
        if form >= PACKED {
            let laid = self.dictionaries.get_mut(&(form - PACKED)).is_some_and(|(_, shelf)| shelf.add(&object, body));
            self.lost |= !laid;
        }
        Some(object)
    }

    fn head(&mut self, heads: &mut Bytes<'_>) -> Option<StoredObjectParts> {
        let key = ObjectKey::of(heads.text()?);
        let uid = match heads.byte()? {
            0 => Uid::new(heads.text()?),
            _ => Uid::of_bytes(heads.take(16)?.try_into().ok()?),
        };
        let resource_version = heads.version()?;
        let labels = self.labels(heads.block()?)?;
        let mut entries = Bytes(heads.block()?);
        let mut index_values = Vec::new();
        while !entries.0.is_empty() {
            let (index, value) = (entries.text()?, entries.text()?);
            index_values.push(IndexEntry { index: self.interner.string(index), value: self.interner.string(value) });
        }
        Some(StoredObjectParts { key, uid, resource_version, labels, index_values, json: Vec::new() })
    }

    fn labels(&mut self, block: &[u8]) -> Option<Labels> {
        if let Some(known) = self.labels.get(block) {
            return Some(known.clone());
        }
        let (mut bytes, mut pairs) = (Bytes(block), Vec::new());
        while !bytes.0.is_empty() {
            pairs.push((bytes.text()?, bytes.text()?));
        }
        let labels = self.interner.labels(pairs);
        self.labels.insert(block.into(), labels.clone());
        Some(labels)
    }

    /// Completes the restored bodies after the last record, and drops unreadable bodies of an older schema. Returns the
    /// dictionaries with their numbers.
    pub(super) fn finish(&mut self) -> Vec<(u64, Arc<Dictionary>)> {
        let mut all: Vec<_> = std::mem::take(&mut self.dictionaries)
            .into_iter()
            .map(|(id, (dictionary, shelf))| {
                shelf.finish();
                (id, dictionary)
            })
            .collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        for object in self.older.drain(..) {
            self.unreadable |= object.drop_unreadable();
        }
        all
    }
}
