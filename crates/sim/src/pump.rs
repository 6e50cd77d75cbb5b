//! Streamed answer with an optional fault: reads units (events, items) from a source and sends them.
//!
//! The next unit is created when the connection requests it. An answer therefore holds one unit in memory, however slow
//! the reader is. There is no background task: dropping the body ends the answer.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;

use super::connection::{Link, Order};
use super::fault::{AssignedFault, Fault};
use super::http::{SimBody, Status};
use super::object::event_line;
use super::shared::Shared;

/// Piece of an answer before which a fault can strike.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) bytes: Bytes,
    /// Whether it is an item or an object's event, rather than a bookmark or the list's envelope.
    pub(super) object: bool,
}

/// Source of an answer's units.
pub(super) trait Source: Send + 'static {
    /// Returns the next unit; `None` ends the answer regularly.
    fn next(&mut self) -> impl Future<Output = Option<Unit>> + Send;

    /// Returns the resourceVersion of the last unit.
    fn position(&self) -> u64;

    /// Whether this is a watch, rather than a list.
    const WATCH: bool;
}

/// Planned step of a faulty answer.
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
        fault: Option<AssignedFault>,
        shared: Arc<Shared>,
        link: Arc<Link>,
        request: String,
    ) -> Self {
        Self { source, fault, sent: 0, steps: VecDeque::new(), ended: false, shared, link, request }
    }

    pub(super) fn into_body(self) -> SimBody {
        let frames = stream::unfold(self, |mut pump| async move {
            let frame = pump.frame().await?;
            Some((frame.map(Frame::data), pump))
        });
        StreamBody::new(frames).boxed_unsync()
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
                    if unit.object && self.strikes_now(true) {
                        self.strike(Some(unit.bytes), position);
                        continue;
                    }
                    self.sent += usize::from(unit.object);
                    return Some(Ok(unit.bytes));
                }
            }
        }
    }

    /// Returns whether the fault strikes now. Some faults affect an event and wait for one (`at_object`).
    fn strikes_now(&self, at_object: bool) -> bool {
        let Some(AssignedFault { fault, after }) = &self.fault else { return false };
        let to_object = match fault {
            Fault::HalfLine
            | Fault::SlowDrip
            | Fault::DropEvents
            | Fault::ReorderedKeys
            | Fault::HugeObject(_)
            | Fault::UnknownEventType
            | Fault::NamelessObject => true,
            // A list must have started before it can fail.
            _ => !S::WATCH,
        };
        self.sent >= *after && to_object == at_object
    }

    /// Plans the steps of the fault for the next unit, or without a unit.
    fn strike(&mut self, unit: Option<Bytes>, position: u64) {
        let Some(AssignedFault { fault, .. }) = self.fault.take() else { return };
        self.shared.record(&self.request, self.sent, &fault);
        let unit = unit.unwrap_or_default();
        self.sent += usize::from(!unit.is_empty());
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
            Fault::HalfLine => vec![Step::Send(unit.slice(..unit.len() / 2)), Step::End],
            Fault::EarlyClose => vec![Step::End],
            Fault::Garbage => vec![Step::Send(garbage()), Step::End],
            Fault::SlowDrip => drip(&unit),
            Fault::ExpireWatch if S::WATCH => vec![Step::Send(expired_line()), Step::End],
            Fault::ErrorEvent if S::WATCH => {
                let status = Status::new(500, "InternalError", "an error on the server has prevented the request");
                vec![Step::Send(error_line(&status)), Step::End]
            }
            Fault::DropEvents if S::WATCH => {
                self.shared.with_world(super::world::World::compact);
                vec![Step::End]
            }
            Fault::NamelessObject => nameless::<S>(unit, position),
            Fault::Insert(bytes) => inserted::<S>(unit, &bytes),
            Fault::UnknownEventType if S::WATCH => vec![Step::Send(unknown(position)), Step::Send(unit)],
            Fault::ReorderedKeys if S::WATCH => vec![Step::Send(reordered(&unit))],
            Fault::HugeObject(size) if S::WATCH => {
                vec![Step::Send(padded(&unit, size)), Step::Send(expired_line()), Step::End]
            }
            _ => vec![Step::Send(unit)],
        };
        steps.retain(|step| !matches!(step, Step::Send(bytes) if bytes.is_empty()));
        self.steps.extend(steps);
    }
}

/// Returns an ERROR event as a watch line.
pub(super) fn error_line(status: &Status) -> Bytes {
    event_line("ERROR", status.to_value().to_string().as_bytes())
}

/// Returns the ERROR event that ends a watch whose version has expired.
pub(super) fn expired_line() -> Bytes {
    error_line(&Status::expired("too old resource version"))
}

fn garbage() -> Bytes {
    Bytes::from_static(b"\x00\xff\xfe<<<this is not JSON>>>\n\n{\"type\":\n")
}

/// Sends the first 420 bytes in pieces of 7, and the rest of a large unit at once to bound the time.
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

fn nameless<S: Source>(unit: Bytes, position: u64) -> Vec<Step> {
    let object = json!({ "metadata": { "resourceVersion": position.to_string() } }).to_string();
    let piece = if S::WATCH { event_line("MODIFIED", object.as_bytes()) } else { object.into() };
    inserted::<S>(unit, &piece)
}

/// Inserts a watch line or a list item before the unit. A watch line must include its newline.
fn inserted<S: Source>(unit: Bytes, piece: &Bytes) -> Vec<Step> {
    if S::WATCH {
        return vec![Step::Send(piece.clone()), Step::Send(unit)];
    }
    let (before, after) = if unit.starts_with(b",") { (",", "") } else { ("", ",") };
    vec![Step::Send(before.into()), Step::Send(piece.clone()), Step::Send(after.into()), Step::Send(unit)]
}

fn unknown(position: u64) -> Bytes {
    let metadata = json!({ "name": "strange", "namespace": "strange", "resourceVersion": position.to_string() });
    event_line(
        "SPARKLED",
        json!({ "kind": "Strange", "apiVersion": "v1", "metadata": metadata }).to_string().as_bytes(),
    )
}

/// Splits a line of `event_line` into type and object.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let quote = rest.iter().position(|&byte| byte == b'"')?;
    let object = rest[quote..].strip_prefix(b"\",\"object\":")?;
    Some((&rest[..quote], object.strip_suffix(b"}\n")?))
}

fn reordered(line: &Bytes) -> Bytes {
    let Some((kind, object)) = parts(line) else { return line.clone() };
    [b"{\"object\":", object, b",\"type\":\"", kind, b"\"}\n"].concat().into()
}

fn padded(line: &Bytes, size: usize) -> Bytes {
    let Some((kind, object)) = parts(line) else { return line.clone() };
    let padding = "x".repeat(size.saturating_sub(line.len()));
    let kind = String::from_utf8_lossy(kind);
    let head = format!("{{\"padding\":\"{padding}\",");
    event_line(&kind, &[head.as_bytes(), object.strip_prefix(b"{").unwrap_or(object)].concat())
}
