//! What names have meant that only a cluster understands: short names and singulars of custom resources. Kept over a
//! restart, so that what is on disk of `wd` is known to be that of `widgets.example.com` before any cluster has been heard.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use informer_hub_disk::{self as disk, Disk, Open};
use informer_hub_types::{Gvr, ResourceRef};

/// Bytes of the file at most.
const LARGEST: u64 = 1 << 20;

/// Resources that are remembered of one name, at most: in different clusters it may mean different ones.
const MEANINGS: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    names: BTreeMap<String, BTreeSet<String>>,
}

fn meaning(gvr: &Gvr) -> String {
    format!("{}.{}", gvr.resource, gvr.group)
}

impl Names {
    /// A cluster says what has been written is; whether that is news.
    pub fn note(&mut self, written: &ResourceRef, gvr: &Gvr) -> bool {
        let meanings = self.names.entry(written.to_string()).or_default();
        meanings.len() < MEANINGS && meanings.insert(meaning(gvr))
    }

    /// Whether a cluster has said so, in whichever version where none was written.
    #[must_use]
    pub fn mean(&self, written: &ResourceRef, gvr: &Gvr) -> bool {
        let is_version = written.version.as_ref().is_none_or(|version| *version == gvr.version);
        is_version && self.names.get(&written.to_string()).is_some_and(|known| known.contains(&meaning(gvr)))
    }
}

/// Reads them; none where there is no file.
///
/// # Errors
/// When it cannot be read, or is something else.
pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Names> {
    match disk::read_all(disk, path, LARGEST) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Names::default()),
        Err(error) => Err(error),
    }
}

/// Whether there are some and their file is not there.
#[must_use]
pub fn are_gone(disk: &dyn Disk, path: &Path, names: &Names) -> bool {
    let is_gone = || matches!(disk.open(path, Open::Read), Err(error) if error.kind() == io::ErrorKind::NotFound);
    !names.names.is_empty() && is_gone()
}

/// Writes them in place of those before, durably.
///
/// # Errors
/// The disk's; then those before are there, or these.
pub fn write(disk: &dyn Disk, path: &Path, names: &Names) -> io::Result<()> {
    let bytes = serde_json::to_vec(names).map_err(io::Error::from)?;
    disk::replace(disk, path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_disk::RealDisk;

    #[test]
    fn a_name_means_what_a_cluster_has_said_and_is_read_back() {
        let written = |text: &str| text.parse::<ResourceRef>().unwrap();
        let gvr = |version: &str| Gvr::new("example.com", version, "widgets");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("names.json");
        let mut names = read(&RealDisk, &path).unwrap();
        assert!(names.note(&written("wd"), &gvr("v1")) && !names.note(&written("wd"), &gvr("v2")));
        assert!(names.note(&written("wd.v1.example.com"), &gvr("v1")));
        assert!(are_gone(&RealDisk, &path, &names) && !are_gone(&RealDisk, &path, &Names::default()));
        write(&RealDisk, &path, &names).unwrap();
        assert!(!are_gone(&RealDisk, &path, &names));
        let names = read(&RealDisk, &path).unwrap();
        assert!(names.mean(&written("wd"), &gvr("v2")), "in any version");
        assert!(names.mean(&written("wd.v1.example.com"), &gvr("v1")));
        assert!(!names.mean(&written("wd.v1.example.com"), &gvr("v2")));
        assert!(!names.mean(&written("wx"), &gvr("v1")));
        assert!(!names.mean(&written("wd"), &Gvr::new("example.org", "v1", "widgets")));
        std::fs::write(&path, "[]").unwrap();
        assert!(read(&RealDisk, &path).is_err());
    }
}
