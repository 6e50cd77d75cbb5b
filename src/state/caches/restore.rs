//! Restores the store of a resource from its files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::claim::{Claim, saved};
use super::codec::PartitionHeader;
use super::file_name::{FileName, directory};
use super::files::{CacheFiles, SavedOpenPartition};
use super::load::{self, Read};
use super::plan_writer::{hash_labels, key_of};
use crate::cache::{Packing, PartitionId, SavedVersion, Store};
use informer_hub_disk::Disk;
use informer_hub_types::{ApiResource, PackedTotals, ResourceVersion, StoredObject, View};

/// A restored cache of one resource and view.
#[derive(Debug)]
pub struct LoadedCache {
    /// The resource.
    pub resource: ApiResource,
    /// The view: the form of the objects, such as metadata only.
    pub view: View,
    /// Store of the objects, with the partitions that the configuration still needs.
    pub store: Store,
    /// Compression state of the objects' bodies, which continues with the last dictionary in the files.
    pub packing: Packing,
    /// Restored objects whose bodies are uncompressed in the files, and therefore also in memory.
    pub plain: Vec<Arc<StoredObject>>,
    /// Writer that continues the loaded files.
    pub files: CacheFiles,
    /// Descriptions of damage.
    pub damage: Vec<String>,
}

/// Caches restored by [`load()`], and directories that it could not read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Caches that could be read.
    pub caches: Vec<LoadedCache>,
    /// Directories that could not be read, with the reason.
    pub lost: Vec<(PathBuf, String)>,
}

/// Loads the cache of every resource for which `claim` returns a claim on a saved partition. Other partitions stay on
/// disk.
///
/// Costs about 4 µs for an object with two index values, mostly for index insertion.
///
/// # Errors
/// If the disk cannot open or read a file. Damage is no error; a resource without a readable snapshot is in
/// [`Loaded::lost`].
pub fn load(
    disk: &Arc<dyn Disk>,
    root: &Path,
    claim: &dyn Fn(&ApiResource, &PartitionHeader) -> Option<Claim>,
) -> io::Result<Loaded> {
    let (mut loaded, mut duplicates) = (Loaded::default(), Vec::new());
    for dir in resource_dirs(&**disk, root)? {
        match load_one(disk, root, &dir, claim) {
            Ok(Some((cache, of_any))) => {
                loaded.caches.push(cache);
                duplicates.extend(of_any.into_iter().map(|id| (loaded.caches.len() - 1, id)));
            }
            Ok(None) if !has_snapshot(&**disk, &dir)? => {}
            Ok(None) => loaded.lost.push((dir, "cannot read any of its files".to_owned())),
            // The disk error may be temporary. A start without these files would later overwrite them.
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", dir.display()))),
        }
    }
    close_duplicates(&mut loaded.caches, &duplicates);
    Ok(loaded)
}

/// Closes duplicates of partitions that were moving between API versions when the process died. Keeps the most recently
/// updated copy; the next checkpoint drops the others from disk.
fn close_duplicates(caches: &mut [LoadedCache], of_any_version: &[(usize, PartitionId)]) {
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
            tracing::warn!(
                resource = %gvr, cluster = %partition.origin().cluster,
                "the state directory has the resource in two API versions; dropping its older copy, in this version"
            );
            caches[at].store.close(id);
        }
    }
}

/// Returns whether a snapshot was ever completed. Without one, other files are leftovers.
pub(super) fn has_snapshot(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    Ok(disk.list(dir)?.iter().any(|name| FileName::parse(name).is_some_and(|name| name.snapshot().is_some())))
}

/// Returns the non-empty directories of resources, three levels below `root`: group, version, resource.
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
    // Verify that the file describes the resource that its path stands for.
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
    let Read { resource, view, partitions, dictionaries, plain, fleet, damage, files: sizes } = read;
    let is_whole = damage.is_empty();
    let mut store = Store::new(resource.clone());
    let (mut headers, mut unwanted, mut of_any_version) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (key, partition) in partitions {
        let Some(claim) = claim(&resource, &partition.header) else {
            unwanted.insert(key, (partition.number, partition.header));
            continue;
        };
        let mut header = partition.header;
        // Damage may have lost objects, so the partition must not be saved as complete again.
        if !is_whole {
            header.set_incomplete();
        }
        let any_version = claim.any_version;
        let saved = saved(&resource, claim, header.clone(), partition.objects);
        if let Some(id) = store.restore(saved) {
            of_any_version.extend(any_version.then_some(id));
            headers.push((id, partition.number, header));
        }
    }
    let snapshot = store.published().load_full();
    // Readers can resume only if the visible partitions are exactly those of the saved fleet version.
    let visible: BTreeMap<_, _> = headers
        .iter()
        .filter(|(_, _, header)| header.synced)
        .map(|(_, number, header)| (*number, header.cluster.clone()))
        .collect();
    if let Some(fleet) = fleet.filter(|fleet| is_whole && fleet.partitions.keys().eq(visible.keys())) {
        let has_same_labels = hash_labels(&snapshot) == fleet.labels;
        let clusters = visible.into_values().zip(fleet.partitions.into_values()).collect();
        store.set_saved_version(SavedVersion { version: fleet.version, has_same_labels }, clusters);
    }
    let kept = headers.into_iter().filter_map(|(id, number, header)| {
        let partition = snapshot.partition(id)?.clone();
        Some((key_of(&partition), SavedOpenPartition { number, header, partition }))
    });
    let packing =
        Packing::restored(&resource.gvr, dictionaries.last().map(|(_, dictionary)| Arc::clone(dictionary)), totals);
    files.resume(sizes, dictionaries, kept.collect(), unwanted);
    if !is_whole {
        files.rewrite_next();
    }
    (LoadedCache { resource, view, store, packing, plain, files, damage }, of_any_version)
}
