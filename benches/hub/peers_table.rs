//! Table of the figures of all clients, each with its ratio to the hub.

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};

use crate::common::table::figures;
use crate::peers::ClientFigures;

/// A compared figure: its name, its value, and whether more is better.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) of: fn(&ClientFigures) -> f64,
    pub(crate) more_is_better: bool,
}

impl Figure {
    const fn less(name: &'static str, of: fn(&ClientFigures) -> f64) -> Self {
        Self { name, of, more_is_better: false }
    }

    /// Returns how many times better the hub is than a peer.
    pub(crate) fn ratio(&self, hub: &ClientFigures, peer: &ClientFigures) -> f64 {
        let (hub, peer) = ((self.of)(hub), (self.of)(peer));
        if self.more_is_better { hub / peer } else { peer / hub }
    }
}

/// All figures, in the order of the table.
pub(crate) const FIGURES: [Figure; 8] = [
    Figure::less("memory per object, bytes", |reached| reached.memory),
    Figure::less("memory at its peak, bytes", |reached| reached.peak),
    Figure::less("sync: CPU per object, µs", |reached| reached.sync_cpu),
    Figure::less("sync: wall per object, µs", |reached| reached.sync_wall),
    Figure { name: "flood: updates a second", of: |reached| reached.updates_per_second, more_is_better: true },
    Figure::less("flood: CPU per update, µs", |reached| reached.update_cpu),
    Figure::less("latency p50, µs", |reached| reached.p50),
    Figure::less("latency p99, µs", |reached| reached.p99),
];

/// Creates the table. The hub has to be the first of `all`.
pub(crate) fn table(all: &[ClientFigures]) -> Table {
    let header = std::iter::once("").chain(all.iter().map(|reached| reached.name.as_str()));
    let mut table = figures(UTF8_BORDERS_ONLY, header);
    for figure in &FIGURES {
        let cell = |(at, reached): (usize, &ClientFigures)| {
            let value = number((figure.of)(reached));
            let ratio = figure.ratio(&all[0], reached);
            if at == 0 || ratio.is_nan() { value } else { format!("{value} (× {ratio:.1})") }
        };
        table.add_row(std::iter::once(figure.name.to_owned()).chain(all.iter().enumerate().map(cell)));
    }
    table
}

/// Formats a number with thousands separators, with tenths below 100, and NaN as a dash.
pub(crate) fn number(value: f64) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
