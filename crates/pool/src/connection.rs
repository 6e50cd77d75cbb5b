//! One HTTP/2 connection: its handshake, its health, and the streams that occupy it.

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong, RecvStream};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{Request, Response, Version};
use informer_hub_types::clock;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::error::StreamError;
use super::gauges::{CloseReason, Gauges};
use super::link::{Activity, Link};
use super::window::{self, WaitMeter};

/// Time without received data after which the connection is probed with a PING.
const PING_AFTER: Duration = Duration::from_secs(8);
/// Deadline for the answer to a PING. A dead connection is noticed after at most 2 × `PING_AFTER` plus this time.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Flow-control window of a connection in bytes: enough for all its streams with their largest windows.
const CONNECTION_WINDOW: u32 = 128 * 1024 * 1024;
/// Number of cancelled streams to remember. Late frames of a stream that is no longer remembered would fail the whole
/// connection.
const CANCELLED: usize = 512;
/// Size limit of an answer's headers, in bytes.
const MAX_HEADERS: u32 = 64 * 1024;

/// An HTTP/2 connection that can take requests.
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    state: Arc<State>,
    gauges: Arc<Gauges>,
}

/// State that a connection and its streams share.
#[derive(Debug)]
struct State {
    /// This client's limit of open streams, in addition to the server's announced limit. It is lowered if the server
    /// refuses a stream although the announced limit is not reached.
    limit: AtomicUsize,
    open: AtomicUsize,
    /// Whether a stream was opened since the last check for idleness.
    was_used: AtomicBool,
    /// Whether a stream was ever opened.
    was_ever_used: AtomicBool,
    /// Current flow-control window of each stream, in bytes.
    window: AtomicU32,
    /// Notified when a larger flow-control window may speed an answer up.
    wants_window: Notify,
    /// Why the connection ended.
    end: OnceLock<StreamError>,
}

impl fmt::Debug for Http2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Http2 {
    /// Starts HTTP/2 on `link`, and waits for the answer to a first PING. By then, the server has announced its limits.
    ///
    /// `limit` is this client's limit of open streams. The connection's window is enough for so many streams with their
    /// largest windows.
    pub(crate) async fn start(link: Link, limit: u32, gauges: &Arc<Gauges>) -> Result<Self, StreamError> {
        let activity = link.activity();
        let mut builder = Builder::new();
        builder
            .initial_window_size(window::START)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_reset_streams(CANCELLED)
            .max_header_list_size(MAX_HEADERS)
            .enable_push(false);
        let (sender, mut connection) =
            builder.handshake::<_, Bytes>(link).await.map_err(|error| StreamError::from(&error))?;
        let Some(pings) = connection.ping_pong() else { return Err(StreamError::Closed) };
        let state = Arc::new(State {
            limit: AtomicUsize::new(usize::try_from(limit).unwrap_or(usize::MAX)),
            open: AtomicUsize::new(0),
            was_used: AtomicBool::new(true),
            was_ever_used: AtomicBool::new(false),
            window: AtomicU32::new(window::START),
            wants_window: Notify::new(),
            end: OnceLock::new(),
        });
        let (settle, settled) = oneshot::channel();
        let largest = CONNECTION_WINDOW / limit;
        let driver = drive(connection, largest, pings, activity, Arc::clone(&state), settle);
        let driver = Driver(Some(tokio::spawn(driver.boxed())));
        if settled.await.is_err() {
            return Err(state.end.get().cloned().unwrap_or(StreamError::Closed));
        }
        driver.release();
        Ok(Self { sender, state, gauges: Arc::clone(gauges) })
    }

    /// Returns whether the connection takes no further requests: it has ended, or is about to.
    pub(crate) fn is_retired(&self) -> bool {
        self.close_reason() != CloseReason::Idle
    }

