//! From the files of a resource to a store that can be asked.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::PartitionHeader;
use super::files::{CacheFiles, Kept};
use super::load::{self, Read};
use super::names::{FileName, directory};
use super::steps::key_of;
use crate::cache::{DeclaredIndex, Packing, PartitionId, SavedPartition, Store};
use informer_hub_disk::Disk;
use informer_hub_types::{
    ApiResource, ClusterLabels, InformerHealth, Origin, PackedTotals, ResourceVersion, StoredObject, View,
};

/// How a partition is wanted now.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The labels of its cluster.
    pub labels: ClusterLabels,
    /// The indices that are declared.
    pub indexes: Vec<DeclaredIndex>,
    /// How objects are taken in; zero where that cannot be told.
    pub settings: u64,
    /// Whether it is wanted in any version of its resource, so that one is enough.
    pub any_version: bool,
}

/// A resource as it was on disk.
#[derive(Debug)]
pub struct LoadedCache {
    /// The resource.
    pub resource: ApiResource,
    /// In which form.
    pub view: View,
    /// Its partitions that are wanted.
    pub store: Store,
    /// What its bodies are packed with.
    pub packing: Packing,
    /// Objects that lie plain.
    pub plain: Vec<Arc<StoredObject>>,
    /// Where it goes on being written.
    pub files: CacheFiles,
    /// What is known of damage, for people.
    pub damage: Vec<String>,
}

/// All that was on disk.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The resources that could be read.
    pub caches: Vec<LoadedCache>,
    /// The directories of those that could not, and why.
    pub lost: Vec<(PathBuf, String)>,
}

/// Loads every resource of which somebody claims a partition. What nobody claims stays on disk.
///
/// Costs about 4 µs for an object with two index values, most of which is finding its place in the indices.
///
/// # Errors
/// When the disk refuses to open or read something; damage is no error, and a resource that nothing can be read of is lost.
pub fn load(
    disk: &Arc<dyn Disk>,
    root: &Path,
    claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>,
) -> io::Result<Loaded> {
    let (mut loaded, mut doubles) = (Loaded::default(), Vec::new());
    for dir in resource_dirs(&**disk, root)? {
        match load_one(disk, root, &dir, claim) {
            Ok(Some((cache, of_any))) => {
                loaded.caches.push(cache);
                doubles.extend(of_any.into_iter().map(|id| (loaded.caches.len() - 1, id)));
            }
            Ok(None) if !has_snapshot(&**disk, &dir)? => {}
            Ok(None) => loaded.lost.push((dir, "none of its files can be read".to_owned())),
            // What a disk refuses now it may give the next time; begun without it, it would be written over.
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", dir.display()))),
        }
    }
    close_doubles(&mut loaded.caches, &doubles);
    Ok(loaded)
}

/// Of partitions that moved from one version to another just before the process died both may be there, each whole: the
/// one that has come further goes on, the other leaves the disk with the next checkpoint.
fn close_doubles(caches: &mut [LoadedCache], of_any_version: &[(usize, PartitionId)]) {
    let mut best = BTreeMap::new();
    for &(at, id) in of_any_version {
        let cache = &caches[at];
        let Some(partition) = cache.store.published().load().partition(id).cloned() else { continue };
        let version = partition.resume_version();
        let come = (version.is_some(), version.and_then(ResourceVersion::as_number), cache.files.written(&partition));
        let gvr = &cache.resource.gvr;
        let of = (gvr.group.clone(), gvr.resource.clone(), key_of(&partition));
        let loser = match best.insert(of.clone(), (come, at, id)) {
            Some(before) if before.0 > come => best.insert(of, before),
            before => before,
        };
        if let Some((_, at, id)) = loser {
            let gvr = &caches[at].resource.gvr;
            tracing::warn!(resource = %gvr, cluster = %partition.origin().cluster, "objects are on disk in another version as well, which has come further: it is taken");
            caches[at].store.close(id);
        }
    }
}

