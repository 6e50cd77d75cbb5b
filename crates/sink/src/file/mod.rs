//! The transports that write lines: to a file that is begun anew when it is full, or to the standard output.
//!
//! A batch is acknowledged when it is written (and, unless told otherwise, on disk). What a failed attempt has written
//! is taken back where that is possible; an attempt that was given up while it still wrote is remembered, so that a
//! batch that did get there is not written twice.

mod log;
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
use log::LogFile;
use stream::Stream;

/// How long one attempt may take. Disks stall, and a pipe's reader may; neither is quick to be told from the end.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a file with events is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileParams {
    /// Where it is. Its folder must be there.
    pub path: PathBuf,
    /// Bytes at which a new file is begun; a batch is never split, so a file may be larger by as much.
    pub max_size: u64,
    /// Full files that are kept, as `<path>.1` (the youngest) and so on.
    pub keep: usize,
    /// Whether a batch is acknowledged only when it is on disk.
    pub fsync: bool,
}

/// Something that lines are added to, all of them or none.
trait Lines: Send + fmt::Debug + 'static {
    /// What it is, for errors.
    fn place(&self) -> String;
    /// Adds lines, each with its line break.
    fn append(&mut self, lines: &[u8]) -> std::io::Result<()>;
}

/// Writes a line for each event.
#[derive(Debug)]
pub struct LinesTransport {
    out: Arc<Mutex<Out>>,
    shape: Arc<Shape>,
    deadline: Duration,
}

#[derive(Debug)]
struct Out {
    lines: Box<dyn Lines>,
    /// The ids of the batch that was written after its attempt had been given up.
    late: Option<Box<[Box<str>]>>,
}

impl LinesTransport {
    /// To a file, which is opened with the first batch.
    #[must_use]
    pub fn file(params: FileParams, shape: Arc<Shape>) -> Self {
        Self::new(Box::new(LogFile::new(params)), shape)
    }

    /// To the standard output.
    #[must_use]
    pub fn stdout(shape: Arc<Shape>) -> Self {
        Self::new(Box::new(Stream::new("stdout", std::io::stdout())), shape)
    }

    fn new(lines: Box<dyn Lines>, shape: Arc<Shape>) -> Self {
        Self { out: Arc::new(Mutex::new(Out { lines, late: None })), shape, deadline: DEADLINE }
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
            // The task goes on where nobody waits any more; it then leaves word for the next attempt.
            drop(tokio::task::spawn_blocking(move || write(&out, &batch, &lines, done)));
            let retry = |error| Outcome::Retry { after: None, content: false, error };
            match tokio::time::timeout(deadline, outcome).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => retry("the attempt to write died".to_owned()),
                Err(_) => retry(format!("not written within {deadline:?}")),
            }
        }
        .boxed()
    }
}

fn write(out: &Mutex<Out>, batch: &[Event], lines: &str, done: oneshot::Sender<Outcome>) {
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
