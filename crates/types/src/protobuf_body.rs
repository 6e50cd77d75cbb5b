//! Bodies in Kubernetes protobuf, and their conversion to JSON.

use informer_hub_protobuf::{ConvertError, Converter, Envelope, MAGIC, MessageId, Omit, Schema, TypeMeta};

use super::CodecError;
use super::members::Members;

/// Maximum size of a converted body, in bytes.
const MAX_JSON_LEN: usize = 64 << 20;

/// Returns whether the stored bytes are a protobuf envelope. Any other body is JSON.
#[inline]
pub(super) fn is_protobuf(stored: &[u8]) -> bool {
    stored.starts_with(MAGIC)
}

/// Converts an object in its protobuf envelope to JSON. Costs about 10 µs for a pod.
pub(super) fn json(protobuf: &[u8]) -> Result<Vec<u8>, CodecError> {
    convert(protobuf).map_err(|error| error_of(&error))
}

fn error_of(error: &ConvertError) -> CodecError {
    CodecError(match error {
        ConvertError::TooLarge => "protobuf that is too large as JSON",
        ConvertError::UnknownField { .. } => "protobuf with a field that is not in the hub's schema",
        _ => "invalid protobuf",
    })
}

/// Converts the wanted members of an object in its protobuf envelope to JSON.
pub(super) fn members(protobuf: &[u8], wanted: &Members) -> Result<Vec<u8>, CodecError> {
    let convert = || {
        let (message, kind, raw) = read(protobuf)?;
        let mut json = Vec::new();
        wanted.picked(message, |picked| Converter::default().picked(message, Some(kind), raw, picked, &mut json))?;
        Ok(json)
    };
    convert().map_err(|error| error_of(&error))
}

fn read(protobuf: &[u8]) -> Result<(MessageId, TypeMeta<'_>, &[u8]), ConvertError> {
    let Envelope { api_version, kind, raw } = Envelope::read(protobuf)?;
    let message = Schema::builtin().kind(api_version, kind).ok_or(ConvertError::Malformed("an unknown kind"))?;
    Ok((message, TypeMeta { api_version, kind }, raw))
}

