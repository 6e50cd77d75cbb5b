//! Text of floats as Go writes it, so that answers equal kube-apiserver's.

/// Returns a float in the shortest form of Go's `%g`: in exponent notation if its decimal exponent is below -4 or above
/// 5, otherwise in plain decimals.
pub(crate) fn go_float(number: f64) -> String {
    exponential(number, -4, 6, 2)
}

/// Returns a float as Go's JSON encoder writes it: in exponent notation if its decimal exponent is below -6 or above
/// 20, otherwise in plain decimals.
pub(crate) fn json_float(number: f64) -> String {
    exponential(number, -6, 21, 1)
}

/// Returns a float in its shortest form. Uses exponent notation if the decimal exponent is less than `least`, or `end`
/// or more. The exponent then has at least `width` digits.
fn exponential(number: f64, least: i32, end: i32, width: usize) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(least..end).contains(&exponent) && number != 0.0 => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:0width$}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_have_the_form_of_go() {
        for (number, plain, json) in [
            (0.0, "0", "0"),
            (1.0, "1", "1"),
            (0.1, "0.1", "0.1"),
            (123_456.0, "123456", "123456"),
            (1e6, "1e+06", "1000000"),
            (-1.25e20, "-1.25e+20", "-125000000000000000000"),
            (1e21, "1e+21", "1e+21"),
            (0.0001, "0.0001", "0.0001"),
            (0.000_01, "1e-05", "0.00001"),
            (1e-7, "1e-07", "1e-7"),
            (1.5e300, "1.5e+300", "1.5e+300"),
        ] {
            assert_eq!(go_float(number), plain);
            assert_eq!(json_float(number), json);
        }
    }
}
