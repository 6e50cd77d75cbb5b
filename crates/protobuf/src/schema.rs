//! The messages of Kubernetes' built-in types, parsed from a generated text. `tests/testbed/protobuf/schema.go`
//! generates the text and explains its format.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

const TEXT: &str = include_str!("kubernetes.schema");

/// Value of `place` for numbers in [`Message::by_number`] that belong to no field.
const NONE: u8 = u8::MAX;

/// All messages, and the kinds that they belong to.
#[derive(Debug)]
pub struct Schema {
    version: &'static str,
    messages: Vec<Message>,
    kinds: HashMap<(&'static str, &'static str), MessageId>,
    /// Concatenated names of all members, each quoted and followed by a colon.
    keys: String,
}

/// Index of a message in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId(u16);

/// A protobuf message, which is a struct in Go.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    /// Fields, in the order of the JSON members.
    pub(super) fields: Vec<FieldInfo>,
    /// The field of each number; its place (index in `fields`) is [`NONE`] if there is no such field.
    by_number: Vec<FieldOutline>,
}

/// Copy of the parts of [`FieldInfo`] that a check of the wire form needs. It is small, so that checks read little
/// memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldOutline {
    /// Index of the field in its message.
    pub(super) place: u8,
    pub(super) label: Label,
    pub(super) shape: Shape,
    pub(super) message: MessageId,
}

/// A field of a message and its JSON member.
#[derive(Debug, Clone)]
pub(super) struct FieldInfo {
    /// Number of the field; 0 for a member with a constant text, which protobuf lacks.
    pub(super) number: u32,
    pub(super) label: Label,
    pub(super) shape: Shape,
    pub(super) rule: Rule,
    pub(super) name: &'static str,
    /// Text of a member that has the same text in all objects, such as `kind` in a nested object; empty for others.
    pub(super) constant: &'static str,
    pub(super) message: MessageId,
    /// Whether Go writes the member although the field is absent. If false, an absent field has no member.
    pub(super) is_written_if_absent: bool,
    key: Range<u32>,
}

/// How often a field occurs in a message, and whether it is a pointer in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    One,
    Pointer,
    Repeated,
    Map,
}

/// Condition under which a member is omitted from the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Always,
    OmitEmpty,
    OmitZero,
    /// The field has no member of its own: the members of its message are written in its place.
    Inline,
}

/// Form of a value in protobuf and JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Message,
    Texts,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    RawJson,
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrTexts,
    Constant,
}

impl Shape {
    #[inline]
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Bool | Self::Int32 | Self::Int64 | Self::Double)
    }
}

impl Message {
    /// Returns the index of the field with this number; `None` if there is none.
    #[inline]
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        self.outline(number).map(|field| usize::from(field.place))
    }

    /// Returns the outline of the field with this number; `None` if there is none.
    #[inline]
    pub(super) fn outline(&self, number: u32) -> Option<FieldOutline> {
        self.by_number.get(usize::try_from(number).ok()?).filter(|field| field.place != NONE).copied()
    }

    /// Returns the fields sorted by number, without members of constant text, which have no number.
    pub(super) fn by_number(&self) -> impl Iterator<Item = &FieldInfo> {
        let fields = self.by_number.iter().filter(|field| field.place != NONE);
        fields.map(|field| &self.fields[usize::from(field.place)])
    }
}

impl MessageId {
    pub(super) fn number(self) -> usize {
        usize::from(self.0)
    }
}

