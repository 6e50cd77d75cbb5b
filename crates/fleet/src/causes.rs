//! Text of errors.

/// Returns an error with its causes in one line.
#[must_use]
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        // The client library repeats causes in its texts.
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}
