//! Folding: what compression cannot see in an object's JSON, taken out of it before.
//!
//! Digests, UUIDs and other long hexadecimal texts carry four bits a character, and zstd spends about five on each; they
//! are written as bytes. The object's own UID, name and version are in its head already; a mark stands for each. On a
//! pod of 6.3 KB the two save about 110 of 570 compressed bytes.
//!
//! A mark is a control character, which valid JSON has nowhere but as white space; a text that has one of them is not
//! encoded.

use super::CodecError;

/// A run of hexadecimal digits: the mark, how many digits (even, 16 to 254), half as many bytes.
const HEX: u8 = 1;
/// A UUID: the mark and sixteen bytes.
const UUID: u8 = 2;
/// The first mark of a known text; the others follow.
const KNOWN: u8 = 3;
/// What follows the last mark.
const END: u8 = KNOWN + 3;
/// How many known texts there are.
const TEXTS: usize = 3;

/// A shorter run is not worth a mark.
const RUN: usize = 16;
/// The longest run of one mark: its length is one byte, and even.
const MAX_RUN: usize = 254;
/// Every run, and the last group of a UUID, has a digit at each this many characters.
const STRIDE: usize = 12;
/// Characters of a UUID before its last group.
const UUID_HEAD: usize = 24;

/// Texts of an object that its head has too. Each is looked for in quotes, and its first place encoded.
pub(super) type KnownTexts<'k> = [&'k str; TEXTS];

/// Appends the encoded form of `json` to `out`. `false`, and nothing appended, when it has a byte that is a mark.
pub(super) fn encode_identifiers(json: &[u8], known: &KnownTexts<'_>, out: &mut Vec<u8>) -> bool {
    if memchr::memchr3(1, 2, 3, json).is_some() || memchr::memchr2(4, 5, json).is_some() {
        return false;
    }
    let mut from = 0;
    for (begin, end, mark) in first_occurrences(json, known).into_iter().flatten() {
        // Two equal texts have the same place.
        if begin >= from {
            encode_hex(&json[from..begin], out);
            out.push(mark);
            from = end;
        }
    }
    encode_hex(&json[from..], out);
    true
}

/// The first place of each text in quotes, these included, with its mark; in the order of the places. Found in one pass
/// from quotation mark to quotation mark, which ends where all are found: an object begins with its metadata.
fn first_occurrences(json: &[u8], known: &KnownTexts<'_>) -> [Option<(usize, usize, u8)>; TEXTS] {
    let mut found = [None; TEXTS];
    let mut left = known.iter().filter(|text| !text.is_empty()).count();
    for quote in memchr::memchr_iter(b'"', json) {
        if left == 0 {
            break;
        }
        for ((mark, text), found) in (KNOWN..).zip(known).zip(&mut found) {
            let end = quote + text.len() + 1;
            let is_it = || json.get(end) == Some(&b'"') && json[quote + 1..end] == *text.as_bytes();
            if found.is_none() && !text.is_empty() && is_it() {
                *found = Some((quote, end + 1, mark));
                left -= 1;
            }
        }
    }
    found.sort_unstable();
    found
}

fn encode_hex(json: &[u8], out: &mut Vec<u8>) {
    let (mut from, mut probe) = (0, STRIDE - 1);
    while let Some(byte) = json.get(probe) {
        if nibble(*byte).is_none() {
            probe += STRIDE;
            continue;
        }
        let begin = json[from..probe].iter().rposition(|b| nibble(*b).is_none()).map_or(from, |at| from + at + 1);
        let end = json[probe..].iter().position(|b| nibble(*b).is_none()).map_or(json.len(), |at| probe + at);
        if end - begin >= RUN {
            let end = begin + ((end - begin) & !1).min(MAX_RUN);
            out.extend_from_slice(&json[from..begin]);
            out.extend([HEX, u8::try_from(end - begin).unwrap_or(u8::MAX)]);
            push_packed_hex(&json[begin..end], out);
            from = end;
            probe = from + STRIDE - 1;
        } else if let Some(begin) = uuid_start(json, from, begin, end) {
            out.extend_from_slice(&json[from..begin]);
            out.push(UUID);
            let groups = [0..8, 9..13, 14..18, 19..23, UUID_HEAD..UUID_HEAD + STRIDE];
            for group in groups {
                push_packed_hex(&json[begin + group.start..begin + group.end], out);
            }
            from = end;
            probe = from + STRIDE - 1;
        } else {
            probe = end + STRIDE - 1;
        }
    }
    out.extend_from_slice(&json[from..]);
}

