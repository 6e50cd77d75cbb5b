//! Changes to an object's metadata and type, in one pass over its bytes.
//!
//! Members are copied one by one until all changes are made. The remaining bytes are then copied in one piece. If a
//! member occurs twice, which valid objects do not have, only the first is changed.

use informer_hub_types::ClusterName;

use super::scan::{Malformed, Members};
use super::{CLUSTER_KEY, Identity};

/// Changes that are made to an object before it is sent to a reader. The default changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edit<'a> {
    /// New `metadata.resourceVersion`; `None` keeps the object's own.
    pub version: Option<u64>,
    /// Cluster whose name is added as an annotation and a label with the key [`CLUSTER_KEY`]; `None` adds neither.
    pub cluster: Option<&'a ClusterName>,
    /// Whether the name becomes `<cluster>:<name>`. Has no effect without a cluster.
    pub is_unique: bool,
    /// Whether `kind` and `apiVersion` are left out.
    pub without_type: bool,
}

impl<'a> From<Identity<'a>> for Edit<'a> {
    fn from(identity: Identity<'a>) -> Self {
        Self {
            version: Some(identity.version),
            cluster: Some(identity.cluster),
            is_unique: identity.is_unique,
            without_type: false,
        }
    }
}

impl Edit<'_> {
    /// Returns the changed object.
    #[must_use]
    pub fn object(&self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_object(json, &mut out);
        out
    }

    /// Appends the changed object to `out`. Bytes that are no JSON object are appended as they are.
    pub fn write_object(&self, json: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(json.len() + self.growth());
        if self.edit_object(json, out).is_err() {
            out.truncate(start);
            out.extend_from_slice(json);
        }
    }

    /// Appends the object as `PartialObjectMetadata` with the changed metadata to `out`.
    pub fn write_metadata(&self, json: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
        let start = out.len();
        let metadata = metadata_of(json).unwrap_or(b"{}");
        out.reserve(metadata.len() + self.growth());
        if self.edit_metadata(metadata, out).is_err() {
            out.truncate(start);
            out.extend_from_slice(b"{}");
        }
        out.push(b'}');
    }

    /// Returns an upper bound of the bytes by which the changes lengthen an object, to reserve capacity.
    fn growth(&self) -> usize {
        let cluster = self.cluster.map_or(0, |cluster| 100 + 3 * cluster.as_str().len());
        cluster + if self.changes_metadata() { 60 } else { 0 }
    }

    fn changes_metadata(&self) -> bool {
        self.version.is_some() || self.cluster.is_some()
    }

    fn edit_object(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut members = Members::of_object(json).ok_or(Malformed)?;
        let mut object = ObjectWriter::new(out);
        let (mut kind, mut api_version) = (self.without_type, self.without_type);
        let mut metadata = self.changes_metadata();
        while kind || api_version || metadata {
            let Some(member) = members.member()? else { break };
            if kind && member.is("kind") {
                kind = false;
            } else if api_version && member.is("apiVersion") {
                api_version = false;
            } else if metadata && member.is("metadata") {
                metadata = false;
                self.edit_metadata(member.value, object.value_of("metadata"))?;
            } else {
                object.copy(member.text);
            }
        }
        if metadata {
            self.edit_metadata(b"{}", object.value_of("metadata"))?;
        }
        object.finish(members.rest());
        Ok(())
    }

    /// Appends the changed metadata. Metadata that is not an object is replaced by an object.
    fn edit_metadata(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        let mut members = Members::of_object(json).unwrap_or_else(Members::none);
        let mut object = ObjectWriter::new(out);
        let mut version = self.version;
        let (mut labels, mut annotations) = (self.cluster, self.cluster);
        let mut name = self.cluster.filter(|_| self.is_unique);
        while version.is_some() || labels.is_some() || annotations.is_some() || name.is_some() {
            let Some(member) = members.member()? else { break };
            if let Some(version) = version.take_if(|_| member.is("resourceVersion")) {
                write_version(version, object.value_of("resourceVersion"));
            } else if let Some(cluster) = labels.take_if(|_| member.is("labels")) {
                edit_map(member.value, cluster, object.value_of("labels"))?;
            } else if let Some(cluster) = annotations.take_if(|_| member.is("annotations")) {
                edit_map(member.value, cluster, object.value_of("annotations"))?;
            } else if let Some(cluster) = name.take_if(|_| member.is("name")) {
                write_name(member.value, cluster, object.value_of("name"));
            } else {
                object.copy(member.text);
            }
        }
        if let Some(version) = version {
            write_version(version, object.value_of("resourceVersion"));
        }
        if let Some(cluster) = labels {
            edit_map(b"{}", cluster, object.value_of("labels"))?;
        }
        if let Some(cluster) = annotations {
            edit_map(b"{}", cluster, object.value_of("annotations"))?;
        }
        object.finish(members.rest());
        Ok(())
    }
}

/// Returns the metadata of an object; `None` if it is missing or not an object.
fn metadata_of(json: &[u8]) -> Option<&[u8]> {
    let mut members = Members::of_object(json)?;
    loop {
        let member = members.member().ok()??;
        if member.is("metadata") {
            return Members::of_object(member.value).map(|_| member.value);
        }
    }
}

fn write_version(version: u64, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(version.to_string().as_bytes());
    out.push(b'"');
}

/// Appends `<cluster>:<name>`. A name that is not a string is copied unchanged.
fn write_name(json: &[u8], cluster: &ClusterName, out: &mut Vec<u8>) {
    if let Some(name) = json.strip_prefix(b"\"") {
        out.push(b'"');
        out.extend_from_slice(cluster.as_str().as_bytes());
        out.push(b':');
        out.extend_from_slice(name);
    } else {
        out.extend_from_slice(json);
    }
}

/// Appends labels or annotations, with the cluster's name added. A value that is not an object is replaced by an
/// object.
fn edit_map(json: &[u8], cluster: &ClusterName, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut members = Members::of_object(json).unwrap_or_else(Members::none);
    let mut object = ObjectWriter::new(out);
    while let Some(member) = members.member()? {
        if member.is(CLUSTER_KEY) {
            break;
        }
        object.copy(member.text);
    }
    let value = object.value_of(CLUSTER_KEY);
    value.push(b'"');
    value.extend_from_slice(cluster.as_str().as_bytes());
    value.push(b'"');
    object.finish(members.rest());
    Ok(())
}

/// Writer of an object's members and brackets.
struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> ObjectWriter<'o> {
    fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    fn separate(&mut self) {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
    }

    /// Appends an unchanged member: name, colon and value.
    fn copy(&mut self, text: &[u8]) {
        self.separate();
        self.out.extend_from_slice(text);
    }

    /// Appends the name of a member, which needs no escapes, and returns the buffer for its value.
    fn value_of(&mut self, name: &str) -> &mut Vec<u8> {
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Appends `rest`: the remaining, unchanged members and the closing bracket.
    fn finish(self, rest: &[u8]) {
        match rest.strip_prefix(b",") {
            Some(rest) if self.is_empty => self.out.extend_from_slice(rest),
            _ => self.out.extend_from_slice(rest),
        }
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
