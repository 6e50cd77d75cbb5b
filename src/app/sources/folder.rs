//! A folder of kubeconfigs, watched: looked at every [`LOOK`] by time and size, a file read once it has stayed the same
//! from one look to the next. What cannot be read any more says what it said before, until it can or is gone.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ClusterSourceState, Ear};
use informer_hub_config::fleet::{Problem, SourceReport, report_from_file, stem};
use informer_hub_config::{ClusterSourceConfig, Contexts};
use informer_hub_disk::FileState;
use informer_hub_types::{Threads, clock};

/// How often the folder is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Bytes of a file at most: kubeconfigs have some kilobytes.
const LARGEST: u64 = 1 << 20;

/// Files of a folder at most; those after them by name do not count.
const MOST_FILES: usize = 10_000;

/// Files that count, by name.
type Listing = BTreeMap<String, FileState>;

/// A folder, and what is known of its files.
struct Folder {
    source: ClusterSourceConfig,
    path: PathBuf,
    contexts: Contexts,
    /// As it was at the last look.
    seen: Listing,
    /// What each file says, and what it was when it was read.
    read: BTreeMap<String, (FileState, SourceReport)>,
}

/// What all files say, for the start: read as they are, without waiting for them to settle. `None`: the folder cannot be
/// read.
pub(crate) async fn read_all(
    source: ClusterSourceConfig,
    path: PathBuf,
    contexts: Contexts,
    io: &Threads,
) -> Option<SourceReport> {
    let reading = io.spawn_blocking(move || {
        let mut folder = Folder::new(source, path, contexts);
        folder.seen = list(&folder.path).ok()?;
        folder.look(folder.seen.clone());
        Some(folder.said())
    });
    reading.await.ok()?
}

