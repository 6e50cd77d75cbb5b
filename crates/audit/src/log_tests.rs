//! Tests of the log: events are written once and in order, and an output that is stuck or fails delays no request.

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::{Condvar, Mutex};
use serde_json::Value;

use super::*;
use crate::event::{Stage, User};
use crate::output::FileOutput;

/// Timeout of waits, far longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(60);

fn event(thread: usize, number: usize) -> Event {
    Event {
        id: format!("{thread}-{number}"),
        stage: Stage::ResponseComplete,
        uri: "/v1/status".to_owned(),
        verb: "get".to_owned(),
        user: User::new("ann", None, &[]),
        source: None,
        agent: None,
        object: None,
        code: Some(200),
        received: jiff::Timestamp::UNIX_EPOCH,
        at: jiff::Timestamp::UNIX_EPOCH,
        annotations: BTreeMap::new(),
    }
}

/// Output in memory. A test can block it (`is_stuck`) or make it fail (`is_full`).
#[derive(Clone, Debug, Default)]
struct Scripted(Arc<(Mutex<Script>, Condvar)>);

#[derive(Debug, Default)]
struct Script {
    written: Vec<u8>,
    calls: usize,
    is_stuck: bool,
    is_full: bool,
}

impl Output for Scripted {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let (script, changed) = &*self.0;
        let mut script = script.lock();
        script.calls += 1;
        changed.notify_all();
        changed.wait_while(&mut script, |script| script.is_stuck);
        if script.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        script.written.extend(lines);
        Ok(())
    }
}

impl Scripted {
    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.0.lock());
        self.0.1.notify_all();
    }

    /// Waits until `append` has been called `times` times.
    fn called(&self, times: usize) {
        let mut script = self.0.0.lock();
        let timeout = self.0.1.wait_while_for(&mut script, |script| script.calls < times, PATIENCE);
        assert!(!timeout.timed_out(), "{} calls", script.calls);
    }

    fn lines(&self) -> Vec<Value> {
        lines(&self.0.0.lock().written)
    }
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| serde_json::from_slice(line).unwrap_or_default()).collect()
}

fn lost_in(line: &Value) -> Option<u64> {
    let lost = line["annotations"]["informer-hub.io/lost-events"].as_str()?;
    Some(lost.parse().unwrap())
}

fn options() -> AuditLogOptions {
    AuditLogOptions { queue: 4096, batch: 1024, retry: Duration::from_millis(1) }
}

#[test]
fn stuck_output_delays_no_request_and_a_line_takes_the_place_of_lost_events() {
    let output = Scripted::default();
    output.set(|script| script.is_stuck = true);
    let log = AuditLog::start(Box::new(output.clone()), options()).unwrap();
    // `push` returns although the output is stuck.
    for number in 0..1000 {
        log.push(&event(0, number));
    }
    let counts = log.counts();
    assert!(counts.written == 0 && counts.lost > 900 && counts.waiting > 5, "{counts:?}");
    assert_eq!((log.unreported(), log.unreported()), (counts.lost, 0));
    output.set(|script| script.is_stuck = false);
    output.called(3);
    let mut number = 1000;
    // Waits until the queue is empty, so that it has room again.
    while log.counts().waiting > 0 {
        std::thread::yield_now();
    }
    for _ in 0..3 {
        log.push(&event(0, number));
        number += 1;
    }
    assert_eq!(log.close(PATIENCE), 0);
    let (mut expected, mut lost) = (0, 0);
    for line in output.lines() {
        if let Some(here) = lost_in(&line) {
            (expected, lost) = (expected + here, lost + here);
            continue;
        }
        assert_eq!(line["auditID"], format!("0-{expected}"));
        expected += 1;
    }
    assert_eq!((expected, lost), (number as u64, counts.lost));
    assert_eq!(log.counts(), AuditCounts { written: expected - lost, lost, waiting: 0 });
}

