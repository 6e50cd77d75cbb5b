//! Parsers of times and durations.

/// Parses a time (RFC 3339). Returns seconds since 1970 and nanoseconds; `None` if it is invalid.
pub(super) fn time(text: &str) -> Option<(i64, u32)> {
    let (date, clock) = text.split_once('T')?;
    let (sign, date) = date.strip_prefix('-').map_or((1, date), |date| (-1, date));
    let mut parts = date.split('-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let (zone_at, zone) = match clock.find(['Z', '+', '-']) {
        Some(at) => (at, &clock[at..]),
        None => return None,
    };
    let (clock, fraction) = clock[..zone_at].split_once('.').unwrap_or((&clock[..zone_at], ""));
    let mut parts = clock.split(':').map(number);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let is_valid = year <= i64::MAX / 1_000_000_000_000
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !is_valid {
        return None;
    }
    let seconds = days(sign * year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
    Some((seconds, nanos(fraction)?))
}

fn number(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Parses a time zone. Returns its offset in seconds.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some(sign * (number(hours)? * 3600 + number(minutes)? * 60)).filter(|offset| offset.abs() < 86_400)
}

/// Parses the digits of a fraction of a second. Returns nanoseconds.
fn nanos(fraction: &str) -> Option<u32> {
    let digits = fraction.get(..fraction.len().min(9))?;
    if digits.is_empty() {
        return Some(0);
    }
    number(fraction.get(9..).filter(|rest| !rest.is_empty()).unwrap_or("0"))?;
    let value = u32::try_from(number(digits)?).ok()?;
    Some(value * 10_u32.pow(9 - u32::try_from(digits.len()).ok()?))
}

/// Returns the days since 1970 of a date in the Gregorian calendar (Howard Hinnant's `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Parses a duration as Go's `time.ParseDuration` does. Returns nanoseconds.
pub(super) fn duration(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (value, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, after) = tail.split_at(unit_end);
        total = total.checked_add(part(value, unit)?)?;
        rest = after;
    }
    i64::try_from(if is_negative { -total } else { total }).ok()
}

/// Returns the nanoseconds of a number with a unit such as `ms`.
fn part(value: &str, unit: &str) -> Option<i128> {
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let read = |text: &str| if text.is_empty() { Some(0) } else { number(text).map(i128::from) };
    let digits = fraction.get(..fraction.len().min(15))?;
    let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
    Some(read(whole)? * unit + read(digits)? * unit / scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text;
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap().trim_matches('"').to_owned()
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(1024))]

        #[test]
        fn times_are_read_back(seconds in -62_167_219_200_i64..253_402_300_800, micros in 0..1_000_000_u32) {
            let whole = written(|out| text::time(out, seconds, None));
            prop_assert_eq!(time(&whole), Some((seconds, 0)), "{}", whole);
            let exact = written(|out| text::time(out, seconds, Some(micros.into())));
            prop_assert_eq!(time(&exact), Some((seconds, micros * 1_000)), "{}", exact);
        }

        #[test]
        fn durations_are_read_back(nanos in any::<i64>(), small in -2_000_000_000..2_000_000_000_i64) {
            for nanos in [nanos, small] {
                let text = written(|out| text::duration(out, nanos));
                prop_assert_eq!(duration(&text), Some(nanos), "{}", text);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in r"[-+]?[0-9.]{0,30}([-T:Z.+hmsuµn]|[0-9]{1,20}){0,16}") {
            let _ = (time(&text), duration(&text));
        }
    }

    #[test]
    fn other_forms_of_times_and_durations_are_read() {
        assert_eq!(time("2024-11-24T10:21:23.5+02:00"), Some((1_732_436_483, 500_000_000)));
        assert_eq!(time("1970-01-01T00:00:00.1234567891Z"), Some((0, 123_456_789)));
        assert_eq!(
            [duration("0"), duration("1.5h"), duration("-.5s")],
            [Some(0), Some(5_400_000_000_000), Some(-500_000_000)]
        );
        for text in
            ["", "2024-13-01T00:00:00Z", "2024-11-24", "2024-11-24T10:21:23", "2024-11-24T25:00:00Z", "é-1-1T0:0:0Z"]
        {
            assert_eq!(time(text), None, "{text}");
        }
        for text in ["", "1", "-", "1x", ".s", "9223372036854775808ns", "1.é"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
