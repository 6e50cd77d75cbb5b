//! Tests of the line transports: acknowledged events are written once and whole.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;
use crate::contract::{Fault, TestBed, assert_sink_contract};
use crate::test_objects::event;

fn params(folder: &Path) -> FileParams {
    FileParams { path: folder.join("events.jsonl"), max_size: 1 << 20, keep: 3, fsync: true }
}

fn to_file(params: &FileParams) -> LinesTransport {
    LinesTransport::file(params.clone(), Arc::default())
}

fn batch(from: u64, count: u64) -> Arc<[Event]> {
    (from..from + count).map(|version| event("web", version, 100)).collect()
}

/// Returns the resourceVersion of each event in a file, in order; `None` for an invalid line.
fn versions(path: &Path) -> Vec<Option<u64>> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let version = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).ok()?;
        event["data"]["resourceVersion"].as_str()?.parse().ok()
    };
    text.lines().map(version).collect()
}

fn error(outcome: Outcome) -> String {
    match outcome {
        Outcome::Retry { content: false, after: None, error } => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn events_are_lines_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for fsync in [true, false] {
        let params = FileParams { fsync, ..params(folder.path()) };
        let transport = to_file(&params);
        assert_eq!(transport.attempt(batch(1, 2)).await, Outcome::Accepted);
        assert_eq!(transport.attempt(batch(3, 1)).await, Outcome::Accepted);
        // A second process appends to the same file.
        assert_eq!(to_file(&params).attempt(batch(4, 1)).await, Outcome::Accepted);
        assert_eq!(versions(&params.path), [1, 2, 3, 4].map(Some));
        std::fs::remove_file(&params.path).unwrap();
    }
}

#[tokio::test]
async fn full_file_is_rotated_and_the_oldest_removed() {
    let folder = tempfile::tempdir().unwrap();
    let params = FileParams { max_size: 3000, ..params(folder.path()) };
    let transport = to_file(&params);
    for at in 0..40 {
        assert_eq!(transport.attempt(batch(at, 1)).await, Outcome::Accepted);
    }
    let aside = |number: usize| params.path.with_extension(format!("jsonl.{number}"));
    let all: Vec<_> =
        [aside(3), aside(2), aside(1), params.path.clone()].iter().flat_map(|path| versions(path)).collect();
    let wanted: Vec<_> = (40 - all.len() as u64..40).map(Some).collect();
    assert_eq!(all, wanted);
    assert!(!aside(4).exists());
    for path in [aside(3), aside(2), aside(1)] {
        assert!(std::fs::metadata(path).unwrap().len() <= 3000);
    }
    // A batch is never split, whatever its size.
    assert_eq!(transport.attempt(batch(40, 50)).await, Outcome::Accepted);
    assert_eq!(versions(&params.path).len(), 50);
}

#[tokio::test]
async fn incomplete_line_of_a_crash_is_terminated() {
    let folder = tempfile::tempdir().unwrap();
    let params = params(folder.path());
    assert_eq!(to_file(&params).attempt(batch(1, 1)).await, Outcome::Accepted);
    let mut text = std::fs::read(&params.path).unwrap();
    text.extend_from_within(..40);
    std::fs::write(&params.path, text).unwrap();
    assert_eq!(to_file(&params).attempt(batch(2, 1)).await, Outcome::Accepted);
    assert_eq!(versions(&params.path), [Some(1), None, Some(2)]);
}

#[tokio::test]
async fn file_moved_by_another_process_is_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let params = params(folder.path());
    let transport = to_file(&params);
    assert_eq!(transport.attempt(batch(1, 1)).await, Outcome::Accepted);
    std::fs::rename(&params.path, folder.path().join("elsewhere")).unwrap();
    assert_eq!(transport.attempt(batch(2, 1)).await, Outcome::Accepted);
    assert_eq!(versions(&params.path), [Some(2)]);
}

