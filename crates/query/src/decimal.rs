//! Exact comparison of JSON numbers and Kubernetes quantities.

use std::cmp::Ordering;

/// An exact decimal number `±digits × 10^exponent`. The digits are an integer below 2¹²⁸, so 38 digits always fit.
///
/// Normalized: no trailing zero digit and only one zero, so that equal numbers have equal fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Decimal {
    negative: bool,
    digits: u128,
    exponent: i32,
}

/// Longest text that is parsed as a quantity, in bytes. It bounds the cost.
const MAX_TEXT: usize = 400;
/// Largest exponent in a text, so that sums of exponents do not overflow an `i32`.
const MAX_EXPONENT: i32 = 1_000_000;

impl Decimal {
    fn normal(negative: bool, mut digits: u128, mut exponent: i32) -> Self {
        if digits == 0 {
            return Self { negative: false, digits: 0, exponent: 0 };
        }
        while digits.is_multiple_of(10) {
            digits /= 10;
            exponent += 1;
        }
        Self { negative, digits, exponent }
    }

    /// Parses a Kubernetes quantity: an optional sign, digits with an optional point, and an optional suffix
    /// (`n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei`) or exponent (`e3`, `E-3`).
    ///
    /// Returns `None` for other texts, and if the digits times a binary suffix reach 2¹²⁸. Kubernetes rounds up values
    /// below a billionth and caps values at 2⁶³; this parser does neither.
    pub(super) fn quantity(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            b'0'..=b'9' | b'.' => (false, text),
            _ => return None,
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (digits, scale) = unsigned(number)?;
        let (exponent, shift) = suffix_of(suffix)?;
        let digits = digits.checked_mul(1 << shift)?;
        Some(Self::normal(negative, digits, exponent - scale))
    }

    /// Converts a JSON number. A fraction becomes the shortest decimal that reads back as the same `f64`, so digits
    /// after the 17th are lost.
    pub(super) fn number(number: Num) -> Self {
        match number {
            Num::Int(int) => Self::normal(int < 0, int.unsigned_abs(), 0),
            Num::Float(float) => Self::float(float).unwrap_or(Self::normal(false, 0, 0)),
        }
    }

    /// Converts a float; `None` if it is not finite, which JSON cannot express.
    fn float(float: f64) -> Option<Self> {
        if !float.is_finite() {
            return None;
        }
        let text = format!("{float:e}");
        let (number, exponent) = text.split_once('e')?;
        let (digits, scale) = unsigned(number.trim_start_matches('-'))?;
        Some(Self::normal(float.is_sign_negative(), digits, exponent.parse::<i32>().ok()? - scale))
    }

