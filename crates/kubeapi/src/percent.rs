//! Percent-decoding of paths and queries.

use crate::Status;

/// Decodes the escapes of one part of a path.
///
/// # Errors
/// [`Status`] of code 400 for an escape that is cut short or not hexadecimal, and for bytes that are not UTF-8.
pub(crate) fn decode_segment(text: &str) -> Result<String, Status> {
    let bytes = decode(text, false)
        .map_err(|escape| Status::bad_request(format!("invalid URL escape {}", crate::quote::Quoted(&escape))))?;
    String::from_utf8(bytes).map_err(|_| Status::bad_request("the path of the request is not UTF-8"))
}

/// Decodes the escapes of a name or a value of a query, where `+` is a space. `None` for a wrong escape.
pub(crate) fn decode_query(text: &str) -> Option<Vec<u8>> {
    decode(text, true).ok()
}

/// Decodes the escapes of a text. The error is the invalid escape, at most three characters.
fn decode(text: &str, is_query: bool) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let value = hex(rest.first()).zip(hex(rest.get(1)));
                let Some((high, low)) = value else {
                    let shown = rest.get(..2).unwrap_or(rest);
                    return Err(format!("%{}", String::from_utf8_lossy(shown)));
                };
                decoded.push(high << 4 | low);
                rest = &rest[2..];
            }
            b'+' if is_query => decoded.push(b' '),
            _ => decoded.push(byte),
        }
    }
    Ok(decoded)
}

fn hex(digit: Option<&u8>) -> Option<u8> {
    let digit = char::from(*digit?).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(decode_segment("a%2Fb%2fc%25d%C3%A9+").unwrap(), "a/b/c%d\u{e9}+");
        assert_eq!(decode_query("a+b%2B%20").unwrap(), b"a b+ ");
    }

    #[test]
    fn wrong_escapes_are_refused_with_their_text() {
        for (text, message) in [
            ("a%", r#"invalid URL escape "%""#),
            ("a%2", r#"invalid URL escape "%2""#),
            ("a%zz9", r#"invalid URL escape "%zz""#),
            ("%+1", r#"invalid URL escape "%+1""#),
            ("%ff", "the path of the request is not UTF-8"),
        ] {
            let status = decode_segment(text).unwrap_err();
            assert_eq!((status.code, status.message.as_str()), (400, message), "{text}");
        }
        assert_eq!(decode_query("%f"), None);
        assert_eq!(decode_query("%ff").unwrap(), [0xff]);
    }
}
