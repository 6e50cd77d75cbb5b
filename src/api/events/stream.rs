//! A running stream of events: takes turns in the fair queue, writes the events of its feeds (one per resource), and
//! waits for changes.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::FutureExt;
use futures::future::{join_all, select_all};
use serde_json::{Value, json};

use super::change_filter::ChangeFilter;
use super::feed::{Expired, Feed, Item, Next};
use super::frames::{Frames, Notice};
use super::position::Position;
use crate::api::kubernetes::{ReadApi, ReaderId};
use crate::api::notes::Notes;
use crate::api::rights::RightsCheck;
use informer_hub_sink::{Event, EventOptions};
use informer_hub_types::Notification;
use informer_hub_types::clock::{self, Instant};

/// Silence after which a heartbeat is sent. Proxies close connections that are silent for 30 or 60 s.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Number of bytes after which a chunk of events ends.
const CHUNK: usize = 64 << 10;

/// Maximum number of reads from feeds in one turn of the fair queue. A read returns an item or nothing.
const STEPS: usize = 512;

/// Access of a stream to the fair queue of readers, in which it takes turns.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) api: Arc<ReadApi>,
    pub(super) reader: ReaderId,
    pub(super) notes: Notes,
}

/// Running stream of events to one client.
#[derive(Debug)]
pub(super) struct Stream {
    gate: Gate,
    writer: Writer,
    /// Periodic check of the reader's rights; `None` if the stream has no resources.
    rights: Option<RightsCheck>,
    until: Option<Instant>,
    next_heartbeat: Instant,
    /// Reason for which the stream ends once everything is written; `None` while it continues.
    ending: Option<&'static str>,
    is_ended: bool,
}

#[derive(Debug)]
struct Writer {
    api: Arc<ReadApi>,
    wanted: ChangeFilter,
    feeds: Vec<Feed>,
    frames: Frames,
    /// Index of the feed (objects and changes of one resource) that is read next, modulo the number of feeds.
    at: usize,
    /// Number of changes written so far.
    written: u64,
    /// Whether a failure of the filter has been reported.
    has_warned: bool,
}

impl Stream {
    /// Creates a stream. It ends at `until`, if that is set.
    pub(super) fn new(
        gate: Gate,
        wanted: ChangeFilter,
        feeds: Vec<Feed>,
        frames: Frames,
        until: Option<Instant>,
    ) -> Self {
        let (api, rights) = (Arc::clone(&gate.api), feeds.first().map(Feed::check));
        let writer = Writer { api, wanted, feeds, frames, at: 0, written: 0, has_warned: false };
        // The first heartbeat is due immediately and gives the client a position.
        let next_heartbeat = clock::now();
        Self { gate, writer, rights, until, next_heartbeat, ending: None, is_ended: false }
    }

    /// Waits for the next bytes; `None` at the end.
    ///
    /// # Cancel safety
    /// Not cancel safe: events that were not returned are lost.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        while !self.is_ended {
            let mut out = Vec::new();
            if !self.has_rights().await {
                self.is_ended = true;
                self.writer.notice(
                    Notice::End,
                    &json!({ "reason": "the rights of the reader have changed" }),
                    &mut out,
                );
                return Some(out.into());
            }
            let is_current = {
                let _turn = self.gate.api.turn(&self.gate.reader).await;
                self.writer.write(&mut out)
            };
            let now = clock::now();
            if is_current && let Some(reason) = self.ending {
                self.is_ended = true;
                self.writer.notice(Notice::End, &json!({ "reason": reason }), &mut out);
            } else if now >= self.next_heartbeat && out.is_empty() {
                self.writer.notice(Notice::Heartbeat, &json!({}), &mut out);
            }
            if !out.is_empty() {
                self.next_heartbeat = now + HEARTBEAT;
                self.gate.api.sent(out.len());
                self.gate.notes.served(self.writer.written);
                return Some(out.into());
            }
            if !is_current {
                self.writer.review_next().await;
                tokio::task::yield_now().await;
                continue;
            }
            self.wait().await;
        }
        None
    }

    /// Returns whether the reader still has the rights that it had. True if no check is due.
    async fn has_rights(&mut self) -> bool {
        let Some(rights) = &mut self.rights else { return true };
        let is_due = rights.is_due();
        rights.holds() && (!is_due || self.writer.has_same_rights().await)
    }

    /// Waits for a change, the next heartbeat or the end.
    async fn wait(&mut self) {
        let Self { gate, writer, rights, until, next_heartbeat, ending, .. } = self;
        let check = rights.as_ref().and_then(RightsCheck::next);
        let wakes = [Some(*next_heartbeat), *until, check].into_iter().flatten();
        let wake = wakes.min().unwrap_or(*next_heartbeat);
        tokio::select! {
            _ = select_all(writer.feeds.iter_mut().map(|feed| feed.changed().boxed())) => {}
            () = tokio::time::sleep_until(wake) => {
                if until.is_some_and(|until| clock::now() >= until) {
                    *ending = Some("timeout");
                }
            }
            () = gate.api.closed() => *ending = Some("shutdown"),
        }
    }
}

