//! Splitter of a list body in Kubernetes protobuf into items, without buffering the whole body.

use super::MAX_OBJECT_BYTES;
use super::decode::{Decoded, Decoder};
use super::error::{ErrorClass, SourceError, malformed};
use super::input::Input;
use super::list::ListStep;
use super::protobuf_state::Items;
use informer_hub_protobuf::{ConvertError, Envelope, MAGIC, Reader, Value, varint};
use informer_hub_types::ResourceVersion;

/// Size limit of the list's kind and of its metadata, in bytes. Also the number of bytes of an oversized item that are
/// read to describe it.
const MAX_MEMBER: usize = 64 * 1024;

/// Splits a list body in protobuf into items and decodes each. [`ListSplitter`](super::ListSplitter) does so for JSON.
///
/// Buffers at most one item of the largest size, plus the last chunk fed.
#[derive(Debug)]
pub struct ProtobufListSplitter {
    input: Input,
    limit: usize,
    state: State,
    /// Number of bytes of the list's protobuf message that have not been read.
    left: u64,
    items: Option<Items>,
    metadata: Option<ListMeta>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Magic,
    /// The next bytes begin a field of the envelope (`runtime.Unknown`) around the list.
    Envelope,
    /// The next bytes begin a field of the list.
    List,
    /// This many bytes are still to be skipped. The flag is `true` if they are in the list's message, and `false` if
    /// they are in the envelope around it.
    Skip(u64, bool),
    Done,
}

#[derive(Debug, Default)]
struct ListMeta {
    version: String,
    continue_token: String,
    remaining: Option<u64>,
}

/// Start of a protobuf field: the field's `number`, the `length` of its content in bytes, and the bytes `used` by the
/// start itself.
struct Start {
    number: u64,
    length: u64,
    used: usize,
}

impl Default for ProtobufListSplitter {
    fn default() -> Self {
        Self::new(MAX_OBJECT_BYTES)
    }
}

