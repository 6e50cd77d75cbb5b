//! Figures of several rounds: median, minimum and maximum.

use std::time::Duration;

/// Values of one figure, one for each round.
#[derive(Clone, Debug, Default)]
pub struct Rounds(pub Vec<f64>);

impl Rounds {
    /// Returns the median.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// Divides each value by the value of the same round in `others`.
    pub fn over(&self, others: &Self) -> Self {
        Self(self.0.iter().zip(&others.0).map(|(one, other)| one / other).collect())
    }

    /// Formats the values as `median (minimum to maximum)`.
    pub fn text(&self, digits: usize) -> String {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{:.digits$} ({least:.digits$} to {most:.digits$})", self.median())
    }
}

/// Converts a duration to microseconds.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