#[test]
fn failing_output_loses_nothing_while_the_queue_has_room() {
    let output = Scripted::default();
    output.set(|script| script.is_full = true);
    let log = AuditLog::start(Box::new(output.clone()), options()).unwrap();
    for number in 0..5 {
        log.push(&event(0, number));
    }
    output.called(3);
    assert_eq!((log.counts().written, log.counts().lost), (0, 0));
    output.set(|script| script.is_full = false);
    assert_eq!(log.close(PATIENCE), 0);
    let ids: Vec<_> = output.lines().iter().map(|line| line["auditID"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, ["0-0", "0-1", "0-2", "0-3", "0-4"]);
}

#[test]
fn close_gives_up_on_a_failing_output_and_after_its_deadline() {
    let output = Scripted::default();
    output.set(|script| script.is_full = true);
    let log = AuditLog::start(Box::new(output.clone()), options()).unwrap();
    (0..4).for_each(|number| log.push(&event(0, number)));
    assert_eq!(log.close(PATIENCE), 4);
    log.push(&event(0, 4));
    assert_eq!(log.counts(), AuditCounts { written: 0, lost: 5, waiting: 0 });

    let output = Scripted::default();
    output.set(|script| script.is_stuck = true);
    let log = AuditLog::start(Box::new(output.clone()), options()).unwrap();
    log.push(&event(0, 0));
    output.called(1);
    log.push(&event(0, 1));
    assert_eq!(log.close(Duration::ZERO), 1, "besides the line that is being written");
    output.set(|script| script.is_stuck = false);
}

/// Returns the events of a log file and of its rotated files, oldest first, and the number of files.
fn rotated(path: &Path) -> (Vec<Value>, usize) {
    let aside = |number: usize| path.with_extension(format!("log.{number}"));
    let mut files: Vec<_> = (1..1000).map(aside).take_while(|path| path.exists()).collect();
    files.reverse();
    files.push(path.to_owned());
    let all = files.iter().flat_map(|path| lines(&std::fs::read(path).unwrap())).collect();
    (all, files.len())
}

#[test]
fn rotation_under_concurrency_loses_and_repeats_no_event() {
    const THREADS: usize = 8;
    const EVENTS: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let output = FileOutput::open(path.clone(), 20_000, 1000).unwrap();
    let options = AuditLogOptions { batch: 2048, queue: 64 << 20, ..options() };
    let log = AuditLog::start(Box::new(output), options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || (0..EVENTS).for_each(|number| log.push(&event(thread, number))));
        }
    });
    assert_eq!(log.close(PATIENCE), 0);
    let (events, files) = rotated(&path);
    assert!(files > 20, "{files} files");
    let mut next = [0; THREADS];
    for event in &events {
        let id = event["auditID"].as_str().unwrap();
        let (thread, number) = id.split_once('-').unwrap();
        let (thread, number): (usize, usize) = (thread.parse().unwrap(), number.parse().unwrap());
        assert_eq!(number, next[thread], "of thread {thread}");
        next[thread] += 1;
    }
    assert_eq!(next, [EVENTS; THREADS]);
}

#[test]
fn file_is_private_and_the_incomplete_line_of_a_crash_is_terminated() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let write = |number| {
        let output = FileOutput::open(path.clone(), 1 << 20, 3).unwrap();
        let log = AuditLog::start(Box::new(output), options()).unwrap();
        log.push(&event(0, number));
        assert_eq!(log.close(PATIENCE), 0);
    };
    write(0);
    assert_eq!(mode(), 0o600);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], &whole[..20]].concat()).unwrap();
    write(1);
    let ids: Vec<_> = lines(&std::fs::read(&path).unwrap()).iter().map(|line| line["auditID"].clone()).collect();
    assert_eq!(ids, [Value::from("0-0"), Value::Null, Value::from("0-1")]);
    let missing = FileOutput::open(folder.path().join("no-folder/audit.log"), 1 << 20, 3);
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
}
