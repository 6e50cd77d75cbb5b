//! Binary encoding of identifiers in an object's JSON, applied before compression.
//!
//! A hexadecimal digit carries four bits, but zstd spends about five on each. So digests, UUIDs and other long
//! hexadecimal texts are written as bytes. The object's own UID, name and resourceVersion are also stored beside the
//! JSON, so each is replaced with a marker. On a 6.3 KB pod, both together save about 110 of 570 compressed bytes.
//! A marker is a control character. Valid JSON contains control characters only as white space. Text that contains a
//! marker byte is not encoded.

use super::CodecError;

/// Marker of a run of hexadecimal digits. The number of digits (even, 16 to 254) and half as many bytes follow.
const HEX: u8 = 1;
/// Marker of a UUID. Sixteen bytes follow.
const UUID: u8 = 2;
/// Marker of the object's UID. The next two byte values mark its name and its resourceVersion.
const KNOWN: u8 = 3;
const END: u8 = KNOWN + 3;
/// Number of texts that are replaced with a marker: UID, name and resourceVersion.
const KNOWN_COUNT: usize = 3;

/// Minimum number of hexadecimal digits in a run that is encoded.
const MIN_RUN: usize = 16;
/// Longest run of digits per marker: an even length that fits into one byte.
const MAX_RUN: usize = 254;
/// A probe inside a run of [`PROBE_STEP`] digits has at least this many digits of the run on one side.
const SIDE: usize = PROBE_STEP / 2;
/// Distance between probed characters: the length of a UUID's last group. So each such group, and each longer run of
/// digits, contains a probe.
const PROBE_STEP: usize = 12;
/// Characters of a UUID before its last group.
const UUID_HEAD: usize = 24;

/// The object's UID, name and resourceVersion, which are stored beside the JSON. In the JSON, the first quoted
/// occurrence of each is replaced with a marker.
pub(super) type KnownTexts<'k> = [&'k str; KNOWN_COUNT];

/// Appends the encoded form of `json` to `out`. If `json` contains a marker byte, appends nothing and returns `false`.
pub(super) fn encode_identifiers(json: &[u8], known: &KnownTexts<'_>, out: &mut Vec<u8>) -> bool {
    if memchr::memchr3(1, 2, 3, json).is_some() || memchr::memchr2(4, 5, json).is_some() {
        return false;
    }
    let mut from = 0;
    for (begin, end, marker) in first_occurrences(json, known).into_iter().flatten() {
        // Equal texts have the same first occurrence.
        if begin >= from {
            encode_hex(&json[from..begin], out);
            out.push(marker);
            from = end;
        }
    }
    encode_hex(&json[from..], out);
    true
}

/// Returns the first quoted occurrence of each text with its marker, ordered by position. The range includes the
/// quotes.
///
/// One pass visits all quotes and stops when all texts are found, which is early, as objects begin with their metadata.
fn first_occurrences(json: &[u8], known: &KnownTexts<'_>) -> [Option<(usize, usize, u8)>; KNOWN_COUNT] {
    let mut found = [None; KNOWN_COUNT];
    let mut left = known.iter().filter(|text| !text.is_empty()).count();
    for quote in memchr::memchr_iter(b'"', json) {
        if left == 0 {
            break;
        }
        for ((marker, text), found) in (KNOWN..).zip(known).zip(&mut found) {
            let end = quote + text.len() + 1;
            let is_match = || json.get(end) == Some(&b'"') && json[quote + 1..end] == *text.as_bytes();
            if found.is_none() && !text.is_empty() && is_match() {
                *found = Some((quote, end + 1, marker));
                left -= 1;
            }
        }
    }
    found.sort_unstable();
    found
}

