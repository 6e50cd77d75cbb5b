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
use informer_hub_codec::Decoder;
use informer_hub_codec::{Line, LineSplitter, ListSplitter, ListStep};
use informer_hub_reflector::{ErrorClass, ListChunk, SourceError, WatchBatch, WatchItem};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Followed, Traced};

/// Decoded items that a reader's slowness lets gather outside the channel, before the socket has to wait.
const MAX_ITEMS: usize = 512;
/// The same in bytes as they came.
const MAX_BYTES: usize = 1024 * 1024;

/// How long what a list streams gathers. A server sends each of its objects as an event of its own, at the pace at which it
/// encodes them; each by itself would wake four threads, and nobody has use for one of them before the others.
const GATHER: Duration = Duration::from_millis(10);

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
    /// Until when the batch may wait for more, where it may.
    fn gathers_until(&self) -> Option<Instant> {
        None
    }
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
            let until = intake.gathers_until();
            let room = async {
                if let Some(until) = until {
                    tokio::time::sleep_until(until).await;
                }
                out.reserve().await
            };
            tokio::select! {
                biased;
                permit = room => {
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

/// Events of a watch: one batch is all that has gathered, those of a list for a little while.
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

    fn gathers_until(&self) -> Option<Instant> {
        self.followed.as_ref().filter(|_| self.is_listing).map(|followed| followed.read + GATHER)
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

#[cfg(test)]
mod tests {
    use futures::SinkExt;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;
    use informer_hub_codec::{MAX_OBJECT_BYTES, Projection};
    use informer_hub_types::{ApiResource, Gvr};

    type Batches = mpsc::Receiver<Piece<WatchBatch>>;

    /// A watch, or a streaming list, whose lines the test writes.
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

        /// Sends a line, which has been read when this returns.
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

    /// The next batch's names, and how long it was waited for.
    async fn next(batches: &mut Batches) -> (Vec<String>, Duration) {
        let began = clock::now();
        let items = batches.recv().await.unwrap().unwrap().items;
        let name = |item: &WatchItem| item.object().map_or("end".to_owned(), |object| object.key().name().to_owned());
        (items.iter().map(name).collect(), clock::now() - began)
    }

    #[tokio::test(start_paused = true)]
    async fn objects_of_a_streaming_list_gather_for_so_long_since_the_first() {
        let (mut server, mut batches) = Server::start(true).await;
        server.object("ADDED", "a").await;
        tokio::time::advance(GATHER / 2).await;
        server.object("ADDED", "b").await;
        let (names, waited) = next(&mut batches).await;
        assert_eq!(names, ["a", "b"]);
        // A timer of tokio's may be a millisecond late.
        assert!(waited >= GATHER / 2 && waited <= GATHER / 2 + Duration::from_millis(1), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_streaming_list_and_all_that_follows_wait_for_nothing() {
        let (mut server, mut batches) = Server::start(true).await;
        server.object("ADDED", "a").await;
        server.end_of_list().await;
        assert_eq!(next(&mut batches).await, (vec!["a".to_owned(), "end".to_owned()], Duration::ZERO));
        server.object("MODIFIED", "a").await;
        assert_eq!(next(&mut batches).await, (vec!["a".to_owned()], Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_gathers_nothing_and_a_full_batch_of_a_list_waits_no_longer() {
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
