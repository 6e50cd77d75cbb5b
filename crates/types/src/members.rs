//! Members (JSON fields) that a reader of stored objects needs.

use std::sync::OnceLock;

use informer_hub_protobuf::{MessageId, Picked};

use super::FieldPath;

/// Members (JSON fields) of objects that a reader needs. Of a protobuf body, only these are converted to JSON.
#[derive(Debug)]
pub struct Members {
    /// Names along each path, without the steps into elements of lists.
    paths: Vec<Vec<Box<str>>>,
    /// The members' fields in the protobuf schema, for the type of the first object that was read. Almost always, all
    /// objects have that type.
    picked: OnceLock<(MessageId, Picked)>,
}

impl Members {
    /// Creates the set of the members at `paths`.
    #[must_use]
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p FieldPath>) -> Self {
        let names = |path: &FieldPath| path.names().map(Box::from).collect();
        Self { paths: paths.into_iter().map(names).collect(), picked: OnceLock::new() }
    }

    /// Calls `read` with the members' fields in the protobuf schema, for objects of the type `message`.
    pub(super) fn picked<T>(&self, message: MessageId, read: impl FnOnce(&Picked) -> T) -> T {
        let prepare = || Picked::new(message, self.paths.iter().map(|path| path.iter().map(|name| &**name)));
        let (of, picked) = self.picked.get_or_init(|| (message, prepare()));
        if *of == message { read(picked) } else { read(&prepare()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use informer_hub_protobuf::{ObjectWriter, TypeMeta};

    use super::*;
    use crate::{
        Dictionary, Labels, ObjectKey, PackedTotals, Packer, ResourceVersion, StoredObject, StoredObjectParts, Uid,
    };

    const JSON: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"a","uid":"1"}]},"spec":{"containers":[{"name":"main","image":"web:1"}],"nodeName":"n1"},"status":{"phase":"Running"}}"#;

    fn object(body: &[u8]) -> Arc<StoredObject> {
        let parts = StoredObjectParts {
            key: ObjectKey::new("ns", "web"),
            uid: Uid::new("u"),
            resource_version: ResourceVersion::new("1"),
            labels: Labels::default(),
            index_values: Vec::new(),
            json: Vec::new(),
        };
        Arc::new(StoredObject::of(parts, body.into()))
    }

    fn pack(object: &Arc<StoredObject>) {
        let mut packer = Packer::new(&Arc::new(Dictionary::none()), &Arc::<PackedTotals>::default());
        packer.add(object);
        assert_eq!(packer.finish().packed, 1);
    }

    #[test]
    fn only_wanted_members_of_protobuf_are_converted() {
        let paths = ["spec.containers[*].image", "status.phase", "metadata.annotations.a"];
        let paths = paths.map(|path| path.parse::<FieldPath>().unwrap());
        let wanted = Members::new(&paths);
        let expected = r#"{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"image":"web:1"}]},"status":{"phase":"Running"},"metadata":{}}"#;
        let mut writer = ObjectWriter::new(TypeMeta { api_version: "v1", kind: "Pod" }, 1 << 20).unwrap();
        let protobuf = object(writer.object(JSON.as_bytes()).unwrap());
        let json = object(JSON.as_bytes());
        for packs in [false, true] {
            if packs {
                pack(&protobuf);
                pack(&json);
            }
            assert_eq!(String::from_utf8_lossy(&protobuf.json_with(&wanted).unwrap()), expected);
            assert_eq!(&*json.json_with(&wanted).unwrap(), JSON.as_bytes());
        }
        // Objects of another kind, with members of the same names.
        let node = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"},"spec":{"podCIDR":"10.0.0.0/24"},"status":{"phase":"Running"}}"#;
        let mut writer = ObjectWriter::new(TypeMeta { api_version: "v1", kind: "Node" }, 1 << 20).unwrap();
        let node = object(writer.object(node.as_bytes()).unwrap());
        let expected = r#"{"kind":"Node","apiVersion":"v1","spec":{},"status":{"phase":"Running"},"metadata":{}}"#;
        assert_eq!(String::from_utf8_lossy(&node.json_with(&wanted).unwrap()), expected);
        assert!(node.without_body().json_with(&wanted).is_err());
        assert!(object(b"k8s\0damaged").json_with(&wanted).is_err());
    }
}
