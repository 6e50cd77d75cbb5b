//! Excerpt of an object: the values that are needed when it arrives, such as its metadata and the values of indices, read
//! without a conversion to JSON.
//!
//! An object that is stored as protobuf is converted only when it is read. At arrival it is checked in full, so that
//! the conversion cannot fail later ([`check`](super::check)). The same pass over its bytes finds the wanted values.

use super::check;
use super::convert::TypeMeta;
use super::error::ConvertError;
use super::omit::Omit;
use super::schema::{MessageId, Schema};
use super::selection::{Found, Selection, Step};
use super::strip;
use super::wire_out::{END_OF_ENVELOPE, begin_message, close};

/// Excerpt of objects of one kind: the values that are read when an object arrives, and the members that are not
/// stored.
#[derive(Debug)]
pub struct Excerpt {
    message: MessageId,
    selection: Selection,
}

impl Excerpt {
    /// Prepares an excerpt of the objects with this message. `paths` lead to the wanted scalars and maps of strings; a
    /// path that the schema lacks finds nothing. [`Self::write`] omits the members in `omit`.
    ///
    /// Returns `None` in two cases:
    ///
    /// - A path leads into a value that is not a message, such as embedded JSON.
    /// - Removing the omitted members from the message might not remove exactly these members from its JSON.
    #[must_use]
    pub fn new<'p, P: AsRef<[Step<'p>]>>(
        message: MessageId,
        paths: impl IntoIterator<Item = P>,
        omit: &Omit,
    ) -> Option<Self> {
        let schema = Schema::builtin();
        let is_exact = strip::is_exact(schema, message, omit);
        let selection = is_exact.then(|| Selection::new(schema, message, paths, omit)).flatten()?;
        Some(Self { message, selection })
    }

    /// Checks an object, and calls `found` for each value at a wanted path, with the path's position in the list given
    /// to [`Self::new`]. If it succeeds, the whole object can be converted.
    ///
    /// Values of different paths come in any order, those of one path in the order of the JSON. The values equal those
    /// in the object's JSON: a field that Go omits from the JSON is not found, and an absent field whose zero value Go
    /// writes is found.
    ///
    /// # Errors
    /// The object is malformed, or has a rare form that this method does not check. To distinguish them, convert the
    /// object with [`Converter::object`](super::Converter::object).
    pub fn read<'b>(&self, bytes: &'b [u8], found: &mut dyn FnMut(usize, Found<'b>)) -> Result<(), ConvertError> {
        check::check(Schema::builtin(), self.message, bytes, &self.selection, found)
    }

    /// Appends the object in its envelope to `out`, without the omitted members.
    ///
    /// # Errors
    /// The object is malformed.
    pub fn write(&self, type_meta: TypeMeta<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        begin_message(out, type_meta);
        let start = out.len();
        strip::strip(Schema::builtin(), self.message, bytes, &self.selection, out)?;
        close(out, start);
        out.extend_from_slice(END_OF_ENVELOPE);
        Ok(())
    }
}