/// Where the UUID begins, not before `from`, whose last group are the digits from `begin` to `end`.
fn uuid_start(json: &[u8], from: usize, begin: usize, end: usize) -> Option<usize> {
    let first = begin.checked_sub(UUID_HEAD).filter(|first| end - begin == STRIDE && *first >= from)?;
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let fits = |(at, byte): (usize, &u8)| if is_dash(at) { *byte == b'-' } else { nibble(*byte).is_some() };
    json[first..begin].iter().enumerate().all(fits).then_some(first)
}

/// The value of a digit. Capital letters are none: they would not come back.
fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// An even number of digits as half as many bytes.
fn push_packed_hex(digits: &[u8], out: &mut Vec<u8>) {
    let value = |digit: u8| nibble(digit).unwrap_or_default();
    out.extend(digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])));
}

fn push_hex_digits(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

/// Appends to `out` what was encoded, which gives no more than `limit` bytes.
pub(super) fn decode_identifiers(
    encoded: &[u8],
    known: &KnownTexts<'_>,
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    const CUT_SHORT: CodecError = CodecError("a mark without what belongs to it");
    let mut rest = encoded;
    while let Some(at) = rest.iter().position(|byte| (HEX..END).contains(byte)) {
        out.extend_from_slice(&rest[..at]);
        let (mark, after) = (rest[at], &rest[at + 1..]);
        rest = match mark {
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
            mark => {
                out.push(b'"');
                out.extend_from_slice(known[usize::from(mark - KNOWN)].as_bytes());
                out.push(b'"');
                after
            }
        };
        if out.len() > limit {
            return Err(CodecError("length differs"));
        }
    }
    out.extend_from_slice(rest);
    if out.len() > limit { Err(CodecError("length differs")) } else { Ok(()) }
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
        fn what_is_folded_comes_back(
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
        fn rubbish_is_an_error_and_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), limit in 0_usize..300) {
            let mut out = Vec::new();
            if decode_identifiers(&bytes, &KNOWN_TEXTS, limit, &mut out).is_ok() {
                prop_assert!(out.len() <= limit);
            }
        }
    }

    #[test]
    fn digests_uuids_and_what_the_head_has_take_half_or_a_byte() {
        let size = |text: &str| encoded(text).unwrap().len();
        assert_eq!(size(&"ab".repeat(32)), 2 + 32);
        assert_eq!(size("x637bcda8-b560-4853-b62b-33b2740d8a48x"), 1 + 17 + 1);
        assert_eq!(size(r#"{"name":"web-0","uid":"00655632-b6c1-4437-aa44-f3e239fcd34c"}"#), 8 + 1 + 7 + 1 + 1);
        // Only the first place, and only in quotes.
        assert_eq!(size(r#"web-0,"web-0","web-0""#), 6 + 1 + 1 + 7);
    }

    #[test]
    fn what_would_not_come_back_is_left() {
        for text in ["0123456789ABCDEF", "0123456789abcde", "637bcda8_b560_4853_b62b_33b2740d8a48"] {
            assert_eq!(encoded(text).unwrap(), text.as_bytes());
        }
        for mark in 1..END {
            assert_eq!(encoded(&format!("a{}b", char::from(mark))), None);
        }
    }
}