    /// Returns why the connection takes no further requests; [`CloseReason::Idle`] if it still takes requests.
    fn close_reason(&self) -> CloseReason {
        // A clone is always ready, unless the connection has failed or the server has sent a GOAWAY.
        let ready = || self.sender.clone().ready().now_or_never();
        match self.state.end.get() {
            Some(StreamError::Silent(_)) => CloseReason::PingTimeout,
            Some(StreamError::GoingAway(_)) => CloseReason::Goaway,
            end => match ready() {
                Some(Err(error)) if error.is_go_away() && error.is_remote() => CloseReason::Goaway,
                Some(Ok(_)) if end.is_none() && self.state.limit.load(SeqCst) == 0 => CloseReason::StreamLimit,
                Some(Ok(_)) if end.is_none() => CloseReason::Idle,
                _ => CloseReason::Failed,
            },
        }
    }

    /// Returns how many more streams the limits allow.
    pub(crate) fn room(&self) -> usize {
        let limit = self.state.limit.load(SeqCst).min(self.sender.current_max_send_streams());
        limit.saturating_sub(self.state.open.load(SeqCst))
    }

    /// Reserves a stream; `None` if the limits allow no more. The caller must prevent concurrent calls.
    pub(crate) fn occupy(&self) -> Option<Vacancy> {
        if self.room() == 0 {
            return None;
        }
        self.state.open.fetch_add(1, SeqCst);
        let is_first = !self.state.was_ever_used.swap(true, SeqCst);
        self.state.was_used.store(true, SeqCst);
        Some(Vacancy { sender: self.sender.clone(), occupied: Occupied(Arc::clone(&self.state)), is_first })
    }

    /// Returns an identifier that is unique among the connections that exist.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.state).addr()
    }

    /// Returns whether the connection had no stream since the last call.
    pub(crate) fn is_idle(&self) -> bool {
        !self.state.was_used.swap(false, SeqCst) && self.state.open.load(SeqCst) == 0
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.gauges.closed(self.close_reason());
    }
}

/// A reserved stream on a connection, for one request.
pub(crate) struct Vacancy {
    sender: SendRequest<Bytes>,
    occupied: Occupied,
    /// Whether this is the connection's first request, so that the connection cannot be stale.
    pub(crate) is_first: bool,
}

impl Vacancy {
    /// Sends a request and waits for the status and headers of the answer.
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream.
    pub(crate) async fn send(self, request: Request<Bytes>) -> Result<Response<Http2Body>, StreamError> {
        let Self { sender, occupied, .. } = self;
        match exchange(sender, request).await {
            Ok(response) => {
                let meter = WaitMeter::new(clock::now());
                Ok(response.map(|stream| Http2Body { stream, occupied, meter }))
            }
            Err(error) => Err(occupied.explain(&error)),
        }
    }
}

/// Guard that counts a stream as open on its connection until the guard is dropped.
#[derive(Debug)]
struct Occupied(Arc<State>);