#[tokio::test]
async fn unwritable_file_is_an_error_and_retried() {
    let folder = tempfile::tempdir().unwrap();
    let params = FileParams { path: folder.path().join("later/events.jsonl"), ..params(folder.path()) };
    let transport = to_file(&params);
    let error = error(transport.attempt(batch(1, 1)).await);
    assert!(error.contains("later/events.jsonl") && error.to_lowercase().contains("no such file"), "{error}");
    std::fs::create_dir(folder.path().join("later")).unwrap();
    assert_eq!(transport.attempt(batch(1, 1)).await, Outcome::Accepted);
    assert_eq!(versions(&params.path), [Some(1)]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn full_disk_is_an_error_and_leaves_no_output() {
    // A device that is always full.
    let full = FileParams { path: "/dev/full".into(), max_size: 1, keep: 1, fsync: false };
    let error = error(to_file(&full).attempt(batch(1, 3)).await);
    assert!(error.contains("/dev/full") && error.contains("No space left"), "{error}");
}

/// Writer that follows a script of byte counts and errors, and then accepts everything.
#[derive(Clone, Debug, Default)]
struct Scripted {
    script: Arc<Mutex<VecDeque<io::Result<usize>>>>,
    taken: Arc<Mutex<Vec<u8>>>,
    /// Writes hang while this is locked.
    gate: Arc<tokio::sync::Mutex<()>>,
    /// Whether the sink's simulated process has been killed. Writes then fail.
    gone: Arc<AtomicBool>,
}

impl Scripted {
    /// Waits while `gate` is locked. Fails if the simulated process was killed meanwhile.
    fn pass(&self) -> io::Result<()> {
        drop(self.gate.blocking_lock());
        if self.gone.load(Relaxed) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

impl io::Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass()?;
        let length = self.script.lock().pop_front().unwrap_or(Ok(bytes.len()))?.min(bytes.len());
        self.taken.lock().extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn to_stream(out: &Scripted) -> LinesTransport {
    LinesTransport::new(Box::new(Stream::new("stdout", out.clone())), Arc::default())
}

#[tokio::test]
async fn torn_line_of_a_stream_is_terminated_first() {
    let out = Scripted::default();
    out.script.lock().extend([Ok(30), Err(io::ErrorKind::BrokenPipe.into())]);
    let transport = to_stream(&out);
    let error = error(transport.attempt(batch(1, 1)).await);
    assert_eq!(error, "cannot write to stdout: the reader has closed it (broken pipe)");
    assert_eq!(transport.attempt(batch(1, 1)).await, Outcome::Accepted);
    let text = String::from_utf8(out.taken.lock().clone()).unwrap();
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).collect();
    assert_eq!(lines, [false, true]);
}

#[tokio::test]
async fn hanging_write_times_out_and_is_not_repeated() {
    let out = Scripted::default();
    let gate = Arc::clone(&out.gate);
    let transport = LinesTransport { deadline: Duration::from_millis(100), ..to_stream(&out) };
    {
        let hanging = gate.lock().await;
        assert_eq!(error(transport.attempt(batch(1, 2)).await), "not written within 100ms");
        // A second attempt waits behind the hanging one, times out too, and writes nothing.
        assert_eq!(error(transport.attempt(batch(1, 2)).await), "not written within 100ms");
        drop(hanging);
    }
    let patient = LinesTransport { deadline: DEADLINE, ..transport };
    assert_eq!(patient.attempt(batch(1, 2)).await, Outcome::Accepted);
    assert_eq!(patient.attempt(batch(3, 1)).await, Outcome::Accepted);
    let lines = String::from_utf8(out.taken.lock().clone()).unwrap().lines().count();
    assert_eq!(lines, 3);
    // Later deliveries of the same events, e.g. replayed dead letters, are written.
    assert_eq!(patient.attempt(batch(3, 1)).await, Outcome::Accepted);
    assert_eq!(String::from_utf8(out.taken.lock().clone()).unwrap().lines().count(), 4);
}

/// Test bed of transports that write lines to a file or a stream, and can be made to fail.
#[derive(Default)]
struct LinesBed {
    out: Mutex<Scripted>,
    hanging: Mutex<Option<tokio::sync::OwnedMutexGuard<()>>>,
    /// Temporary directory of the file; `None` if the transports write to a stream.
    folder: Option<tempfile::TempDir>,
}

/// Rotated file whose writes can be made to fail.
#[derive(Debug)]
struct MoodyFile {
    file: RotatedFile,
    mood: Scripted,
}

impl Lines for MoodyFile {
    fn place(&self) -> String {
        self.file.place()
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.mood.pass()?;
        self.mood.script.lock().pop_front().unwrap_or(Ok(0))?;
        self.file.append(lines)
    }
}

impl LinesBed {
    /// Returns a test bed whose transports write to a file that is rotated often.
    fn file() -> Self {
        Self { folder: Some(tempfile::tempdir().unwrap()), ..Self::default() }
    }

    fn params(folder: &tempfile::TempDir) -> FileParams {
        FileParams { max_size: 20_000, keep: 1000, fsync: false, ..params(folder.path()) }
    }
}

impl TestBed for LinesBed {
    fn transport(&self, deadline: Duration) -> Arc<dyn Transport> {
        let mood = self.out.lock().clone();
        let transport = match &self.folder {
            None => to_stream(&mood),
            Some(folder) => {
                let file = rotated(Self::params(folder));
                LinesTransport::new(Box::new(MoodyFile { file, mood }), Arc::default())
            }
        };
        Arc::new(LinesTransport { deadline, ..transport })
    }

    fn set(&self, fault: Fault) {
        *self.hanging.lock() = None;
        let out = self.out.lock();
        match fault {
            Fault::Hang => {
                // A write in progress ends soon.
                let closed = std::iter::repeat_with(|| {
                    std::thread::yield_now();
                    Arc::clone(&out.gate).try_lock_owned().ok()
                });
                *self.hanging.lock() = closed.flatten().next();
            }
            Fault::FailOnce => out.script.lock().push_back(Err(io::ErrorKind::StorageFull.into())),
            Fault::None | Fault::Poison(_) => {}
        }
    }

    fn killed(&self) {
        let mut out = self.out.lock();
        out.gone.store(true, Relaxed);
        out.gone = Arc::default();
    }

    fn accepted(&self) -> Vec<String> {
        let Some(folder) = &self.folder else {
            let taken = String::from_utf8(self.out.lock().taken.lock().clone()).unwrap();
            return taken.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        };
        let path = Self::params(folder).path;
        let aside = (1..).map(|number| path.with_extension(format!("jsonl.{number}"))).take_while(|path| path.exists());
        let mut files: Vec<_> = std::iter::once(path.clone()).chain(aside).collect();
        files.reverse();
        let text: String = files.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
        text.lines().map(str::to_owned).collect()
    }

    fn refuses(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn stream_passes_the_sink_contract() {
    assert_sink_contract(|| std::future::ready(LinesBed::default())).await;
}

#[tokio::test]
async fn file_passes_the_sink_contract() {
    assert_sink_contract(|| std::future::ready(LinesBed::file())).await;
}
