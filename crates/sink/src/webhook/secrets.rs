//! Secrets of a webhook, and their removal from a receiver's text.
//!
//! Error pages often repeat the request's address or headers, in the page's encoding (URL, HTML, JSON).

use std::fmt;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;

use super::WebhookParams;
use informer_hub_types::printable;

/// Minimum characters of a text that is hidden, such as a path segment or a header's value. Shorter texts are often
/// common words.
const MIN_PART: usize = 6;
/// Minimum characters of a complete path or query that is hidden.
const MIN_WHOLE: usize = 4;
/// Number of nested encodings in which a secret is recognized, e.g. percent-encoding within HTML within JSON.
const DEPTH: usize = 3;
const HIDDEN: &str = "…";

/// Character of a decoded text, and its byte range in the original text.
type Decoded = (char, Range<usize>);

/// Texts that must not be shown: parts of the address, values of headers, and signing keys. `Debug` shows none.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<Vec<char>>);

impl Secrets {
    /// Returns the secrets in a webhook's parameters.
    pub(super) fn of(params: &WebhookParams) -> Self {
        let mut secrets = Self::of_url(&params.url.0);
        for value in params.headers.values().values() {
            secrets.add_header(&String::from_utf8_lossy(value.as_bytes()));
        }
        for key in params.signing_keys.iter().flat_map(super::SigningKeys::texts) {
            secrets.add(&key, MIN_PART);
        }
        secrets
    }

    /// Returns the secrets of an address: path, query, credentials and their parts.
    pub(super) fn of_url(url: &Url) -> Self {
        let mut secrets = Self::default();
        secrets.add(url.path().trim_matches('/'), MIN_WHOLE);
        url.path().split('/').for_each(|segment| secrets.add(segment, MIN_PART));
        let query = url.query().unwrap_or_default();
        secrets.add(query, MIN_WHOLE);
        for pair in query.split('&') {
            let value = pair.split_once('=').map_or(pair, |(_, value)| value);
            secrets.add(value, MIN_PART);
            secrets.add(&value.replace('+', " "), MIN_PART);
        }
        let (user, password) = (url.username(), url.password().unwrap_or_default());
        secrets.add(user, MIN_PART);
        secrets.add(password, MIN_PART);
        if !password.is_empty() {
            let plain = |text: &str| text_of(&decoded(&characters(text)));
            secrets.add(&STANDARD.encode(format!("{}:{}", plain(user), plain(password))), MIN_PART);
        }
        secrets
    }

    /// Adds a header's value and its parts: `Bearer <token>`, `Basic <base64 of user and password>`, `name=<value>; …`.
    fn add_header(&mut self, value: &str) {
        self.add(value, MIN_PART);
        let mut words = value.split([' ', ';', ',']).filter(|word| !word.is_empty()).peekable();
        // The first of several words is usually a scheme such as `Bearer`.
        let first = words.next().filter(|word| words.peek().is_none() || word.contains('='));
        for word in first.into_iter().chain(words) {
            self.add(word, MIN_PART);
            if let Some((_, value)) = word.split_once('=') {
                self.add(value.trim_matches('"'), MIN_PART);
            }
            let pair = STANDARD.decode(word).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((_, password)) = pair.as_ref().and_then(|pair| pair.split_once(':')) {
                self.add(password, MIN_PART);
            }
        }
    }

    /// Adds a secret, as it is and decoded, unless it has fewer than `min` characters.
    fn add(&mut self, secret: &str, min: usize) {
        let mut form = characters(&printable(secret));
        for _ in 0..DEPTH {
            let text: Vec<char> = form.iter().map(|(c, _)| *c).collect();
            if text.len() >= min && !self.0.contains(&text) {
                self.0.push(text);
            }
            form = decoded(&form);
        }
    }

