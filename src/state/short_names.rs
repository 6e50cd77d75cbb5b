//! Names of custom resources (short names and singulars), with the resources to which clusters have resolved them. They
//! are saved across restarts, so that the hub can choose the caches to load before a cluster answers. If `wd` is
//! configured, it loads the cache of `widgets.example.com`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use informer_hub_disk::{self as disk, Disk, Open};
use informer_hub_types::{Gvr, ResourceRef};

/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of resources per name. A name may mean different resources in different clusters.
const MAX_RESOURCES: usize = 16;

/// Resources that each name was resolved to, such as `widgets.example.com` for `wd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortNames {
    #[serde(rename = "names")]
    resources: BTreeMap<String, BTreeSet<String>>,
}

fn resource_name(gvr: &Gvr) -> String {
    format!("{}.{}", gvr.resource, gvr.group)
}

impl ShortNames {
    /// Records that a cluster resolved a name to a resource. Returns false if this is known, or if the name already has
    /// 16 resources.
    pub fn record(&mut self, written: &ResourceRef, gvr: &Gvr) -> bool {
        let resources = self.resources.entry(written.to_string()).or_default();
        resources.len() < MAX_RESOURCES && resources.insert(resource_name(gvr))
    }

    /// Returns whether a cluster has resolved the name to the resource. If the name has no API version, any version of
    /// the resource matches.
    #[must_use]
    pub fn resolves_to(&self, written: &ResourceRef, gvr: &Gvr) -> bool {
        let is_version = written.version.as_ref().is_none_or(|version| *version == gvr.version);
        is_version && self.resources.get(&written.to_string()).is_some_and(|known| known.contains(&resource_name(gvr)))
    }
}

/// Reads the file of short names. Returns no names if there is no file.
///
/// # Errors
/// If the file cannot be read or has another format.
pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<ShortNames> {
    match disk::read_all(disk, path, MAX_BYTES) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ShortNames::default()),
        Err(error) => Err(error),
    }
}

/// Returns whether the file must be written again: `names` has entries, but there is no file.
#[must_use]
pub fn is_missing(disk: &dyn Disk, path: &Path, names: &ShortNames) -> bool {
    let is_missing = || matches!(disk.open(path, Open::Read), Err(error) if error.kind() == io::ErrorKind::NotFound);
    !names.resources.is_empty() && is_missing()
}

/// Replaces the file of short names, durably.
///
/// # Errors
/// If the disk fails. The file then has either the old or the new names.
pub fn write(disk: &dyn Disk, path: &Path, names: &ShortNames) -> io::Result<()> {
    let bytes = serde_json::to_vec(names).map_err(io::Error::from)?;
    disk::replace(disk, path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_disk::RealDisk;

    #[test]
    fn resolved_names_match_and_are_read_back() {
        let written = |text: &str| text.parse::<ResourceRef>().unwrap();
        let gvr = |version: &str| Gvr::new("example.com", version, "widgets");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names.json");
        let mut names = read(&RealDisk, &path).unwrap();
        assert!(names.record(&written("wd"), &gvr("v1")) && !names.record(&written("wd"), &gvr("v2")));
        assert!(names.record(&written("wd.v1.example.com"), &gvr("v1")));
        assert!(is_missing(&RealDisk, &path, &names) && !is_missing(&RealDisk, &path, &ShortNames::default()));
        write(&RealDisk, &path, &names).unwrap();
        assert!(!is_missing(&RealDisk, &path, &names));
        let names = read(&RealDisk, &path).unwrap();
        assert!(names.resolves_to(&written("wd"), &gvr("v2")), "in any version");
        assert!(names.resolves_to(&written("wd.v1.example.com"), &gvr("v1")));
        assert!(!names.resolves_to(&written("wd.v1.example.com"), &gvr("v2")));
        assert!(!names.resolves_to(&written("wx"), &gvr("v1")));
        assert!(!names.resolves_to(&written("wd"), &Gvr::new("example.org", "v1", "widgets")));
        std::fs::write(&path, "[]").unwrap();
        assert!(read(&RealDisk, &path).is_err());
    }
}
