//! Envelope of a JSON watch event: its type, and where its object is.

use std::borrow::Cow;
use std::ops::Range;

use super::scan::{self, Scanned};
use super::trie::Trie;
use super::walk::Walk;

/// Type of a JSON watch event, and the position of its object; `None` if the event lacks them.
#[derive(Default)]
pub(super) struct Envelope<'de> {
    pub(super) kind: Option<Cow<'de, str>>,
    pub(super) object: Option<Range<usize>>,
}

impl<'de> Envelope<'de> {
    /// Reads a watch event and walks over its object with `walk`. Returns the offset behind the event.
    ///
    /// Keys are compared without resolving escapes, since no server escapes "object".
    pub(super) fn read(&mut self, input: &'de [u8], walk: &mut Walk<'_, 'de>) -> Scanned {
        let inside = match scan::token(input, 0)? {
            (b'{', at) => at + 1,
            (_, at) => return Err(at),
        };
        let (mut more, mut at) = scan::first(input, inside, b'}')?;
        while more {
            let key = scan::key(input, at)?;
            let (_, start) = scan::token(input, key.value)?;
            let end = match &input[key.span.clone()] {
                b"\"object\"" if self.object.is_some() => return Err(key.span.start),
                b"\"object\"" => {
                    let end = walk.value(Trie::ROOT, start)?;
                    self.object = Some(start..end);
                    end
                }
                key => {
                    let end = scan::value(input, start)?;
                    if key == b"\"type\"" {
                        self.kind = scan::text_of(&input[start..end]);
                    }
                    end
                }
            };
            (more, at) = scan::next(input, end, b'}')?;
        }
        Ok(at)
    }
}
