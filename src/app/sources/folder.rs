//! Watcher of a folder of kubeconfigs.
//!
//! Checks modification time and size of the files every [`POLL_INTERVAL`]. Reads a new or changed file when two polls
//! in a row found the same time and size. A file that becomes unreadable keeps its last clusters until it is readable
//! again or deleted.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::feed::SourceFeed;
use super::status::ClusterSourceState;
use informer_hub_config::inventory::{Problem, SourceReport, report_from_file, stem};
use informer_hub_config::{ClusterSourceConfig, Contexts};
use informer_hub_disk::FileState;
use informer_hub_types::{Threads, clock};

/// Interval between two polls of the folder.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum size of a file in bytes. Kubeconfigs have a few kilobytes.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of files, read in the order of their names; the others are ignored.
const MAX_FILES: usize = 10_000;

/// Files of a folder that may be kubeconfigs, by name.
type Listing = BTreeMap<String, FileState>;

/// A folder and the last known clusters of its files.
struct Folder {
    source: ClusterSourceConfig,
    path: PathBuf,
    contexts: Contexts,
    /// Files at the last poll.
    seen: Listing,
    /// Clusters of each file, with the state of the file when it was read.
    read: BTreeMap<String, (FileState, SourceReport)>,
}

/// Reads all kubeconfigs of a folder for the start of the hub, without waiting for two equal polls. Returns `None` if
/// the folder cannot be read.
pub(crate) async fn read_all(
    source: ClusterSourceConfig,
    path: PathBuf,
    contexts: Contexts,
    io: &Threads,
) -> Option<SourceReport> {
    let reading = io.spawn_blocking(move || {
        let mut folder = Folder::new(source, path, contexts);
        folder.seen = list(&folder.path).ok()?;
        folder.update(folder.seen.clone());
        Some(folder.report())
    });
    reading.await.ok()?
}

