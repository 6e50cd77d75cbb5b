//! Encoding of records in cache files. Numbers are LEB128; texts and blocks are length-prefixed.
//!
//! ```text
//! 1 file        group, version, resource, kind, namespaced, view
//! 2 dictionary  id, bytes
//! 3 partition   number, cluster, scope, settings, version, synced, alive, written, readers; then, if needed: floor (may
//!               be empty), defined, generation
//! 4 objects     partition, length of heads, heads (zstd), bodies end to end
//! 5 removed     partition, keys
//! 6 dropped     partition
//! 7 commit      time
//! 8 follows     length of all earlier files up to their last commit records
//! 9 fleet       fleet version, hash of the clusters' labels; then for each visible partition: its
//!               number, the version of a list of its cluster, and the greatest version that
//!               readers of its cluster may have; each version is stored plus one, zero if unknown
//! 10 objects    minor version of Kubernetes of the protobuf schema; then as 4
//! ```
//!
//! Bodies in record 4 are JSON, those in record 10 JSON or protobuf. Earlier versions of the hub wrote only record 4.
//! They treat record 10 as damage and list again. This version treats a record 10 as damage too if the record's
//! protobuf schema is newer than the schema of this version, which may lack a field. If the record's schema is older,
//! each body is converted once to check that it is readable.
//!
//! Record 9 describes the state as of the commit record that follows it, and of no later one.
//!
//! Any input decodes to a record or to `None`. Memory use is proportional to the input, except for the heads (objects
//! without their bodies) of a record. Their decompressed size is limited by [`MAX_HEADS`].

use std::collections::{BTreeMap, BTreeSet};

use super::file_name::MAX_NUMBER;
use crate::cache::ClusterVersions;
use informer_hub_protobuf::Schema;
use informer_hub_types::{ApiResource, ClusterName, Gvr, ObjectKey, ResourceVersion, Scope, View};

/// Maximum decompressed size in bytes of the heads (objects without their bodies) of one record.
pub(super) const MAX_HEADS: usize = 64 << 20;

/// Cluster and scope of a partition. They identify it among the partitions of one resource and view (form of the
/// objects, such as metadata only).
pub(super) type PartitionKey = (ClusterName, Scope);

/// Metadata of a saved partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionHeader {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Scope of the informer.
    pub scope: Scope,
    /// Hash of the settings with which the objects were decoded. If the settings at the next start have another hash,
    /// indices are not restored.
    pub settings: u64,
    /// Resource version up to which the objects are complete; `None` if they may be incomplete.
    pub version: Option<ResourceVersion>,
    /// Whether the partition's first list was complete.
    pub synced: bool,
    /// When the partition was last known to be up to date, in ms since the epoch.
    pub alive: i64,
    /// When this header was written, in ms since the epoch. A partition without an informer is kept for
    /// [`UNUSED_RETENTION`](super::UNUSED_RETENTION) from this time.
    pub written: i64,
    /// Names of the readers (sinks and durable subscribers) that have acknowledged every event of the partition.
    pub readers: BTreeSet<String>,
    /// Minimum resource version of the next list: the version up to which the informer had received changes. Readers
    /// may already know of deletions up to it. `None` if `version` is at least as new.
    pub floor: Option<ResourceVersion>,
    /// Whether the cluster had a CRD of the resource. If the CRD is gone at the next start, the objects are deleted.
    pub defined: bool,
    /// `metadata.generation` of the resource's CRD; zero if unknown.
    pub generation: u64,
}

impl PartitionHeader {
    pub(super) fn key(&self) -> PartitionKey {
        (self.cluster.clone(), self.scope.clone())
    }

    /// Marks the objects as possibly incomplete, because files are damaged. The next list must be at least as new as
    /// the saved resource version.
    pub(super) fn set_incomplete(&mut self) {
        let version = self.version.take();
        self.floor = self.floor.take().or(version);
    }
}

/// Fleet version (version over all clusters) whose complete state is on disk, so that readers can resume from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SavedFleet {
    pub(super) version: u64,
    /// Hash of the clusters' labels, by which the next start detects changed labels. Another build of the hub may
    /// compute another hash, which then counts as a change.
    pub(super) labels: u64,
    /// Partitions (objects of one informer) that had synced when the state was saved. Key: the number of the partition
    /// in the saved files. Value: the resource versions from which readers of its cluster can resume.
    pub(super) partitions: BTreeMap<u64, ClusterVersions>,
}

