//! Tree of the fields of an object that are read when the object arrives (wanted), and of the fields that are not
//! stored (omitted).

use std::borrow::Cow;

use super::omit::Omit;
use super::schema::{FieldInfo, Label, Message, MessageId, Rule, Schema, Shape};

/// A step of a path to wanted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'p> {
    /// Leads to the member with this name, or to the value of this key in a map.
    Member(&'p str),
    /// Leads to each element of a list.
    Each,
}

/// Value at a wanted path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<'b> {
    /// The content of a string, or a number or boolean as JSON writes it.
    Scalar(Cow<'b, str>),
    /// An entry of a map of strings, if the path leads to the whole map.
    Entry(&'b str, &'b str),
}

/// The wanted and the omitted fields of a message.
#[derive(Debug, Default)]
pub(super) struct Selection {
    fields: Vec<SelectedField>,
    /// Places (indexes in the message) of all of `fields`.
    places: Places,
}

/// Set of places, which are indexes of fields in a message. A message has at most 255 fields.
#[derive(Debug, Default)]
pub(super) struct Places([u64; 4]);

impl Places {
    #[inline]
    pub(super) fn has(&self, place: u8) -> bool {
        self.0[usize::from(place / 64)] & (1 << (place % 64)) != 0
    }

    #[inline]
    pub(super) fn add(&mut self, place: u8) {
        self.0[usize::from(place / 64)] |= 1 << (place % 64);
    }
}

/// A field that is wanted or omitted. A path to a list leads to all its elements. In a map, each path in `paths` leads
/// to all entries, and each path in `keys` to the entry with its key.
#[derive(Debug)]
pub(super) struct SelectedField {
    /// Index of the field in its message.
    pub(super) place: u8,
    /// Whether the whole field is omitted.
    pub(super) is_omitted: bool,
    /// Whether something in the field's message is omitted.
    pub(super) omits_below: bool,
    /// Numbers of the wanted paths that end at the field (see [`Selection::new`]).
    pub(super) paths: Vec<usize>,
    /// For a map: the wanted keys, each with the number of its path.
    pub(super) keys: Vec<(Box<str>, usize)>,
    /// The wanted and the omitted fields of the field's messages.
    pub(super) below: Selection,
}

impl Selection {
    /// Prepares wanted paths, numbered by their position in `paths`, and members to omit. Returns `None` if a path
    /// leads into a value whose structure is not in the schema, such as embedded JSON.
    pub(super) fn new<'p, P: AsRef<[Step<'p>]>>(
        schema: &Schema,
        message: MessageId,
        paths: impl IntoIterator<Item = P>,
        omit: &Omit,
    ) -> Option<Self> {
        let (mut selection, message) = (Self::default(), schema.message(message));
        for (number, path) in paths.into_iter().enumerate() {
            selection.add(schema, message, path.as_ref(), number)?;
        }
        selection.omit(schema, message, omit);
        Some(selection)
    }

    fn omit(&mut self, schema: &Schema, message: &Message, omit: &Omit) {
        for (name, below) in omit.members() {
            let Some(place) = schema.place_of(message, name) else { continue };
            let field = &message.fields[place];
            if let Some(selected) = self.field(place).filter(|_| field.rule != Rule::Inline) {
                selected.is_omitted = below.is_all();
                selected.omits_below = !below.is_all() && field.shape == Shape::Message;
                if selected.omits_below {
                    selected.below.omit(schema, schema.message(field.message), below);
                }
            }
        }
    }

    fn add(&mut self, schema: &Schema, message: &Message, path: &[Step<'_>], number: usize) -> Option<()> {
        let [Step::Member(name), rest @ ..] = path else { return Some(()) };
        let Some(place) = schema.place_of(message, name) else { return Some(()) };
        let field = &message.fields[place];
        let selected = self.field(place)?;
        let rest = match (field.label, rest) {
            _ if field.rule == Rule::Inline => path,
            (Label::Map, [Step::Member(key)]) if is_scalar(field) => {
                selected.keys.push(((*key).into(), number));
                return Some(());
            }
            (Label::Map, [Step::Member(_), ..]) if !is_scalar(field) => return None,
            (Label::Map, []) if field.shape == Shape::Text => rest,
            (Label::Repeated, [Step::Each, rest @ ..]) | (Label::One | Label::Pointer, rest) => rest,
            // A whole list or map is not a scalar, and a list has no named members.
            (Label::Map | Label::Repeated, _) => return Some(()),
        };
        match (field.shape, rest) {
            (Shape::Message, rest) => selected.below.add(schema, schema.message(field.message), rest, number)?,
            (Shape::Texts, []) => {}
            (_, []) if is_scalar(field) => selected.paths.push(number),
            (_, _) if is_scalar(field) => {}
            _ => return None,
        }
        Some(())
    }

    /// Returns the entry of the field at index `place` of its message, and adds the entry if necessary. Returns `None`
    /// if `place` is above 255.
    fn field(&mut self, place: usize) -> Option<&mut SelectedField> {
        let place = u8::try_from(place).ok()?;
        let known = self.fields.iter().position(|field| field.place == place);
        let at = known.unwrap_or(self.fields.len());
        if known.is_none() {
            let (paths, keys, below) = (Vec::new(), Vec::new(), Self::default());
            self.fields.push(SelectedField { place, is_omitted: false, omits_below: false, paths, keys, below });
            self.places.add(place);
        }
        self.fields.get_mut(at)
    }

    /// Returns the entry of the field at `place`; `None` if it is neither wanted nor omitted.
    #[inline]
    pub(super) fn get(&self, place: u8) -> Option<&SelectedField> {
        if !self.places.has(place) {
            return None;
        }
        self.fields.iter().find(|field| field.place == place)
    }

    pub(super) fn fields(&self) -> &[SelectedField] {
        &self.fields
    }
}

/// Returns whether the field's values are strings, numbers or booleans in JSON.
fn is_scalar(field: &FieldInfo) -> bool {
    match field.shape {
        Shape::Message
        | Shape::Texts
        | Shape::RawJson
        | Shape::SchemaOrBool
        | Shape::SchemaOrArray
        | Shape::SchemaOrTexts => false,
        Shape::Text
        | Shape::Bool
        | Shape::Int32
        | Shape::Int64
        | Shape::Double
        | Shape::Bytes
        | Shape::Quantity
        | Shape::IntOrString
        | Shape::Time
        | Shape::MicroTime
        | Shape::Duration
        | Shape::Constant => true,
    }
}
