//! SVG chart of the figures of all clients, with one panel for each figure. Readable on light and dark pages.

use std::fmt::Write;

use crate::peers::ClientFigures;
use crate::peers_table::{FIGURES, Figure, number};

const WIDTH: f64 = 860.0;
const PANEL_WIDTH: f64 = 400.0;
const ROW: f64 = 22.0;
const TITLE: f64 = 30.0;
const GAP: f64 = 26.0;
const NAME: f64 = 128.0;
/// Length of the longest bar; its number follows it.
const BAR: f64 = 170.0;

const STYLE: &str = "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1f2328}\
    .title{font-weight:600;font-size:13px}.note{fill:#59636e;font-size:11px}.page{fill:#fff}\
    .hub{fill:#1a7f5a}.peer{fill:#afb8c1}.axis{stroke:#d1d9e0}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.page{fill:#0d1117}\
    .hub{fill:#3fb98a}.peer{fill:#56606b}.axis{stroke:#3d444d}}";

/// Draws the chart. The hub has to be the first of `all`.
pub(crate) fn draw(all: &[ClientFigures]) -> String {
    let panel_height = TITLE + ROW * all.len() as f64 + GAP;
    let height = panel_height * FIGURES.len().div_ceil(2) as f64 + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"informer-hub beside client-go and kube-rs\">\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n"
    );
    for (at, figure) in FIGURES.iter().enumerate() {
        let x = 24.0 + (PANEL_WIDTH + 16.0) * (at % 2) as f64;
        let y = 24.0 + panel_height * (at / 2) as f64;
        panel(&mut out, figure, all, x, y);
    }
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<text class=\"note\" x=\"24\" y=\"{}\">The same pods of 9.3 KB from the same server in one run, on one machine. \
         × how many times better informer-hub is.</text>\n</svg>",
        height - 18.0,
    );
    out
}

fn panel(out: &mut String, figure: &Figure, all: &[ClientFigures], x: f64, y: f64) {
    let most = all.iter().map(figure.of).fold(f64::MIN_POSITIVE, f64::max);
    let note = if figure.more_is_better { "more is better" } else { "less is better" };
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{x}\" y=\"{}\">{} <tspan class=\"note\" font-weight=\"400\">{note}</tspan></text>",
        y + 12.0,
        figure.name,
    );
    let left = x + NAME;
    let (top, bottom) = (y + TITLE - 6.0, y + TITLE + ROW * all.len() as f64 - 2.0);
    let _ = writeln!(out, "<line class=\"axis\" x1=\"{left}\" x2=\"{left}\" y1=\"{top}\" y2=\"{bottom}\"/>");
    for (at, reached) in all.iter().enumerate() {
        let top = y + TITLE + ROW * at as f64;
        let value = (figure.of)(reached);
        let width = (value / most * BAR).max(1.5);
        let class = if at == 0 { "hub" } else { "peer" };
        let mut label = number(value);
        let ratio = figure.ratio(&all[0], reached);
        if at > 0 && !ratio.is_nan() {
            let _ = write!(label, " <tspan class=\"note\">× {ratio:.1}</tspan>");
        }
        let baseline = top + 12.0;
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width:.1}\" height=\"15\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{baseline}\">{label}</text>",
            left - 8.0,
            reached.name,
            left + width + 6.0,
        );
    }
}
