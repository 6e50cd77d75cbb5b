//! Queue between requests and the writer, bounded in bytes.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Queue of lines that the log's thread writes. The queue's lock is never held while the output is written.
#[derive(Debug)]
pub(crate) struct Queue {
    limit: usize,
    state: Mutex<State>,
    /// Notified when a line is added and when the queue is closed.
    changed: Condvar,
    /// Notified when the writer has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Lines, each with its number of events: 1, or 0 for a line that reports lost events.
    lines: VecDeque<(Vec<u8>, u64)>,
    bytes: usize,
    /// Events lost since the last line was queued. A separate line reports this number before the next event, or once
    /// the queue is empty.
    gap: u64,
    /// Events lost since the start.
    lost: u64,
    is_closed: bool,
    has_ended: bool,
}

/// Lines that are written to the output in one call.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) events: u64,
    /// Number of events lost since the last line of this batch was queued. The writer appends a line with this number.
    pub(crate) gap: u64,
}

impl Queue {
    /// Creates a queue of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), changed: Condvar::new(), ended: Condvar::new() }
    }

    /// Adds the line of an event. If the queue is full or closed, the event counts as lost.
    ///
    /// If events were lost before, first adds a line from `gap_line`, which receives their number.
    pub(crate) fn push(&self, line: Vec<u8>, gap_line: impl FnOnce(u64) -> Vec<u8>) {
        let mut state = self.state.lock();
        if state.is_closed || state.bytes + line.len() > self.limit {
            state.gap += 1;
            state.lost += 1;
            return;
        }
        let gap = std::mem::take(&mut state.gap);
        // This line may exceed the limit, so that losses are always reported.
        let gap_line = (gap > 0).then(|| (gap_line(gap), 0));
        for (line, events) in gap_line.into_iter().chain([(line, 1)]) {
            state.bytes += line.len();
            state.lines.push_back((line, events));
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for lines, then removes and returns at least one line and at most about `most` bytes. Returns `None` if
    /// the queue is closed and empty.
    pub(crate) fn take(&self, most: usize) -> Option<Batch> {
        let mut state = self.state.lock();
        while state.lines.is_empty() && state.gap == 0 && !state.is_closed {
            self.changed.wait(&mut state);
        }
        let mut batch = Batch::default();
        let fits = |batch: &Batch, line: &[u8]| batch.bytes.is_empty() || batch.bytes.len() + line.len() <= most;
        while state.lines.front().is_some_and(|(line, _)| fits(&batch, line))
            && let Some((line, events)) = state.lines.pop_front()
        {
            state.bytes -= line.len();
            batch.events += events;
            batch.bytes.extend(line);
        }
        if state.lines.is_empty() {
            batch.gap = std::mem::take(&mut state.gap);
        }
        (!batch.bytes.is_empty() || batch.gap > 0).then_some(batch)
    }

    /// Waits for some time, or until the queue is closed. Returns whether it is closed.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_closed {
            self.changed.wait_while_for(&mut state, |state| !state.is_closed, time);
        }
        state.is_closed
    }

    /// Adds `events` to the number of lost events. The caller has taken these events from the queue and cannot write
    /// them.
    pub(crate) fn lose(&self, events: u64) {
        self.state.lock().lost += events;
    }

    /// Closes the queue when the writer ends. Events that are still queued count as lost.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.lost += state.waiting();
        state.lines.clear();
        (state.is_closed, state.has_ended) = (true, true);
        drop(state);
        self.ended.notify_all();
    }

    /// Closes the queue, and waits at most `time` until the writer has written the lines. Returns whether the writer has
    /// ended.
    pub(crate) fn close(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.changed.notify_all();
        self.ended.wait_while_for(&mut state, |state| !state.has_ended, time);
        state.has_ended
    }

    /// Returns the number of events lost since the start, and of events still queued.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.lost, state.waiting())
    }
}

impl State {
    fn waiting(&self) -> u64 {
        self.lines.iter().map(|(_, events)| events).sum()
    }
}
