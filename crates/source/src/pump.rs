//! Reads the body of a response, decodes it as bytes arrive, and sends the items in batches through a bounded channel.
//! Items are collected while the channel is full.

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

use super::request::{Encoding, next_data, stalled, transient};
use informer_hub_codec::{Decoder, Frame, FrameSplitter, Line, LineSplitter};
use informer_hub_codec::{ListSplitter, ListStep, ProtobufListSplitter};
use informer_hub_reflector::{ErrorClass, ListChunk, SourceError, WatchBatch, WatchItem};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{SampledChange, Traced};

/// Maximum number of decoded items that wait for room in the channel. At this limit, the socket is not read.
const MAX_ITEMS: usize = 512;
/// Maximum bytes of received data whose items wait for room in the channel. At this limit, the socket is not read.
const MAX_BYTES: usize = 1024 * 1024;
/// Maximum bytes of received data of a list whose items wait for room in the channel. Lower than [`MAX_BYTES`]: an
/// apiserver waits for a slow reader of a list, so reading ahead costs memory and saves no time.
const MAX_LIST_BYTES: usize = 128 * 1024;

/// Time for which items of a streaming list are collected into a batch. The server sends the items one by one. Sending
/// each item as its own batch would wake four threads, although no item is used before the list is complete.
const GATHER: Duration = Duration::from_millis(10);

/// Decoder of a body for [`pump`]: turns bytes into batches of items.
pub(super) trait Intake: Send + 'static {
    /// A batch of items, sent as one message through the channel.
    type Batch: Send + 'static;
    /// Capacity of the channel, in batches.
    const BATCHES: usize;
    /// Sets the encoding of the body, before the first bytes are decoded. The default is JSON.
    fn begin(&mut self, encoding: Encoding);
    /// Decodes bytes. After an error, [`Self::pop`] still returns the items decoded before it.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), SourceError>;
    /// Accepts the end of the body; an error if the body is incomplete.
    fn finish(&mut self) -> Result<(), SourceError>;
    /// Removes and returns the next batch; `None` if there is none.
    fn pop(&mut self) -> Option<Self::Batch>;
    /// Returns whether [`Self::pop`] would return a batch.
    fn has_batch(&self) -> bool;
    /// Returns the time until which the next batch is held back to collect more items; `None` to send it immediately.
    fn gathers_until(&self) -> Option<Instant> {
        None
    }
    /// Returns whether a batch must be sent before more bytes are read.
    fn is_full(&self) -> bool;
    /// Returns how many free places the channel must have before a batch is sent.
    fn min_room(&self) -> usize {
        1
    }
    /// Returns whether the rest of the body need not be read.
    fn is_done(&self) -> bool;
}

/// Message in the channel from [`pump`] to the consumer. Boxed, because even an empty channel allocates 32 or 64 places
/// for messages.
type Piece<B> = Box<Result<B, SourceError>>;

