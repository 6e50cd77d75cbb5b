//! Answer of a watch: where it begins, how long it lasts, and its stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use futures::stream;
use smol_str::SmolStr;
use tokio_util::sync::CancellationToken;

use super::ReadApi;
use super::definitions::Definition;
use super::encode::{Encoder, Naming};
use super::listing::Scan;
use super::metrics::{OpenWatch, ReadMetrics};
use super::objects::State;
use super::omitted::OmittedPlaces;
use super::queue::Admission;
use super::read::{encoder_of, selection_of};
use super::read_request::ReadRequest;
use super::respond::response;
use super::scope::{Clusters, Scope};
use super::selection::Selection;
use super::watch::{OTHER_RIGHTS, Watch, WatchOptions};
use crate::api::extensions::Streaming;
use crate::api::notes::Notes;
use crate::api::rights::Point;
use crate::cache::{HistoryCursor, LocateError};
use informer_hub_kubeapi::{Status, WatchFrom, watch_from};
use informer_hub_types::clock;
use informer_hub_types::rng;

/// Minimum duration of a watch without `timeoutSeconds`. The actual duration is random, up to twice the minimum, as in
/// kube-apiserver.
const LEAST_TIME: Duration = Duration::from_secs(1800);

/// Maximum duration of a watch.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// Answers a watch request.
pub(super) async fn answer(
    api: &Arc<ReadApi>,
    mut scope: Scope,
    definition: Definition,
    mut asked: ReadRequest,
) -> Result<Response, Status> {
    let from = watch_from(&asked.options)?;
    let admission = api.admit_watch(&asked.reader, &asked.user)?;
    let selection = selection_of(&scope, &definition, &asked)?;
    asked.accepted.check_stream()?;
    let protobuf = api.protobuf_of(&mut asked, &scope)?;
    asked.accepted.check_stream()?;
    let encoder = Encoder { protobuf, ..encoder_of(&scope, &definition, &asked) };
    let least = LEAST_TIME + LEAST_TIME.mul_f64(rng::unit());
    let time = asked.options.timeout.unwrap_or(least).min(MAX_TIME);
    let mut options = WatchOptions {
        bookmarks: asked.options.bookmarks,
        end_bookmark: None,
        skipped: None,
        until: clock::now() + time,
    };
    let is_unique = encoder.naming == Naming::Unique;
    let Start { cursor, initial, omitted } =
        match start(api, (&mut scope, &mut options), &asked, (&selection, is_unique), from).await {
            Ok(start) => start,
            Err(NotStarted::Unavailable(status)) => return Err(status),
            Err(NotStarted::Refused(status)) => return Ok(refused(&status, &asked)),
        };
    // A negative `timeoutSeconds` ends the watch immediately, so it writes no initial state.
    let initial = initial.filter(|_| !time.is_zero());
    let coverage = scope.coverage(&scope.snapshot());
    let snapshot = scope.snapshot();
    asked.notes.clusters(scope.partitions(&snapshot).map(|(_, partition)| &partition.origin().cluster));
    let resource = super::metrics::resource_of(&asked.path);
    let reviewer = api.rights.reviewer(&asked.user, asked.access_verb(), &scope.cache.resource);
    let frames = (encoder, api.frames.clone());
    let watch = Watch::new(scope, selection, frames, (cursor, initial), options, (reviewer, omitted));
    let running = Running::new(watch, admission, api, (resource, asked.client), asked.notes);
    let body = Body::from_stream(stream::unfold(running, |mut running| async {
        let closing = running.closing.clone();
        let chunk = running.watch.next(closing.cancelled()).await?;
        running.metrics.sent(chunk.len());
        running.notes.served(running.watch.events());
        Some((Ok::<_, Infallible>(chunk), running))
    }));
    let mut response = response(StatusCode::OK, asked.accepted.stream_content_type(), body);
    response.extensions_mut().insert(Streaming);
    coverage.warn(response.headers_mut());
    Ok(response)
}

/// Position in the changes at which a watch starts, and the present objects to send before the changes.
struct Start {
    cursor: HistoryCursor,
    /// Scan of the present objects; `None` if the watch sends only changes.
    initial: Option<Scan>,
    omitted: Option<OmittedPlaces>,
}

/// Reason why a watch does not start.
enum NotStarted {
    /// The request fails with this status.
    Unavailable(Status),
    /// The watch cannot begin at the requested version. The response is a stream with this status as its only event.
    Refused(Status),
}

