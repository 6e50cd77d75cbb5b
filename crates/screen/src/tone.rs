//! Colours of status words in tables.

/// Meaning of a cell, shown as a colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    /// The desired state: green.
    Good,
    /// In progress or incomplete: yellow.
    Pending,
    /// Failed: red.
    Bad,
}

/// Columns whose cells are status words.
const STATES: [&str; 7] = ["STATUS", "PHASE", "STATE", "CONDITION", "HEALTH", "SYNC STATUS", "HEALTH STATUS"];
/// Columns whose cells are `True`, `False`, `Unknown`, or counts such as `1/2` (ready of all).
const SHARES: [&str; 5] = ["READY", "AVAILABLE", "SYNCED", "ESTABLISHED", "COMPLETIONS"];

const GOOD: [&str; 12] = [
    "Running",
    "Ready",
    "Active",
    "Bound",
    "Available",
    "True",
    "Succeeded",
    "Complete",
    "Completed",
    "Healthy",
    "Synced",
    "Approved",
];
const PENDING: [&str; 13] = [
    "Pending",
    "ContainerCreating",
    "PodInitializing",
    "Terminating",
    "Unknown",
    "SchedulingDisabled",
    "Progressing",
    "Released",
    "Suspended",
    "Warning",
    "OutOfSync",
    "SchedulingGated",
    "Missing",
];
/// Texts that mean a failure if a status word contains them: `CrashLoopBackOff`, `Init:Error`, `ErrImagePull`,
/// `NotReady`.
const BAD: [&str; 14] = [
    "BackOff",
    "Err",
    "Error",
    "Failed",
    "Failure",
    "Evicted",
    "OOMKilled",
    "NotReady",
    "Lost",
    "Crash",
    "Invalid",
    "Degraded",
    "Killed",
    "Denied",
];

impl Tone {
    /// Returns the tone of a cell by its words and its column's title (upper case); `None` for a cell without colour.
    #[must_use]
    pub fn of(title: &str, cell: &str) -> Option<Self> {
        if SHARES.contains(&title) {
            return match cell {
                "True" => Some(Self::Good),
                "False" => Some(Self::Bad),
                "Unknown" => Some(Self::Pending),
                _ => {
                    let (part, all) = cell.split_once('/')?;
                    let (part, all): (u64, u64) = (part.parse().ok()?, all.parse().ok()?);
                    (part < all).then_some(Self::Pending)
                }
            };
        }
        if title == "TYPE" {
            return (cell == "Warning").then_some(Self::Pending);
        }
        STATES.contains(&title).then(|| Self::of_words(cell)).flatten()
    }

    fn of_words(cell: &str) -> Option<Self> {
        let words = || cell.split([',', ' ']).filter(|word| !word.is_empty());
        if words().any(|word| BAD.iter().any(|part| word.contains(part))) {
            return Some(Self::Bad);
        }
        if words().any(|word| PENDING.contains(&word) || word.starts_with("Init:")) {
            return Some(Self::Pending);
        }
        words().next().filter(|word| GOOD.contains(word)).map(|_| Self::Good)
    }

    fn code(self) -> u8 {
        match self {
            Self::Good => 32,
            Self::Pending => 33,
            Self::Bad => 31,
        }
    }
}

/// Returns the text in the colour of its tone.
#[must_use]
pub fn paint(text: &str, tone: Tone) -> String {
    format!("\x1b[{}m{text}\x1b[39m", tone.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_words_have_the_tone_of_their_worst_part() {
        let tone = |cell: &str| Tone::of("STATUS", cell);
        for bad in ["CrashLoopBackOff", "Error", "Failed", "Init:Error", "ErrImagePull", "NotReady", "Ready,NotReady"] {
            assert_eq!(tone(bad), Some(Tone::Bad), "{bad}");
        }
        for pending in ["Pending", "Init:0/1", "Terminating", "Ready,SchedulingDisabled"] {
            assert_eq!(tone(pending), Some(Tone::Pending), "{pending}");
        }
        assert_eq!(
            (tone("Running"), tone("Bound"), tone("purple"), tone("")),
            (Some(Tone::Good), Some(Tone::Good), None, None)
        );
        assert_eq!(Tone::of("NAME", "Failed"), None, "a name is not a status");
        assert_eq!(Tone::of("READY", "1/2"), Some(Tone::Pending));
        assert_eq!((Tone::of("READY", "2/2"), Tone::of("READY", "False")), (None, Some(Tone::Bad)));
        assert_eq!(paint("x", Tone::Bad), "\x1b[31mx\x1b[39m");
    }
}