fn encode_hex(json: &[u8], out: &mut Vec<u8>) {
    let (mut from, mut probe) = (0, PROBE_STEP - 1);
    while let Some(byte) = json.get(probe) {
        if nibble(*byte).is_none() || !is_likely_run(json, probe) {
            probe += PROBE_STEP;
            continue;
        }
        let begin = json[from..probe].iter().rposition(|b| nibble(*b).is_none()).map_or(from, |at| from + at + 1);
        let end = json[probe..].iter().position(|b| nibble(*b).is_none()).map_or(json.len(), |at| probe + at);
        if end - begin >= MIN_RUN {
            let end = begin + ((end - begin) & !1).min(MAX_RUN);
            out.extend_from_slice(&json[from..begin]);
            out.extend([HEX, u8::try_from(end - begin).unwrap_or(u8::MAX)]);
            push_packed_hex(&json[begin..end], out);
            from = end;
            probe = from + PROBE_STEP - 1;
        } else if let Some(begin) = uuid_start(json, from, begin, end) {
            out.extend_from_slice(&json[from..begin]);
            out.push(UUID);
            let groups = [0..8, 9..13, 14..18, 19..23, UUID_HEAD..UUID_HEAD + PROBE_STEP];
            for group in groups {
                push_packed_hex(&json[begin + group.start..begin + group.end], out);
            }
            from = end;
            probe = from + PROBE_STEP - 1;
        } else {
            probe = end + PROBE_STEP - 1;
        }
    }
    out.extend_from_slice(&json[from..]);
}

/// Returns whether the character at `probe` may be in a run of [`PROBE_STEP`] digits. In such a run, the two characters
/// tested on one side of it are digits.
///
/// About every third character of JSON is a hexadecimal digit by chance. This test costs less than a search for the
/// ends of its run.
#[inline]
fn is_likely_run(json: &[u8], probe: usize) -> bool {
    let is_digit = |at: usize| json.get(at).is_some_and(|byte| nibble(*byte).is_some());
    (is_digit(probe.wrapping_sub(SIDE)) & is_digit(probe.wrapping_sub(SIDE / 2)))
        | (is_digit(probe + SIDE) & is_digit(probe + SIDE / 2))
}

/// Returns the start of the UUID whose last group is `begin..end`; `None` if there is none or it starts before `from`.
fn uuid_start(json: &[u8], from: usize, begin: usize, end: usize) -> Option<usize> {
    let first = begin.checked_sub(UUID_HEAD).filter(|first| end - begin == PROBE_STEP && *first >= from)?;
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let fits = |(at, byte): (usize, &u8)| if is_dash(at) { *byte == b'-' } else { nibble(*byte).is_some() };
    json[first..begin].iter().enumerate().all(fits).then_some(first)
}

/// Value of each byte as a lowercase hexadecimal digit; [`NO_DIGIT`] for other bytes.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        nibbles[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    nibbles
};
const NO_DIGIT: u8 = u8::MAX;

/// Returns the value of a lowercase hexadecimal digit; `None` for other bytes. Decoding could not restore uppercase
/// digits.
#[inline]
fn nibble(byte: u8) -> Option<u8> {
    Some(NIBBLES[usize::from(byte)]).filter(|value| *value != NO_DIGIT)
}

/// Appends an even number of digits as half as many bytes.
fn push_packed_hex(digits: &[u8], out: &mut Vec<u8>) {
    let value = |digit: u8| nibble(digit).unwrap_or_default();
    out.extend(digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])));
}

