//! Fuzz target: a list or a watch in Kubernetes protobuf, split into pieces.
//!
//! The first byte selects the decoder profile, the size limit and list or watch, the second the piece sizes. The rest
//! is the body.

use informer_hub_codec::{Frame, FrameSplitter, ListStep, MAX_OBJECT_BYTES, ProtobufListSplitter};
use informer_hub_reflector::WatchItem;

use super::input::{Input, pieces};
use super::objects::Profile;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let (control, seed) = (input.byte(), input.byte());
    let read = if control & 0x20 == 0 { list } else { watch };
    let whole = read(control, &[input.0]);
    let split = read(control, &pieces(input.0, seed));
    assert_eq!(whole, split, "the result depends on how the bytes were split");
}

fn limit(control: u8) -> usize {
    if control & 0x40 == 0 { MAX_OBJECT_BYTES } else { 60 }
}

fn list(control: u8, pieces: &[&[u8]]) -> Vec<String> {
    let mut splitter = ProtobufListSplitter::new(limit(control));
    let (mut profile, mut decoded) = (Profile::new(control), Vec::new());
    for at in 0..=pieces.len() {
        let ends = at == pieces.len();
        if let Some(piece) = pieces.get(at) {
            splitter.feed(piece);
        }
        loop {
            let step = if ends { splitter.finish(&mut profile.decoder) } else { splitter.next(&mut profile.decoder) };
            match step {
                Ok(ListStep::NeedMore) => break,
                Ok(ListStep::Object(object)) => {
                    profile.check(&object, None);
                    decoded.push(format!("{object:?} {:?} {:?}", object.labels(), object.json()));
                }
                Ok(step) => decoded.push(format!("{step:?}")),
                Err(error) => {
                    decoded.push(format!("{:?}", error.class));
                    return decoded;
                }
            }
            assert!(splitter.buffered() <= 4 << 20);
        }
    }
    decoded
}

fn watch(control: u8, pieces: &[&[u8]]) -> Vec<String> {
    let (limit, mut splitter) = (limit(control), FrameSplitter::new(limit(control)));
    let (mut profile, mut decoded) = (Profile::new(control), Vec::new());
    for piece in pieces {
        let fed = splitter.feed(piece, |frame| {
            let item = match frame {
                Frame::Whole(frame) => {
                    // `skip_frame` must accept any prefix of a frame, as for a frame that exceeds the limit.
                    let _ = profile.decoder.skip_frame(&frame[..frame.len() / 2], "half".to_owned());
                    profile.decoder.decode_frame(frame, limit)?
                }
                Frame::TooLong(head) => profile.decoder.skip_frame(head, "too long".to_owned()),
            };
            if let WatchItem::Added(object) | WatchItem::Modified(object) = &item {
                profile.check(object, None);
            }
            decoded.push(format!("{item:?} {:?}", item.object().map(|object| object.json().ok())));
            Ok(())
        });
        if let Err(error) = fed {
            decoded.push(format!("{:?}", error.class));
            return decoded;
        }
    }
    decoded.push(format!("{}", splitter.is_inside()));
    decoded
}