    /// Returns the text with each secret replaced by `…`, also if the secret is encoded for a URL, HTML or JSON.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut found = Vec::new();
        let mut form = characters(text);
        for _ in 0..=DEPTH {
            self.find(&form, &mut found);
            form = decoded(&form);
        }
        found.sort_unstable_by_key(|place| (place.start, place.end));
        let (mut shown, mut end) = (String::with_capacity(text.len()), 0);
        for place in found {
            if place.start >= end {
                shown.push_str(&text[end..place.start]);
                shown.push_str(HIDDEN);
            }
            end = end.max(place.end);
        }
        shown + &text[end..]
    }

    /// Adds the byte ranges of all secrets in the decoded text `form` to `found`. A secret that is cut off at the end
    /// of the text counts too, if at least [`MIN_PART`] characters of it are left.
    fn find(&self, form: &[Decoded], found: &mut Vec<Range<usize>>) {
        for secret in &self.0 {
            for start in 0..form.len() {
                let rest = &form[start..form.len().min(start + secret.len())];
                let is_cut = rest.len() < secret.len();
                if is_cut && rest.len() < MIN_PART {
                    break;
                }
                if rest.iter().zip(secret).all(|((c, _), expected)| c == expected) {
                    found.push(rest[0].1.start..rest[rest.len() - 1].1.end);
                }
            }
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} hidden)", self.0.len())
    }
}

fn characters(text: &str) -> Vec<Decoded> {
    text.char_indices().map(|(at, c)| (c, at..at + c.len_utf8())).collect()
}

fn text_of(form: &[Decoded]) -> String {
    form.iter().map(|(c, _)| *c).collect()
}

/// Decodes one level of percent-encoding, HTML character references and escapes of JSON strings.
fn decoded(form: &[Decoded]) -> Vec<Decoded> {
    let mut out = Vec::with_capacity(form.len());
    let mut at = 0;
    while at < form.len() {
        let rest = &form[at..];
        let length = match rest[0].0 {
            '%' => percent_run(rest, &mut out),
            '&' => single(rest, reference(rest), &mut out),
            '\\' => single(rest, escape(rest), &mut out),
            _ => 0,
        };
        if length == 0 {
            out.push(rest[0].clone());
        }
        at += length.max(1);
    }
    out
}

/// Appends a decoded escape sequence to `out`. `found` has the decoded character and the length of the sequence, which
/// is at the start of `rest`. Returns the length; 0 if `found` is `None`.
fn single(rest: &[Decoded], found: Option<(char, usize)>, out: &mut Vec<Decoded>) -> usize {
    let Some((c, length)) = found else { return 0 };
    out.push((c, rest[0].1.start..rest[length - 1].1.end));
    length
}

/// Decodes a sequence of `%XX` as UTF-8. Returns its length in characters.
fn percent_run(rest: &[Decoded], out: &mut Vec<Decoded>) -> usize {
    let byte = |part: &[Decoded]| match part {
        [('%', _), digits @ ..] => u8::try_from(hex(digits, 2)?).ok(),
        _ => None,
    };
    let bytes: Vec<u8> = rest.chunks(3).map_while(byte).collect();
    let mut at = 0;
    let mut add = |c: char, length: usize| {
        out.push((c, rest[3 * at].1.start..rest[3 * (at + length) - 1].1.end));
        at += length;
    };
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| add(c, c.len_utf8()));
        if !chunk.invalid().is_empty() {
            add(char::REPLACEMENT_CHARACTER, chunk.invalid().len());
        }
    }
    3 * bytes.len()
}

/// Decodes a character reference of HTML. Returns the character and the length of the reference.
fn reference(rest: &[Decoded]) -> Option<(char, usize)> {
    let name: String = rest.iter().skip(1).map(|(c, _)| *c).take(8).take_while(|c| *c != ';').collect();
    let length = name.chars().count() + 2;
    if rest.get(length - 1)?.0 != ';' {
        return None;
    }
    let c = match name.as_str() {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "sol" => '/',
        "plus" => '+',
        "equals" => '=',
        _ => {
            let number = name.strip_prefix('#')?;
            let hexadecimal = number.strip_prefix(['x', 'X']).map(|digits| u32::from_str_radix(digits, 16));
            char::from_u32(hexadecimal.unwrap_or_else(|| number.parse()).ok()?)?
        }
    };
    Some((c, length))
}

/// Decodes an escape of a JSON string, or `\xXX`. Returns the character and the length of the escape.
fn escape(rest: &[Decoded]) -> Option<(char, usize)> {
    let c = rest.get(1)?.0;
    let digits = &rest[2..];
    match c {
        '/' | '\\' | '"' | '\'' => Some((c, 2)),
        'n' | 'r' | 't' | 'b' | 'f' => Some((' ', 2)),
        'u' => Some((char::from_u32(hex(digits, 4)?)?, 6)),
        'x' => Some((char::from_u32(hex(digits, 2)?)?, 4)),
        _ => None,
    }
}

