//! Selection of the members of an object to convert to JSON; all others are skipped.

use super::schema::{FieldInfo, Label, MessageId, Rule, Schema, Shape};

/// Members of a message that are converted, prepared for [`Converter::picked`](super::Converter::picked).
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

impl Picked {
    /// Prepares the members at `paths`. A path is a list of names; it continues within each element of a list. A path
    /// that the schema lacks selects nothing.
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
        let message = schema.message(message);
        let Some(place) = schema.place_of(message, name) else { return };
        let field = &message.fields[place];
        let next = match field.rule {
            Rule::Inline => Some(name),
            _ => path.next().filter(|_| is_message(field)),
        };
        if let (Some(below), Some(name)) = (self.field(place, next.is_some()), next) {
            below.add_named(schema, field.message, name, path);
        }
    }

    /// Returns the members to convert of the field at `place`, after adding the field if necessary. Returns `None` if
    /// the whole field is converted.
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
