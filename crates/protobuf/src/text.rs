//! Writers of JSON values, as Go's `encoding/json` writes them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::error::ConvertError;

/// Writes a string. Escapes `<`, `>` and `&` too, and replaces bytes that are not UTF-8, as Go does.
#[inline]
pub(super) fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    if is_plain(text) {
        out.extend_from_slice(text);
    } else {
        escaped(out, text);
    }
    out.push(b'"');
}

/// Returns whether a string has neither bytes that need an escape nor bytes that must be checked for valid UTF-8.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    // A block is compared as a whole, without a branch for each byte.
    let any_special = |bytes: &[u8; 16]| bytes.iter().fold(false, |any, byte| any | is_special(*byte));
    let (blocks, rest) = text.as_chunks::<16>();
    if blocks.iter().any(any_special) {
        return false;
    }
    match text.last_chunk::<16>() {
        Some(last) => !any_special(last),
        None => !rest.iter().any(|byte| is_special(*byte)),
    }
}

/// Returns whether a byte is a control character, one of `"&\<>`, or not ASCII.
#[inline]
#[expect(clippy::needless_bitwise_bool, reason = "without branches, a whole block is compared at once")]
fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte & 0xfb == 0x22) | (byte & 0xfd == 0x3c) | (byte == b'\\') | (byte >= 0x80)
}

#[cold]
fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\u{8}' => out.extend_from_slice(b"\\b"),
                '\u{c}' => out.extend_from_slice(b"\\f"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => unicode(out, character),
                other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for _ in chunk.invalid() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
}

fn unicode(out: &mut Vec<u8>, character: char) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(DIGITS[(u32::from(character) >> shift & 15) as usize]);
    }
}

pub(super) fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or_default();
    out.truncate(start + written);
    out.push(b'"');
}

