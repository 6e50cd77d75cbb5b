//! Text of an error together with its causes.

use std::error::Error;

/// Returns an error with its causes in one line. A cause whose text is in the line already is left out, since some
/// libraries repeat causes in their own texts.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Failure>>,
    }

    fn failure(texts: &[&'static str]) -> Failure {
        Failure { text: texts[0], source: (texts.len() > 1).then(|| Box::new(failure(&texts[1..]))) }
    }

    #[test]
    fn causes_follow_in_order_and_none_is_repeated() {
        assert_eq!(with_causes(&failure(&["alone"])), "alone");
        assert_eq!(with_causes(&failure(&["cannot read", "no such file"])), "cannot read: no such file");
        let repeated = failure(&["cannot connect: refused", "refused", "port 4222", "refused"]);
        assert_eq!(with_causes(&repeated), "cannot connect: refused: port 4222");
    }
}
