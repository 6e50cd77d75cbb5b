//! Report of cache files, for `informer-hub state`. Writes nothing.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::load;
use super::restore::{has_snapshot, resource_dirs};
use informer_hub_disk::Disk;

/// Report of the files of one resource.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheReport {
    /// Directory of the cache, relative to the directory of all caches.
    pub directory: String,
    /// Bytes of the snapshot.
    pub snapshot_bytes: u64,
    /// Bytes of the changes since the snapshot.
    pub deltas_bytes: u64,
    /// Partitions of the cache, each with the objects of one informer.
    pub partitions: Vec<PartitionReport>,
    /// Obsolete files, which the next snapshot removes.
    pub leftovers: Vec<String>,
    /// Descriptions of damage; empty if everything can be read.
    pub damage: Vec<String>,
}

/// Report of the partition of one informer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionReport {
    /// Name of the cluster.
    pub cluster: String,
    /// Scope of the informer.
    pub scope: String,
    /// Number of objects.
    pub objects: usize,
    /// Number of objects without a cached body: only key, UID, version, labels and index values are there.
    pub bare: usize,
    /// Resource version from which a watch continues; `None` if objects may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Whether the first list was complete.
    pub synced: bool,
    /// When the partition was last known to be up to date.
    pub alive: Option<jiff::Timestamp>,
    /// Names of the readers (sinks and durable subscribers) that have acknowledged every event of the partition.
    pub readers: Vec<String>,
}

/// Reads all cache files below `root` and verifies the checksum of every record. With `decode`, also decodes the body
/// of every object.
///
/// # Errors
/// If a directory cannot be listed.
pub fn inspect(disk: &dyn Disk, root: &Path, decode: bool) -> io::Result<Vec<CacheReport>> {
    let report = |dir: &std::path::PathBuf| {
        let directory = dir.strip_prefix(root).unwrap_or(dir).display().to_string();
        let lost = |why: String| CacheReport {
            directory: directory.clone(),
            snapshot_bytes: 0,
            deltas_bytes: 0,
            partitions: Vec::new(),
            leftovers: Vec::new(),
            damage: vec![why],
        };
        match load::read(disk, dir, &std::sync::Arc::default(), &|_, _| true, false) {
            Ok(Some(read)) => of(directory, read, decode),
            Ok(None) => lost("cannot read any of its files".to_owned()),
            Err(error) => lost(error.to_string()),
        }
    };
    let mut reports = Vec::new();
    for dir in resource_dirs(disk, root)? {
        if has_snapshot(disk, &dir)? {
            reports.push(report(&dir));
        }
    }
    Ok(reports)
}

fn of(directory: String, read: load::Read, decode: bool) -> CacheReport {
    let mut damage = read.damage;
    let partition = |it: &load::ReadPartition| {
        let header = &it.header;
        if decode {
            let broken = it.objects.iter().filter(|object| object.is_kept() && object.json().is_err());
            damage.extend(broken.map(|object| format!("{}: the body of {} is damaged", header.cluster, object.key())));
        }
        PartitionReport {
            cluster: header.cluster.to_string(),
            scope: header.scope.to_string(),
            objects: it.objects.len(),
            bare: it.objects.iter().filter(|object| !object.is_kept()).count(),
            resource_version: header.version.as_ref().map(ToString::to_string),
            synced: header.synced,
            alive: jiff::Timestamp::from_millisecond(header.alive).ok().filter(|_| header.alive > 0),
            readers: header.readers.iter().cloned().collect(),
        }
    };
    let partitions = read.partitions.values().map(partition).collect();
    let files = read.files;
    CacheReport {
        directory,
        snapshot_bytes: files.snapshot_bytes,
        deltas_bytes: files.deltas_bytes,
        partitions,
        leftovers: files.leftovers,
        damage,
    }
}