impl Schema {
    /// Returns the schema of the Kubernetes version that this crate is built for.
    ///
    /// # Panics
    /// Never: tests parse the same text.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Schema> = OnceLock::new();
        BUILTIN.get_or_init(|| parse(TEXT).expect("the embedded schema is valid"))
    }

    /// Returns the Kubernetes version, such as `v1.37.2`.
    #[must_use]
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// Returns the minor version of Kubernetes: 37 for `v1.37.2`.
    #[must_use]
    pub fn minor(&self) -> u64 {
        self.version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
    }

    /// Returns the message of a kind; `None` if it is not a built-in type.
    #[must_use]
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        self.kinds.get(&(api_version, kind)).copied()
    }

    /// Returns all kinds with their versions and messages, unordered.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, MessageId)> {
        self.kinds.iter().map(|((api_version, kind), message)| (*api_version, *kind, *message))
    }

    /// Returns the message of a list's items; `None` if the message is not a list.
    #[must_use]
    pub fn items(&self, list: MessageId) -> Option<MessageId> {
        let message = self.message(list);
        let items = message.fields.get(message.place(2)?)?;
        (items.name == "items" && items.label == Label::Repeated && items.shape == Shape::Message)
            .then_some(items.message)
    }

    pub(super) fn message(&self, id: MessageId) -> &Message {
        &self.messages[usize::from(id.0)]
    }

    /// Returns the index of a member's field, or of the inlined message that has the member; `None` if there is none.
    pub(super) fn place_of(&self, message: &Message, member: &str) -> Option<usize> {
        let is_inline = |field: &FieldInfo| field.rule == Rule::Inline;
        let own = message.fields.iter().position(|field| !is_inline(field) && field.name == member);
        own.or_else(|| {
            let has_member = |field: &FieldInfo| self.place_of(self.message(field.message), member).is_some();
            message.fields.iter().position(|field| is_inline(field) && has_member(field))
        })
    }

    pub(super) fn field(&self, id: MessageId, place: usize) -> &FieldInfo {
        &self.message(id).fields[place]
    }

    /// Frees the unused capacity of a finished schema: about a third of its memory.
    fn shrink(&mut self) {
        for message in &mut self.messages {
            message.fields.shrink_to_fit();
            message.by_number.shrink_to_fit();
        }
        self.messages.shrink_to_fit();
        self.kinds.shrink_to_fit();
        self.keys.shrink_to_fit();
    }

    /// Returns the IDs of all messages, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = MessageId> {
        (0..self.messages.len()).filter_map(|number| u16::try_from(number).ok().map(MessageId))
    }

    pub(super) fn key(&self, field: &FieldInfo) -> &str {
        &self.keys[field.key.start as usize..field.key.end as usize]
    }
}

/// Parses the text of a schema; `None` if it is invalid.
fn parse(text: &'static str) -> Option<Schema> {
    let mut lines = text.lines();
    let version = lines.next()?.strip_prefix("kubernetes ")?;
    let numbers = message_numbers(text)?;
    let mut schema = Schema { version, messages: Vec::new(), kinds: HashMap::new(), keys: String::new() };
    let mut keys: HashMap<&str, Range<u32>> = HashMap::new();
    for line in lines {
        let mut words = line.split(' ');
        match words.next()? {
            "message" => {
                schema.messages.push(Message { name: words.next()?, fields: Vec::new(), by_number: Vec::new() });
            }
            "kind" => {
                let (api_version, kind, message) = (words.next()?, words.next()?, words.next()?);
                schema.kinds.insert((api_version, kind), *numbers.get(message)?);
            }
            number => {
                let mut field = field(number.parse().ok()?, words, &numbers)?;
                field.key = keys.entry(field.name).or_insert_with(|| add_key(&mut schema.keys, field.name)).clone();
                schema.messages.last_mut()?.push(field)?;
            }
        }
    }
    schema.shrink();
    Some(schema)
}

impl Message {
    fn push(&mut self, field: FieldInfo) -> Option<()> {
        if field.number > 0 {
            let number = usize::try_from(field.number).ok()?;
            if self.by_number.len() <= number {
                let none = FieldOutline { place: NONE, label: Label::One, shape: Shape::Text, message: MessageId(0) };
                self.by_number.resize(number + 1, none);
            }
            let place = u8::try_from(self.fields.len()).ok().filter(|place| *place != NONE)?;
            let FieldInfo { label, shape, message, .. } = field;
            self.by_number[number] = FieldOutline { place, label, shape, message };
        }
        self.fields.push(field);
        Some(())
    }
}

