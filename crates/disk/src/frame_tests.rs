//! Tests of frames with every kind of damage at every byte.

use proptest::prelude::*;

use super::*;

#[derive(Debug, PartialEq, Clone)]
enum Seen {
    Frame(u64, Vec<u8>),
    Damage(u64, u64),
    Torn(u64, u64),
}

fn seen(bytes: &[u8], salt: u32) -> Vec<Seen> {
    let mut reader = Reader::of_slice(bytes, salt);
    let mut seen = Vec::new();
    while let Some(item) = reader.next().expect("memory can be read") {
        seen.push(match item {
            Item::Frame { offset, payload } => Seen::Frame(offset, payload.to_vec()),
            Item::Damage { from, to } => Seen::Damage(from, to),
            Item::Torn { from, to } => Seen::Torn(from, to),
        });
    }
    seen
}

fn file(payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for payload in payloads {
        write(7, payload, &mut out).unwrap();
    }
    out
}

const THREE: [&[u8]; 3] = [b"first", b"", b"the third"];

fn three() -> (Vec<u8>, Vec<Seen>) {
    let bytes = file(&THREE);
    let whole = seen(&bytes, 7);
    (bytes, whole)
}

#[test]
fn frames_round_trip() {
    let (_, whole) = three();
    let expected: Vec<_> = [0, 21, 37].into_iter().zip(THREE).map(|(at, p)| Seen::Frame(at, p.to_vec())).collect();
    assert_eq!(whole, expected);
    assert_eq!(read(7, &file(&[b"one"])), Some(&b"one"[..]));
}

#[test]
fn frame_with_another_salt_is_invalid() {
    let (bytes, _) = three();
    assert_eq!(seen(&bytes, 8), [Seen::Torn(0, bytes.len() as u64)]);
    assert_eq!(read(8, &bytes), None);
}

#[test]
fn truncation_keeps_the_frames_before_it() {
    let (bytes, whole) = three();
    let ends = [0, 21, 37, bytes.len()];
    for cut in 0..bytes.len() {
        let kept = ends.iter().filter(|end| **end <= cut && **end > 0).count();
        let mut expected = whole[..kept].to_vec();
        if ends[kept] < cut {
            expected.push(Seen::Torn(ends[kept] as u64, cut as u64));
        }
        assert_eq!(seen(&bytes[..cut], 7), expected, "cut at {cut}");
    }
}

#[test]
fn flipped_bit_invalidates_one_frame() {
    let (bytes, whole) = three();
    let starts = [0, 21, 37, bytes.len()];
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let hit = (0..3).find(|i| bit / 8 < starts[i + 1]).expect("the bit is in a frame");
        let (from, to) = (starts[hit] as u64, starts[hit + 1] as u64);
        let mut expected = whole.clone();
        expected[hit] = if hit == 2 { Seen::Torn(from, to) } else { Seen::Damage(from, to) };
        assert_eq!(seen(&bytes, 7), expected, "bit {bit}");
    }
}

#[test]
fn frame_inside_a_damaged_payload_is_ignored() {
    let inner = file(&[b"forged"]);
    let mut bytes = file(&[&inner, b"next"]);
    bytes[HEADER + inner.len() - 1] ^= 1;
    let end = (HEADER + inner.len()) as u64;
    assert_eq!(seen(&bytes, 7), [Seen::Damage(0, end), Seen::Frame(end, b"next".to_vec())]);
}

#[test]
fn trailing_zeros_are_torn() {
    let mut bytes = file(&[b"one"]);
    let end = bytes.len();
    bytes.resize(end + 4096, 0);
    assert_eq!(seen(&bytes, 7), [Seen::Frame(0, b"one".to_vec()), Seen::Torn(end as u64, end as u64 + 4096)]);
}

#[test]
fn overlong_payload_is_rejected_without_output() {
    let mut out = vec![1];
    assert_eq!(write_with(0, &mut out, |out| out.resize(HEADER + 2 + MAX_PAYLOAD, 0)), Err(TooLong(MAX_PAYLOAD + 1)));
    assert_eq!(out, [1]);
}

#[test]
fn frames_longer_than_a_read_are_read() {
    let long = vec![3; CHUNK * 2 + 5];
    let payloads: [&[u8]; 4] = [&long, b"a", &long[..CHUNK - HEADER], b"b"];
    let mut bytes = file(&payloads);
    let read: Vec<_> = seen(&bytes, 7).into_iter().map(|seen| matches!(seen, Seen::Frame(..))).collect();
    assert_eq!(read, [true; 4]);
    bytes[5] ^= 1;
    let read = seen(&bytes, 7);
    assert_eq!((read.len(), &read[0]), (4, &Seen::Damage(0, (HEADER + long.len()) as u64)));
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(300))]

    #[test]
    fn items_cover_any_file(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..12),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let mut bytes = file(&slices);
        bytes.extend_from_slice(&noise);
        for (at, byte) in &hits {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        let mut at = 0;
        let mut frames = 0;
        for seen in seen(&bytes, 7) {
            let (from, to) = match seen {
                Seen::Frame(from, payload) => {
                    frames += 1;
                    prop_assert!(payloads.contains(&payload));
                    (from, from + (HEADER + payload.len()) as u64)
                }
                Seen::Damage(from, to) | Seen::Torn(from, to) => (from, to),
            };
            prop_assert_eq!(from, at);
            prop_assert!(to > from);
            at = to;
        }
        prop_assert_eq!(at, bytes.len() as u64);
        prop_assert!(frames + hits.len() >= payloads.len());
    }
}