impl Occupied {
    /// Returns why the stream ended. After a refused stream, lowers the limit of open streams.
    fn explain(&self, error: &h2::Error) -> StreamError {
        let error = self.0.end.get().cloned().unwrap_or_else(|| StreamError::from(error));
        if matches!(error, StreamError::Reset(h2::Reason::REFUSED_STREAM)) {
            // The server refused a stream below its announced limit, so fewer streams are opened from now on.
            self.0.limit.fetch_min(self.0.open.load(SeqCst).saturating_sub(1), SeqCst);
        }
        error
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

/// Body of an answer. Reading it reopens the flow-control window of its stream.
#[derive(Debug)]
pub(crate) struct Http2Body {
    stream: RecvStream,
    occupied: Occupied,
    meter: WaitMeter,
}

impl Http2Body {
    /// Returns the next data; `None` at the end of the answer.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        let Poll::Ready(data) = self.stream.poll_data(cx) else {
            self.meter.wait(clock::now());
            return Poll::Pending;
        };
        let Some(data) = data else { return Poll::Ready(None) };
        let data = data.and_then(|data| {
            self.stream.flow_control().release_capacity(data.len())?;
            let state = &self.occupied.0;
            if self.meter.read(data.len(), state.window.load(SeqCst), clock::now) {
                state.wants_window.notify_one();
            }
            Ok(data)
        });
        Poll::Ready(Some(data.map_err(|error| self.occupied.explain(&error))))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// Sends a request on a new stream and waits for the status and headers of the answer.
async fn exchange(sender: SendRequest<Bytes>, request: Request<Bytes>) -> Result<Response<RecvStream>, h2::Error> {
    let (mut head, body) = request.into_parts();
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        head.headers.remove(name);
    }
    head.version = Version::HTTP_2;
    head.extensions.clear();
    if !body.is_empty() {
        head.headers.insert(CONTENT_LENGTH, body.len().into());
    }
    let mut sender = sender.ready().await?;
    let (response, mut upload) = sender.send_request(Request::from_parts(head, ()), body.is_empty())?;
    if !body.is_empty() {
        upload.send_data(body, true)?;
    }
    response.await
}

/// Guard of the task that drives a connection. Dropping the guard during the handshake aborts the task;
/// [`Driver::release`] keeps the task running afterwards.
struct Driver(Option<JoinHandle<()>>);

impl Driver {
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Reads and writes frames until the connection ends or a PING gets no answer. Stores the reason in `state`, with which
/// all streams then fail.
///
/// If a reader reports that a larger flow-control window may speed its answer up, doubles the windows of the streams,
/// up to `largest` bytes.
async fn drive(
    mut connection: Connection<Link, Bytes>,
    largest: u32,
    pings: PingPong,
    activity: Arc<Activity>,
    state: Arc<State>,
    settle: oneshot::Sender<()>,
) {
    let mut probe = pin!(probe(pings, &activity, settle));
    let end = loop {
        tokio::select! {
            biased;
            ended = &mut connection => break ended.as_ref().err().map_or(StreamError::Closed, StreamError::from),
            end = &mut probe => break end,
            () = state.wants_window.notified() => {
                let present = state.window.load(SeqCst);
                let larger = present.saturating_mul(2).min(largest);
                // Fails while the server has not acknowledged the last change. A later reader will ask again.
                if larger > present && connection.set_initial_window_size(larger).is_ok() {
                    state.window.store(larger, SeqCst);
                }
            }
        }
    };
    let end = match (end, activity.failure()) {
        (StreamError::Io(_), Some(failure)) => StreamError::Io(failure),
        (end, _) => end,
    };
    tracing::debug!(%end, "an HTTP/2 connection ended");
    // Set before the connection is dropped, since that ends its streams.
    let _ = state.end.set(end);
}

/// Sends a PING at the start, and whenever no data has arrived for [`PING_AFTER`]. Notifies `settle` of the answer to
/// the first PING. Returns only if a later PING gets no answer.
async fn probe(mut pings: PingPong, activity: &Activity, settle: oneshot::Sender<()>) -> StreamError {
    if pings.ping(Ping::opaque()).await.is_err() {
        // The connection has failed, and its own future returns the reason.
        return pending().await;
    }
    // Ignore the error: the handshake was cancelled, and this task is aborted.
    let _ = settle.send(());
    loop {
        activity.take();
        sleep(PING_AFTER).await;
        if activity.take() {
            continue;
        }
        let mut pong = pin!(pings.ping(Ping::opaque()));
        loop {
            match timeout(PING_TIMEOUT, &mut pong).await {
                Ok(Ok(_)) => break,
                Ok(Err(_)) => return pending().await,
                // Other data arrived, so the answer to the PING may be queued behind it.
                Err(_) if activity.take() => {}
                Err(_) => return StreamError::Silent(PING_TIMEOUT),
            }
        }
    }
}