/// Watches a folder of kubeconfigs until `feed` is stopped.
pub(super) async fn watch(
    source: ClusterSourceConfig,
    path: PathBuf,
    contexts: Contexts,
    feed: SourceFeed,
    io: Threads,
) {
    let mut folder = Folder::new(source, path, contexts);
    let mut ticks = clock::ticks(POLL_INTERVAL);
    let mut is_first = true;
    loop {
        tokio::select! {
            biased;
            () = feed.stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let looking = io.spawn_blocking(move || {
            let listed = list(&folder.path);
            let is_changed = match &listed {
                Ok(listing) => {
                    if is_first {
                        // Files that exist at the first poll are read without a second poll, as at the start of the
                        // hub.
                        folder.seen.clone_from(listing);
                    }
                    folder.update(listing.clone())
                }
                Err(_) => false,
            };
            (folder, listed.map(drop), is_changed)
        });
        let Ok((back, listed, is_changed)) = looking.await else { return };
        folder = back;
        match listed {
            Ok(()) => {
                if (is_changed || is_first) && !feed.publish(folder.report()).await {
                    return;
                }
                is_first = false;
                feed.set_state(ClusterSourceState::Current, None);
            }
            Err(error) => feed.set_state(
                ClusterSourceState::Unreachable,
                Some(format!("cannot read the folder {}: {error}", folder.path.display())),
            ),
        }
    }
}

impl Folder {
    fn new(source: ClusterSourceConfig, path: PathBuf, contexts: Contexts) -> Self {
        Self { source, path, contexts, seen: Listing::new(), read: BTreeMap::new() }
    }

    /// Reads each changed file of the new poll `now` that had the same time and size at the poll before. Returns
    /// whether any file was read or removed.
    fn update(&mut self, now: Listing) -> bool {
        let before = self.read.len();
        self.read.retain(|file, _| now.contains_key(file));
        let mut is_changed = self.read.len() != before;
        for (file, state) in &now {
            let is_read = self.read.get(file).is_some_and(|(read, _)| read == state);
            if is_read || self.seen.get(file) != Some(state) {
                continue;
            }
            let known = self.read.get(file).map(|(_, report)| report.clone()).unwrap_or_default();
            self.read.insert(file.clone(), (*state, self.file(file).keeping(&known)));
            is_changed = true;
        }
        self.seen = now;
        is_changed
    }

    fn file(&self, file: &str) -> SourceReport {
        let path = self.path.join(file);
        match text(&path) {
            Ok(text) => report_from_file(&self.source, self.contexts, &path, &text),
            Err(error) => {
                let problem =
                    Problem { object: format!("file {file}"), problem: format!("cannot read the file: {error}") };
                SourceReport { problems: vec![problem], ..SourceReport::default() }
            }
        }
    }

    /// Returns the clusters and problems of all files.
    fn report(&self) -> SourceReport {
        let mut all = SourceReport::default();
        for (_, report) in self.read.values() {
            all.clusters.extend(report.clusters.iter().cloned());
            all.problems.extend(report.problems.iter().cloned());
        }
        all
    }
}

/// Lists the candidate files. Ignores subfolders and entries without readable metadata.
fn list(path: &Path) -> io::Result<Listing> {
    let mut found = Listing::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Follows links: Kubernetes mounts files as links.
        let Ok(metadata) = std::fs::metadata(entry.path()) else { continue };
        if !metadata.is_file() || stem(&name).is_none() {
            continue;
        }
        found.insert(name, FileState::from(&metadata));
    }
    while found.len() > MAX_FILES {
        found.pop_last();
    }
    Ok(found)
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {MAX_BYTES} bytes, the limit of a kubeconfig"),
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_config::Config;

    const ONE: &str = "
clusters: [{name: c, cluster: {server: 'https://one.example.com'}}]
users: [{name: u, user: {token: hunter2}}]
contexts: [{name: blue, context: {cluster: c, user: u}}, {name: green, context: {cluster: c, user: u}}]
current-context: blue
";

    struct TestFolder {
        dir: tempfile::TempDir,
        folder: Folder,
    }

    impl TestFolder {
        fn new(contexts: Contexts) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let text = "[cluster_sources.f]\ntype = \"folder\"\npath = \"/x\"\n[resources.pods]\n";
            let source = Config::from_toml(text).unwrap().sources.remove(0);
            let folder = Folder::new(source, dir.path().to_owned(), contexts);
            Self { dir, folder }
        }

        fn write(&self, file: &str, text: &str) {
            std::fs::write(self.dir.path().join(file), text).unwrap();
        }

        /// Polls twice, so that changed files are read, and returns the names of the clusters.
        fn names(&mut self) -> Vec<String> {
            for _ in 0..2 {
                let listing = list(&self.folder.path).unwrap();
                self.folder.update(listing);
            }
            self.folder.report().clusters.iter().map(|found| found.cluster.name.to_string()).collect()
        }

        fn problems(&self) -> Vec<String> {
            self.folder.report().problems.into_iter().map(|it| format!("{}: {}", it.object, it.problem)).collect()
        }
    }

    #[test]
    fn each_file_is_a_cluster_and_an_invalid_file_affects_no_other() {
        let mut bed = TestFolder::new(Contexts::Current);
        bed.write("prod-eu.yaml", ONE);
        bed.write("staging", ONE);
        bed.write(".hidden.yaml", ONE);
        bed.write("prod-eu.yaml~", ONE);
        bed.write("notes.yaml", "to: [do");
        std::fs::create_dir(bed.dir.path().join("more.yaml")).unwrap();
        assert_eq!(bed.names(), ["prod-eu", "staging"]);
        assert_eq!(bed.problems().len(), 1, "{:?}", bed.problems());
        assert!(bed.problems()[0].starts_with("file notes.yaml: is not a valid kubeconfig"), "{:?}", bed.problems());
    }

    #[test]
    fn a_broken_file_keeps_its_clusters_until_it_is_valid_or_deleted() {
        let mut bed = TestFolder::new(Contexts::Current);
        bed.write("one.yaml", ONE);
        assert_eq!(bed.names(), ["one"]);
        bed.write("one.yaml", &ONE[..60]);
        assert_eq!(bed.names(), ["one"]);
        assert_eq!(bed.problems().len(), 1);
        bed.write("one.yaml", &format!("{ONE}\n# better\n"));
        assert_eq!(bed.names(), ["one"]);
        assert!(bed.problems().is_empty());
        std::fs::remove_file(bed.dir.path().join("one.yaml")).unwrap();
        assert!(bed.names().is_empty());
    }

    #[test]
    fn a_file_is_read_after_two_equal_polls() {
        let mut bed = TestFolder::new(Contexts::Current);
        bed.write("one.yaml", ONE);
        let listing = list(&bed.folder.path).unwrap();
        assert!(!bed.folder.update(listing.clone()), "the file is new");
        assert!(bed.folder.update(listing.clone()));
        assert!(!bed.folder.update(listing));
    }

    #[test]
    fn contexts_are_clusters_and_a_broken_file_keeps_all_of_them() {
        let mut bed = TestFolder::new(Contexts::All);
        bed.write("fleet.yaml", ONE);
        assert_eq!(bed.names(), ["blue", "green"]);
        bed.write("fleet.yaml", "rubbish");
        assert_eq!(bed.names(), ["blue", "green"]);
        bed.write("fleet.yaml", &ONE.replace("green", "red"));
        assert_eq!(bed.names(), ["blue", "red"]);
    }

    #[test]
    fn an_oversized_or_binary_file_is_a_problem_of_that_file() {
        let mut bed = TestFolder::new(Contexts::Current);
        bed.write("large.yaml", &"#".repeat((1 << 20) + 1));
        std::fs::write(bed.dir.path().join("bytes.yaml"), [0xff, 0xfe, 0]).unwrap();
        bed.write("right.yaml", ONE);
        assert_eq!(bed.names(), ["right"]);
        assert_eq!(bed.problems().len(), 2);
        assert!(!bed.problems().concat().contains("hunter2"));
    }
}