impl Writer {
    /// Writes the next events, up to a chunk. Returns whether everything is written.
    fn write(&mut self, out: &mut Vec<u8>) -> bool {
        let mut idle = 0;
        for _ in 0..STEPS {
            if idle == self.feeds.len() || out.len() >= CHUNK {
                break;
            }
            let at = self.at % self.feeds.len();
            match self.feeds[at].next(&self.wanted) {
                Next::Item(item) => {
                    idle = 0;
                    self.write_item(at, item, out);
                }
                Next::Undecided => {
                    self.at = at;
                    return false;
                }
                Next::Nothing => {
                    idle += usize::from(self.feeds[at].is_current());
                    self.at = at + 1;
                }
            }
        }
        self.feeds.iter().all(Feed::is_current)
    }

    /// Asks the cluster of the next object whether the reader may see it, if that is not known yet.
    async fn review_next(&mut self) {
        let at = self.at % self.feeds.len();
        self.feeds[at].review(&self.wanted).await;
    }

    async fn has_same_rights(&mut self) -> bool {
        let wanted = &self.wanted;
        let same = join_all(self.feeds.iter_mut().map(|feed| feed.has_same_rights(wanted))).await;
        same.into_iter().all(|is_same| is_same)
    }

    fn write_item(&mut self, at: usize, item: Item, out: &mut Vec<u8>) {
        match item {
            Item::Present(notification) => self.write_visible(at, &notification, clock::wall(), out),
            Item::Change(change) => {
                if let Some(notification) = self.wanted.notification(&change) {
                    let time = self.api.time_of(change.at);
                    self.write_visible(at, &notification, time, out);
                }
            }
            Item::Synced => self.notice(Notice::Synced, &json!({ "resources": [self.feeds[at].name()] }), out),
            Item::Expired(expired) => self.write_expired(at, expired, out),
        }
    }

    fn write_expired(&mut self, at: usize, expired: Expired, out: &mut Vec<u8>) {
        let resources = [self.feeds[at].name()];
        let data = json!({ "resources": resources, "reason": expired.as_str(), "message": expired.message() });
        self.notice(Notice::Expired, &data, out);
    }

    fn write_visible(&mut self, at: usize, notification: &Notification, time: jiff::Timestamp, out: &mut Vec<u8>) {
        if notification.object().is_some_and(|object| self.feeds[at].sees(object)) {
            self.write_change(notification, time, out);
        }
    }

    fn write_change(&mut self, notification: &Notification, time: jiff::Timestamp, out: &mut Vec<u8>) {
        match self.wanted.passes(notification) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.warn(&error, out),
        }
        let Ok(event) = Event::new(notification, time, &EventOptions::default()) else {
            return self.warn("the hub's copy of an object is damaged, by a bug or by faulty memory or disk", out);
        };
        let differences = if self.wanted.changed { self.wanted.differences(notification) } else { None };
        let position = self.position();
        self.frames.change(&event, differences.as_deref(), position.as_deref(), out);
        self.api.sent_event();
        self.written += 1;
    }

    /// Sends one warning that some changes are left out; later calls send nothing.
    fn warn(&mut self, error: &str, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let message = format!("some changes are left out, because the hub cannot filter or send them: {error}");
            self.notice(Notice::Warning, &json!({ "message": message }), out);
        }
    }

    fn notice(&mut self, notice: Notice, data: &Value, out: &mut Vec<u8>) {
        let position = self.position();
        self.frames.notice(notice, data, position.as_deref(), out);
    }

    /// Returns the position from which the client can resume; `None` while existing objects are being sent.
    fn position(&self) -> Option<String> {
        let versions: Option<Vec<_>> = self.feeds.iter().map(Feed::position).collect();
        Some(Position::new(versions?.into_iter()).text())
    }
}