fn push_hex_digits(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

/// Appends the decoded form of `encoded` to `out`. Fails if that exceeds `limit` bytes.
pub(super) fn decode_identifiers(
    encoded: &[u8],
    known: &KnownTexts<'_>,
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    const CUT_SHORT: CodecError = CodecError("truncated marker");
    let mut rest = encoded;
    while let Some(at) = rest.iter().position(|byte| (HEX..END).contains(byte)) {
        out.extend_from_slice(&rest[..at]);
        let (marker, after) = (rest[at], &rest[at + 1..]);
        rest = match marker {
            HEX => {
                let (digits, after) = after.split_first().ok_or(CUT_SHORT)?;
                let (bytes, after) = after.split_at_checked(usize::from(*digits) / 2).ok_or(CUT_SHORT)?;
                push_hex_digits(bytes, out);
                after
            }
            UUID => {
                let (bytes, after) = after.split_at_checked(16).ok_or(CUT_SHORT)?;
                for (at, group) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
                    out.extend((at > 0).then_some(b'-'));
                    push_hex_digits(&bytes[group], out);
                }
                after
            }
            _ => {
                out.push(b'"');
                out.extend_from_slice(known[usize::from(marker - KNOWN)].as_bytes());
                out.push(b'"');
                after
            }
        };
        if out.len() > limit {
            return Err(CodecError("decoded length is wrong"));
        }
    }
    out.extend_from_slice(rest);
    if out.len() > limit { Err(CodecError("decoded length is wrong")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN_TEXTS: KnownTexts<'static> = ["00655632-b6c1-4437-aa44-f3e239fcd34c", "web-0", "1000000000000000"];

    fn encoded(text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        encode_identifiers(text.as_bytes(), &KNOWN_TEXTS, &mut out).then_some(out)
    }

    fn decoded(encoded: &[u8], limit: usize) -> Result<String, CodecError> {
        let mut out = Vec::new();
        decode_identifiers(encoded, &KNOWN_TEXTS, limit, &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn encoding_round_trips(
            parts in prop::collection::vec(
                prop_oneof![
                    "[0-9a-f]{0,600}",
                    "[0-9a-f-]{0,60}",
                    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
                    "[ -~é\n]{0,30}",
                    prop::sample::select(KNOWN_TEXTS.map(|text| format!("\"{text}\"")).to_vec()),
                    prop::sample::select(KNOWN_TEXTS.map(str::to_owned).to_vec()),
                ],
                0..8,
            ),
        ) {
            let text = parts.concat();
            let encoded = encoded(&text).unwrap();
            prop_assert!(encoded.len() <= text.len());
            prop_assert_eq!(decoded(&encoded, text.len()).unwrap(), text);
        }

        #[test]
        fn arbitrary_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), limit in 0_usize..300) {
            let mut out = Vec::new();
            if decode_identifiers(&bytes, &KNOWN_TEXTS, limit, &mut out).is_ok() {
                prop_assert!(out.len() <= limit);
            }
        }
    }

    #[test]
    fn digests_and_uuids_take_half_and_known_texts_one_byte() {
        let size = |text: &str| encoded(text).unwrap().len();
        assert_eq!(size(&"ab".repeat(32)), 2 + 32);
        assert_eq!(size("x637bcda8-b560-4853-b62b-33b2740d8a48x"), 1 + 17 + 1);
        assert_eq!(size(r#"{"name":"web-0","uid":"00655632-b6c1-4437-aa44-f3e239fcd34c"}"#), 8 + 1 + 7 + 1 + 1);
        // Only the first quoted occurrence is replaced.
        assert_eq!(size(r#"web-0,"web-0","web-0""#), 6 + 1 + 1 + 7);
    }

    #[test]
    fn long_runs_and_uuids_are_found_at_every_offset() {
        let uuid = "637bcda8-b560-4853-b62b-33b2740d8a48";
        for (text, takes) in [("0123456789abcdef", 2 + 8), (uuid, 17)] {
            for (before, after) in (0..40).flat_map(|before| (0..14).map(move |after| (before, after))) {
                let other: String = "x-1:ab_9".chars().cycle().take(before).collect();
                let around = format!("{other}_{text}_{}", &other[..after.min(before)]);
                assert_eq!(encoded(&around).unwrap().len(), around.len() - text.len() + takes, "{around}");
            }
        }
    }

    #[test]
    fn uppercase_odd_and_marker_texts_are_not_encoded() {
        for text in ["0123456789ABCDEF", "0123456789abcde", "637bcda8_b560_4853_b62b_33b2740d8a48"] {
            assert_eq!(encoded(text).unwrap(), text.as_bytes());
        }
        for marker in 1..END {
            assert_eq!(encoded(&format!("a{}b", char::from(marker))), None);
        }
    }
}