impl ProtobufListSplitter {
    /// Creates a splitter that skips items longer than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { input: Input::default(), limit, state: State::Magic, left: 0, items: None, metadata: None }
    }

    /// Accepts bytes of a list. Call [`Self::next`] until it returns [`ListStep::NeedMore`] before feeding again.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.is_done() {
            return;
        }
        self.input.feed(bytes);
    }

    /// Decodes and returns the next item or the end of the list.
    ///
    /// # Errors
    /// [`ErrorClass::Malformed`] if the body is not a list in protobuf. [`ErrorClass::Transient`] if an item cannot be
    /// converted: the decoder then requests JSON for a while.
    pub fn next(&mut self, decoder: &mut Decoder) -> Result<ListStep, SourceError> {
        loop {
            let step = match self.state {
                State::Magic => self.magic(),
                State::Envelope => self.envelope(decoder),
                State::List => self.field(decoder),
                State::Skip(left, in_list) => Ok(self.skip(left, in_list)),
                State::Done => Ok(Some(ListStep::NeedMore)),
            };
            if let Some(step) = step.map_err(|error| decoder.not_protobuf(error))? {
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
        self.state == State::Done
    }

    fn magic(&mut self) -> Result<Option<ListStep>, SourceError> {
        let start = &self.input.rest()[..self.input.rest().len().min(MAGIC.len())];
        if !MAGIC.starts_with(start) {
            return Err(malformed("list: the answer is not Kubernetes protobuf"));
        }
        if start.len() < MAGIC.len() {
            return Ok(Some(ListStep::NeedMore));
        }
        self.input.read(MAGIC.len());
        self.state = State::Envelope;
        Ok(None)
    }

    fn envelope(&mut self, decoder: &Decoder) -> Result<Option<ListStep>, SourceError> {
        let Some(start) = self.start()? else { return Ok(Some(ListStep::NeedMore)) };
        match start.number {
            1 => {
                let Some(bytes) = self.member(&start)? else { return Ok(Some(ListStep::NeedMore)) };
                let (mut list, length) = (Envelope::default(), bytes.len());
                list.type_meta(bytes).map_err(|error| invalid(&error))?;
                self.items = Some(decoder.items(&list)?);
                self.input.read(start.used + length);
            }
            2 if self.items.is_none() => return Err(malformed("list: the answer has no kind")),
            2 => {
                self.input.read(start.used);
                (self.left, self.state) = (start.length, State::List);
            }
            _ => {
                self.input.read(start.used);
                self.state = State::Skip(start.length, false);
            }
        }
        Ok(None)
    }

    fn field(&mut self, decoder: &mut Decoder) -> Result<Option<ListStep>, SourceError> {
        if self.left == 0 {
            decoder.list_worked();
            return Ok(Some(self.end()));
        }
        let Some(start) = self.start()? else { return Ok(Some(ListStep::NeedMore)) };
        let size = start.length.saturating_add(start.used as u64);
        if size > self.left {
            return Err(malformed("list: invalid protobuf: a field is longer than the list"));
        }
        // Every list has only these two fields. Another one means that a length was wrong, after which items would be
        // missing.
        let step = match start.number {
            1 if self.metadata.is_some() => return Err(malformed("list: invalid protobuf: two metadata fields")),
            1 => {
                let Some(bytes) = self.member(&start)? else { return Ok(Some(ListStep::NeedMore)) };
                self.metadata = Some(ListMeta::read(bytes).map_err(|error| invalid(&error))?);
                None
            }
            2 => match self.item(&start, decoder)? {
                Some(step) => Some(step),
                None => return Ok(Some(ListStep::NeedMore)),
            },
            number => return Err(malformed(format!("list: invalid protobuf: unexpected field {number}"))),
        };
        self.left -= size;
        self.input.read(start.used);
        self.state = State::Skip(start.length, true);
        Ok(step)
    }

    /// Decodes an item; `None` if more bytes are needed.
    fn item(&self, start: &Start, decoder: &mut Decoder) -> Result<Option<ListStep>, SourceError> {
        let Some(items) = self.items else { return Err(malformed("list: the answer has no kind")) };
        let rest = &self.input.rest()[start.used..];
        let length = usize::try_from(start.length).unwrap_or(usize::MAX);
        if length > self.limit {
            let Some(head) = rest.get(..length.min(MAX_MEMBER)) else { return Ok(None) };
            let reason = format!("larger than the limit of {} bytes", self.limit);
            return Ok(Some(ListStep::Skipped(decoder.skip_item(items, head, self.limit, reason))));
        }
        let Some(item) = rest.get(..length) else { return Ok(None) };
        Ok(Some(match decoder.decode_item(items, item, self.limit)? {
            Decoded::Object(object) => ListStep::Object(object),
            Decoded::Skipped(skipped) => ListStep::Skipped(skipped),
        }))
    }

    fn skip(&mut self, left: u64, in_list: bool) -> Option<ListStep> {
        let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(self.input.rest().len());
        self.input.read(skipped);
        let left = left - skipped as u64;
        self.state = match left {
            0 if in_list => State::List,
            0 => State::Envelope,
            left => State::Skip(left, in_list),
        };
        (left > 0).then_some(ListStep::NeedMore)
    }

    /// Reads the start of a field; `None` if more bytes are needed. The value of a varint field is read as part of the
    /// start.
    fn start(&self) -> Result<Option<Start>, SourceError> {
        let rest = self.input.rest();
        let read = |at| varint(rest, at).map_err(|error| invalid(&error));
        let Some((tag, used)) = read(0)? else { return Ok(None) };
        let (number, fixed) = (tag >> 3, |length| Ok(Some(Start { number: tag >> 3, length, used })));
        match tag & 7 {
            _ if number == 0 => Err(malformed("list: invalid protobuf: a field number out of range")),
            0 | 2 => {
                let Some((value, used)) = read(used)? else { return Ok(None) };
                let is_number = tag % 8 == 0;
                if is_number && number <= 2 {
                    return Err(wrong_type(number));
                }
                Ok(Some(Start { number, length: if is_number { 0 } else { value }, used }))
            }
            1 | 5 if number <= 2 => Err(wrong_type(number)),
            1 => fixed(8),
            5 => fixed(4),
            _ => Err(malformed("list: invalid protobuf: a group or an unknown wire type")),
        }
    }

    /// Returns the content of a field of at most [`MAX_MEMBER`] bytes; `None` if more bytes are needed.
    fn member(&self, start: &Start) -> Result<Option<&[u8]>, SourceError> {
        match usize::try_from(start.length) {
            Ok(length) if length <= MAX_MEMBER => Ok(self.input.rest()[start.used..].get(..length)),
            _ => Err(malformed("list: metadata is longer than 64 KiB")),
        }
    }

    fn end(&mut self) -> ListStep {
        self.state = State::Done;
        self.input = Input::default();
        let metadata = self.metadata.take().unwrap_or_default();
        ListStep::End {
            version: ResourceVersion::new(&metadata.version),
            continue_token: Some(metadata.continue_token).filter(|token| !token.is_empty()),
            remaining: metadata.remaining,
        }
    }
}

impl ListMeta {
    fn read(bytes: &[u8]) -> Result<Self, ConvertError> {
        let (mut metadata, mut reader) = (Self::default(), Reader::new(bytes));
        let text = |text: &[u8]| {
            let text = std::str::from_utf8(text);
            text.map(ToOwned::to_owned).map_err(|_| ConvertError::Malformed("a version that is not UTF-8"))
        };
        while let Some(field) = reader.field()? {
            match (field.number, field.value) {
                (2, Value::Bytes(version)) => metadata.version = text(version)?,
                (3, Value::Bytes(token)) => metadata.continue_token = text(token)?,
                (4, Value::Varint(count)) => metadata.remaining = u64::try_from(count.cast_signed()).ok(),
                _ => {}
            }
        }
        Ok(metadata)
    }
}

fn wrong_type(number: u64) -> SourceError {
    malformed(format!("list: invalid protobuf: field {number} has an unexpected wire type"))
}

fn invalid(error: &ConvertError) -> SourceError {
    malformed(format!("list: {error}"))
}

#[cfg(test)]
#[path = "protobuf_list_tests.rs"]
mod tests;
