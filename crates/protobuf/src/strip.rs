//! Copy of a message without some members.

use super::error::ConvertError;
use super::omit::Omit;
use super::schema::{Label, MessageId, Rule, Schema, Shape};
use super::selection::Selection;
use super::wire::{Reader, Value};
use super::wire_out::{close, tag};

/// Returns whether removing the members in `omit` from a message removes exactly these members from its JSON.
///
/// Returns `false` if Go writes one of the members although it is absent. Also returns `false` if a path leads through
/// a list, a map or embedded JSON, or may lead to a member of an inlined message.
pub(super) fn is_exact(schema: &Schema, message: MessageId, omit: &Omit) -> bool {
    let fields = &schema.message(message).fields;
    omit.members().all(|(name, below)| {
        let field = fields.iter().find(|field| field.rule != Rule::Inline && field.name == name);
        match field {
            None => !fields.iter().any(|field| field.rule == Rule::Inline),
            Some(field) if below.is_all() => !field.is_written_if_absent,
            Some(field) if matches!(field.label, Label::Repeated | Label::Map) => false,
            Some(field) if field.shape == Shape::Message => is_exact(schema, field.message, below),
            Some(field) => field.shape != Shape::RawJson,
        }
    })
}

/// Appends the message without the omitted members to `out`.
pub(super) fn strip(
    schema: &Schema,
    message: MessageId,
    bytes: &[u8],
    selection: &Selection,
    out: &mut Vec<u8>,
) -> Result<(), ConvertError> {
    let message = schema.message(message);
    // Consecutive fields without omitted members are copied at once.
    let (mut reader, mut copied) = (Reader::new(bytes), 0);
    while let Some(found) = reader.field()? {
        let Some(field) = message.outline(found.number) else { continue };
        let selected = selection.get(field.place).filter(|selected| selected.is_omitted || selected.omits_below);
        let Some(selected) = selected else { continue };
        out.extend_from_slice(&bytes[copied..found.start]);
        copied = reader.at();
        match found.value {
            _ if selected.is_omitted => {}
            Value::Bytes(content) => {
                tag(out, found.number, 2);
                let start = out.len();
                strip(schema, field.message, content, &selected.below, out)?;
                close(out, start);
            }
            _ => out.extend_from_slice(&bytes[found.start..copied]),
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    Ok(())
}