/// Returns the position at which a watch starts, and a scan of the present objects if they are sent first.
async fn start(
    api: &ReadApi,
    (scope, options): (&mut Scope, &mut WatchOptions),
    asked: &ReadRequest,
    (selection, is_unique): (&Arc<Selection>, bool),
    from: WatchFrom,
) -> Result<Start, NotStarted> {
    let (cursor, initial, from) = match from {
        WatchFrom::Present { not_older_than, end_bookmark } => {
            options.bookmarks |= end_bookmark;
            let snapshot = match not_older_than {
                Some(version) => scope.not_older_than(version).await.map_err(NotStarted::Refused)?,
                None => scope.snapshot(),
            };
            if end_bookmark {
                options.end_bookmark = Some(scope.known_version(&snapshot).map_err(NotStarted::Unavailable)?);
            }
            // A namespace may have appeared since the reader's rights were reviewed. One review of this state suffices.
            if !scope.is_reviewed(&snapshot, &asked.path) {
                scope.review(&snapshot, (&api.rights, &asked.user), asked.access_verb(), &asked.path).await;
            }
            let from = scope.version(&snapshot).and_then(|version| scope.point(&snapshot, version));
            if let Some(from) = from {
                scope.record_answer(api, asked, selection, (&snapshot, from.version));
            }
            let cursor = HistoryCursor::after(snapshot.version());
            let state = Arc::new(State::present(scope, snapshot));
            (cursor, Some(Scan::new(state, Arc::clone(selection), is_unique, None)), from)
        }
        // The client has no state, so it lacks nothing.
        WatchFrom::Now => (HistoryCursor::after(scope.snapshot().version()), None, None),
        WatchFrom::After(version) => {
            let (cursor, skipped) = resume(scope, version).map_err(NotStarted::Refused)?;
            options.skipped = skipped;
            let position = if skipped.is_some() { scope.snapshot().version() } else { cursor.version() };
            (cursor, None, Some(Point { position, version }))
        }
    };
    let omitted = if scope.visibility.reviewed().is_some() {
        let omitted = OmittedPlaces::of((api, asked), scope, selection, from).await;
        Some(omitted.ok_or_else(|| NotStarted::Refused(Status::expired(OTHER_RIGHTS)))?)
    } else {
        None
    };
    Ok(Start { cursor, initial, omitted })
}

/// Returns the answer to a watch from a version that is not served: a stream that consists of one `ERROR` event, as in
/// kube-apiserver. Only such an event makes kube-rs list again.
fn refused(status: &Status, asked: &ReadRequest) -> Response {
    let mut event = Vec::new();
    super::frames::write_error(status, asked.accepted.media, &mut event);
    response(StatusCode::OK, asked.accepted.stream_content_type(), Body::from(event))
}

/// Returns the position at which a watch from `version` continues.
///
/// The second value is `version` if the hub has not reached it yet: the watch then leaves out the cluster's changes up
/// to it. Otherwise the second value is `None`.
fn resume(scope: &Scope, version: u64) -> Result<(HistoryCursor, Option<u64>), Status> {
    let (history, snapshot) = (&scope.cache.history, scope.snapshot());
    match &scope.clusters {
        Clusters::One(cluster) => match snapshot.locate(cluster, version) {
            Ok(cursor) => Ok((cursor, None)),
            // The hub has not reached that version yet. The client knows the changes that the hub reads until then. The
            // first objects of a list in progress may be newer already, so the watch begins at the start of the window.
            Err(LocateError::Future { .. }) if snapshot.has_one_informer(cluster) => {
                Ok((oldest_position(scope), Some(version)))
            }
            // With several informers, an earlier process of the hub that was killed may have made up the version.
            Err(LocateError::Future { newest }) => Err(Status::watch_expired(version, newest)),
            Err(LocateError::Expired { oldest }) => Err(Status::watch_expired(version, oldest.unwrap_or_default())),
        },
        Clusters::Matching(_) => match history.resume(&scope.changes(), version) {
            Ok(cursor) => Ok((cursor, None)),
            Err(expired) => Err(Status::watch_expired(version, expired.oldest)),
        },
    }
}

/// Returns the position before the oldest change in the window.
fn oldest_position(scope: &Scope) -> HistoryCursor {
    let mut cursor = HistoryCursor::after(0);
    match scope.cache.history.read(&scope.changes(), &mut cursor, 1, &mut Vec::new()) {
        Ok(_) => HistoryCursor::after(0),
        Err(expired) => HistoryCursor::after(expired.oldest),
    }
}

/// A watch in progress, with the counters and limits that end with it.
struct Running {
    watch: Watch,
    closing: CancellationToken,
    metrics: Arc<ReadMetrics>,
    notes: Notes,
    #[expect(dead_code, reason = "counts the watch as long as it runs")]
    open: OpenWatch,
    #[expect(dead_code, reason = "ends with the watch")]
    admission: Admission,
}

impl Running {
    fn new(
        watch: Watch,
        admission: Admission,
        api: &ReadApi,
        (resource, client): (String, SmolStr),
        notes: Notes,
    ) -> Self {
        let open = OpenWatch::new(&api.metrics, &resource, &client);
        Self { watch, closing: api.closing.clone(), metrics: Arc::clone(&api.metrics), notes, open, admission }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.sent_events(self.watch.events());
    }
}