fn message_numbers(text: &'static str) -> Option<HashMap<&'static str, MessageId>> {
    let names = text.lines().filter_map(|line| line.strip_prefix("message "));
    names.enumerate().map(|(number, name)| Some((name, MessageId(u16::try_from(number).ok()?)))).collect()
}

fn add_key(keys: &mut String, name: &str) -> Range<u32> {
    let start = keys.len();
    keys.extend(["\"", name, "\":"]);
    u32::try_from(start).unwrap_or(0)..u32::try_from(keys.len()).unwrap_or(0)
}

fn field(
    number: u32,
    mut words: std::str::Split<'static, char>,
    numbers: &HashMap<&str, MessageId>,
) -> Option<FieldInfo> {
    let label = match words.next()? {
        "." => Label::One,
        "?" => Label::Pointer,
        "*" => Label::Repeated,
        "%" => Label::Map,
        _ => return None,
    };
    let shape = shape(words.next()?)?;
    let rule = match words.next()? {
        "." => Rule::Always,
        "o" => Rule::OmitEmpty,
        "z" => Rule::OmitZero,
        "i" => Rule::Inline,
        _ => return None,
    };
    let name = words.next()?;
    let last = words.next().unwrap_or_default();
    let (message, constant) = match shape {
        Shape::Constant => (MessageId(0), last),
        Shape::Message | Shape::SchemaOrBool | Shape::SchemaOrArray | Shape::SchemaOrTexts => (*numbers.get(last)?, ""),
        _ => (MessageId(0), ""),
    };
    let is_written_if_absent = is_written_if_absent(label, shape, rule);
    Some(FieldInfo { number, label, shape, rule, name, constant, message, is_written_if_absent, key: 0..0 })
}

fn is_written_if_absent(label: Label, shape: Shape, rule: Rule) -> bool {
    // Go's `omitempty` never omits a struct.
    let is_struct = !matches!(
        shape,
        Shape::Text | Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Bytes | Shape::Texts
    );
    match rule {
        _ if shape == Shape::Constant => true,
        Rule::Inline | Rule::Always => true,
        Rule::OmitEmpty => label == Label::One && is_struct,
        Rule::OmitZero => false,
    }
}

fn shape(word: &str) -> Option<Shape> {
    Some(match word {
        "s" => Shape::Text,
        "b" => Shape::Bool,
        "i" => Shape::Int32,
        "l" => Shape::Int64,
        "d" => Shape::Double,
        "y" => Shape::Bytes,
        "m" => Shape::Message,
        "x" => Shape::Texts,
        "q" => Shape::Quantity,
        "n" => Shape::IntOrString,
        "t" => Shape::Time,
        "u" => Shape::MicroTime,
        "o" => Shape::Duration,
        "r" => Shape::RawJson,
        "B" => Shape::SchemaOrBool,
        "A" => Shape::SchemaOrArray,
        "S" => Shape::SchemaOrTexts,
        "c" => Shape::Constant,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_schema_has_builtin_kinds() {
        let schema = Schema::builtin();
        assert!(schema.version().starts_with("v1."), "{}", schema.version());
        assert!(schema.minor() >= 37, "{}", schema.minor());
        let pod = schema.kind("v1", "Pod").unwrap();
        assert_eq!(schema.items(schema.kind("v1", "PodList").unwrap()), Some(pod));
        assert_eq!(schema.items(pod), None);
        assert!(schema.kind("apps/v1", "Pod").is_none() && schema.kind("example.com/v1", "Shop").is_none());
        let metadata = &schema.message(pod).fields[0];
        assert_eq!((schema.key(metadata), metadata.rule), ("\"metadata\":", Rule::OmitEmpty));
        assert_eq!(schema.items(schema.kind("v1", "List").unwrap()), None, "it has items of any kind");
    }

    #[test]
    fn invalid_text_is_refused() {
        assert!(parse("kubernetes v1\nmessage a\n1 . s o name\n2 ? m o other a\nkind v1 A a\n").is_some());
        for text in [
            "",
            "kubernetes v1\n1 . s o name\n",
            "kubernetes v1\nmessage a\n1 . m o name b\n",
            "kubernetes v1\nmessage a\n1 . ! o name\n",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
