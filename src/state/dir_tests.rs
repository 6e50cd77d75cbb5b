//! Tests of the state directory: locking, format checks and refused directories.

use std::io;
use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;
use informer_hub_disk::{DiskFile, DiskLock, Open, RealDisk};
use informer_hub_sim::SimDisk;
use informer_hub_testing::seeds;

const ROOT: &str = "/data/hub";

fn open(disk: &SimDisk) -> Result<StateDir, StateError> {
    StateDir::open(Arc::new(disk.clone()), Path::new(ROOT))
}

fn put(disk: &SimDisk, name: &str, bytes: &[u8]) {
    disk.create_dir_all(Path::new(ROOT)).unwrap();
    disk::replace(disk, &Path::new(ROOT).join(name), bytes).unwrap();
}

#[test]
fn state_dir_is_created_and_survives_a_crash() {
    for seed in seeds(0..50) {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let state = open(&disk).unwrap();
        assert!(state.is_locked());
        disk::make_dir(&disk, &state.journal("a"), 2).unwrap();
        drop(state);
        disk.crash();
        assert_eq!(open(&disk).unwrap().readers().unwrap(), ["a"], "seed {seed}");
    }
}

#[test]
fn state_dir_opens_after_an_interrupted_creation() {
    for calls in 0..20 {
        let disk = SimDisk::new(calls);
        disk.stop_after(calls);
        let _ = open(&disk);
        disk.crash();
        open(&disk).unwrap_or_else(|error| panic!("after {calls} calls: {error}"));
    }
}

#[test]
fn open_names_the_process_that_holds_the_lock() {
    let disk = SimDisk::new(1);
    let held = open(&disk).unwrap();
    let error = open(&disk).expect_err("it is locked");
    assert_eq!(
        error.to_string(),
        "the state directory /data/hub is in use by another hub, in this process or another container: stop it, or set \
         another directory"
    );
    let other = std::process::id() + 1;
    assert_eq!(
        StateError::Locked { root: ROOT.into(), pid: Some(other) }.to_string(),
        format!("the state directory /data/hub is in use by process {other}: stop it, or set another directory")
    );
    let (seen, access) = StateDir::look(Arc::new(disk.clone()), Path::new(ROOT)).unwrap();
    assert_eq!(access, Access::InUse(Some(std::process::id())));
    assert!(matches!(seen.remove_reader("a"), Err(StateError::Locked { .. })));
    drop(held);
    let (_, access) = StateDir::look(Arc::new(disk.clone()), Path::new(ROOT)).unwrap();
    assert_eq!(access, Access::Idle);
    open(&disk).unwrap();
}

/// A disk on which nothing can be locked, because it is read-only.
#[derive(Debug)]
struct ReadOnlyDisk(SimDisk);

