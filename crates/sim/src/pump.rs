//! Streamed answer with an optional fault: reads units (events, items) from a source and sends them.
//!
//! The next unit is created when the connection requests it. An answer therefore holds one unit in memory, however slow
//! the reader is. There is no background task: dropping the body ends the answer.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::bad_protobuf::{self, BadProtobuf};
use super::connection::{Link, Order};
use super::fault::{AssignedFault, Fault};
use super::http::{SimBody, Status};
use super::shared::Shared;
use super::writer::Writer;

/// Piece of an answer that a [`Source`] yields.
#[derive(Debug)]
pub(super) enum Unit {
    /// Type and object of an event, as JSON.
    Event(&'static str, Bytes),
    /// Item of a list, as it is sent.
    Item(Bytes),
    /// Beginning or end of a list, as it is sent.
    Edge(Bytes),
}

impl Unit {
    /// Returns whether this is an item or an event of an object, not a bookmark or an error.
    fn is_object(&self) -> bool {
        match self {
            Self::Event(kind, _) => !matches!(*kind, "BOOKMARK" | "ERROR"),
            Self::Item(_) => true,
            Self::Edge(_) => false,
        }
    }
}

pub(super) trait Source: Send + 'static {
    /// Returns the next unit (event, item, beginning or end of a list); `None` ends the answer regularly.
    fn next(&mut self) -> impl Future<Output = Option<Unit>> + Send;

    /// Returns the resourceVersion of the last event; for a list, the version of the list.
    fn position(&self) -> u64;

    /// Whether this is a watch, rather than a list.
    const WATCH: bool;
}

/// Action that an answer performs after a fault has struck.
#[derive(Debug)]
enum Step {
    Send(Bytes),
    Pause(Duration),
    Stall(Duration),
    Abort,
    AbortStream,
    End,
}

/// Streamed answer, see the [module](self).
#[derive(Debug)]
pub(super) struct Pump<S> {
    source: S,
    writer: Writer,
    gzip: Option<GzEncoder<Vec<u8>>>,
    fault: Option<AssignedFault>,
    sent: usize,
    steps: VecDeque<Step>,
    ended: bool,
    shared: Arc<Shared>,
    link: Arc<Link>,
    request: String,
}

impl<S: Source> Pump<S> {
    pub(super) fn new(
        source: S,
        writer: Writer,
        fault: Option<AssignedFault>,
        shared: Arc<Shared>,
        link: Arc<Link>,
        request: String,
    ) -> Self {
        Self { source, writer, gzip: None, fault, sent: 0, steps: VecDeque::new(), ended: false, shared, link, request }
    }