#[derive(Debug)]
pub(super) enum Record<'r> {
    File(ApiResource, View),
    Dictionary(u64, &'r [u8]),
    Partition(u64, PartitionHeader),
    Objects {
        partition: u64,
        heads_len: usize,
        heads: &'r [u8],
        bodies: &'r [u8],
        /// Whether protobuf bodies have an older schema, which may have fields that this version's schema lacks.
        is_older: bool,
    },
    Removed(u64, Vec<ObjectKey>),
    Dropped(u64),
    Commit,
    Follows(u64),
    Fleet(SavedFleet),
}

// === writing ===

pub(super) fn put_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(super) fn put_block(block: &[u8], out: &mut Vec<u8>) {
    put_number(block.len() as u64, out);
    out.extend_from_slice(block);
}

fn put_optional(text: Option<&str>, out: &mut Vec<u8>) {
    out.push(u8::from(text.is_some()));
    put_block(text.unwrap_or_default().as_bytes(), out);
}

fn put_time(millis: i64, out: &mut Vec<u8>) {
    put_number(u64::try_from(millis).unwrap_or(0), out);
}

/// Writes a resource version. A numeric one is written as twice its value, any other as the number 1 and its text.
pub(super) fn put_version(version: &ResourceVersion, out: &mut Vec<u8>) {
    if let Some(number) = version.as_number().filter(|number| *number < 1 << 63) {
        return put_number(number << 1, out);
    }
    put_number(1, out);
    put_block(version.to_string().as_bytes(), out);
}

pub(super) fn put_file(resource: &ApiResource, view: &View, out: &mut Vec<u8>) {
    out.push(1);
    for text in [&resource.gvr.group, &resource.gvr.version, &resource.gvr.resource, &resource.kind] {
        put_block(text.as_bytes(), out);
    }
    out.push(u8::from(resource.namespaced));
    put_block(view.to_string().as_bytes(), out);
}

pub(super) fn put_dictionary(id: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(2);
    put_number(id, out);
    put_block(bytes, out);
}

pub(super) fn put_partition(number: u64, header: &PartitionHeader, out: &mut Vec<u8>) {
    out.push(3);
    put_number(number, out);
    put_block(header.cluster.as_str().as_bytes(), out);
    put_optional(header.scope.namespace.as_deref(), out);
    put_optional(header.scope.label_selector.as_deref(), out);
    put_optional(header.scope.field_selector.as_deref(), out);
    put_number(header.settings, out);
    out.push(u8::from(header.version.is_some()));
    if let Some(version) = &header.version {
        put_version(version, out);
    }
    out.push(u8::from(header.synced));
    put_time(header.alive, out);
    put_time(header.written, out);
    put_number(header.readers.len() as u64, out);
    for reader in &header.readers {
        put_block(reader.as_bytes(), out);
    }
    // Optional: files of earlier builds end before these fields, and earlier builds ignore them.
    if header.floor.is_some() || header.defined {
        put_version(header.floor.as_ref().unwrap_or(&ResourceVersion::new("")), out);
    }
    if header.defined {
        out.push(1);
        put_number(header.generation, out);
    }
}

pub(super) fn put_objects(partition: u64, heads_len: usize, heads: &[u8], bodies: &[u8], out: &mut Vec<u8>) {
    out.push(10);
    put_number(Schema::builtin().minor(), out);
    put_number(partition, out);
    put_number(heads_len as u64, out);
    put_block(heads, out);
    out.extend_from_slice(bodies);
}

pub(super) fn put_removed(partition: u64, keys: &[ObjectKey], out: &mut Vec<u8>) {
    out.push(5);
    put_number(partition, out);
    for key in keys {
        put_block(key.as_str().as_bytes(), out);
    }
}

pub(super) fn put_dropped(partition: u64, out: &mut Vec<u8>) {
    out.push(6);
    put_number(partition, out);
}

pub(super) fn put_commit(at: i64, out: &mut Vec<u8>) {
    out.push(7);
    put_time(at, out);
}

pub(super) fn put_follows(bytes: u64, out: &mut Vec<u8>) {
    out.push(8);
    put_number(bytes, out);
}

pub(super) fn put_fleet(fleet: &SavedFleet, out: &mut Vec<u8>) {
    out.push(9);
    put_number(fleet.version, out);
    put_number(fleet.labels, out);
    for (number, versions) in &fleet.partitions {
        put_number(*number, out);
        for version in [versions.list, versions.greatest] {
            put_number(version.map_or(0, |version| version.saturating_add(1)), out);
        }
    }
}

// === reading ===

/// Decoder of the fields of a record. Holds the bytes that are not read yet.
pub(super) struct Bytes<'b>(pub(super) &'b [u8]);

