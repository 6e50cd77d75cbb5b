//! Fuzz target: one page of a list, split into pieces.
//!
//! The first byte selects the decoder profile and the item size limit, the second the piece sizes. The rest is the
//! page.

use informer_hub_codec::{ListSplitter, ListStep, MAX_OBJECT_BYTES};
use serde_json::Value;

use super::input::{Input, pieces};
use super::json;
use super::objects::Profile;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let (control, seed) = (input.byte(), input.byte());
    let small = control & 0x40 != 0;
    let sent = if small { None } else { json::unambiguous(input.0) };
    let whole = read(control, &[input.0], sent.as_ref());
    let split = read(control, &pieces(input.0, seed), None);
    // The report of an item over the limit has more details if the item arrived in one piece.
    if !small {
        assert_eq!(whole, split, "the result depends on how the bytes were split");
    }
}

/// Decodes a page and describes each item, up to the end or an error.
fn read(control: u8, pieces: &[&[u8]], sent: Option<&Value>) -> Vec<String> {
    let limit = if control & 0x40 == 0 { MAX_OBJECT_BYTES } else { 60 };
    let (mut profile, mut splitter, mut decoded) = (Profile::new(control), ListSplitter::new(limit), Vec::new());
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
                    let item = sent.and_then(|sent| sent["items"].get(decoded.len()));
                    profile.check(&object, item);
                    decoded.push(format!("{object:?} {:?} {:?}", object.labels(), object.json()));
                }
                Ok(ListStep::Skipped(skipped)) => decoded.push(format!("{skipped:?}")),
                Ok(ListStep::End { version, continue_token, remaining }) => {
                    if let Some(sent) = sent {
                        assert_eq!(sent["items"].as_array().map_or(0, Vec::len), decoded.len());
                        let version_sent = sent["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                        assert_eq!(version.to_string(), version_sent);
                    }
                    decoded.push(format!("end {version:?} {continue_token:?} {remaining:?}"));
                }
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
