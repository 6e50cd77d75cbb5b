//! Copy of a message without some members.

use super::error::ConvertError;
use super::omit::Omit;
use super::schema::{Label, MessageId, Rule, Schema, Shape};
use super::wire::{Reader, Value};
use super::wire_out::{close, tag};

/// Returns whether the JSON of a message without the members in `omit` equals the JSON of the whole message without
/// them. It does not if Go writes one of them although it is absent, or if a path leads through a list or a map.
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

/// Returns the members of the message of `field` that are omitted; `None` if nothing in it is.
fn below<'o>(schema: &Schema, message: MessageId, omit: &'o Omit, number: u32) -> Option<(&'o Omit, MessageId)> {
    let message = schema.message(message);
    let field = &message.fields[message.place(number)?];
    let below = omit.below(field.name).filter(|_| field.rule != Rule::Inline)?;
    (below.is_all() || field.shape == Shape::Message).then_some((below, field.message))
}

/// Appends the message without the members in `omit` to `out`.
pub(super) fn strip(
    schema: &Schema,
    message: MessageId,
    bytes: &[u8],
    omit: &Omit,
    out: &mut Vec<u8>,
) -> Result<(), ConvertError> {
    if omit.is_all() {
        out.extend_from_slice(bytes);
        return Ok(());
    }
    // Consecutive fields without omitted members are copied at once.
    let (mut reader, mut copied) = (Reader::new(bytes), 0);
    while let Some(found) = reader.field()? {
        let Some((below, inner)) = below(schema, message, omit, found.number) else { continue };
        out.extend_from_slice(&bytes[copied..found.start]);
        copied = reader.at();
        match found.value {
            _ if below.is_all() => {}
            Value::Bytes(content) => {
                tag(out, found.number, 2);
                let start = out.len();
                strip(schema, inner, content, below, out)?;
                close(out, start);
            }
            _ => out.extend_from_slice(&bytes[found.start..copied]),
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    Ok(())
}