/// Returns the value of the first `count` hexadecimal digits.
fn hex(digits: &[Decoded], count: usize) -> Option<u32> {
    let digits = digits.get(..count)?;
    digits.iter().try_fold(0, |value, (c, _)| Some(value * 16 + c.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::super::{ExtraHeaders, SigningKeys, WebhookUrl};
    use super::*;

    fn secrets(url: &str, headers: &[(&str, &str)], key: &str) -> Secrets {
        let mut params = WebhookParams::new(WebhookUrl::parse(url).unwrap());
        params.headers = ExtraHeaders::new(headers.iter().copied()).unwrap();
        params.signing_keys = Some(SigningKeys::parse(key).unwrap());
        Secrets::of(&params)
    }

    /// Returns a text as it is, percent-encoded, as HTML, as JSON, and in nested encodings, as receivers may repeat it.
    fn encodings(text: &str) -> Vec<String> {
        let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let html = |text: &str| text.replace('&', "&amp;").replace('"', "&quot;").replace('\'', "&#39;");
        let json = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('/', "\\/");
        let unicode =
            |text: &str| text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat();
        vec![
            text.to_owned(),
            percent(text),
            html(text),
            html(text).replace('/', "&#x2F;"),
            json(text),
            json(text).replace('&', "\\u0026"),
            unicode(text),
            percent(text).to_lowercase(),
            json(&html(text)),
            html(&json(&percent(text))),
        ]
    }

    #[test]
    fn echoed_secrets_are_hidden_in_every_encoding() {
        let url = "http://user123:pass%21word@host/hooks/T0K3N-%C3%BC/s3gm3nt+x?key=K3Y%2Fabc%26d&sig=q%20r%20s%20t&x=a+b+c+d";
        let headers = [
            ("authorization", "Bearer h1/dd3n&t0k3n"),
            ("x-basic", "Basic dXNlcjpodW50ZXIyMg=="),
            ("cookie", "session=c00kie\"v4l'ue; other=second-c00kie"),
            ("x-api-key", "pl4in-k3y"),
        ];
        let secrets = secrets(url, &headers, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw literal-k3y");
        let parts = [
            "hooks/T0K3N-%C3%BC/s3gm3nt+x",
            "hooks/T0K3N-ü/s3gm3nt+x",
            "T0K3N-%C3%BC",
            "T0K3N-ü",
            "s3gm3nt+x",
            "key=K3Y%2Fabc%26d&sig=q%20r%20s%20t&x=a+b+c+d",
            "K3Y%2Fabc%26d",
            "K3Y/abc&d",
            "q r s t",
            "a b c d",
            "a+b+c+d",
            "user123",
            "pass!word",
            "dXNlcjEyMzpwYXNzIXdvcmQ=",
            "Bearer h1/dd3n&t0k3n",
            "h1/dd3n&t0k3n",
            "dXNlcjpodW50ZXIyMg==",
            "hunter22",
            "c00kie\"v4l'ue",
            "second-c00kie",
            "pl4in-k3y",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "literal-k3y",
        ];
        for part in parts {
            for echo in encodings(part) {
                assert_eq!(secrets.hide(&format!("cannot use <{echo}>!")), "cannot use <…>!", "{part}: {echo}");
            }
        }
    }

    #[test]
    fn beginning_of_a_secret_at_the_end_is_hidden() {
        let secrets = secrets("http://host/x", &[("x-api-key", "a-very-long-secret")], "k");
        assert_eq!(secrets.hide("bad key a-very-lo"), "bad key …");
        assert_eq!(secrets.hide("bad key a-ver"), "bad key a-ver");
        assert_eq!(secrets.hide("a-very-long-secreta-very-long-secret."), "…….");
    }

    #[test]
    fn other_text_is_unchanged() {
        let secrets = secrets("http://host/x/abc?y=z", &[("x-team", "core"), ("authorization", "Bearer abcdef1")], "k");
        for text in
            ["", "Bearer token expired", "100% of x &amp; y \\u12 %zz %C3 &#xFFFFFFFF; &bogus; \\", "ü%FF%C3%BC…"]
        {
            assert_eq!(secrets.hide(text), text);
        }
        assert!(!format!("{secrets:?}").contains("abcdef1"));
    }
}
