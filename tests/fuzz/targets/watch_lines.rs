//! Fuzz target: the bytes of a watch stream, split into pieces.
//!
//! The first byte selects the decoder profile and the line size limit, the second the piece sizes. The rest is the
//! stream.

use informer_hub_codec::{Line, LineSplitter, MAX_OBJECT_BYTES};
use informer_hub_reflector::{SourceError, WatchItem};

use super::input::{Input, pieces};
use super::json;
use super::objects::Profile;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let (control, seed) = (input.byte(), input.byte());
    let whole = read(control, &[input.0]);
    let split = read(control, &pieces(input.0, seed));
    assert_eq!(whole, split, "the result depends on how the bytes were split");
}

/// Decodes a stream and describes each line, up to an error.
fn read(control: u8, pieces: &[&[u8]]) -> Vec<String> {
    let limit = if control & 0x40 == 0 { MAX_OBJECT_BYTES } else { 100 };
    let (mut profile, mut splitter, mut decoded) = (Profile::new(control), LineSplitter::new(limit), Vec::new());
    for piece in pieces {
        let fed = splitter.feed(piece, |line| {
            decoded.push(line_of(&mut profile, &line)?);
            Ok(())
        });
        if let Err(error) = fed {
            decoded.push(format!("{:?}", error.class));
            return decoded;
        }
    }
    decoded.push(format!("{} of {:?}", splitter.is_inside(), splitter.rest()));
    decoded
}

fn line_of(profile: &mut Profile, line: &Line<'_>) -> Result<String, SourceError> {
    let item = match line {
        Line::Whole(line) => {
            // `skip_event` must accept any prefix of a line, as for a line that exceeds the limit.
            let _ = profile.decoder.skip_event(&line[..line.len() / 2], "half".to_owned());
            let item = profile.decoder.decode_event(line)?;
            assert!(json::is_json(line), "an event was decoded from a line that is not JSON");
            let sent = json::unambiguous(line);
            if let WatchItem::Added(object) | WatchItem::Modified(object) = &item {
                profile.check(object, sent.as_ref().map(|sent| &sent["object"]));
            }
            item
        }
        Line::TooLong(head) => profile.decoder.skip_event(head, "too long".to_owned()),
    };
    Ok(shown(&item))
}

fn shown(item: &WatchItem) -> String {
    match item {
        WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) => {
            format!("{item:?} {:?} {:?} {:?}", object.labels(), object.index_values(), object.json().ok())
        }
        item => format!("{item:?}"),
    }
}