#[inline]
pub(super) fn integer(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes a floating point number.
///
/// # Errors
/// If the number is infinite or NaN, which JSON cannot express.
pub(super) fn double(out: &mut Vec<u8>, number: f64) -> Result<(), ConvertError> {
    if !number.is_finite() {
        return Err(ConvertError::Malformed("a number that is not finite"));
    }
    if number == 0.0 || (1e-6..1e21).contains(&number.abs()) {
        append(out, format_args!("{number}"));
        return Ok(());
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    append(out, format_args!("{digits}e{sign}{exponent}"));
    Ok(())
}

/// Writes a time in UTC (RFC 3339), with microseconds if they are given.
pub(super) fn time(out: &mut Vec<u8>, seconds: i64, micros: Option<i64>) {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    if (0..10_000).contains(&year) {
        let mut text = *b"\"0000-00-00T00:00:00";
        let parts = [year / 100, year % 100, month, day, hour, minute, second];
        for (at, part) in [1, 3, 6, 9, 12, 15, 18].into_iter().zip(parts) {
            text[at..at + 2].copy_from_slice(&two_digits(part));
        }
        out.extend_from_slice(&text);
    } else {
        let sign = if year < 0 { "-" } else { "" };
        append(out, format_args!("\"{sign}{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}", year.abs()));
    }
    if let Some(micros) = micros {
        append(out, format_args!(".{micros:06}"));
    }
    out.extend_from_slice(b"Z\"");
}

fn two_digits(number: i64) -> [u8; 2] {
    let digit = |number: i64| b'0' + u8::try_from(number.rem_euclid(10)).unwrap_or(0);
    [digit(number / 10), digit(number)]
}

/// Returns the date of a number of days since 1970, in the Gregorian calendar (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) =
        (day_of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Writes a duration as Go's `time.Duration` does: `1h2m3.5s`.
pub(super) fn duration(out: &mut Vec<u8>, nanos: i64) {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let text = match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = decimal(rest, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    append(out, format_args!("\"{sign}{text}\""));
}

/// Returns `number / unit` as a decimal without trailing zeros.
fn decimal(number: u64, unit: u64) -> String {
    let (whole, part) = (number / unit, number % unit);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let text = format!("{whole}.{part:0width$}");
    text.trim_end_matches('0').to_owned()
}

/// Writes JSON without its white space, and with the escapes of [`string`].
///
/// # Errors
/// The input is not exactly one JSON value.
pub(super) fn raw_json(out: &mut Vec<u8>, json: &[u8]) -> Result<(), ConvertError> {
    // Any depth of nesting is accepted, since the parser ignores values without recursion.
    serde_json::from_slice::<serde::de::IgnoredAny>(json)
        .map_err(|_| ConvertError::Malformed("embedded JSON that is invalid"))?;
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, byte) in json.iter().enumerate() {
        match byte {
            b'<' | b'>' | b'&' => unicode(out, char::from(*byte)),
            // U+2028 and U+2029 are E2 80 A8 and E2 80 A9.
            0xa8 | 0xa9 if json[..at].ends_with(&[0xe2, 0x80]) => {
                out.truncate(out.len() - 2);
                unicode(out, if *byte == 0xa8 { '\u{2028}' } else { '\u{2029}' });
            }
            b' ' | b'\t' | b'\r' | b'\n' if !in_string => {}
            byte => out.push(*byte),
        }
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            _ => {}
        }
    }
    Ok(())
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    struct Sink<'o>(&'o mut Vec<u8>);
    impl std::fmt::Write for Sink<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Ignore the error: a vector accepts everything.
    let _ = Sink(out).write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_go_does() {
        let text = |text: &[u8]| written(|out| string(out, text));
        assert_eq!(text(b"plain text of more than sixteen bytes"), r#""plain text of more than sixteen bytes""#);
        assert_eq!(
            text("<é&>\"\\\u{2028}\u{7f}\u{fffd}".as_bytes()),
            "\"\\u003cé\\u0026\\u003e\\\"\\\\\\u2028\u{7f}\u{fffd}\""
        );
        assert_eq!(text(b"\0\x1f\x08\x0c\n\r\t"), r#""\u0000\u001f\b\f\n\r\t""#);
        assert_eq!(text(b"a\xffb\xe2\x80"), r#""a\ufffdb\ufffd\ufffd""#);
        for at in 0..40 {
            let mut bytes = [b'a'; 40];
            bytes[at] = b'<';
            assert!(text(&bytes).contains("\\u003c"), "at {at}");
        }
    }

    #[test]
    fn numbers_times_and_durations_are_written_as_go_does() {
        let number = |number| written(|out| double(out, number).unwrap());
        assert_eq!([number(0.1), number(1e20), number(1e21)], ["0.1", "100000000000000000000", "1e+21"]);
        assert_eq!([number(-0.0), number(1e-7), number(5e-324)], ["-0", "1e-7", "5e-324"]);
        assert!(double(&mut Vec::new(), f64::NAN).is_err() && double(&mut Vec::new(), f64::INFINITY).is_err());
        let at = |seconds, micros| written(|out| time(out, seconds, micros));
        assert_eq!(at(1_732_436_483, None), "\"2024-11-24T08:21:23Z\"");
        assert_eq!(at(-62_135_596_799, Some(42)), "\"0001-01-01T00:00:01.000042Z\"");
        assert_eq!(at(951_782_400, None), "\"2000-02-29T00:00:00Z\"");
        assert_eq!(at(253_402_300_799, None), "\"9999-12-31T23:59:59Z\"");
        assert_eq!(at(253_402_300_800, None), "\"10000-01-01T00:00:00Z\"");
        assert_eq!(at(-62_167_219_201, None), "\"-0001-12-31T23:59:59Z\"");
        let _ = (at(i64::MAX, None), at(i64::MIN, None));
        let whole = |number| written(|out| integer(out, number));
        assert_eq!([whole(0), whole(-7), whole(i64::MIN)], ["0", "-7", "-9223372036854775808"]);
        let lasts = |nanos| written(|out| duration(out, nanos));
        assert_eq!([lasts(0), lasts(1500), lasts(-1_500_000)], ["\"0s\"", "\"1.5µs\"", "\"-1.5ms\""]);
        assert_eq!([lasts(3_600_000_000_000), lasts(90_500_000_000)], ["\"1h0m0s\"", "\"1m30.5s\""]);
        assert_eq!(lasts(i64::MIN), "\"-2562047h47m16.854775808s\"");
    }

    #[test]
    fn embedded_json_is_compacted_and_validated() {
        let raw = |json: &str| written(|out| raw_json(out, json.as_bytes()).unwrap());
        assert_eq!(raw("{ \"a\\\" <\" : [ 1 , 2.50 ]\n}"), r#"{"a\" \u003c":[1,2.50]}"#);
        assert_eq!(raw("\"x\u{2029}\\\\\""), "\"x\\u2029\\\\\"");
        for json in ["", "1,\"spec\":{}", "[}", "{} {}", "{", "\"\n\""] {
            assert!(matches!(raw_json(&mut Vec::new(), json.as_bytes()), Err(ConvertError::Malformed(_))), "{json}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(raw(&deep), deep);
    }
}
