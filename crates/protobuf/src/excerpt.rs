//! Excerpt of an object: the few members that are needed when the object arrives, without converting the rest.
//!
//! An object that is stored as protobuf is converted only when it is read. At arrival it is checked in full, so that the
//! conversion cannot fail later ([`check`](super::check)).

use super::check;
use super::convert::{Converter, TypeMeta};
use super::error::ConvertError;
use super::omit::Omit;
use super::schema::{FieldInfo, Label, Message, MessageId, Rule, Schema, Shape};
use super::strip;
use super::wire_out::{END_OF_ENVELOPE, begin_message, close};

/// Members that are read of the objects of one kind when they arrive, and members that are not stored.
#[derive(Debug)]
pub struct Excerpt {
    message: MessageId,
    picked: Picked,
    omit: Omit,
}

/// Members of a message that are converted, prepared for [`Converter::picked`].
#[derive(Debug, Default)]
pub struct Picked(pub(super) Vec<PickedField>);

/// A member that is converted.
#[derive(Debug)]
pub(super) struct PickedField {
    /// Index of the field in its message.
    pub(super) place: usize,
    /// Members to convert of the field's messages; `None` to convert the whole field.
    pub(super) below: Option<Picked>,
}

impl Excerpt {
    /// Prepares an excerpt with the members at `paths`, as [`Picked::new`]. The stored message lacks the members in `omit`.
    ///
    /// Returns `None` if a message without these members would have another JSON than an object whose members are
    /// omitted during conversion.
    #[must_use]
    pub fn new<'p>(
        message: MessageId,
        paths: impl IntoIterator<Item = impl IntoIterator<Item = &'p str>>,
        omit: &Omit,
    ) -> Option<Self> {
        let is_exact = strip::is_exact(Schema::builtin(), message, omit);
        is_exact.then(|| Self { message, picked: Picked::new(message, paths), omit: omit.clone() })
    }

    /// Appends the JSON of the excerpt's members to `json`, in any order, after those of `type_meta`. If it succeeds, the
    /// whole object can be converted.
    ///
    /// # Errors
    /// The object is malformed, or has a rare form that this does not check. [`Converter::object`] shows which.
    pub fn read(
        &self,
        converter: &mut Converter,
        type_meta: Option<TypeMeta<'_>>,
        bytes: &[u8],
        json: &mut Vec<u8>,
    ) -> Result<(), ConvertError> {
        check::check(Schema::builtin(), self.message, bytes, &self.omit)?;
        converter.picked(self.message, type_meta, bytes, &self.picked, json)
    }

    /// Appends the object in its envelope to `out`, without the omitted members.
    ///
    /// # Errors
    /// The object is malformed.
    pub fn write(&self, type_meta: TypeMeta<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        begin_message(out, type_meta);
        let start = out.len();
        strip::strip(Schema::builtin(), self.message, bytes, &self.omit, out)?;
        close(out, start);
        out.extend_from_slice(END_OF_ENVELOPE);
        Ok(())
    }
}

impl Picked {
    /// Prepares the members at `paths`. A path is a list of names; it continues within each element of a list. A path
    /// that the schema lacks adds nothing.
    #[must_use]
    pub fn new<'p>(message: MessageId, paths: impl IntoIterator<Item = impl IntoIterator<Item = &'p str>>) -> Self {
        let mut picked = Self::default();
        for path in paths {
            let mut path = path.into_iter();
            if let Some(name) = path.next() {
                picked.add_named(Schema::builtin(), message, name, &mut path);
            }
        }
        picked
    }

    fn add_named(&mut self, schema: &Schema, message: MessageId, name: &str, path: &mut dyn Iterator<Item = &str>) {
        let fields = &schema.message(message).fields;
        if let Some(place) = fields.iter().position(|field| field.rule != Rule::Inline && field.name == name) {
            let field = &fields[place];
            let next = path.next().filter(|_| is_message(field));
            let below = self.field(place, next.is_some());
            if let (Some(below), Some(name)) = (below, next) {
                below.add_named(schema, field.message, name, path);
            }
            return;
        }
        let inline = fields
            .iter()
            .position(|field| field.rule == Rule::Inline && has_member(schema, schema.message(field.message), name));
        if let Some(place) = inline
            && let Some(below) = self.field(place, true)
        {
            below.add_named(schema, fields[place].message, name, path);
        }
    }

    /// Returns the members to convert of a field, and adds the field if necessary; `None` if the whole field is converted.
    fn field(&mut self, place: usize, is_partial: bool) -> Option<&mut Self> {
        let known = self.0.iter().position(|picked| picked.place == place);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push(PickedField { place, below: is_partial.then(Self::default) });
        } else if !is_partial {
            self.0[at].below = None;
        }
        self.0[at].below.as_mut()
    }
}

/// Returns whether a path can continue within the field's messages.
fn is_message(field: &FieldInfo) -> bool {
    field.shape == Shape::Message && field.label != Label::Map
}

/// Returns whether a message has the member, itself or in an inlined message.
fn has_member(schema: &Schema, message: &Message, name: &str) -> bool {
    message.fields.iter().any(|field| match field.rule {
        Rule::Inline => has_member(schema, schema.message(field.message), name),
        _ => field.name == name,
    })
}
