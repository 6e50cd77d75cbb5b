//! Conversion of values in a custom resource definition that are either a schema, or a boolean, an array of schemas, or
//! an array of texts.

use super::{Done, Run, WRONG_TYPE};
use crate::error::ConvertError;
use crate::form::{fields, integer};
use crate::schema::FieldInfo;
use crate::text;
use crate::wire::{Reader, Value};

impl Run<'_> {
    pub(super) fn schema_or_bool(&mut self, field: &FieldInfo, bytes: &[u8], depth: usize) -> Done {
        let [allows, schema] = fields(bytes, "JSONSchemaPropsOrBool")?;
        if let Some(schema) = schema {
            return self.schema(field, schema, depth);
        }
        let allows = integer(allows)? != 0;
        self.out.extend_from_slice(if allows { b"true" } else { b"false" });
        Ok(())
    }

    pub(super) fn schema_or_array(&mut self, field: &FieldInfo, bytes: &[u8], depth: usize) -> Done {
        self.schema_or(
            bytes,
            |run, value| run.schema(field, value, depth),
            |run, value| run.schema(field, value, depth),
        )
    }

    pub(super) fn schema_or_texts(&mut self, field: &FieldInfo, bytes: &[u8], depth: usize) -> Done {
        let text = |run: &mut Self, value: Value<'_>| {
            let Value::Bytes(bytes) = value else { return Err(WRONG_TYPE) };
            text::string(run.out, bytes);
            Ok(())
        };
        self.schema_or(bytes, |run, value| run.schema(field, value, depth), text)
    }

    /// Writes a value that is either a schema (field 1) or an array (fields 2). If both are present, the array counts.
    fn schema_or(
        &mut self,
        bytes: &[u8],
        one: impl FnOnce(&mut Self, Value<'_>) -> Done,
        element: impl Fn(&mut Self, Value<'_>) -> Done,
    ) -> Done {
        let (mut schema, mut reader) = (None, Reader::new(bytes));
        let start = self.out.len();
        while let Some(found) = reader.field()? {
            match (found.number, found.value) {
                (1, value) => schema = Some(value),
                (2, value) => {
                    if self.out.len() > self.limit {
                        return Err(ConvertError::TooLarge);
                    }
                    self.out.push(if self.out.len() == start { b'[' } else { b',' });
                    element(self, value)?;
                }
                (_, value) if value.is_empty() => {}
                (number, _) => {
                    return Err(ConvertError::UnknownField { message: "a schema or an array", number });
                }
            }
        }
        match schema {
            _ if self.out.len() > start => self.out.push(b']'),
            Some(schema) => return one(self, schema),
            None => self.out.extend_from_slice(b"null"),
        }
        Ok(())
    }

    fn schema(&mut self, field: &FieldInfo, value: Value<'_>, depth: usize) -> Done {
        let Value::Bytes(bytes) = value else { return Err(WRONG_TYPE) };
        self.message(self.schema.message(field.message), bytes, None, depth + 1)
    }
}
