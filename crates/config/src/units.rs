//! Durations and sizes in the notation of the configuration: `10m`, `1h30m`, `64MiB`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Duration such as `500ms`, `10m`, `24h` or `1h30m`: whole numbers with units, the larger unit first, each once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HumanDuration(pub Duration);

/// Number of bytes such as `64MiB`, `2GiB`, `10MB` or `1024`.
///
/// `KiB`, `MiB`, `GiB`, `TiB` (and Kubernetes' `Ki`, `Mi`, `Gi`, `Ti`) count in 1024, `kB`, `MB`, `GB`, `TB` in 1000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ByteSize(pub u64);

/// Text that is not a duration or a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: {problem}")]
#[non_exhaustive]
pub struct InvalidUnit {
    /// `duration` or `size`.
    pub what: &'static str,
    /// The rejected text.
    pub text: String,
    /// Description of the problem and its correction.
    pub problem: &'static str,
}

const DURATION_SHAPE: &str = "write a whole number and a unit (ms, s, m, h, d), e.g. \"500ms\", \"10m\" or \"1h30m\"";
const SIZE_SHAPE: &str = "write a whole number and a unit (KiB, MiB, GiB, kB, MB, GB), e.g. \"64MiB\"";

/// Units of durations in milliseconds, largest first.
const DURATIONS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Units of sizes in bytes. The first four, largest first, are used for display.
const SIZES: [(&str, u64); 15] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("", 1),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("KB", 1000),
];

impl FromStr for HumanDuration {
    type Err = InvalidUnit;

    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        let wrong = |problem| InvalidUnit { what: "duration", text: text.to_owned(), problem };
        let mut rest = text.trim();
        if rest == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let mut millis = 0_u64;
        let mut larger = u64::MAX;
        while !rest.is_empty() {
            let (number, tail) = split_number(rest).ok_or_else(|| wrong(DURATION_SHAPE))?;
            let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let Some(&(_, scale)) = DURATIONS.iter().find(|(name, _)| *name == unit) else {
                return Err(wrong(DURATION_SHAPE));
            };
            if scale >= larger {
                return Err(wrong("write the larger unit first and each unit once, e.g. \"1h30m\""));
            }
            let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
            millis = part.and_then(|p| millis.checked_add(p)).ok_or_else(|| wrong("the number is too large"))?;
            (larger, rest) = (scale, tail);
        }
        if larger == u64::MAX { Err(wrong(DURATION_SHAPE)) } else { Ok(Self(Duration::from_millis(millis))) }
    }
}

impl fmt::Display for HumanDuration {
    /// Formats the duration in the form `1h30m`, with milliseconds as the smallest unit; zero is `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.write_str("0s");
        }
        for (unit, scale) in DURATIONS {
            if millis >= scale {
                write!(f, "{}{unit}", millis / scale)?;
                millis %= scale;
            }
        }
        Ok(())
    }
}

impl FromStr for ByteSize {
    type Err = InvalidUnit;

    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        let wrong = |problem| InvalidUnit { what: "size", text: text.to_owned(), problem };
        let (number, unit) = split_number(text.trim()).ok_or_else(|| wrong(SIZE_SHAPE))?;
        let unit = unit.trim_start();
        let Some(&(_, scale)) = SIZES.iter().find(|(name, _)| *name == unit) else { return Err(wrong(SIZE_SHAPE)) };
        let bytes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(scale));
        bytes.map(Self).ok_or_else(|| wrong("the number is too large"))
    }
}

impl fmt::Display for ByteSize {
    /// Formats the size in the largest binary unit that divides it without a remainder, such as `64MiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, scale): &&(&str, u64)| self.0 >= *scale && self.0.is_multiple_of(*scale);
        let (unit, scale) = SIZES[..4].iter().find(fits).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

/// Splits a text after its leading digits. Returns `None` without digits.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_with_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("10m", 600_000),
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1s500ms", 1500),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(HumanDuration(Duration::from_millis(millis))), "{text}");
        }
        for bad in ["", "10", "m", "1.5h", "10 m", "30m1h", "1m1m", "-1s", "1M", "99999999999999999999s", "5w", "ü"] {
            assert!(bad.parse::<HumanDuration>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_parse_with_units() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("64Mi", 64 << 20),
            ("2GiB", 2 << 30),
            ("10MB", 10_000_000),
            ("1024", 1024),
            ("1 KiB", 1024),
            ("7B", 7),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "MiB", "1.5GiB", "-1", "5mb", "5b", "99999999999TiB", "1XB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn displayed_values_parse_back() {
        for millis in [0, 1, 999, 1000, 5_400_000, 86_399_999, 90_061_001] {
            let duration = HumanDuration(Duration::from_millis(millis));
            assert_eq!(duration.to_string().parse(), Ok(duration));
        }
        for bytes in [0, 1, 1023, 1024, 1025, 1 << 20, (1 << 30) + 1, 5 << 40, u64::MAX] {
            let size = ByteSize(bytes);
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        assert_eq!(HumanDuration(Duration::from_secs(5400)).to_string(), "1h30m");
        assert_eq!(ByteSize(64 << 20).to_string(), "64MiB");
    }
}
