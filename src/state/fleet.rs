//! Which clusters sources have brought, kept over a restart: so that their caches are taken back, and what happened
//! meanwhile is told, though no source has said anything yet. How a cluster is reached is not kept.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use informer_hub_disk::{self as disk, Disk, Open};
use informer_hub_types::{ClusterLabels, ClusterName};

/// Bytes of the file at most.
const LARGEST: u64 = 64 << 20;

/// A cluster that a source has brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcedCluster {
    /// Its name.
    pub name: ClusterName,
    /// Its labels.
    #[serde(default)]
    pub labels: ClusterLabels,
    /// The source.
    pub source: String,
    /// What it was found in.
    pub object: String,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    clusters: Vec<SourcedCluster>,
}

/// What the file has, for people.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetReport {
    /// Its name.
    pub file: String,
    /// Its bytes.
    pub bytes: u64,
    /// The clusters; none where it is damaged.
    pub clusters: Vec<SourcedCluster>,
    /// Why it cannot be read, or what is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// What there is of it; `None` without a file. Nothing is written.
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
            let twice =
                clusters.iter().enumerate().find(|(at, it)| clusters[..*at].iter().any(|one| one.name == it.name));
            let damage = twice.map(|(_, it)| format!("cluster {} is in it twice", it.name));
            (clusters, damage)
        }
        Err(error) => (Vec::new(), Some(format!("it cannot be read, its clusters begin anew: {error}"))),
    };
    Some(FleetReport { file, bytes, clusters, damage })
}

/// Reads them; none where there is no file.
///
/// # Errors
/// When it cannot be read, or is something else.
pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Vec<SourcedCluster>> {
    match disk::read_all(disk, path, LARGEST) {
        Ok(bytes) => {
            let file: File = serde_json::from_slice(&bytes).map_err(io::Error::from)?;
            Ok(file.clusters)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Writes them where somebody has removed the file; whether that was so.
///
/// # Errors
/// As [`write()`].
pub fn tend(disk: &dyn Disk, path: &Path, clusters: Vec<SourcedCluster>) -> io::Result<bool> {
    let is_gone = matches!(disk.open(path, Open::Read), Err(error) if error.kind() == io::ErrorKind::NotFound);
    if is_gone {
        path.parent().map_or(Ok(()), |dir| disk.create_dir_all(dir))?;
        write(disk, path, clusters)?;
    }
    Ok(is_gone)
}

/// Writes them in place of those before, durably.
///
/// # Errors
/// The disk's; then those before are there, or these.
pub fn write(disk: &dyn Disk, path: &Path, clusters: Vec<SourcedCluster>) -> io::Result<()> {
    let bytes = serde_json::to_vec(&File { clusters }).map_err(io::Error::from)?;
    disk::replace(disk, path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_disk::RealDisk;

    #[test]
    fn what_is_written_is_read_back_and_rubbish_is_an_error() {
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
        assert!(!tend(&RealDisk, &path, two).unwrap(), "it is there");
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert!(tend(&RealDisk, &path, vec![one.clone()]).unwrap());
        assert_eq!(read(&RealDisk, &path).unwrap(), vec![one]);
        std::fs::write(&path, "{\"clusters\":[{\"name\":\"..\"}]}").unwrap();
        assert!(read(&RealDisk, &path).is_err());
    }
}