impl<'b> Bytes<'b> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().map(|byte| byte != 0)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads the number of a partition or dictionary.
    fn id(&mut self) -> Option<u64> {
        self.number().filter(|number| *number <= MAX_NUMBER)
    }

    pub(super) fn size(&mut self) -> Option<usize> {
        self.number().and_then(|number| usize::try_from(number).ok())
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn block(&mut self) -> Option<&'b [u8]> {
        let len = self.size()?;
        self.take(len)
    }

    pub(super) fn text(&mut self) -> Option<&'b str> {
        std::str::from_utf8(self.block()?).ok()
    }

    /// Reads a flag and a text. The text has a meaning only if the flag is set.
    fn optional(&mut self) -> Option<(bool, &'b str)> {
        Some((self.flag()?, self.text()?))
    }

    fn time(&mut self) -> Option<i64> {
        self.number().map(|millis| i64::try_from(millis).unwrap_or(i64::MAX))
    }

    pub(super) fn version(&mut self) -> Option<ResourceVersion> {
        let number = self.number()?;
        if number & 1 == 0 {
            return Some(ResourceVersion::new(&(number >> 1).to_string()));
        }
        self.text().map(ResourceVersion::new)
    }

    fn resource(&mut self) -> Option<(ApiResource, View)> {
        let gvr = Gvr::new(self.text()?, self.text()?, self.text()?);
        let (kind, namespaced) = (self.text()?.into(), self.flag()?);
        let view = match self.text()? {
            "shared" => View::Shared,
            "whole" => View::Whole,
            "metadata" => View::Metadata,
            _ => return None,
        };
        Some((ApiResource { gvr, kind, namespaced }, view))
    }

    fn header(&mut self, view: &View) -> Option<PartitionHeader> {
        let cluster = ClusterName::new(self.text()?).ok()?;
        let (namespace, labels, fields) = (self.optional()?, self.optional()?, self.optional()?);
        let scope = Scope {
            namespace: namespace.0.then(|| namespace.1.into()),
            label_selector: labels.0.then(|| labels.1.into()),
            field_selector: fields.0.then(|| fields.1.into()),
            view: view.clone(),
        };
        let settings = self.number()?;
        let version = if self.flag()? { Some(self.version()?) } else { None };
        let (synced, alive, written) = (self.flag()?, self.time()?, self.time()?);
        let readers = (0..self.number()?).map(|_| self.text().map(ToOwned::to_owned)).collect::<Option<_>>()?;
        let floor = if self.0.is_empty() { None } else { Some(self.version()?) };
        let floor = floor.filter(|version| !version.is_empty());
        let defined = !self.0.is_empty() && self.flag()?;
        let generation = if self.0.is_empty() { 0 } else { self.number()? };
        Some(PartitionHeader {
            cluster,
            scope,
            settings,
            version,
            synced,
            alive,
            written,
            readers,
            floor,
            defined,
            generation,
        })
    }
}

impl<'r> Record<'r> {
    /// Decodes a record of a cache file; `None` if the bytes are malformed. Scopes are stored without their view (form
    /// of the objects), so the decoded ones get `view`.
    pub(super) fn read(bytes: &'r [u8], view: &View) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        Some(match bytes.byte()? {
            1 => {
                let (resource, view) = bytes.resource()?;
                Self::File(resource, view)
            }
            2 => Self::Dictionary(bytes.id()?, bytes.block()?),
            3 => Self::Partition(bytes.id()?, bytes.header(view)?),
            kind @ (4 | 10) => {
                let (minor, mut is_older) = (Schema::builtin().minor(), false);
                if kind == 10 {
                    let of_record = bytes.number().filter(|found| *found <= minor)?;
                    is_older = of_record < minor;
                }
                let (partition, heads_len, heads) = (bytes.id()?, bytes.size()?, bytes.block()?);
                if heads_len > MAX_HEADS {
                    return None;
                }
                Self::Objects { partition, heads_len, heads, bodies: bytes.0, is_older }
            }
            5 => {
                let partition = bytes.id()?;
                let mut keys = Vec::new();
                while !bytes.0.is_empty() {
                    keys.push(ObjectKey::of(bytes.text()?));
                }
                Self::Removed(partition, keys)
            }
            6 => Self::Dropped(bytes.id()?),
            7 => {
                bytes.time()?;
                Self::Commit
            }
            8 => Self::Follows(bytes.number()?),
            9 => {
                let (version, labels, mut partitions) = (bytes.number()?, bytes.number()?, BTreeMap::new());
                while !bytes.0.is_empty() {
                    let (number, list, greatest) = (bytes.id()?, bytes.number()?, bytes.number()?);
                    let versions = ClusterVersions { list: list.checked_sub(1), greatest: greatest.checked_sub(1) };
                    partitions.insert(number, versions);
                }
                Self::Fleet(SavedFleet { version, labels, partitions })
            }
            _ => return None,
        })
    }
}
