//! Transports that write lines: to a rotated file, or to the standard output.
//!
//! A batch is acknowledged once it is written (and, by default, synced). Output of a failed attempt is removed if
//! possible. If a write succeeds after its attempt has timed out, the batch is remembered, so that the retry does not
//! write it again.

mod stream;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Event, Outcome, Shape, Transport};
use informer_hub_disk::{RotatedFile, RotatedFileParams};
use stream::Stream;

/// Time limit of one attempt to write a batch. A disk or the reader of a pipe may stall; after this time, the attempt
/// has failed.
const DEADLINE: Duration = Duration::from_secs(30);

/// Parameters of a file of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileParams {
    /// Path of the file. Its directory must exist.
    pub path: PathBuf,
    /// Size in bytes at which the file is rotated. A batch is never split, so a file may exceed it by one batch.
    pub max_size: u64,
    /// Number of rotated files to keep, as `<path>.1` (the newest) and so on.
    pub keep: usize,
    /// Whether a batch is synced to disk before it is acknowledged.
    pub fsync: bool,
}

/// Output to which the lines of a batch are appended. If an append fails, the lines already written are removed if
/// possible.
trait Lines: Send + fmt::Debug + 'static {
    fn place(&self) -> String;
    /// Appends lines, each with its line break.
    fn append(&mut self, lines: &[u8]) -> std::io::Result<()>;
}

fn rotated(params: FileParams) -> RotatedFile {
    let FileParams { path, max_size, keep, fsync } = params;
    RotatedFile::new(RotatedFileParams { path, max_size, keep, fsync, private: false })
}

impl Lines for RotatedFile {
    fn place(&self) -> String {
        self.path().display().to_string()
    }

    fn append(&mut self, lines: &[u8]) -> std::io::Result<()> {
        RotatedFile::append(self, lines)
    }
}

/// Transport that writes one line per event.
#[derive(Debug)]
pub struct LinesTransport {
    out: Arc<Mutex<OutputFile>>,
    shape: Arc<Shape>,
    deadline: Duration,
}

#[derive(Debug)]
struct OutputFile {
    lines: Box<dyn Lines>,
    /// Ids of the events of a batch whose write succeeded after its attempt had timed out; `None` if there is no such
    /// batch.
    late: Option<Box<[Box<str>]>>,
}

impl LinesTransport {
    /// Creates a transport to a file, which is opened with the first batch.
    #[must_use]
    pub fn file(params: FileParams, shape: Arc<Shape>) -> Self {
        Self::new(Box::new(rotated(params)), shape)
    }

    /// Creates a transport to the standard output.
    #[must_use]
    pub fn stdout(shape: Arc<Shape>) -> Self {
        Self::new(Box::new(Stream::new("stdout", std::io::stdout())), shape)
    }

    fn new(lines: Box<dyn Lines>, shape: Arc<Shape>) -> Self {
        Self { out: Arc::new(Mutex::new(OutputFile { lines, late: None })), shape, deadline: DEADLINE }
    }
}

impl Transport for LinesTransport {
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome> {
        let mut lines = String::with_capacity(batch.iter().map(|event| event.json().len() + 1).sum());
        for event in &*batch {
            match self.shape.one(event) {
                Ok(text) => lines.push_str(&text),
                Err(error) => {
                    return futures::future::ready(Outcome::Unsendable { error }).boxed();
                }
            }
            lines.push('\n');
        }
        let (out, deadline) = (Arc::clone(&self.out), self.deadline);
        async move {
            let (done, outcome) = oneshot::channel();
            // The task continues after a timeout, and records a success for the next attempt.
            drop(tokio::task::spawn_blocking(move || write(&out, &batch, &lines, done)));
            let retry = |error| Outcome::Retry { after: None, content: false, error };
            match tokio::time::timeout(deadline, outcome).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => retry("the write task panicked".to_owned()),
                Err(_) => retry(format!("not written within {deadline:?}")),
            }
        }
        .boxed()
    }
}

fn write(out: &Mutex<OutputFile>, batch: &[Event], lines: &str, done: oneshot::Sender<Outcome>) {
    let mut out = out.lock();
    if done.is_closed() {
        return;
    }
    let ids = || batch.iter().map(|event| Box::from(event.id())).collect();
    let known = out.late.take().is_some_and(|late| late.iter().map(AsRef::as_ref).eq(batch.iter().map(Event::id)));
    let outcome = if known {
        Outcome::Accepted
    } else {
        match out.lines.append(lines.as_bytes()) {
            Ok(()) => Outcome::Accepted,
            Err(error) => {
                let error = format!("cannot write to {}: {error}", out.lines.place());
                Outcome::Retry { after: None, content: false, error }
            }
        }
    };
    if let Err(Outcome::Accepted) = done.send(outcome) {
        out.late = Some(ids());
    }
}

#[cfg(test)]
mod tests;
