//! Timestamps and durations, as kubectl shows them.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::{Date, Time as Clock};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Start of year 1, Go's zero time.
const ZERO: i64 = -62_135_596_800;

/// Greatest duration that Go represents, in seconds.
const LONGEST: i64 = i64::MAX / 1_000_000_000;

/// A timestamp in whole seconds since 1970; `None` if it is unset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Time(pub(super) Option<i64>);

impl Time {
    /// Returns the time since the timestamp, or `<unknown>` if it is unset.
    pub(super) fn age(self, now: i64) -> String {
        self.0.map_or_else(|| "<unknown>".to_owned(), |then| human_duration(now.saturating_sub(then)))
    }

    /// Returns the timestamp as text in UTC. An unset timestamp is shown as the start of year 1, Go's zero time.
    pub(super) fn utc(self) -> String {
        let timestamp = Timestamp::from_second(self.0.unwrap_or(ZERO)).unwrap_or_default();
        timestamp.to_string()
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Timestamp;

        impl Visitor<'_> for Timestamp {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a timestamp of RFC 3339 or null")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                parse_timestamp(text).ok_or_else(|| E::custom("a timestamp must be of RFC 3339"))
            }

            fn visit_unit<E: Error>(self) -> Result<Time, E> {
                Ok(Time::default())
            }
        }

        deserializer.deserialize_any(Timestamp)
    }
}

/// Parses a timestamp of RFC 3339. The start of year 1, Go's zero time, gives an unset [`Time`]. A fraction of a second
/// is dropped. `None` if invalid.
pub(super) fn parse_timestamp(text: &str) -> Option<Time> {
    let (date, rest) = text.split_at_checked(10)?;
    let (clock, mut rest) = rest.strip_prefix('T')?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == fraction.len() {
            return None;
        }
    }
    let offset = match rest.strip_prefix(['+', '-']) {
        None if rest == "Z" => 0,
        None => return None,
        Some(offset) => {
            let [hours, minutes] = numbers(offset, ':', [2, 2])?;
            let seconds = i64::from(hours) * HOUR + i64::from(minutes) * MINUTE;
            if hours > 24 || minutes > 60 {
                return None;
            }
            if rest.starts_with('-') { -seconds } else { seconds }
        }
    };
    let short = |number: i16| i8::try_from(number).ok();
    let date = Date::new(year, short(month)?, short(day)?).ok()?;
    let clock = Clock::new(short(hour)?, short(minute)?, short(second)?, 0).ok()?;
    let since_epoch = date.to_datetime(clock).duration_since(Date::constant(1970, 1, 1).to_datetime(Clock::midnight()));
    let seconds = since_epoch.as_secs() - offset;
    let is_zero = seconds == ZERO;
    Some(Time((!is_zero).then_some(seconds)))
}

/// Parses `N` numbers with separators between them. `lengths` has the number of digits of each.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[i16; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next()?;
        let is_number = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok()).flatten()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Returns a duration with one or two units, as kubectl shows ages: `5s`, `3m20s`, `5h`, `3d4h`, `2y34d`. Durations
/// below -1 s are `<invalid>`.
pub(super) fn human_duration(seconds: i64) -> String {
    let seconds = seconds.min(LONGEST);
    let units = |number: i64, unit, rest: i64, small| {
        if rest == 0 { format!("{number}{unit}") } else { format!("{number}{unit}{rest}{small}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => units(seconds / MINUTE, 'm', seconds % MINUTE, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => units(seconds / HOUR, 'h', seconds / MINUTE % 60, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => units(seconds / DAY, 'd', seconds / HOUR % 24, 'h'),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => units(seconds / YEAR, 'y', seconds / DAY % 365, 'd'),
        252_288_000.. => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_or_two_units() {
        for (seconds, expected) in [
            (i64::MIN, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_799, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_199, "7d23h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_287_999, "7y364d"),
            (252_288_000, "8y"),
            (i64::MAX, "292y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn timestamps_of_rfc_3339_are_parsed() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2024-02-29T12:30:45Z", Some(1_709_209_845)),
            ("2024-02-29T12:30:45.999999Z", Some(1_709_209_845)),
            ("2024-02-29T12:30:45+01:30", Some(1_709_204_445)),
            ("2024-02-29T12:30:45-01:30", Some(1_709_215_245)),
            ("1969-12-31T23:59:59.5Z", Some(-1)),
            ("0001-01-01T00:00:00Z", None),
        ] {
            assert_eq!(parse_timestamp(text), Some(Time(expected)), "{text}");
        }
        for text in [
            "",
            "2024",
            "2024-02-30T00:00:00Z",
            "2024-02-29 12:30:45Z",
            "2024-02-29T12:30:45",
            "2024-02-29T12:30:45z",
            "2024-02-29T24:00:00Z",
            "2024-02-29T12:30:60Z",
            "2024-02-29T12:30:45.Z",
            "2024-02-29T12:30:45Z ",
            "2024-02-29T12:30:45+1:00",
            "2024-02-2éT12:30:45Z",
            "+024-02-29T12:30:45Z",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn unset_timestamp_has_no_age() {
        assert_eq!(Time(None).age(5), "<unknown>");
        assert_eq!(Time(Some(0)).age(125), "2m5s");
        assert_eq!(Time(Some(i64::MIN)).age(i64::MAX), "292y");
    }
}