/// Whether a first snapshot was ever completed; what else there may be is of one that was not.
pub(super) fn has_snapshot(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    Ok(disk.list(dir)?.iter().any(|name| FileName::parse(name).is_some_and(|name| name.snapshot().is_some())))
}

/// The directories that hold files, three levels down.
pub(super) fn resource_dirs(disk: &dyn Disk, root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut dirs = vec![root.to_owned()];
    for _ in 0..3 {
        let mut below = Vec::new();
        for dir in dirs {
            below.extend(disk.list(&dir)?.into_iter().map(|name| dir.join(name)));
        }
        dirs = below;
    }
    let mut filled = Vec::new();
    for dir in dirs {
        if !disk.list(&dir)?.is_empty() {
            filled.push(dir);
        }
    }
    Ok(filled)
}

fn load_one(
    disk: &Arc<dyn Disk>,
    root: &Path,
    dir: &Path,
    claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>,
) -> io::Result<Option<(LoadedCache, Vec<PartitionId>)>> {
    let totals = Arc::<PackedTotals>::default();
    let wants = |resource: &ApiResource, header: &PartitionHeader| claim(resource, header).is_some();
    let Some(read) = load::read(&**disk, dir, &totals, &wants, true)? else { return Ok(None) };
    // Whatever it says of itself, it is of where it lies.
    if directory(root, &read.resource.gvr, &read.view).as_deref() != Some(dir) {
        return Ok(None);
    }
    let begun = CacheFiles::begin(Arc::clone(disk), root, read.resource.clone(), read.view.clone())?;
    let Some(files) = begun else { return Ok(None) };
    Ok(Some(assemble(read, files, totals, claim)))
}

fn assemble(
    read: Read,
    mut files: CacheFiles,
    totals: Arc<PackedTotals>,
    claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>,
) -> (LoadedCache, Vec<PartitionId>) {
    let Read { resource, view, partitions, dictionaries, plain, damage, files: sizes } = read;
    let is_whole = damage.is_empty();
    let mut store = Store::new(resource.clone());
    let (mut headers, mut unwanted, mut of_any_version) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (key, partition) in partitions {
        let Some(claim) = claim(&resource, &partition.header) else {
            unwanted.insert(key, (partition.number, partition.header));
            continue;
        };
        let mut header = partition.header;
        // Where something may be missing it must not be written again as complete.
        header.version = header.version.filter(|_| is_whole);
        let any_version = claim.any_version;
        let saved = saved(&resource, claim, header.clone(), partition.objects);
        if let Some(id) = store.restore(saved) {
            of_any_version.extend(any_version.then_some(id));
            headers.push((id, partition.number, header));
        }
    }
    let snapshot = store.published().load_full();
    let kept = headers.into_iter().filter_map(|(id, number, header)| {
        let partition = snapshot.partition(id)?.clone();
        Some((key_of(&partition), Kept { number, header, partition }))
    });
    let packing = Packing::restored(dictionaries.last().map(|(_, dictionary)| Arc::clone(dictionary)), totals);
    files.resume(sizes, dictionaries, kept.collect(), unwanted);
    if !is_whole {
        files.distrust();
    }
    (LoadedCache { resource, view, store, packing, plain, files, damage }, of_any_version)
}

pub(super) fn saved(
    resource: &ApiResource,
    claim: Claim,
    header: PartitionHeader,
    objects: crate::cache::Gathering,
) -> SavedPartition {
    let version = header.version;
    let health = InformerHealth::new();
    health.restore(version.clone(), header.synced, header.alive, objects.len() as u64);
    let is_same = claim.settings != 0 && claim.settings == header.settings;
    SavedPartition {
        origin: Arc::new(Origin {
            cluster: header.cluster,
            cluster_labels: claim.labels,
            resource: resource.clone(),
            scope: header.scope,
        }),
        health,
        indexes: if is_same { claim.indexes } else { Vec::new() },
        settings: header.settings,
        version,
        synced: header.synced,
        readers: header.readers,
        objects,
    }
}
