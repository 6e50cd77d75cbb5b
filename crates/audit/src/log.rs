//! The audit log: its queue and the thread that writes it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::event::Event;
use crate::ids::AuditIds;
use crate::output::Output;
use crate::queue::{Batch, Queue};
use informer_hub_types::clock::{self, Instant};

/// Shortest time between two warnings that the output fails. A failing output is retried more often.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Limits of an audit log.
#[derive(Clone, Copy, Debug)]
pub struct AuditLogOptions {
    /// Maximum bytes of queued lines. Further lines are lost. Default 8 MiB.
    pub queue: usize,
    /// Maximum bytes of lines per write; a single longer line is written alone. Default 64 KiB.
    pub batch: usize,
    /// Pause after a failed write, before it is retried. Default 1 s.
    pub retry: Duration,
}

impl Default for AuditLogOptions {
    fn default() -> Self {
        Self { queue: 8 << 20, batch: 64 << 10, retry: Duration::from_secs(1) }
    }
}

/// Numbers of events since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuditCounts {
    /// Events that were written.
    pub written: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Events queued and not written yet.
    pub waiting: u64,
}

/// Log of requests. [`Self::push`] never waits for the output.
pub struct AuditLog {
    shared: Arc<Shared>,
    reported: AtomicU64,
}

struct Shared {
    queue: Queue,
    ids: AuditIds,
    written: AtomicU64,
}

impl AuditLog {
    /// Starts an audit log, with a thread that writes to `output`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(output: Box<dyn Output>, options: AuditLogOptions) -> io::Result<Self> {
        let queue = Queue::new(options.queue);
        let shared = Arc::new(Shared { queue, ids: AuditIds::default(), written: AtomicU64::new(0) });
        let writer = Writer { shared: Arc::clone(&shared), output, options, warned: None, is_failing: false };
        std::thread::Builder::new().name("hub-audit".to_owned()).spawn(move || writer.run())?;
        Ok(Self { shared, reported: AtomicU64::new(0) })
    }

    /// Returns an identifier for a request.
    #[must_use]
    pub fn next_id(&self) -> String {
        self.shared.ids.next()
    }

    /// Adds an event. If the queue is full, the event is lost and counted.
    pub fn push(&self, event: &Event) {
        self.shared.queue.push(event.line(), |lost| self.shared.line_of_losses(lost));
    }

    /// Returns the numbers of written, lost and queued events.
    #[must_use]
    pub fn counts(&self) -> AuditCounts {
        let (lost, waiting) = self.shared.queue.counts();
        AuditCounts { written: self.shared.written.load(Relaxed), lost, waiting }
    }

    /// Returns the number of events lost since the last call of this function. The caller logs the number.
    pub fn unreported(&self) -> u64 {
        let now = self.counts().lost;
        now.saturating_sub(self.reported.swap(now, Relaxed))
    }

    /// Refuses further events, and blocks until all queued events are written, for at most `timeout`.
    ///
    /// Returns the number of events that were lost since the last call of [`Self::unreported`] or are still unwritten.
    pub fn close(&self, timeout: Duration) -> u64 {
        let has_ended = self.shared.queue.close(timeout);
        let AuditCounts { waiting, .. } = self.counts();
        self.unreported() + if has_ended { 0 } else { waiting }
    }
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        // Closing does not wait: the writer still writes the queued lines and then ends.
        self.shared.queue.close(Duration::ZERO);
    }
}

impl Shared {
    fn line_of_losses(&self, lost: u64) -> Vec<u8> {
        Event::of_losses(self.ids.next(), lost, clock::wall()).line()
    }
}

/// Thread that writes queued lines to the output.
struct Writer {
    shared: Arc<Shared>,
    output: Box<dyn Output>,
    options: AuditLogOptions,
    /// When the last warning was logged.
    warned: Option<Instant>,
    is_failing: bool,
}

/// Closes the queue when the writer ends, even if the output panics.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.queue.end();
    }
}

impl Writer {
    fn run(mut self) {
        let _end = EndOnDrop(Arc::clone(&self.shared));
        while let Some(batch) = self.shared.queue.take(self.options.batch) {
            let Batch { mut bytes, events, gap } = batch;
            if gap > 0 {
                bytes.extend(self.shared.line_of_losses(gap));
            }
            if self.write(&bytes) {
                self.shared.written.fetch_add(events, Relaxed);
            } else {
                self.shared.queue.lose(events);
                return;
            }
        }
    }

    /// Writes lines, and retries until that succeeds. Returns false if the output still fails after the log was closed.
    fn write(&mut self, bytes: &[u8]) -> bool {
        loop {
            match self.output.append(bytes) {
                Ok(()) => {
                    self.note_success();
                    return true;
                }
                Err(error) => self.note_failure(&error),
            }
            if self.shared.queue.pause(self.options.retry) {
                // The log is closed: one last attempt.
                return self.output.append(bytes).is_ok();
            }
        }
    }

    fn note_failure(&mut self, error: &io::Error) {
        let now = clock::now();
        if self.warned.is_none_or(|warned| now.duration_since(warned) >= WARNING_INTERVAL) {
            self.warned = Some(now);
            self.is_failing = true;
            let output = self.output.place();
            tracing::warn!(%error, output, "cannot write the audit log: events wait, and are lost once their queue is full");
        }
    }

    fn note_success(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(output = self.output.place(), "the audit log can be written again");
        }
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
