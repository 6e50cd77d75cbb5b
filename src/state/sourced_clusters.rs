//! `fleet.json`: clusters found by cluster sources, saved across restarts. Their caches are restored, and changes
//! during the downtime are delivered, before a source has answered. Credentials and addresses are not saved.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use informer_hub_disk::{self as disk, Disk, Open};
use informer_hub_types::{ClusterLabels, ClusterName};

/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// A cluster that was found by a cluster source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcedCluster {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Labels of the cluster.
    #[serde(default)]
    pub labels: ClusterLabels,
    /// Name of the cluster source.
    pub source: String,
    /// The object or file that describes the cluster.
    pub object: String,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    clusters: Vec<SourcedCluster>,
}

/// Contents of `fleet.json`, for `informer-hub state`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetReport {
    /// File name.
    pub file: String,
    /// File size in bytes.
    pub bytes: u64,
    /// The clusters; empty if the file is damaged.
    pub clusters: Vec<SourcedCluster>,
    /// Why `fleet.json` cannot be read, or damage found in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// Returns a report of the file, `None` if there is none. Writes nothing.
#[must_use]
pub fn inspect(disk: &dyn Disk, path: &Path) -> Option<FleetReport> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let opened = disk.open(path, Open::Read).and_then(|file| file.len());
    let bytes = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        opened => opened.unwrap_or(0),
    };
    let (clusters, damage) = match read(disk, path) {
        Ok(clusters) => {
            let duplicate =
                clusters.iter().enumerate().find(|(at, it)| clusters[..*at].iter().any(|one| one.name == it.name));
            let damage = duplicate.map(|(_, it)| format!("duplicate cluster {}", it.name));
            (clusters, damage)
        }
        Err(error) => (Vec::new(), Some(format!("cannot read the file; its clusters are listed again: {error}"))),
    };
    Some(FleetReport { file, bytes, clusters, damage })
}

/// Reads the clusters in `fleet.json`; returns none if there is no file.
///
/// # Errors
/// If the file cannot be read or has another format.
pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Vec<SourcedCluster>> {
    match disk::read_all(disk, path, MAX_BYTES) {
        Ok(bytes) => {
            let file: File = serde_json::from_slice(&bytes).map_err(io::Error::from)?;
            Ok(file.clusters)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Writes `fleet.json` if the file is missing. Returns whether it was missing.
///
/// # Errors
/// If the disk fails.
pub fn rewrite_if_missing(disk: &dyn Disk, path: &Path, clusters: Vec<SourcedCluster>) -> io::Result<bool> {
    let is_missing = matches!(disk.open(path, Open::Read), Err(error) if error.kind() == io::ErrorKind::NotFound);
    if is_missing {
        path.parent().map_or(Ok(()), |dir| disk.create_dir_all(dir))?;
        write(disk, path, clusters)?;
    }
    Ok(is_missing)
}

/// Replaces `fleet.json`, durably.
///
/// # Errors
/// If the disk fails. The file then has either the old or the new clusters.
pub fn write(disk: &dyn Disk, path: &Path, clusters: Vec<SourcedCluster>) -> io::Result<()> {
    let bytes = serde_json::to_vec(&File { clusters }).map_err(io::Error::from)?;
    disk::replace(disk, path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_disk::RealDisk;

    #[test]
    fn clusters_are_read_back_and_invalid_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fleet.json");
        assert_eq!(read(&RealDisk, &path).unwrap(), Vec::new());
        let one = SourcedCluster {
            name: "prod".parse().unwrap(),
            labels: ClusterLabels::from([("tier".to_owned(), "prod".to_owned())]),
            source: "argocd".to_owned(),
            object: "Secret argocd/prod".to_owned(),
        };
        write(&RealDisk, &path, vec![one.clone()]).unwrap();
        assert_eq!(read(&RealDisk, &path).unwrap(), vec![one.clone()]);
        let two = [one.clone(), one.clone()].to_vec();
        assert!(!rewrite_if_missing(&RealDisk, &path, two).unwrap(), "the file exists");
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert!(rewrite_if_missing(&RealDisk, &path, vec![one.clone()]).unwrap());
        assert_eq!(read(&RealDisk, &path).unwrap(), vec![one]);
        std::fs::write(&path, "{\"clusters\":[{\"name\":\"..\"}]}").unwrap();
        assert!(read(&RealDisk, &path).is_err());
    }
}
