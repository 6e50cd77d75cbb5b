//! From a socket to a bounded channel: reads as fast as it can, decodes, and merges while the reader is behind.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, Stream};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::request::{next_data, stalled, transient};
use crate::reflector::split::{Line, LineSplitter, ListSplitter, ListStep};
use crate::reflector::{Decoder, ErrorClass, ListChunk, SourceError, WatchBatch, WatchItem};
use crate::types::clock;
use crate::types::{Followed, Traced};

/// Decoded items that a reader's slowness lets gather outside the channel, before the socket has to wait.
const MAX_ITEMS: usize = 512;
/// The same in bytes as they came.
const MAX_BYTES: usize = 1024 * 1024;

/// Turns the bytes of a body into batches.
pub(super) trait Intake: Send + 'static {
    /// What goes through the channel.
    type Batch: Send + 'static;
    /// Batches that wait for the reader.
    const BATCHES: usize;
    /// Takes in bytes. What came before an error is kept.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), SourceError>;
    /// Takes in the end of the body.
    fn finish(&mut self) -> Result<(), SourceError>;
    /// The next batch.
    fn pop(&mut self) -> Option<Self::Batch>;
    /// Whether there is a batch.
    fn has_batch(&self) -> bool;
    /// Whether no more should be read before a batch has gone.
    fn is_full(&self) -> bool;
    /// Whether the rest of the body does not matter.
    fn is_done(&self) -> bool;
}

/// What a [`pump`] sends.
type Piece<B> = Result<B, SourceError>;

/// Reads `body` to its end, or until nobody listens. Nothing for `silence` is an error.
pub(super) async fn pump<I: Intake>(
    mut body: Body,
    mut intake: I,
    out: mpsc::Sender<Piece<I::Batch>>,
    silence: Duration,
) {
    let end = loop {
        let read = tokio::time::timeout(silence, next_data(&mut body));
        let data = if intake.is_full() {
            let Ok(permit) = out.reserve().await else { return };
            if let Some(batch) = intake.pop() {
                permit.send(Ok(batch));
            }
            continue;
        } else if intake.has_batch() {
            tokio::select! {
                biased;
                permit = out.reserve() => {
                    let Ok(permit) = permit else { return };
                    if let Some(batch) = intake.pop() {
                        permit.send(Ok(batch));
                    }
                    continue;
                }
                data = read => data,
            }
        } else {
            read.await
        };
        match data {
            Err(_) => break Err(stalled(&format!("no further data within {silence:?}"))),
            Ok(Err(error)) => break Err(error),
            Ok(Ok(None)) => break intake.finish(),
            Ok(Ok(Some(bytes))) => match take_ready(&mut body, &mut intake, &bytes) {
                Err(error) => break Err(error),
                Ok(ended) if ended || intake.is_done() => break Ok(()),
                Ok(_) => {}
            },
        }
    };
    while let Some(batch) = intake.pop() {
        if out.send(Ok(batch)).await.is_err() {
            return;
        }
    }
    if let Err(error) = end {
        // Nobody listening is no loss.
        let _ = out.send(Err(error)).await;
    }
}

/// Takes in `bytes` and all that is there without waiting: an apiserver sends each event as a chunk of its own.
/// `Ok(true)` when the body has ended.
fn take_ready<I: Intake>(body: &mut Body, intake: &mut I, bytes: &Bytes) -> Result<bool, SourceError> {
    intake.feed(bytes)?;
    while !intake.is_full() && !intake.is_done() {
        match next_data(body).now_or_never() {
            Some(Ok(Some(bytes))) => intake.feed(&bytes)?,
            Some(Ok(None)) => return intake.finish().map(|()| true),
            Some(Err(error)) => return Err(error),
            None => break,
        }
    }
    Ok(false)
}

/// Events of a watch: one batch is all that has gathered.
pub(super) struct WatchIntake {
    decoder: Arc<Mutex<Decoder>>,
    splitter: LineSplitter,
    limit: usize,
    items: Vec<WatchItem>,
    /// Once something has gathered.
    followed: Option<Followed>,
    /// Whether what comes is what the server has already.
    is_listing: bool,
    traces: bool,
    bytes: usize,
}

impl WatchIntake {
    /// `is_listing`: whether objects come first that the server has already; `traces`: whether changes may begin traces.
    pub(super) fn new(decoder: Arc<Mutex<Decoder>>, limit: usize, is_listing: bool, traces: bool) -> Self {
        let splitter = LineSplitter::new(limit);
        Self { decoder, splitter, limit, items: Vec::new(), followed: None, is_listing, traces, bytes: 0 }
    }

    /// Notes when the first of what gathers came, and begins a trace of one change.
    fn follow(&mut self) {
        let is_end = |item: &WatchItem| matches!(item, WatchItem::Bookmark { initial_events_end: true, .. });
        if self.is_listing && self.items.iter().any(is_end) {
            self.is_listing = false;
        }
        if self.followed.is_none() && !self.items.is_empty() {
            // Of those that came with the end of a list the last is not of the list.
            let may_trace = self.traces && !self.is_listing;
            let changed = self.items.last().and_then(WatchItem::object).filter(|_| may_trace);
            let traced = changed.and_then(|object| Traced::begin(object));
            self.followed = Some(Followed { read: clock::now(), traced });
        }
    }
}

