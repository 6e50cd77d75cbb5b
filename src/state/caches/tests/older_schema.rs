//! Records whose protobuf has the schema of another version of Kubernetes.

use super::super::codec::Record;
use super::super::objects::{Dictionaries, ObjectReader, ObjectWriter, RecordToWrite};
use super::*;
use informer_hub_protobuf::{Schema, TypeMeta, write_envelope};
use informer_hub_types::{Labels, ObjectKey, PackedTotals, StoredObjectParts, Uid, View};

/// Offset of the schema's minor version in a record.
const MINOR: usize = 1;

fn config_map(name: &str, raw: &[u8]) -> Arc<StoredObject> {
    let mut body = Vec::new();
    write_envelope(&mut body, TypeMeta { api_version: "v1", kind: "ConfigMap" }, raw);
    let parts = StoredObjectParts {
        key: ObjectKey::new("ns", name),
        uid: Uid::new(name),
        resource_version: ResourceVersion::new("1"),
        labels: Labels::default(),
        index_values: Vec::new(),
        json: Vec::new(),
    };
    Arc::new(StoredObject::of(parts, body.into()))
}

/// Returns a record with two objects. The message of the second has field 9, which no config map has.
fn record() -> Vec<u8> {
    let mut dictionaries = Dictionaries::default();
    let (mut writer, mut record) = (ObjectWriter::new(&mut dictionaries, None).unwrap(), Vec::new());
    let mut out = |written: RecordToWrite<'_>| {
        if let RecordToWrite::Objects(bytes) = written {
            record = bytes.to_vec();
        }
        Ok(())
    };
    for (name, raw) in [("known", &b"\x0a\x07\x0a\x05known"[..]), ("removed", b"\x4a\x01x")] {
        writer.add(7, &config_map(name, raw), &mut out).unwrap();
    }
    writer.finish(7, &mut out).unwrap();
    record
}

/// Reads a record, and returns whether each object has a body, and whether a body was unreadable.
fn read(record: &[u8]) -> Option<(Vec<bool>, bool)> {
    let Record::Objects { heads_len, heads, bodies, is_older, .. } = Record::read(record, &View::Shared)? else {
        panic!("not a record of objects");
    };
    let (mut reader, mut objects) =
        (ObjectReader::new(Arc::<PackedTotals>::default(), &Dictionaries::default()).unwrap(), Vec::new());
    reader.objects((heads_len, heads, bodies), is_older, |object| objects.push(object))?;
    reader.finish();
    Some((objects.iter().map(|object| object.is_kept()).collect(), reader.unreadable))
}

#[test]
fn bodies_of_an_older_schema_are_checked_and_of_a_newer_one_refused() {
    let (mut record, own) = (record(), u8::try_from(Schema::builtin().minor()).unwrap());
    assert_eq!(record[MINOR], own);
    assert_eq!(read(&record), Some((vec![true, true], false)), "bodies of the own schema are not checked");
    record[MINOR] = own - 1;
    assert_eq!(read(&record), Some((vec![true, false], true)));
    record[MINOR] = own + 1;
    assert_eq!(read(&record), None);
}
