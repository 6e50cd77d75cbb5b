//! Reports the values of an object that a [`Selection`] wants, as text in the form that they have in the object's JSON.

use std::borrow::Cow;

use super::{Check, Done, Level, RARE};
use crate::convert::omits;
use crate::error::ConvertError;
use crate::form;
use crate::schema::{FieldInfo, Label, Rule, Shape};
use crate::selection::{Found, SelectedField, Selection};
use crate::wire::Value;

impl<'b> Check<'_, '_, 'b> {
    /// Reports the wanted values of a field that was checked. `value` is the field's value, or one list element or map
    /// entry.
    pub(super) fn found(&mut self, level: &mut Level<'_, '_, 'b>, wanted: &SelectedField, value: Value<'b>) -> Done {
        let field = &level.message.fields[usize::from(wanted.place)];
        match (field.label, value) {
            (Label::Map, Value::Bytes(entry)) => self.found_entry(level, field, wanted, entry),
            _ if wanted.paths.is_empty() => Ok(()),
            (Label::Repeated, Value::Bytes(_)) if field.shape.is_number() => Err(RARE),
            (Label::One, value) if omits(field, value)? => Ok(()),
            (_, value) => self.scalar(field, wanted, value),
        }
    }

    fn found_entry(
        &mut self,
        level: &mut Level<'_, '_, 'b>,
        field: &FieldInfo,
        wanted: &SelectedField,
        entry: &'b [u8],
    ) -> Done {
        let [key, value] = form::fields(entry, "a map's entry")?;
        let key = utf8(if let Some(Value::Bytes(key)) = key { key } else { &[] })?;
        // If several entries have the same key, only the last counts. Servers sort entries by key, so it is enough to
        // compare neighbours. Unsorted entries are a rare form, which is refused.
        let is_next = match level.last_key {
            Some((place, last)) if place == wanted.place => last < key.as_bytes(),
            _ => !level.seen.has(wanted.place),
        };
        if !is_next {
            return Err(RARE);
        }
        level.seen.add(wanted.place);
        level.last_key = Some((wanted.place, key.as_bytes()));
        let value = value.unwrap_or(form::zero(field.shape));
        if let (Value::Bytes(value), false) = (value, wanted.paths.is_empty()) {
            let value = utf8(value)?;
            wanted.paths.iter().for_each(|path| (self.found)(*path, Found::Entry(key, value)));
        }
        for (_, path) in wanted.keys.iter().filter(|(wanted, _)| **wanted == *key) {
            if let Some(text) = self.text_of(field.shape, value)? {
                (self.found)(*path, Found::Scalar(text));
            }
        }
        Ok(())
    }

    /// Reports the wanted values of absent fields, if Go writes JSON members for these fields nevertheless.
    pub(super) fn absent(&mut self, level: &Level<'_, '_, 'b>, selection: &Selection) -> Done {
        for wanted in selection.fields().iter().filter(|wanted| !wanted.is_omitted && !level.seen.has(wanted.place)) {
            let field = &level.message.fields[usize::from(wanted.place)];
            match field.shape {
                _ if !field.is_written_if_absent => {}
                Shape::Constant => {
                    wanted.paths.iter().for_each(|path| (self.found)(*path, Found::Scalar(field.constant.into())));
                }
                Shape::Message if field.label == Label::One || field.rule == Rule::Inline => {
                    self.message(field.message, &[], Some(&wanted.below), level.depth + 1)?;
                }
                // Go writes `null` for absent bytes, pointers, lists and maps. `null` is not reported.
                Shape::Bytes => {}
                _ if field.label != Label::One || wanted.paths.is_empty() => {}
                shape => self.scalar(field, wanted, form::zero(shape))?,
            }
        }
        Ok(())
    }

    fn scalar(&mut self, field: &FieldInfo, wanted: &SelectedField, value: Value<'b>) -> Done {
        if let Some(text) = self.text_of(field.shape, value)? {
            wanted.paths.iter().for_each(|path| (self.found)(*path, Found::Scalar(text.clone())));
        }
        Ok(())
    }

    /// Returns a scalar as text; `None` if it is `null`.
    fn text_of(&mut self, shape: Shape, value: Value<'b>) -> Result<Option<Cow<'b, str>>, ConvertError> {
        if let (Shape::Text, Value::Bytes(text)) = (shape, value) {
            return Ok(Some(utf8(text)?.into()));
        }
        self.scratch.clear();
        form::scalar(&mut self.scratch, shape, value)?;
        let json = utf8(&self.scratch)?;
        if json.contains('\\') {
            return Err(RARE);
        }
        Ok((json != "null").then(|| json.trim_matches('"').to_owned().into()))
    }
}

fn utf8(text: &[u8]) -> Result<&str, ConvertError> {
    std::str::from_utf8(text).map_err(|_| RARE)
}