    /// Compares the absolute values. Neither number may be zero.
    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        let top = |d: &Self| d.exponent + i32::try_from(d.digits.ilog10()).unwrap_or(0);
        top(self).cmp(&top(other)).then_with(|| {
            // The leading digits have the same place value. Scales the number with the greater exponent. If that
            // overflows, this number is the greater.
            let scaled = |d: &Self, by: i32| 10_u128.checked_pow(by.unsigned_abs())?.checked_mul(d.digits);
            let by = self.exponent - other.exponent;
            match by.cmp(&0) {
                Ordering::Equal => self.digits.cmp(&other.digits),
                Ordering::Greater => scaled(self, by).map_or(Ordering::Greater, |digits| digits.cmp(&other.digits)),
                Ordering::Less => scaled(other, by).map_or(Ordering::Less, |digits| self.digits.cmp(&digits)),
            }
        })
    }

    /// Returns -1, 0 or 1.
    fn sign(&self) -> i8 {
        match (self.digits, self.negative) {
            (0, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| match self.sign() {
            0 => Ordering::Equal,
            1 => self.cmp_magnitude(other),
            _ => other.cmp_magnitude(self),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Parses digits with at most one point. Returns the digits as an integer, and the number of digits after the point.
/// `None` if there is no digit, a second point, or more digits than fit.
fn unsigned(text: &str) -> Option<(u128, i32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digit = |so_far: u128, b: u8| so_far.checked_mul(10)?.checked_add(u128::from(b - b'0'));
    let digits = whole.bytes().chain(fraction.bytes()).try_fold(0, digit)?;
    Some((digits, i32::try_from(fraction.len()).ok()?))
}

/// Returns the power of ten and the power of two that a suffix means; `None` for an unknown suffix.
fn suffix_of(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (exponent.abs() <= MAX_EXPONENT).then_some((exponent, 0))?
        }
    })
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Num {
    /// A 64-bit integer.
    Int(i128),
    /// A number that is not a 64-bit integer.
    Float(f64),
}

impl Num {
    pub(super) fn of(number: &serde_json::Number) -> Self {
        let int = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        int.map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
    }

    /// Compares by value; `None` if `float` is NaN.
    pub(super) fn cmp_float(self, float: f64) -> Option<Ordering> {
        match self {
            Self::Float(own) => own.partial_cmp(&float),
            Self::Int(_) if float.is_nan() => None,
            Self::Int(int) => Some(cmp_int(int, float)),
        }
    }
}

/// Compares an integer in the range of `i64` or `u64` with a float that is not NaN. If the cast of the float saturates,
/// the float is beyond this range, so the order is still right.
fn cmp_int(int: i128, float: f64) -> Ordering {
    #[expect(clippy::cast_possible_truncation)]
    let whole = float.trunc() as i128;
    int.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Decimal {
        Decimal::quantity(text).unwrap_or_else(|| panic!("{text} is a quantity"))
    }

    #[test]
    fn equal_quantities_are_equal_in_any_notation() {
        for equal in [
            &["1", "1000m", "1.0", "+1", "1e0", "1000000u", "0.001k", "01", "1.", "1000000000n", "10E-1"][..],
            &["1Ki", "1024", "1.024k", "1024000m", "0.0009765625Mi"],
            &["0", "-0", "0Ki", "0.000", "0e500", ".0", "-0.0m"],
            &["1E", "1e18", "1000P"],
            &["1.5Gi", "1536Mi", "1610612736"],
            &["9223372036854775807", "9223372036854775807000m"],
        ] {
            for text in equal {
                assert_eq!(quantity(text), quantity(equal[0]), "{text}");
                assert_eq!(quantity(text).cmp(&quantity(equal[0])), Ordering::Equal, "{text}");
            }
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let rising = [
            "-1e900000",
            "-2Ki",
            "-2k",
            "-1",
            "-1m",
            "-1n",
            "0",
            "1e-999999",
            "1n",
            "1u",
            "1m",
            "999m",
            "1",
            "1001m",
            "1k",
            "1Ki",
            "999k",
            "1M",
            "1Mi",
            "1G",
            "1Gi",
            "9007199254740992",
            "9007199254740993",
            "1E",
            "1Ei",
            "9.999999999999999999999999999999999999e37",
            "340282366920938463463374607431768211455",
            "4e38",
            "1e999999",
        ];
        for (i, a) in rising.iter().enumerate() {
            for (j, b) in rising.iter().enumerate() {
                assert_eq!(quantity(a).cmp(&quantity(b)), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn invalid_quantity_is_none() {
        for text in [
            "",
            "+",
            "-",
            ".",
            "m",
            "1.2.3",
            "1 ",
            " 1",
            "1KiB",
            "1K",
            "1ki",
            "1e",
            "1e+",
            "1e1.5",
            "--1",
            "1_000",
            "a1",
            "1e2147483648",
            "1e9999999",
            "1e1000001",
            "é",
            "1é",
            "0x10",
            "1e3Ki",
            "2024-01-01",
            "12345678901234567890123456789012345678901",
            "99999999999999999999999999Ei",
        ] {
            assert_eq!(Decimal::quantity(text), None, "{text:?}");
        }
        assert_eq!(Decimal::quantity(&"0".repeat(401)), None);
    }

    #[test]
    fn fraction_keeps_its_written_digits() {
        for (float, text) in [(0.1, "100m"), (1.5, "1500m"), (1e21, "1e21"), (-2.5e-7, "-250n"), (5e-324, "5e-324")] {
            assert_eq!(Decimal::number(Num::Float(float)), quantity(text), "{text}");
        }
        assert_eq!(Decimal::number(Num::Int(i128::from(u64::MAX))), quantity("18446744073709551615"));
    }

    #[test]
    fn integer_compares_with_fraction_without_loss() {
        for (int, float, expected) in [
            (9_007_199_254_740_993, 9_007_199_254_740_992.0, Ordering::Greater),
            (i128::from(u64::MAX), 18_446_744_073_709_551_616.0, Ordering::Less),
            (2, 2.5, Ordering::Less),
            (-2, -2.5, Ordering::Greater),
            (-3, -2.5, Ordering::Less),
            (7, 7.0, Ordering::Equal),
            (0, 1e300, Ordering::Less),
            (0, f64::NEG_INFINITY, Ordering::Greater),
        ] {
            assert_eq!(Num::Int(int).cmp_float(float), Some(expected), "{int} {float}");
        }
        assert_eq!(Num::Int(0).cmp_float(f64::NAN), None);
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn decimals_compare_like_integers(
            a in any::<i64>(), b in any::<i64>(), shift_a in 0_u32..12, shift_b in 0_u32..12,
        ) {
            let value = |n: i64, shift: u32| i128::from(n) * 10_i128.pow(shift);
            let text = |n: i64, shift: u32| quantity(&format!("{n}e{shift}"));
            prop_assert_eq!(text(a, shift_a).cmp(&text(b, shift_b)), value(a, shift_a).cmp(&value(b, shift_b)));
        }

        #[test]
        fn quantity_parser_never_panics(text in "[-+]?[0-9.]{0,45}[eE]?[-+]?[0-9a-zA-Z]{0,12}|\\PC{0,8}") {
            if let Some(one) = Decimal::quantity(&text) {
                prop_assert_eq!(one.cmp(&one), Ordering::Equal);
            }
        }
    }
}