impl Intake for WatchIntake {
    type Batch = WatchBatch;
    /// An apiserver ends a watch whose reader is slow.
    const BATCHES: usize = 16;

    fn feed(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        self.bytes += bytes.len();
        let mut decoder = self.decoder.lock();
        let (items, limit) = (&mut self.items, self.limit);
        let fed = self.splitter.feed(bytes, |line| {
            items.push(match line {
                Line::Whole(line) => decoder.decode_event(line)?,
                Line::TooLong(head) => decoder.skip_event(head, format!("larger than the limit of {limit} bytes")),
            });
            Ok(())
        });
        drop(decoder);
        self.follow();
        fed
    }

    fn finish(&mut self) -> Result<(), SourceError> {
        if !self.splitter.is_inside() {
            return Ok(());
        }
        let item = self.decoder.lock().decode_event(self.splitter.rest());
        match item {
            Ok(item) => {
                self.items.push(item);
                self.follow();
            }
            Err(error) if error.class != ErrorClass::Malformed => return Err(error),
            Err(_) => return Err(transient("the watch ended inside an event".to_owned())),
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<Self::Batch> {
        self.bytes = 0;
        let followed = self.followed.take()?;
        Some(WatchBatch { items: std::mem::take(&mut self.items), followed })
    }

    fn has_batch(&self) -> bool {
        !self.items.is_empty()
    }

    fn is_full(&self) -> bool {
        self.has_batch() && (self.items.len() >= MAX_ITEMS || self.bytes >= MAX_BYTES)
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Items of a list.
pub(super) struct ListIntake {
    decoder: Arc<Mutex<Decoder>>,
    splitter: ListSplitter,
    chunks: VecDeque<ListChunk>,
    items: usize,
    bytes: usize,
}

impl ListIntake {
    pub(super) fn new(decoder: Arc<Mutex<Decoder>>, limit: usize) -> Self {
        Self { decoder, splitter: ListSplitter::new(limit), chunks: VecDeque::new(), items: 0, bytes: 0 }
    }

    fn take(&mut self, step: ListStep) -> bool {
        match step {
            ListStep::NeedMore => return false,
            ListStep::Skipped(skipped) => self.chunks.push_back(ListChunk::Skipped(skipped)),
            ListStep::End { version, continue_token, remaining } => {
                self.chunks.push_back(ListChunk::End { version, continue_token, remaining });
            }
            ListStep::Object(object) => match self.chunks.back_mut() {
                Some(ListChunk::Items(items)) if items.len() < MAX_ITEMS => items.push(object),
                _ => self.chunks.push_back(ListChunk::Items(vec![object])),
            },
        }
        self.items += 1;
        true
    }
}

impl Intake for ListIntake {
    type Batch = ListChunk;
    /// A list waits for its reader.
    const BATCHES: usize = 2;

    fn feed(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        self.bytes += bytes.len();
        self.splitter.feed(bytes);
        let decoder = Arc::clone(&self.decoder);
        let mut decoder = decoder.lock();
        loop {
            let step = self.splitter.next(&mut decoder)?;
            if !self.take(step) {
                return Ok(());
            }
        }
    }

    fn finish(&mut self) -> Result<(), SourceError> {
        let decoder = Arc::clone(&self.decoder);
        let mut decoder = decoder.lock();
        while !self.splitter.is_done() {
            let step = self.splitter.finish(&mut decoder)?;
            self.take(step);
        }
        Ok(())
    }

    fn pop(&mut self) -> Option<Self::Batch> {
        let chunk = self.chunks.pop_front();
        if self.chunks.is_empty() {
            (self.items, self.bytes) = (0, 0);
        }
        chunk
    }

    fn has_batch(&self) -> bool {
        !self.chunks.is_empty()
    }

    fn is_full(&self) -> bool {
        self.has_batch() && (self.items >= MAX_ITEMS || self.bytes >= MAX_BYTES)
    }

    fn is_done(&self) -> bool {
        self.splitter.is_done()
    }
}

/// The reading end: ends the task when it is dropped, and says so when the task died.
pub(super) struct Pieces<B> {
    arriving: mpsc::Receiver<Piece<B>>,
    task: Task,
    over: bool,
}

/// A task that ends with its owner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<B> Pieces<B> {
    pub(super) fn new(arriving: mpsc::Receiver<Piece<B>>, task: JoinHandle<()>) -> Self {
        Self { arriving, task: Task(task), over: false }
    }
}

impl<B> Stream for Pieces<B> {
    type Item = Piece<B>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Some(piece) = ready!(self.arriving.poll_recv(context)) {
            return Poll::Ready(Some(piece));
        }
        // The channel closes as the task ends, or as it dies: a stream that broke must not look like one that ended.
        let end = ready!(self.task.0.poll_unpin(context));
        self.over = true;
        Poll::Ready(end.err().map(|_| Err(transient("the reading task died".to_owned()))))
    }
}