/// Decodes `body` and sends the batches to `out`, until the body ends or the receiver of `out` is dropped. Sends an
/// error last if the body fails, or no data arrives for `silence`.
pub(super) async fn pump<I: Intake>(
    mut body: Body,
    mut intake: I,
    out: mpsc::Sender<Piece<I::Batch>>,
    silence: Duration,
) {
    let end = loop {
        let read = tokio::time::timeout(silence, next_data(&mut body));
        let data = if intake.is_full() {
            let Ok(mut permits) = out.reserve_many(intake.min_room()).await else { return };
            if let (Some(permit), Some(batch)) = (permits.next(), intake.pop()) {
                permit.send(Box::new(Ok(batch)));
            }
            continue;
        } else if intake.has_batch() {
            let (until, min_room) = (intake.gathers_until(), intake.min_room());
            let room = async {
                if let Some(until) = until {
                    tokio::time::sleep_until(until).await;
                }
                out.reserve_many(min_room).await
            };
            tokio::select! {
                biased;
                permits = room => {
                    let Ok(mut permits) = permits else { return };
                    if let (Some(permit), Some(batch)) = (permits.next(), intake.pop()) {
                        permit.send(Box::new(Ok(batch)));
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
            Ok(Ok(Some(bytes))) => match feed_available(&mut body, &mut intake, &bytes) {
                Err(error) => break Err(error),
                Ok(ended) if ended || intake.is_done() => break Ok(()),
                Ok(_) => {}
            },
        }
    };
    while let Some(batch) = intake.pop() {
        if out.send(Box::new(Ok(batch))).await.is_err() {
            return;
        }
    }
    if let Err(error) = end {
        // Ignore the error: the receiver was dropped.
        let _ = out.send(Box::new(Err(error))).await;
    }
}

/// Decodes `bytes` and all further bytes of the body that can be read without waiting, since an apiserver sends each
/// event as its own HTTP chunk. Returns `Ok(true)` at the end of the body.
fn feed_available<I: Intake>(body: &mut Body, intake: &mut I, bytes: &Bytes) -> Result<bool, SourceError> {
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

/// Decoder of a watch's body. A batch has all events decoded since the previous one. Events of a streaming list are
/// collected for [`GATHER`].
pub(super) struct WatchIntake {
    decoder: Arc<Mutex<Decoder>>,
    splitter: WatchSplitter,
    limit: usize,
    items: Vec<WatchItem>,
    /// Arrival time of the batch's first item, to measure latency, and the trace of one of its changes if that change
    /// is sampled. `None` while the batch is empty.
    followed: Option<SampledChange>,
    /// Whether the items still belong to the initial list.
    is_listing: bool,
    traces: bool,
    bytes: usize,
}

enum WatchSplitter {
    Json(LineSplitter),
    Protobuf(FrameSplitter),
}

impl WatchSplitter {
    /// Frees the buffer, unless it holds a part of an event.
    fn free(&mut self) {
        match self {
            Self::Json(lines) => lines.free(),
            Self::Protobuf(frames) => frames.free(),
        }
    }
}

impl WatchIntake {
    /// Creates the decoder of a watch body. `is_listing`: whether initial events come first. `traces`: whether changes
    /// may start traces.
    pub(super) fn new(decoder: Arc<Mutex<Decoder>>, limit: usize, is_listing: bool, traces: bool) -> Self {
        let splitter = WatchSplitter::Json(LineSplitter::new(limit));
        Self { decoder, splitter, limit, items: Vec::new(), followed: None, is_listing, traces, bytes: 0 }
    }

    /// Records when the first item of a batch arrived, and starts a trace for one change.
    fn note_arrival(&mut self) {
        let is_end = |item: &WatchItem| matches!(item, WatchItem::Bookmark { initial_events_end: true, .. });
        if self.is_listing && self.items.iter().any(is_end) {
            self.is_listing = false;
        }
        if self.followed.is_none() && !self.items.is_empty() {
            // If the initial list ends in this batch, the last item is its end or a later change.
            let can_trace = self.traces && !self.is_listing;
            let changed = self.items.last().and_then(WatchItem::object).filter(|_| can_trace);
            let traced = changed.and_then(|object| Traced::begin(object));
            self.followed = Some(SampledChange { read: clock::now(), traced });
        }
    }
}

impl Intake for WatchIntake {
    type Batch = WatchBatch;
    /// Capacity of the channel. Large, because an apiserver ends a watch whose client reads slowly.
    const BATCHES: usize = 16;

    fn begin(&mut self, encoding: Encoding) {
        if encoding == Encoding::Protobuf {
            self.splitter = WatchSplitter::Protobuf(FrameSplitter::new(self.limit));
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        self.bytes += bytes.len();
        let mut decoder = self.decoder.lock();
        let (items, limit) = (&mut self.items, self.limit);
        let too_long = || format!("larger than the limit of {limit} bytes");
        let fed = match &mut self.splitter {
            WatchSplitter::Json(lines) => lines.feed(bytes, |line| {
                items.push(match line {
                    Line::Whole(line) => decoder.decode_event(line)?,
                    Line::TooLong(head) => decoder.skip_event(head, too_long()),
                });
                Ok(())
            }),
            WatchSplitter::Protobuf(frames) => frames.feed(bytes, |frame| {
                items.push(match frame {
                    Frame::Whole(frame) => decoder.decode_frame(frame, limit)?,
                    Frame::TooLong(head) => decoder.skip_frame(head, too_long()),
                });
                Ok(())
            }),
        };
        drop(decoder);
        // Free the buffer after each bookmark: one arrives about once a minute, and one ends a streaming list.
        if matches!(self.items.last(), Some(WatchItem::Bookmark { .. })) {
            self.splitter.free();
        }
        self.note_arrival();
        fed
    }

    fn finish(&mut self) -> Result<(), SourceError> {
        let inside = || transient("the watch ended inside an event".to_owned());
        let rest = match &self.splitter {
            WatchSplitter::Json(lines) if lines.is_inside() => lines.rest(),
            WatchSplitter::Protobuf(frames) if frames.is_inside() => return Err(inside()),
            _ => return Ok(()),
        };
        let item = self.decoder.lock().decode_event(rest);
        match item {
            Ok(item) => {
                self.items.push(item);
                self.note_arrival();
            }
            Err(error) if error.class != ErrorClass::Malformed => return Err(error),
            Err(_) => return Err(inside()),
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

    fn gathers_until(&self) -> Option<Instant> {
        self.followed.as_ref().filter(|_| self.is_listing).map(|followed| followed.read + GATHER)
    }

    fn is_full(&self) -> bool {
        let most = if self.is_listing { MAX_LIST_BYTES } else { MAX_BYTES };
        self.has_batch() && (self.items.len() >= MAX_ITEMS || self.bytes >= most)
    }

    fn min_room(&self) -> usize {
        if self.is_listing { Self::BATCHES - 1 } else { 1 }
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Decoder of a list's body into batches of items, followed by the end of the list.
pub(super) struct ListIntake {
    decoder: Arc<Mutex<Decoder>>,
    limit: usize,
    splitter: Splitter,
    chunks: VecDeque<ListChunk>,
    items: usize,
    bytes: usize,
}

enum Splitter {
    Json(ListSplitter),
    Protobuf(ProtobufListSplitter),
}

impl Splitter {
    fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::Json(list) => list.feed(bytes),
            Self::Protobuf(list) => list.feed(bytes),
        }
    }

    fn next(&mut self, decoder: &mut Decoder) -> Result<ListStep, SourceError> {
        match self {
            Self::Json(list) => list.next(decoder),
            Self::Protobuf(list) => list.next(decoder),
        }
    }

    fn finish(&mut self, decoder: &mut Decoder) -> Result<ListStep, SourceError> {
        match self {
            Self::Json(list) => list.finish(decoder),
            Self::Protobuf(list) => list.finish(decoder),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Json(list) => list.is_done(),
            Self::Protobuf(list) => list.is_done(),
        }
    }
}

impl ListIntake {
    pub(super) fn new(decoder: Arc<Mutex<Decoder>>, limit: usize) -> Self {
        let splitter = Splitter::Json(ListSplitter::new(limit));
        Self { decoder, limit, splitter, chunks: VecDeque::new(), items: 0, bytes: 0 }
    }

    fn push(&mut self, step: ListStep) -> bool {
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
    /// Capacity of the channel. Small, because reading a list ahead of its consumer saves no time.
    const BATCHES: usize = 2;

    fn begin(&mut self, encoding: Encoding) {
        if encoding == Encoding::Protobuf {
            self.splitter = Splitter::Protobuf(ProtobufListSplitter::new(self.limit));
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        self.bytes += bytes.len();
        self.splitter.feed(bytes);
        let decoder = Arc::clone(&self.decoder);
        let mut decoder = decoder.lock();
        loop {
            let step = self.splitter.next(&mut decoder)?;
            if !self.push(step) {
                return Ok(());
            }
        }
    }

    fn finish(&mut self) -> Result<(), SourceError> {
        let decoder = Arc::clone(&self.decoder);
        let mut decoder = decoder.lock();
        while !self.splitter.is_done() {
            let step = self.splitter.finish(&mut decoder)?;
            self.push(step);
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
        self.has_batch() && (self.items >= MAX_ITEMS || self.bytes >= MAX_LIST_BYTES)
    }

    fn is_done(&self) -> bool {
        self.splitter.is_done()
    }
}

/// Stream of batches from a read task. Dropping it aborts the task. If the task panics, the stream ends with an error.
pub(super) struct BatchStream<B> {
    receiver: mpsc::Receiver<Piece<B>>,
    task: AbortOnDrop,
    is_over: bool,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<B> BatchStream<B> {
    pub(super) fn new(receiver: mpsc::Receiver<Piece<B>>, task: JoinHandle<()>) -> Self {
        Self { receiver, task: AbortOnDrop(task), is_over: false }
    }
}

impl<B> Stream for BatchStream<B> {
    type Item = Result<B, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(piece) = ready!(self.receiver.poll_recv(context)) {
            return Poll::Ready(Some(*piece));
        }
        // The channel closes when the task ends or panics. A panic must not look like the end of the stream.
        let end = ready!(self.task.0.poll_unpin(context));
        self.is_over = true;
        Poll::Ready(end.err().map(|_| Err(transient("the read task panicked".to_owned()))))
    }
}

#[cfg(test)]
mod tests {
    use futures::SinkExt;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;
    use informer_hub_codec::{MAX_OBJECT_BYTES, Projection};
    use informer_hub_types::{ApiResource, Gvr};

    type Batches = mpsc::Receiver<Piece<WatchBatch>>;

    /// A simulated server with an open watch or streaming list. The test writes the lines of the response.
    struct Server(futures::channel::mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>);

    impl Server {
        async fn start(is_listing: bool) -> (Self, Batches) {
            let pods = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
            let decoder = Arc::new(Mutex::new(Decoder::new(pods, &Projection::default(), Vec::new())));
            let intake = WatchIntake::new(decoder, MAX_OBJECT_BYTES, is_listing, false);
            let ((writes, reads), (out, batches)) = (futures::channel::mpsc::channel(1), mpsc::channel(16));
            let mut reads = Some(reads);
            let answer = tower::service_fn(move |_: http::Request<Body>| {
                let reads = reads.take().expect("one request is made");
                std::future::ready(Ok::<_, std::io::Error>(http::Response::new(StreamBody::new(reads))))
            });
            let client = kube::Client::new(answer, "default");
            let body = client.send(http::Request::new(Body::empty())).await.unwrap().into_body();
            tokio::spawn(pump(body, intake, out, Duration::from_secs(300)));
            (Self(writes), batches)
        }

        /// Sends a line and waits until it has been read.
        async fn send(&mut self, line: &str) {
            self.0.send(Ok(Frame::data(format!("{line}\n").into()))).await.unwrap();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }

        async fn object(&mut self, kind: &str, name: &str) {
            let metadata = format!(r#"{{"name":"{name}","namespace":"ns","resourceVersion":"7"}}"#);
            self.send(&format!(r#"{{"type":"{kind}","object":{{"metadata":{metadata}}}}}"#)).await;
        }

        async fn end_of_list(&mut self) {
            let metadata = r#"{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}"#;
            self.send(&format!(r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","metadata":{metadata}}}}}"#)).await;
        }
    }

    /// Receives a batch. Returns the names of its objects, and the time until it arrived.
    async fn next(batches: &mut Batches) -> (Vec<String>, Duration) {
        let began = clock::now();
        let items = batches.recv().await.unwrap().unwrap().items;
        let name = |item: &WatchItem| item.object().map_or("end".to_owned(), |object| object.key().name().to_owned());
        (items.iter().map(name).collect(), clock::now() - began)
    }

    #[tokio::test(start_paused = true)]
    async fn streaming_list_is_batched_from_its_first_object() {
        let (mut server, mut batches) = Server::start(true).await;
        server.object("ADDED", "a").await;
        tokio::time::advance(GATHER / 2).await;
        server.object("ADDED", "b").await;
        let (names, waited) = next(&mut batches).await;
        assert_eq!(names, ["a", "b"]);
        // tokio timers may be a millisecond late.
        assert!(waited >= GATHER / 2 && waited <= GATHER / 2 + Duration::from_millis(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn streaming_list_is_read_little_ahead_of_its_consumer() {
        let (mut server, mut batches) = Server::start(true).await;
        let data = "x".repeat(MAX_LIST_BYTES);
        let sends = tokio::spawn(async move {
            for name in 0..8 {
                let metadata = format!(r#"{{"name":"{name}","namespace":"ns","resourceVersion":"7"}}"#);
                server.send(&format!(r#"{{"type":"ADDED","object":{{"metadata":{metadata},"data":"{data}"}}}}"#)).await;
            }
            server.end_of_list().await;
            server
        });
        // tokio's paused clock advances once all tasks wait.
        tokio::time::sleep(GATHER * 10).await;
        assert_eq!((batches.len(), sends.is_finished()), (2, false));
        let mut names = Vec::new();
        while names.len() < 9 {
            names.extend(next(&mut batches).await.0);
        }
        assert_eq!(names, ["0", "1", "2", "3", "4", "5", "6", "7", "end"]);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_streaming_list_and_later_events_are_sent_at_once() {
        let (mut server, mut batches) = Server::start(true).await;
        server.object("ADDED", "a").await;
        server.end_of_list().await;
        assert_eq!(next(&mut batches).await, (vec!["a".to_owned(), "end".to_owned()], Duration::ZERO));
        server.object("MODIFIED", "a").await;
        assert_eq!(next(&mut batches).await, (vec!["a".to_owned()], Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn watch_events_and_full_list_batches_are_sent_at_once() {
        let (mut server, mut batches) = Server::start(false).await;
        server.object("ADDED", "a").await;
        assert_eq!(next(&mut batches).await, (vec!["a".to_owned()], Duration::ZERO));
        let (mut server, mut batches) = Server::start(true).await;
        for _ in 0..MAX_ITEMS {
            server.object("ADDED", "a").await;
        }
        let (names, waited) = next(&mut batches).await;
        assert_eq!((names.len(), waited), (MAX_ITEMS, Duration::ZERO));
    }
}
