//! Types of unquoted texts in YAML 1.1, as go-yaml v2 resolves them.

/// Returns whether all parsers read this unquoted text as a string. False for `1:30`, which some parsers read as a
/// number of base 60.
pub(super) fn is_string(text: &str) -> bool {
    match text.bytes().next() {
        None => false,
        Some(b'~' | b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O') => !is_word(text),
        Some(b'.') => !is_special_float(text) && !is_float(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let digits = text.replace('_', "");
            !(is_special_float(text)
                || is_timestamp(text)
                || is_integer(&digits)
                || is_float(&digits)
                || is_binary(&digits)
                || is_sexagesimal(text))
        }
        Some(_) => true,
    }
}

/// Returns whether the text is a boolean or null.
fn is_word(text: &str) -> bool {
    let is_cased = |word: &str| {
        let (first, rest) = text.split_at(1);
        let is_lower_or_title = first.eq_ignore_ascii_case(&word[..1]) && rest == &word[1..];
        is_lower_or_title || text == word.to_ascii_uppercase()
    };
    text == "~" || ["y", "yes", "true", "on", "n", "no", "false", "off", "null"].into_iter().any(is_cased)
}

fn is_special_float(text: &str) -> bool {
    matches!(text, ".nan" | ".NaN" | ".NAN")
        || matches!(text.strip_prefix(['+', '-']).unwrap_or(text), ".inf" | ".Inf" | ".INF")
}

/// Returns whether the text is a 64-bit integer, in any base of Go's integer literals.
fn is_integer(text: &str) -> bool {
    let (is_negative, is_signed, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, true, &text[1..]),
        Some(b'+') => (false, true, &text[1..]),
        _ => (false, false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return false;
    }
    match u64::from_str_radix(digits, radix) {
        Ok(number) if is_negative => number <= i64::MIN.unsigned_abs(),
        Ok(number) if is_signed => i64::try_from(number).is_ok(),
        parsed => parsed.is_ok(),
    }
}

/// Returns whether the text is a binary integer; its sign may follow the prefix `0b`.
fn is_binary(text: &str) -> bool {
    let is_signed = |digits: &str| i64::from_str_radix(digits, 2).is_ok();
    match (text.strip_prefix("0b"), text.strip_prefix("-0b")) {
        (Some(digits), _) => is_signed(digits) || u64::from_str_radix(digits, 2).is_ok(),
        (_, Some(digits)) => !digits.starts_with(['+', '-']) && is_signed(digits),
        _ => false,
    }
}

/// Returns whether the text is a decimal number whose value is finite.
fn is_float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = digits(rest);
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = digits(fraction);
        if whole + length == 0 {
            return false;
        }
        rest = &fraction[length..];
    } else if whole == 0 {
        return false;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let length = digits(exponent);
        if length == 0 {
            return false;
        }
        rest = &exponent[length..];
    }
    rest.is_empty() && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Returns whether the text is a number of base 60, such as `1:30`.
fn is_sexagesimal(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let is_first = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_digit()) && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    let is_part = |part: &str| match part.as_bytes() {
        [digit] => digit.is_ascii_digit(),
        [ten, digit] => matches!(ten, b'0'..=b'5') && digit.is_ascii_digit(),
        _ => false,
    };
    parts.next().is_some_and(is_first)
        && whole.contains(':')
        && parts.all(is_part)
        && fraction.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// Returns whether the text is a timestamp: a date, or a date and a time of day.
fn is_timestamp(text: &str) -> bool {
    timestamp(text).is_some()
}

fn timestamp(text: &str) -> Option<()> {
    let (year, rest) = text.split_at_checked(4)?;
    let year = number(year).filter(|_| year.len() == 4)?;
    let (month, rest) = short_number(rest.strip_prefix('-')?)?;
    let (day, rest) = short_number(rest.strip_prefix('-')?)?;
    let date = jiff::civil::Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    // As in Go, year zero is a leap year.
    date.ok()?;
    if rest.is_empty() {
        return Some(());
    }
    let has_zone = !rest.starts_with(' ');
    let (hour, rest) = short_number(rest.strip_prefix(['T', 't', ' '])?)?;
    let (minute, rest) = short_number(rest.strip_prefix(':')?)?;
    let (second, mut rest) = short_number(rest.strip_prefix(':')?)?;
    if hour >= 24 || minute >= 60 || second >= 60 {
        return None;
    }
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let digits = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if digits.len() == fraction.len() {
            return None;
        }
        rest = digits;
    }
    if !has_zone || rest == "Z" {
        return (rest.is_empty() || has_zone).then_some(());
    }
    let (hours, minutes) = rest.strip_prefix(['+', '-'])?.split_once(':')?;
    let is_two_digits = |text: &str| text.len() == 2 && number(text).is_some();
    let in_range = number(hours)? <= 24 && number(minutes)? <= 60;
    (is_two_digits(hours) && is_two_digits(minutes) && in_range).then_some(())
}

/// Parses the number of one or two digits at the start. Returns it with the text after it; `None` without a digit.
fn short_number(text: &str) -> Option<(u32, &str)> {
    let length = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    Some((number(digits)?, rest))
}

/// Parses a text of digits; `None` for any other text.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_types_are_not_strings() {
        for text in [
            "",
            "~",
            "y",
            "Y",
            "yes",
            "Yes",
            "YES",
            "true",
            "TRUE",
            "on",
            "n",
            "No",
            "off",
            "null",
            "Null",
            ".nan",
            ".Inf",
            "-.inf",
            "+.INF",
            "0",
            "-1",
            "+1",
            "1_000",
            "0x1F",
            "0o7",
            "0b1",
            "-0b11",
            "007",
            "08",
            "1e3",
            "1.",
            ".5",
            "-.5e-3",
            "18446744073709551615",
            "99999999999999999999",
            "1:30",
            "-1:59:59.5",
            "190:20:30",
            "2024-01-02",
            "2024-1-2",
            "2024-01-02T03:04:05Z",
            "2024-01-02t3:4:5.123+01:00",
            "2024-01-02 03:04:05",
            "2024-01-02T03:04:05,5Z",
            "0b-1",
        ] {
            assert!(!is_string(text), "{text:?}");
        }
    }

    #[test]
    fn other_texts_are_strings() {
        for text in [
            "a",
            "yEs",
            "TrUe",
            "nULL",
            "nope",
            "o",
            "+",
            "-",
            "-a",
            ".",
            "..",
            ".e5",
            "._5",
            "0x",
            "0xg",
            "1e",
            "1e999",
            "1.2.3",
            "1:60",
            "1:",
            ":1",
            "1:2:",
            "2024-13-01",
            "2024-02-30",
            "24-01-02",
            "2024-01-02T",
            "2024-01-02T25:00:00Z",
            "2024-01-02T03:04:05",
            "2024-01-02 03:04:05Z",
            "2024-01-02T03:04:05+1:00",
            "1a",
            "10.0.0.1",
            "1/2",
            "<<",
            "=",
            "é",
            "5m",
            "100Mi",
            "+-1",
            "--1",
            "0x-1",
            "-0b-1",
            "1.é",
            "202é-01-02",
        ] {
            assert!(is_string(text), "{text:?}");
        }
    }
}
