//! Table of the members that each message can have in JSON, to find the field of a member by name.

use std::sync::OnceLock;

use super::MAX_INLINE;
use crate::schema::{MessageId, Rule, Schema};

#[derive(Debug)]
pub(super) struct Members(Vec<Box<[Member]>>);

/// A member that a message can have in JSON, and the field that it becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    name: &'static str,
    /// Message that has the field: the inline message if the member comes from one.
    pub(super) message: MessageId,
    /// Index of the field in that message.
    pub(super) place: usize,
    /// Field numbers of the inline messages around the member, then the member's own number, then zeros.
    pub(super) path: [u32; MAX_INLINE],
}

impl Members {
    /// Returns the members of [`Schema::builtin`].
    pub(super) fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Members> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            let schema = Schema::builtin();
            let of = |id| {
                let mut members = Vec::new();
                add(schema, id, [0; MAX_INLINE], 0, &mut members);
                members.into_boxed_slice()
            };
            Self(schema.ids().map(of).collect())
        })
    }

    /// Finds a member of message `id` by name. Returns its index among the message's members, and the member.
    ///
    /// The search starts at index `place`. If `place` is the index after the previous member of the JSON, the first
    /// comparison usually succeeds.
    #[inline]
    pub(super) fn find(&self, id: MessageId, place: usize, name: &str) -> Option<(usize, Member)> {
        let members = &self.0[id.number()];
        let (before, after) = members.split_at(place.min(members.len()));
        let is_it = |member: &Member| member.name == name;
        if let Some(found) = after.iter().position(is_it) {
            return Some((before.len() + found, after[found]));
        }
        before.iter().position(is_it).map(|found| (found, before[found]))
    }
}

/// Adds the members of a message, and those of its inline messages, at nesting `level`.
fn add(schema: &Schema, id: MessageId, path: [u32; MAX_INLINE], level: usize, members: &mut Vec<Member>) {
    for (place, field) in schema.message(id).fields.iter().enumerate() {
        let mut path = path;
        path[level] = field.number;
        if field.rule == Rule::Inline {
            add(schema, field.message, path, level + 1, members);
        } else {
            members.push(Member { name: field.name, message: id, place, path });
        }
    }
}