    pub(super) fn into_body(self) -> SimBody {
        let frames = stream::unfold(self, |mut pump| async move {
            let frame = pump.frame().await?;
            let frame = frame.and_then(|bytes| pump.compressed(bytes));
            Some((frame.map(Frame::data), pump))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Gzips the body without a header that says so.
    pub(super) fn gzipped(mut self) -> Self {
        self.gzip = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        self
    }

    fn compressed(&mut self, bytes: Bytes) -> io::Result<Bytes> {
        let Some(gzip) = &mut self.gzip else { return Ok(bytes) };
        gzip.write_all(&bytes)?;
        gzip.flush()?;
        Ok(std::mem::take(gzip.get_mut()).into())
    }

    async fn frame(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            match self.steps.pop_front() {
                Some(Step::Send(bytes)) => return Some(Ok(bytes)),
                Some(Step::Pause(pause)) => tokio::time::sleep(pause).await,
                Some(Step::Stall(pause)) => self.shared.stall(pause).await,
                Some(Step::Abort) => {
                    self.ended = true;
                    return Some(Err(self.link.reset()));
                }
                Some(Step::AbortStream) => {
                    self.ended = true;
                    return Some(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                Some(Step::End) => self.ended = true,
                None if self.ended => return None,
                None if self.strikes_now(false) => self.strike(None, self.source.position()),
                None => {
                    let position = self.source.position();
                    let Some(unit) = self.source.next().await else {
                        self.ended = true;
                        continue;
                    };
                    if unit.is_object() && self.strikes_now(true) {
                        self.strike(Some(unit), position);
                        continue;
                    }
                    self.sent += usize::from(unit.is_object());
                    let bytes = self.write(&unit);
                    if !bytes.is_empty() {
                        return Some(Ok(bytes));
                    }
                }
            }
        }
    }

    fn write(&mut self, unit: &Unit) -> Bytes {
        match unit {
            Unit::Event(kind, object) => self.writer.event(kind, object),
            Unit::Item(bytes) | Unit::Edge(bytes) => bytes.clone(),
        }
    }

    /// Returns whether the fault strikes now. Some faults strike only when an event or item is about to be sent, which
    /// `at_object` states.
    fn strikes_now(&self, at_object: bool) -> bool {
        let Some(AssignedFault { fault, after }) = &self.fault else { return false };
        let to_object = match fault {
            Fault::Cut(_)
            | Fault::BadProtobuf(_)
            | Fault::SlowDrip
            | Fault::DropEvents
            | Fault::ReorderedKeys
            | Fault::HugeObject(_)
            | Fault::UnknownEventType
            | Fault::NamelessObject => true,
            // In a list, the other faults strike at an item too, so that the list has started.
            _ => !S::WATCH,
        };
        self.sent >= *after && to_object == at_object
    }

    /// Applies the fault: queues the steps with which the answer continues. `struck` is the event or item that is about
    /// to be sent; `None` if there is none.
    fn strike(&mut self, struck: Option<Unit>, position: u64) {
        let Some(AssignedFault { fault, .. }) = self.fault.take() else { return };
        self.shared.record(&self.request, self.sent, &fault);
        self.sent += usize::from(struck.is_some());
        let unit = struck.as_ref().map(|unit| self.write(unit)).unwrap_or_default();
        let mut steps = match fault {
            // The pause lets sent data reach the peer. A reset discards unread data.
            Fault::Reset => vec![Step::Pause(Duration::from_millis(2)), Step::Abort],
            Fault::ResetStream => vec![Step::Pause(Duration::from_millis(2)), Step::AbortStream],
            Fault::GoAway => {
                self.link.order(Order::GoAway);
                vec![Step::Send(unit)]
            }
            Fault::Freeze(pause) => {
                self.link.order(Order::Freeze(pause));
                vec![Step::Send(unit)]
            }
            Fault::Stall(pause) => vec![Step::Stall(pause), Step::Send(unit)],
            Fault::Cut(thousandths) => {
                vec![Step::Send(unit.slice(..unit.len() * usize::from(thousandths.min(1000)) / 1000)), Step::End]
            }
            Fault::EarlyClose => vec![Step::End],
            Fault::Garbage => vec![Step::Send(garbage()), Step::End],
            Fault::SlowDrip => drip(&unit),
            Fault::ExpireWatch if S::WATCH => vec![Step::Send(self.writer.error(&expired())), Step::End],
            Fault::ErrorEvent if S::WATCH => {
                let status = Status::new(500, "InternalError", "an error on the server has prevented the request");
                vec![Step::Send(self.writer.error(&status)), Step::End]
            }
            Fault::DropEvents if S::WATCH => {
                self.shared.with_world(super::world::World::compact);
                vec![Step::End]
            }
            Fault::NamelessObject if S::WATCH => {
                let object = json!({ "metadata": { "resourceVersion": position.to_string() } }).to_string();
                vec![Step::Send(self.writer.event("MODIFIED", object.as_bytes())), Step::Send(unit)]
            }
            Fault::Insert(bytes) if S::WATCH => vec![Step::Send(bytes), Step::Send(unit)],
            Fault::UnknownEventType if S::WATCH => {
                vec![Step::Send(self.writer.event("SPARKLED", unknown(position).as_bytes())), Step::Send(unit)]
            }
            Fault::ReorderedKeys | Fault::HugeObject(_) | Fault::BadProtobuf(_) => self.respelled(&fault, struck, unit),
            _ => vec![Step::Send(unit)],
        };
        steps.retain(|step| !matches!(step, Step::Send(bytes) if bytes.is_empty()));
        self.steps.extend(steps);
    }

    /// Returns the steps that send the event or item `struck` in a faulty form: reordered, padded or corrupted. `unit`
    /// is its correct encoding.
    fn respelled(&mut self, fault: &Fault, struck: Option<Unit>, unit: Bytes) -> Vec<Step> {
        match (fault, struck, &mut self.writer) {
            (Fault::ReorderedKeys, Some(Unit::Event(kind, object)), writer) => {
                vec![Step::Send(writer.reordered_event(kind, &object))]
            }
            (Fault::HugeObject(size), Some(Unit::Event(kind, object)), writer) => {
                let huge = writer.event(kind, padded(&object, *size).as_bytes());
                vec![Step::Send(huge), Step::Send(writer.error(&expired())), Step::End]
            }
            (Fault::BadProtobuf(bad), Some(Unit::Event(kind, object)), Writer::Protobuf(writer)) => {
                let (pieces, ends) = bad_protobuf::event(*bad, writer, (kind, &object), &unit);
                let mut steps: Vec<_> = pieces.into_iter().map(Step::Send).collect();
                if ends {
                    steps.push(Step::End);
                }
                steps
            }
            (Fault::BadProtobuf(BadProtobuf::Length(length)), Some(Unit::Item(item)), Writer::Protobuf(_)) => {
                vec![Step::Send(bad_protobuf::with_item_length(&item, *length).into())]
            }
            _ => vec![Step::Send(unit)],
        }
    }
}

/// Returns the status that ends a watch whose version has expired.
pub(super) fn expired() -> Status {
    Status::expired("too old resource version")
}

fn garbage() -> Bytes {
    Bytes::from_static(b"\x00\xff\xfe<<<this is not JSON>>>\n\n{\"type\":\n")
}

/// Returns the steps that send an encoded unit slowly: its first 420 bytes in pieces of 7, and the rest in one piece,
/// to bound the time.
fn drip(unit: &Bytes) -> Vec<Step> {
    const PIECE: usize = 7;
    const PIECES: usize = 60;
    let slow = unit.len().min(PIECE * PIECES);
    let mut steps = Vec::with_capacity(2 * PIECES + 1);
    for at in (0..slow).step_by(PIECE) {
        steps.push(Step::Send(unit.slice(at..slow.min(at + PIECE))));
        steps.push(Step::Pause(Duration::from_millis(1)));
    }
    steps.push(Step::Send(unit.slice(slow..)));
    steps
}

/// Returns an object of a kind that clients do not know, as JSON, with the resourceVersion `position`.
fn unknown(position: u64) -> String {
    let metadata = json!({ "name": "strange", "namespace": "strange", "resourceVersion": position.to_string() });
    json!({ "kind": "Strange", "apiVersion": "v1", "metadata": metadata }).to_string()
}

/// Returns the object with an annotation that gives it at least `size` bytes.
fn padded(object: &[u8], size: usize) -> String {
    let mut object: Value = serde_json::from_slice(object).unwrap_or_default();
    object["metadata"]["annotations"]["padding"] = "x".repeat(size).into();
    object.to_string()
}