/// Watches a folder until it is stopped.
pub(super) async fn watch(source: ClusterSourceConfig, path: PathBuf, contexts: Contexts, ear: Ear, io: Threads) {
    let mut folder = Folder::new(source, path, contexts);
    let mut ticks = clock::ticks(LOOK);
    let mut is_first = true;
    loop {
        tokio::select! {
            biased;
            () = ear.stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let looking = io.spawn_blocking(move || {
            let listed = list(&folder.path);
            let is_other = match &listed {
                Ok(listing) => {
                    if is_first {
                        // What is there when it begins is taken as it is, as at the start of the hub.
                        folder.seen.clone_from(listing);
                    }
                    folder.look(listing.clone())
                }
                Err(_) => false,
            };
            (folder, listed.map(drop), is_other)
        });
        let Ok((back, listed, is_other)) = looking.await else { return };
        folder = back;
        match listed {
            Ok(()) => {
                if (is_other || is_first) && !ear.hear(folder.said()).await {
                    return;
                }
                is_first = false;
                ear.show(ClusterSourceState::Current, None);
            }
            Err(error) => ear.show(
                ClusterSourceState::Unreachable,
                Some(format!("the folder {} cannot be read: {error}", folder.path.display())),
            ),
        }
    }
}

impl Folder {
    fn new(source: ClusterSourceConfig, path: PathBuf, contexts: Contexts) -> Self {
        Self { source, path, contexts, seen: Listing::new(), read: BTreeMap::new() }
    }

    /// Reads what has settled and is another than was read; whether anything is.
    fn look(&mut self, now: Listing) -> bool {
        let before = self.read.len();
        self.read.retain(|file, _| now.contains_key(file));
        let mut is_other = self.read.len() != before;
        for (file, state) in &now {
            let is_read = self.read.get(file).is_some_and(|(read, _)| read == state);
            if is_read || self.seen.get(file) != Some(state) {
                continue;
            }
            let known = self.read.get(file).map(|(_, said)| said.clone()).unwrap_or_default();
            self.read.insert(file.clone(), (*state, self.file(file).keeping(&known)));
            is_other = true;
        }
        self.seen = now;
        is_other
    }

    fn file(&self, file: &str) -> SourceReport {
        let path = self.path.join(file);
        match text(&path) {
            Ok(text) => report_from_file(&self.source, self.contexts, &path, &text),
            Err(error) => {
                let problem = Problem { object: format!("file {file}"), problem: format!("cannot be read: {error}") };
                SourceReport { problems: vec![problem], ..SourceReport::default() }
            }
        }
    }

    /// What all files say.
    fn said(&self) -> SourceReport {
        let mut all = SourceReport::default();
        for (_, said) in self.read.values() {
            all.clusters.extend(said.clusters.iter().cloned());
            all.problems.extend(said.problems.iter().cloned());
        }
        all
    }
}

/// The files that count. A folder in it, or what cannot be looked at, is no file.
fn list(path: &Path) -> io::Result<Listing> {
    let mut found = Listing::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Through links, by which Kubernetes mounts files.
        let Ok(metadata) = std::fs::metadata(entry.path()) else { continue };
        if !metadata.is_file() || stem(&name).is_none() {
            continue;
        }
        found.insert(name, FileState::from(&metadata));
    }
    while found.len() > MOST_FILES {
        found.pop_last();
    }
    Ok(found)
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {LARGEST} bytes, which is no kubeconfig"),
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

    struct Bed {
        dir: tempfile::TempDir,
        folder: Folder,
    }

    impl Bed {
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

        /// Looks twice, as it takes for what has settled.
        fn names(&mut self) -> Vec<String> {
            for _ in 0..2 {
                let listing = list(&self.folder.path).unwrap();
                self.folder.look(listing);
            }
            self.folder.said().clusters.iter().map(|found| found.cluster.name.to_string()).collect()
        }

        fn problems(&self) -> Vec<String> {
            self.folder.said().problems.into_iter().map(|it| format!("{}: {}", it.object, it.problem)).collect()
        }
    }

    #[test]
    fn each_file_is_a_cluster_and_rubbish_beside_it_concerns_no_other() {
        let mut bed = Bed::new(Contexts::Current);
        bed.write("prod-eu.yaml", ONE);
        bed.write("staging", ONE);
        bed.write(".hidden.yaml", ONE);
        bed.write("prod-eu.yaml~", ONE);
        bed.write("notes.yaml", "to: [do");
        std::fs::create_dir(bed.dir.path().join("more.yaml")).unwrap();
        assert_eq!(bed.names(), ["prod-eu", "staging"]);
        assert_eq!(bed.problems().len(), 1, "{:?}", bed.problems());
        assert!(bed.problems()[0].starts_with("file notes.yaml: is not a kubeconfig in YAML"), "{:?}", bed.problems());
    }

    #[test]
    fn what_is_half_written_says_what_it_said_before_until_it_is_right_or_gone() {
        let mut bed = Bed::new(Contexts::Current);
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
    fn a_file_is_read_once_it_has_stayed_the_same() {
        let mut bed = Bed::new(Contexts::Current);
        bed.write("one.yaml", ONE);
        let listing = list(&bed.folder.path).unwrap();
        assert!(!bed.folder.look(listing.clone()), "it has just appeared");
        assert!(bed.folder.look(listing.clone()));
        assert!(!bed.folder.look(listing));
    }

    #[test]
    fn contexts_are_clusters_and_a_broken_file_keeps_all_of_them() {
        let mut bed = Bed::new(Contexts::All);
        bed.write("fleet.yaml", ONE);
        assert_eq!(bed.names(), ["blue", "green"]);
        bed.write("fleet.yaml", "rubbish");
        assert_eq!(bed.names(), ["blue", "green"]);
        bed.write("fleet.yaml", &ONE.replace("green", "red"));
        assert_eq!(bed.names(), ["blue", "red"]);
    }

    #[test]
    fn a_file_that_is_too_large_or_no_text_is_a_problem_of_its_own() {
        let mut bed = Bed::new(Contexts::Current);
        bed.write("large.yaml", &"#".repeat((1 << 20) + 1));
        std::fs::write(bed.dir.path().join("bytes.yaml"), [0xff, 0xfe, 0]).unwrap();
        bed.write("right.yaml", ONE);
        assert_eq!(bed.names(), ["right"]);
        assert_eq!(bed.problems().len(), 2);
        assert!(!bed.problems().concat().contains("hunter2"));
    }
}