fn convert(protobuf: &[u8]) -> Result<Vec<u8>, ConvertError> {
    let (message, kind, raw) = read(protobuf)?;
    // JSON is one and a half to two times as long.
    let mut json = Vec::with_capacity((protobuf.len() * 2).min(MAX_JSON_LEN));
    Converter::default().object(message, Some(kind), raw, &Omit::default(), MAX_JSON_LEN, &mut json)?;
    Ok(json)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use informer_hub_protobuf::{ObjectWriter, write_envelope};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        BodyLoader, DecodeError, Dictionary, DiskPacker, Labels, ObjectKey, PackedTotals, Packer, ResourceVersion,
        StoredBody, StoredObject, StoredObjectParts, Uid,
    };

    const CONFIG_MAP: TypeMeta<'_> = TypeMeta { api_version: "v1", kind: "ConfigMap" };

    /// Returns the JSON of a ConfigMap as the converter writes it. Its value `data.odd` consists of escape bytes of the
    /// identifier encoding.
    fn config_map(number: usize) -> String {
        format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"web-{number}","uid":"{}","resourceVersion":"{number}"}},"data":{{"digest":"{:064x}","odd":"{}","owner":"637bcda8-b560-4853-b62b-{number:012x}","text":"{}"}}}}"#,
            uid(number),
            number * 7919,
            "\u{7f}".repeat(1 + number % 3),
            "some text that is in all of them ".repeat(4),
        )
    }

    fn uid(number: usize) -> String {
        format!("f81d4fae-7dec-11d0-a765-{number:012x}")
    }

    fn encoded(json: &str) -> Vec<u8> {
        ObjectWriter::new(CONFIG_MAP, 1 << 20).unwrap().object(json.as_bytes()).unwrap().to_vec()
    }

    fn stored(number: usize, body: Vec<u8>) -> Arc<StoredObject> {
        Arc::new(StoredObject::new(StoredObjectParts {
            key: ObjectKey::new("ns", &format!("web-{number}")),
            uid: Uid::new(&uid(number)),
            resource_version: ResourceVersion::new(&number.to_string()),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: body,
        }))
    }

    fn objects(count: usize) -> Vec<Arc<StoredObject>> {
        (0..count).map(|number| stored(number, encoded(&config_map(number)))).collect()
    }

    fn trained(objects: &[Arc<StoredObject>]) -> Arc<Dictionary> {
        let samples: Vec<_> = objects.iter().map(|object| object.sample()).collect();
        Arc::new(Dictionary::train(&samples).unwrap())
    }

    fn pack(objects: &[Arc<StoredObject>], dictionary: &Arc<Dictionary>, totals: &Arc<PackedTotals>) -> usize {
        let mut packer = Packer::new(dictionary, totals);
        for object in objects {
            packer.add(object);
        }
        packer.finish().packed
    }

    /// Asserts that each object still has the JSON and the protobuf that it was created with.
    fn assert_intact(objects: &[Arc<StoredObject>]) {
        for (number, object) in objects.iter().enumerate() {
            let json = config_map(number);
            assert_eq!(object.json_text().unwrap(), json);
            assert_eq!(object.protobuf().unwrap().as_deref(), Some(&*encoded(&json)));
            assert_eq!(object.plain_size(), encoded(&json).len());
        }
    }

    #[test]
    fn content_is_the_same_in_every_form() {
        let (objects, totals) = (objects(400), Arc::<PackedTotals>::default());
        let (dictionary, none) = (trained(&objects), Arc::new(Dictionary::none()));
        assert_intact(&objects);
        // Now the bodies keep the JSON that they were converted to.
        assert_intact(&objects);
        assert_eq!(pack(&objects, &none, &totals), 400);
        assert!(objects.iter().all(|object| object.plain().is_none()));
        assert_intact(&objects);
        assert_eq!(pack(&objects, &dictionary, &totals), 400);
        assert_eq!(Arc::strong_count(&none), 1, "a body still uses the first dictionary");
        assert_intact(&objects);
    }

    #[test]
    fn sample_is_the_stored_form_without_identifiers() {
        let object = &objects(8)[7];
        let sample = object.sample();
        assert!(is_protobuf(&sample));
        for identifier in ["web-7", "f81d4fae", "637bcda8", "0000000000000000"] {
            assert!(memchr::memmem::find(&sample, identifier.as_bytes()).is_none(), "{identifier}");
        }
        object.json().unwrap();
        assert_eq!(object.sample(), sample, "after the conversion");
        pack(std::slice::from_ref(object), &Arc::new(Dictionary::none()), &Arc::default());
        assert_eq!((object.plain(), object.sample()), (None, sample));
    }

    #[test]
    fn body_is_saved_and_loaded_as_protobuf() {
        let (objects, totals) = (objects(400), Arc::<PackedTotals>::default());
        let dictionary = trained(&objects);
        let (mut packer, mut loader) = (DiskPacker::new(&dictionary), BodyLoader::new(&dictionary, &totals));
        let mut copies = Vec::new();
        for (number, object) in objects.iter().enumerate() {
            // Every other body has been converted.
            if number % 2 == 0 {
                object.json().unwrap();
            }
            let StoredBody::Plain(plain) = object.stored_body() else { panic!("{number} is packed") };
            assert!(is_protobuf(&plain) && object.plain() == Some(Arc::clone(&plain)), "{number}");
            let (mut bytes, copy) = (Vec::new(), Arc::new(object.without_body()));
            assert!(packer.pack(object, &plain, &mut bytes) && loader.add(&copy, &bytes), "{number}");
            copies.push((copy, bytes));
        }
        loader.finish();
        for (object, bytes) in &copies {
            let StoredBody::Packed(body) = object.stored_body() else { panic!("{} is not loaded", object.key()) };
            assert_eq!(body.bytes(), bytes);
        }
        let copies: Vec<_> = copies.into_iter().map(|(object, _)| object).collect();
        assert_intact(&copies);
    }

    #[test]
    fn plain_body_is_converted_once_and_packing_drops_the_json() {
        let (objects, totals) = (objects(400), Arc::<PackedTotals>::default());
        let (object, dictionary) = (&objects[3], trained(&objects));
        let protobuf = object.plain().unwrap();
        assert_eq!(object.body_size(), protobuf.len());
        let json = object.json().unwrap();
        assert!(Arc::ptr_eq(&json, &object.json().unwrap()));
        assert_eq!((object.body_size(), object.plain_size()), (protobuf.len() + json.len(), protobuf.len()));
        assert!(Arc::ptr_eq(&protobuf, &object.plain().unwrap()));
        assert!(Arc::ptr_eq(&protobuf, &object.protobuf().unwrap().unwrap()));
        assert_eq!(pack(&objects, &dictionary, &totals), 400);
        assert_eq!((Arc::strong_count(&json), Arc::strong_count(&protobuf)), (1, 1));
        assert!(object.body_size() < protobuf.len() && object.plain_size() == protobuf.len());
        let again = object.json().unwrap();
        assert!(again == json && !Arc::ptr_eq(&again, &object.json().unwrap()), "a packed body keeps no JSON");
    }

    #[test]
    fn body_that_compression_does_not_shrink_stays_protobuf_without_json() {
        let object = stored(1, encoded(r#"{"metadata":{"name":"a"}}"#));
        let protobuf = object.plain().unwrap();
        let json = object.json().unwrap();
        assert_eq!(pack(std::slice::from_ref(&object), &Arc::new(Dictionary::none()), &Arc::default()), 0);
        assert_eq!((Arc::strong_count(&json), object.body_size()), (1, protobuf.len()));
        assert!(Arc::ptr_eq(&protobuf, &object.plain().unwrap()));
        assert_eq!(object.json().unwrap(), json);
    }

    #[test]
    fn json_body_has_no_protobuf() {
        let object = stored(1, config_map(1).into_bytes());
        assert_eq!(object.protobuf().unwrap(), None);
        assert!(Arc::ptr_eq(&object.json().unwrap(), &object.plain().unwrap()));
        pack(std::slice::from_ref(&object), &Arc::new(Dictionary::none()), &Arc::default());
        assert_eq!((object.plain(), object.protobuf().unwrap()), (None, None));
        assert_eq!(object.json_text().unwrap(), config_map(1));
        assert!(matches!(object.without_body().protobuf(), Err(DecodeError::NotKept { .. })));
    }

    #[test]
    fn damaged_protobuf_is_an_error_in_every_form() {
        let whole = encoded(&config_map(1));
        // Truncated inside the kind, inside the object and inside the end of the envelope.
        let mut damaged: Vec<_> = [6, 12, whole.len() / 2, whole.len() - 1].map(|end| whole[..end].to_vec()).into();
        damaged.push(MAGIC.to_vec());
        for (kind, raw) in [("ConfigMap", &b"\x0a\xff\xff\x01"[..]), ("ConfigMap", b"\x0d\0\0"), ("Gadget", b"")] {
            let mut body = Vec::new();
            write_envelope(&mut body, TypeMeta { kind, ..CONFIG_MAP }, raw);
            damaged.push(body);
        }
        for body in damaged {
            let text = String::from_utf8_lossy(&body).into_owned();
            let object = stored(1, body.clone());
            assert!(matches!(object.json(), Err(DecodeError::Damaged(_))), "{text}");
            assert!(object.plain().as_deref() == Some(&body), "{text}");
            pack(std::slice::from_ref(&object), &Arc::new(Dictionary::none()), &Arc::default());
            assert!(matches!(object.json(), Err(DecodeError::Damaged(_))), "{text}");
        }
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn damaged_protobuf_never_panics_and_is_stored_unchanged(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            tail in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut body = encoded(&config_map(1));
            for (at, byte) in changes {
                let at = MAGIC.len() + at.index(body.len() - MAGIC.len());
                body[at] = byte;
            }
            body.extend(tail);
            let object = stored(1, body.clone());
            let plain = object.json().map_err(|error| error.to_string());
            pack(std::slice::from_ref(&object), &Arc::new(Dictionary::none()), &Arc::default());
            prop_assert!(object.plain().is_none());
            prop_assert_eq!(object.json().map_err(|error| error.to_string()), plain);
            let stored = object.protobuf().unwrap();
            prop_assert_eq!(stored.as_deref(), Some(&body[..]));
        }
    }

    #[test]
    fn bodies_are_readable_while_a_packer_runs() {
        let (objects, totals) = (objects(400), Arc::<PackedTotals>::default());
        let dictionary = trained(&objects);
        let texts: Vec<_> = (0..objects.len()).map(config_map).collect();
        std::thread::scope(|threads| {
            threads.spawn(|| pack(&objects, &dictionary, &totals));
            for _ in 0..2 {
                threads.spawn(|| {
                    for _ in 0..5 {
                        for (object, text) in objects.iter().zip(&texts) {
                            assert_eq!(object.json_text().unwrap(), *text);
                        }
                    }
                });
            }
        });
        // A reader that converted a body while it was packed has left no JSON.
        assert!(objects.iter().all(|object| object.plain().is_none()));
        assert_eq!(objects.iter().map(|object| object.body_size()).sum::<usize>(), totals.live());
    }
}
