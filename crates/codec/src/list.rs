//! Splitter of a list body into items, without buffering the whole body.

use std::sync::Arc;

use serde::Deserialize;

use super::MAX_OBJECT_BYTES;
use super::decode::{Decoded, Decoder, Next};
use super::error::{ErrorClass, SourceError, malformed};
use super::event::Skipped;
use super::input::Input;
use super::skim::Skim;
use super::status::bounded;
use informer_hub_types::{ApiResource, ResourceVersion, StoredObject};

/// Size limit in bytes of the list's own members that are parsed (`metadata`, `kind`, `apiVersion`), and of a JSON key.
const MAX_MEMBER: usize = 64 * 1024;

/// Result of a step through a list body.
#[derive(Debug)]
pub enum ListStep {
    /// The next object.
    Object(Arc<StoredObject>),
    /// An item that cannot be decoded.
    Skipped(Skipped),
    /// The list is complete; the rest of the body is ignored.
    End {
        /// `metadata.resourceVersion`; empty if the server sends none.
        version: ResourceVersion,
        /// `metadata.continue`, unless it is empty.
        continue_token: Option<String>,
        /// `metadata.remainingItemCount`.
        remaining: Option<u64>,
    },
    /// More bytes are needed.
    NeedMore,
}

/// Splits a list body into items and decodes each in place.
///
/// Buffers only bytes that are not decoded yet: at most one item of the largest size, plus the last chunk fed. Decoding
/// of an incomplete item is tried again when its buffered length has doubled. So the cost per byte does not depend on
/// the chunk size.
#[derive(Debug)]
pub struct ListSplitter {
    input: Input,
    limit: usize,
    state: State,
    /// Whether a value has just ended, so that a comma or a closing bracket must follow.
    after_value: bool,
    /// Buffered length in bytes at which decoding of the incomplete item is tried again.
    retry_at: usize,
    has_items: bool,
    kind: Option<String>,
    api_version: Option<String>,
    metadata: ListMeta,
}

#[derive(Debug)]
enum State {
    Start,
    Members,
    Items,
    /// The splitter skips a value. The flag is `true` for an item, and `false` for another member of the list's JSON
    /// object.
    Skim(Skim, bool),
    Done,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
    r#continue: Option<String>,
    remaining_item_count: Option<i64>,
}

impl Default for ListSplitter {
    fn default() -> Self {
        Self::new(MAX_OBJECT_BYTES)
    }
}

