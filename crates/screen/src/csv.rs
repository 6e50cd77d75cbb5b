//! CSV as in RFC 4180.

/// Returns a record with its line break (CRLF). Fields are quoted only if they need it.
#[must_use]
pub fn csv_record<'f>(fields: impl IntoIterator<Item = &'f str>) -> String {
    let quoted = |field: &str| {
        if field.contains(['"', ',', '\r', '\n']) || field.trim() != field {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.to_owned()
        }
    };
    fields.into_iter().map(quoted).collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_separators_quotes_and_breaks_are_quoted() {
        assert_eq!(csv_record(["a", "", "<none>"]), "a,,<none>\r\n");
        assert_eq!(csv_record(["a,b", "say \"x\"", "l\nm", " pad"]), "\"a,b\",\"say \"\"x\"\"\",\"l\nm\",\" pad\"\r\n");
    }
}
