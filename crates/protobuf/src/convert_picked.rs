//! Conversion of some members of an object.

use super::{Converter, Done, Run, Slot, WRONG_TYPE};
use crate::convert::TypeMeta;
use crate::picked::Picked;
use crate::schema::{Label, Message, MessageId, Rule};
use crate::wire::{Reader, Value};

impl Converter {
    /// Appends the JSON of the picked members to `out`, in any order, after those of `type_meta`. Does not check the
    /// content of other members.
    ///
    /// # Errors
    /// A picked member cannot be converted.
    pub fn picked(
        &mut self,
        message: MessageId,
        type_meta: Option<TypeMeta<'_>>,
        bytes: &[u8],
        picked: &Picked,
        out: &mut Vec<u8>,
    ) -> Done {
        let schema = self.schema;
        let mut run = self.begin(type_meta, usize::MAX, out);
        run.picked_members(schema.message(message), bytes, picked, 0)?;
        out.push(b'}');
        Ok(())
    }
}

impl Run<'_> {
    fn picked_members(&mut self, message: &Message, bytes: &[u8], picked: &Picked, depth: usize) -> Done {
        let base = self.slots.len();
        self.slots.resize(base + picked.0.len(), Slot::default());
        let mut reader = Reader::new(bytes);
        while let Some(found) = reader.field()? {
            let Some(field) = message.outline(found.number) else { continue };
            if let Some(at) = picked.0.iter().position(|picked| picked.place == usize::from(field.place)) {
                self.slots[base + at].add(field, found, reader.at())?;
            }
        }
        for (at, picked) in picked.0.iter().enumerate() {
            let (field, slot) = (&message.fields[picked.place], self.slots[base + at]);
            if slot.count == 0 && !field.is_written_if_absent {
                continue;
            }
            let found = &bytes[slot.start..slot.end];
            match &picked.below {
                None => self.member(field, slot, bytes, None, depth)?,
                Some(below) if field.rule == Rule::Inline => {
                    self.picked_members(self.schema.message(field.message), found, below, depth + 1)?;
                }
                Some(below) if field.label == Label::Repeated && slot.count > 0 => {
                    self.key(field);
                    self.out.push(b'[');
                    let mut reader = Reader::new(found);
                    while let Some(element) = reader.field()? {
                        if element.number == field.number {
                            let Value::Bytes(bytes) = element.value else { return Err(WRONG_TYPE) };
                            self.comma();
                            self.picked_message(field.message, bytes, below, depth)?;
                        }
                    }
                    self.out.push(b']');
                }
                // Go writes an absent pointer or list as `null`.
                Some(_) if slot.count == 0 && field.label != Label::One => self.absent(field, depth)?,
                Some(below) => {
                    self.key(field);
                    self.picked_message(field.message, found, below, depth)?;
                }
            }
        }
        self.slots.truncate(base);
        Ok(())
    }

    fn picked_message(&mut self, message: MessageId, bytes: &[u8], picked: &Picked, depth: usize) -> Done {
        self.out.push(b'{');
        self.picked_members(self.schema.message(message), bytes, picked, depth + 1)?;
        self.out.push(b'}');
        Ok(())
    }
}
