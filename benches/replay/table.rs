//! The figures as a table, beside those of the peers.

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};

use crate::Figures;

/// Measured against the same kind of server on the same kind of machine, in another run: compare orders, not digits.
const PEERS: [[&str; 4]; 7] = [
    ["sync: CPU per pod, µs", "44–50", "200–335", "128–185"],
    ["RSS per pod, bytes", "29,200", "41,900", "75,100"],
    ["RSS per pod at its peak, bytes", "–", "–", "85,400"],
    ["flood: updates a second", "14,400", "2,300", "7,800"],
    ["flood: CPU per update, µs", "72", "460", "134"],
    ["latency at 1,000/s: p50, µs", "124", "494", "215"],
    ["latency at 1,000/s: p99, µs", "446", "3,262", "467"],
];

pub(crate) fn print(figures: &Figures) {
    let micros = |duration: std::time::Duration| format!("{}", duration.as_micros());
    let ours = [
        format!("{:.1}", figures.sync_cpu_us),
        format!("{:.0}", figures.rss_per_pod),
        format!("{:.0}", figures.peak_per_pod),
        format!("{:.0}", figures.updates_per_second),
        format!("{:.1}", figures.update_cpu_us),
        micros(figures.latency.0),
        micros(figures.latency.1),
    ];
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table.set_header(["", "informer-hub", "client-go protobuf", "client-go JSON", "kube-rs"]);
    for (ours, [what, protobuf, json, kube]) in ours.into_iter().zip(PEERS) {
        table.add_row([what.to_owned(), ours, protobuf.to_owned(), json.to_owned(), kube.to_owned()]);
    }
    println!(
        "{} pods of 9.3 KB synced in {:.2} s; {} updates, told as {} notifications",
        figures.pods,
        figures.sync.as_secs_f64(),
        figures.events,
        figures.told
    );
    println!("{table}");
}