impl Disk for ReadOnlyDisk {
    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn open(&self, file: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(file, how)
    }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
    fn remove(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
    fn remove_dir_all(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
}

#[test]
fn look_reads_a_read_only_directory() {
    let disk = SimDisk::new(1);
    let state = open(&disk).unwrap();
    disk::make_dir(&disk, &state.journal("a"), 2).unwrap();
    drop(state);
    let disk = Arc::new(ReadOnlyDisk(disk));
    let (state, access) = StateDir::look(disk, Path::new(ROOT)).unwrap();
    assert_eq!((state.readers().unwrap(), access), (vec!["a".to_owned()], Access::ReadOnly));
}

#[test]
fn open_refuses_newer_unknown_and_foreign_directories_unchanged() {
    let refused = |name: &str, bytes: &[u8]| {
        let disk = SimDisk::new(1);
        put(&disk, name, bytes);
        let error = open(&disk).expect_err("it is refused").to_string();
        assert_eq!(disk.files().len(), 1, "{:?}", disk.files());
        error
    };
    assert_eq!(
        refused("FORMAT", b"informer-hub state 2\n"),
        "the state directory /data/hub has format 2, but this version supports at most format 1: run the version that \
         wrote it or a newer one, or move the directory away (it contains undelivered events)"
    );
    assert!(
        refused("FORMAT", b"informer-hub state one\n")
            .starts_with("/data/hub/FORMAT contains \"informer-hub state one\"")
    );
    assert!(refused("FORMAT", &[0xff; 300]).contains("300 bytes"));
    assert!(refused("FORMAT", b"").starts_with("/data/hub/FORMAT contains \"\""));
    assert_eq!(
        refused("photo.jpg", b"x"),
        "/data/hub is not a state directory: it contains \"photo.jpg\" but no file FORMAT; a hub needs an empty directory, or one \
         that does not exist"
    );
}

#[test]
fn look_creates_nothing() {
    let disk = SimDisk::new(1);
    let error = StateDir::look(Arc::new(disk.clone()), Path::new(ROOT)).expect_err("there is none");
    assert_eq!(error.to_string(), "the state directory /data/hub does not exist, or is empty");
    assert_eq!(disk.files(), []);
}

#[test]
fn unwanted_readers_are_listed_and_removed() {
    let disk = SimDisk::new(1);
    let state = open(&disk).unwrap();
    for name in ["a", "b/../c", "d"] {
        disk::make_dir(&disk, &state.journal(name), 2).unwrap();
        disk.open(&state.journal(name).join("x"), Open::CreateNew).unwrap();
    }
    assert_eq!(state.readers().unwrap(), ["a", "b/../c", "d"]);
    assert_eq!(state.unwanted(["a", "e"]).unwrap(), ["b/../c", "d"]);
    state.remove_reader("b/../c").unwrap();
    assert_eq!(state.readers().unwrap(), ["a", "d"]);
    assert!(matches!(state.remove_reader("x"), Err(StateError::NoSuchReader { .. })));
}

#[test]
fn inspect_reports_contents_and_damage() {
    use informer_hub_journal::inspect::FileReport;
    let disk = SimDisk::new(1);
    let state = open(&disk).unwrap();
    let journal = state.journal("hook");
    disk::make_dir(&disk, &journal, 2).unwrap();
    let name = "00000000000000000000-0000000000.log";
    let (salt, mut bytes) = (crc32fast::hash(name.as_bytes()), Vec::new());
    disk::frame::write(salt, &[&[1][..], &[0; 16]].concat(), &mut bytes).unwrap();
    for seq in 0_u64..3 {
        disk::frame::write(salt, &[&seq.to_le_bytes()[..], b"event"].concat(), &mut bytes).unwrap();
    }
    disk::replace(&disk, &journal.join(name), &bytes).unwrap();
    let look = || {
        let (state, access) = StateDir::look(Arc::new(disk.clone()), Path::new(ROOT)).unwrap();
        crate::state::inspect(&state, access, true).unwrap()
    };
    let report = look();
    assert_eq!(report.access, Access::InUse(Some(std::process::id())));
    assert!(report.is_sound());
    let reader = &report.readers[0];
    assert_eq!((reader.name.as_str(), reader.journal.pending, reader.journal.next_seq), ("hook", 3, 3));
    let file = FileReport { file: name.to_owned(), bytes: 120, records: 3, pending: 3, damaged_bytes: 0 };
    assert_eq!(reader.journal.files, [file]);
    // A bit of the second record.
    disk.flip(&journal.join(name), 8 * 70);
    let report = look();
    assert!(!report.is_sound());
    let found = &report.readers[0].journal;
    assert_eq!((found.lost, found.pending, found.files[0].damaged_bytes), (1, 2, 29));
    assert_eq!(serde_json::to_value(found).unwrap()["damaged"][0]["from"], 62);
}

#[test]
fn paths_stay_within_the_directory_for_any_name() {
    let disk = SimDisk::new(1);
    let state = open(&disk).unwrap();
    assert_eq!(state.dead_letters("../x"), Path::new("/data/hub/sinks/%2e.%2fx/dead"));
    assert_eq!(state.journal(""), Path::new("/data/hub/sinks/journal"));
}

#[test]
fn state_dir_is_private_to_its_owner_on_a_real_disk() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("state");
    let state = StateDir::open(Arc::new(RealDisk), &dir).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&dir), mode(&state.caches()), mode(&dir.join("FORMAT"))], [0o700, 0o700, 0o600]);
    assert!(matches!(StateDir::open(Arc::new(RealDisk), &dir), Err(StateError::Locked { pid: Some(_), .. })));
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn escaped_names_round_trip(name in "\\PC{0,20}") {
        let file = escaped(&name);
        prop_assert!(!file.contains('/') && file != "." && file != "..");
        prop_assert_eq!(unescaped(&file), Some(name));
    }

    #[test]
    fn unescaped_rejects_other_file_names(name in "\\PC{0,12}") {
        if let Some(found) = unescaped(&name) {
            prop_assert_eq!(escaped(&found), name);
        }
    }
}

#[test]
fn open_explains_a_file_in_place_of_the_directory() {
    let above = tempfile::tempdir().unwrap();
    let (link, file) = (above.path().join("link"), above.path().join("file"));
    std::os::unix::fs::symlink(above.path().join("nowhere"), &link).unwrap();
    std::fs::write(&file, "").unwrap();
    for path in [link, file.clone(), file.join("below")] {
        let error = StateDir::open(Arc::new(RealDisk), &path).expect_err("there is no directory");
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert_eq!(cause, "a file or a dangling link has this name", "{error}");
    }
}

#[test]
fn replaced_state_dir_is_locked_again_unless_another_process_holds_it() {
    let above = tempfile::tempdir().unwrap();
    let (root, away) = (above.path().join("state"), above.path().join("away"));
    let state = StateDir::open(Arc::new(RealDisk), &root).unwrap();
    let disk = Arc::clone(state.disk());
    let caches = state.caches();
    std::fs::remove_file(root.join("LOCK")).unwrap();
    disk.create_dir_all(&caches).unwrap();
    std::fs::rename(&root, &away).unwrap();
    let other = StateDir::open(Arc::new(RealDisk), &root).unwrap();
    let error = disk.create_dir_all(&caches.join("core")).unwrap_err().to_string();
    assert!(error.contains("is in use by another hub") && !caches.join("core").exists(), "{error}");
    drop(other);
    disk.create_dir_all(&caches.join("core")).unwrap();
    assert!(matches!(StateDir::open(Arc::new(RealDisk), &root), Err(StateError::Locked { .. })), "it is locked again");
    std::fs::remove_dir_all(&root).unwrap();
    disk.create_dir_all(&caches.join("core")).unwrap();
    let format = std::fs::read_to_string(root.join("FORMAT")).unwrap();
    assert_eq!(format, "informer-hub state 1\n");
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("letters.txt"), "private").unwrap();
    let error = disk.create_dir_all(&caches).unwrap_err().to_string();
    assert!(error.contains("is not a state directory"), "{error}");
}