impl ListSplitter {
    /// Creates a splitter that skips items longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            input: Input::default(),
            limit,
            state: State::Start,
            after_value: false,
            retry_at: 0,
            has_items: false,
            kind: None,
            api_version: None,
            metadata: ListMeta::default(),
        }
    }

    /// Accepts bytes of a list. Call [`Self::next`] until it returns [`ListStep::NeedMore`] before feeding again.
    pub fn feed(&mut self, bytes: &[u8]) {
        if matches!(self.state, State::Done) {
            return;
        }
        self.input.feed(bytes);
    }

    /// Decodes and returns the next item or the end of the list.
    ///
    /// # Errors
    /// [`ErrorClass::Malformed`] if the body is not JSON, or not a list.
    pub fn next(&mut self, decoder: &mut Decoder) -> Result<ListStep, SourceError> {
        loop {
            let step = match &mut self.state {
                State::Done => Some(ListStep::NeedMore),
                State::Skim(skim, in_items) => {
                    let back = if *in_items { State::Items } else { State::Members };
                    if let Some(used) = skim.advance(self.input.rest()) {
                        self.input.read(used);
                        self.after_value = true;
                        self.state = back;
                        None
                    } else {
                        self.input.read_all();
                        Some(ListStep::NeedMore)
                    }
                }
                State::Start => self.start()?,
                State::Members => self.member(decoder.resource())?,
                State::Items => self.item(decoder)?,
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Returns the next item or the end of the list, after all bytes of the list were fed. Call it until it returns
    /// [`ListStep::End`].
    ///
    /// # Errors
    /// [`ErrorClass::Transient`] if the list is not complete. Also the errors of [`Self::next`].
    pub fn finish(&mut self, decoder: &mut Decoder) -> Result<ListStep, SourceError> {
        self.retry_at = 0;
        match self.next(decoder)? {
            ListStep::NeedMore if !self.is_done() => Err(SourceError {
                class: ErrorClass::Transient,
                message: "list: the body ended before the list did".to_owned(),
            }),
            step => Ok(step),
        }
    }

    /// Returns the size of the buffer in bytes.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.input.capacity()
    }

    /// Returns whether [`ListStep::End`] has been returned.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Skips white space. Returns the next byte, unread; `None` if more bytes are needed.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.input.rest();
        self.input.read(rest.len() - rest.trim_ascii_start().len());
        self.input.rest().first().copied()
    }

    /// If `byte` is a comma after a value, reads it and returns true. Fails if a comma is missing or unexpected.
    fn comma(&mut self, byte: u8) -> Result<bool, SourceError> {
        match (byte, self.after_value) {
            (b',', true) => {
                self.after_value = false;
                self.input.read(1);
                Ok(true)
            }
            (b',', false) => Err(malformed("list: invalid JSON: unexpected comma")),
            (b'}' | b']', _) | (_, false) => Ok(false),
            (_, true) => Err(malformed("list: invalid JSON: missing comma")),
        }
    }

    fn start(&mut self) -> Result<Option<ListStep>, SourceError> {
        match self.peek() {
            None => Ok(Some(ListStep::NeedMore)),
            Some(b'{') => {
                self.input.read(1);
                self.state = State::Members;
                Ok(None)
            }
            Some(_) => Err(malformed("list: the answer is not a JSON object")),
        }
    }

    fn member(&mut self, resource: &ApiResource) -> Result<Option<ListStep>, SourceError> {
        let Some(byte) = self.peek() else { return Ok(Some(ListStep::NeedMore)) };
        if self.comma(byte)? {
            return Ok(None);
        }
        match byte {
            b'}' => {
                self.check_kind(resource, true)?;
                return self.end().map(Some);
            }
            b'"' => {}
            _ => return Err(malformed("list: invalid JSON: expected a key or }")),
        }
        let rest = self.input.rest();
        let Some((key, value_at)) = key_of(rest)? else { return Ok(Some(ListStep::NeedMore)) };
        let value = &rest[value_at..];
        match key {
            b"items" if value[0] == b'[' => {
                self.check_kind(resource, true)?;
                self.input.read(value_at + 1);
                self.has_items = true;
                self.state = State::Items;
            }
            b"items" if value[0] != b'n' => return Err(malformed("list: items are not an array")),
            b"metadata" | b"kind" | b"apiVersion" => {
                let Some(used) = Skim::default().advance(value) else {
                    if value.len() > MAX_MEMBER {
                        let name = String::from_utf8_lossy(key);
                        return Err(malformed(format!("list: {name} is longer than 64 KiB")));
                    }
                    return Ok(Some(ListStep::NeedMore));
                };
                let value = &value[..used];
                let wrong = |_| malformed(format!("list: invalid {}", String::from_utf8_lossy(key)));
                match key {
                    b"kind" => self.kind = serde_json::from_slice(value).map_err(wrong)?,
                    b"apiVersion" => self.api_version = serde_json::from_slice(value).unwrap_or_default(),
                    _ => {
                        let metadata: Option<ListMeta> = serde_json::from_slice(value).map_err(wrong)?;
                        self.metadata = metadata.unwrap_or_default();
                    }
                }
                self.input.read(value_at + used);
                self.after_value = true;
                self.check_kind(resource, false)?;
            }
            key => {
                self.has_items |= key == b"items";
                self.input.read(value_at);
                self.state = State::Skim(Skim::default(), false);
            }
        }
        Ok(None)
    }

    /// Returns an error if the server sent a `Table` or `Status` instead of a list.
    ///
    /// The list of a custom resource may also have the kind `Table` or `Status`. It is accepted if its API group is
    /// that of the resource. While its `apiVersion` is not read yet, it is accepted too, except at the last check of
    /// the list (`last`). Resources of the core group are never custom.
    fn check_kind(&self, resource: &ApiResource, last: bool) -> Result<(), SourceError> {
        let refusal = match self.kind.as_deref() {
            Some("Table") => "list: the server sent a Table instead of objects",
            Some("Status") => "list: the server answered 200 with a Status instead of a list",
            _ => return Ok(()),
        };
        let own = resource.gvr.group.as_str();
        let group = |api_version: &str| api_version.split_once('/').map_or("", |(group, _)| group) == own;
        let is_own = self.api_version.as_deref().map_or(!last, group);
        if is_own && !own.is_empty() { Ok(()) } else { Err(malformed(refusal)) }
    }

    fn item(&mut self, decoder: &mut Decoder) -> Result<Option<ListStep>, SourceError> {
        let Some(byte) = self.peek() else { return Ok(Some(ListStep::NeedMore)) };
        if self.comma(byte)? {
            return Ok(None);
        }
        if byte == b']' {
            self.input.read(1);
            self.after_value = true;
            self.state = State::Members;
            return Ok(None);
        }
        let rest = self.input.rest();
        if rest.len() < self.retry_at {
            return Ok(Some(ListStep::NeedMore));
        }
        let too_large = || format!("larger than the limit of {} bytes", self.limit);
        match decoder.decode_next(rest)? {
            Next::Value(value, used) => {
                let step = match value {
                    Decoded::Object(object) if used > self.limit => ListStep::Skipped(Skipped {
                        key: Some(object.key().clone()),
                        version: Some(object.resource_version().clone()),
                        reason: too_large(),
                    }),
                    Decoded::Object(object) => ListStep::Object(object),
                    Decoded::Skipped(skipped) => ListStep::Skipped(skipped),
                };
                self.input.read(used);
                self.retry_at = 0;
                self.after_value = true;
                Ok(Some(step))
            }
            Next::Incomplete if rest.len() > self.limit => {
                let skipped = decoder.skip_object(rest, too_large());
                self.retry_at = 0;
                self.state = State::Skim(Skim::default(), true);
                Ok(Some(ListStep::Skipped(skipped)))
            }
            Next::Incomplete => {
                self.retry_at = rest.len().saturating_mul(2).min(self.limit.saturating_add(1));
                Ok(Some(ListStep::NeedMore))
            }
        }
    }

    fn end(&mut self) -> Result<ListStep, SourceError> {
        if !self.has_items {
            let kind = self.kind.as_deref().unwrap_or("unset");
            let kind = bounded(kind);
            return Err(malformed(format!("list: the answer has no items; its kind is {kind}")));
        }
        self.state = State::Done;
        self.input = Input::default();
        let metadata = std::mem::take(&mut self.metadata);
        Ok(ListStep::End {
            version: ResourceVersion::new(&metadata.resource_version.unwrap_or_default()),
            continue_token: metadata.r#continue.filter(|token| !token.is_empty()),
            remaining: metadata.remaining_item_count.and_then(|count| u64::try_from(count).ok()),
        })
    }
}

/// Returns the key at the start of `bytes` and the offset of its value; `None` if more bytes are needed. Callers
/// compare keys without resolving escapes, since no server escapes "items".
fn key_of(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, SourceError> {
    let Some(end) = Skim::default().advance(bytes) else {
        return if bytes.len() > MAX_MEMBER { Err(malformed("list: a key is longer than 64 KiB")) } else { Ok(None) };
    };
    let rest = bytes[end..].trim_ascii_start();
    match rest.first() {
        None => return Ok(None),
        Some(b':') => {}
        Some(_) => return Err(malformed("list: invalid JSON: expected a colon")),
    }
    let value = rest[1..].trim_ascii_start();
    Ok((!value.is_empty()).then(|| (&bytes[1..end - 1], bytes.len() - value.len())))
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
