//! Benches of the whole hub, one for each subcommand: `cargo bench --bench hub -- memory`. The default is `peers`.
//!
//! They share one binary, because optimised linking takes long.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods, clippy::cast_precision_loss)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod bare;
mod chart;
#[path = "../common/mod.rs"]
mod common;
mod contestant;
mod delivery;
mod fleet;
mod isolation;
mod isolation_sinks;
mod memory;
mod micro;
mod million;
mod peers;
mod peers_table;
mod read;
mod real;
mod replicas;
mod shapes;
mod telemetry;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    common::server::serve_if_asked();
    // cargo adds `--bench`.
    let words: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["peers"] => peers::run(),
        ["memory"] => memory::run(),
        ["million"] => million::run(),
        ["micro"] => micro::run(),
        ["shapes"] => shapes::run(),
        ["fleet"] => fleet::run(),
        ["real"] => real::run(),
        ["read"] => read::run(),
        ["isolation"] => isolation::run(),
        ["delivery"] => delivery::run(""),
        ["telemetry"] => telemetry::run(),
        ["replicas"] => replicas::run(),
        ["delivery", part] => delivery::run(part),
        // Child processes of the benches.
        ["shape", name] => shapes::run_one(name),
        ["fleet-of", clusters] => fleet::run_one(clusters),
        ["fleet-idle"] => fleet::run_idle(),
        ["query-clients"] => read::serve_query_clients(),
        ["isolation-elsewhere", url] => isolation::run_elsewhere(url),
        ["isolation-sinks"] => isolation_sinks::run(),
        ["isolation-sink", which] => isolation_sinks::run_one(which),
        ["delivery-of", way, shape, fsync] => delivery::run_one(way, shape, fsync),
        ["delivery-latency", fsync, wait] => delivery::run_latency(fsync, wait),
        ["delivery-state", which] => delivery::run_state(which),
        ["contestant", kind, url] => common::runtime().block_on(contestant::run(kind, url, None)),
        ["contestant", kind, url, ca] => common::runtime().block_on(contestant::run(kind, url, Some(ca.as_ref()))),
        _ => {
            eprintln!(
                "there are: peers, real, read, memory, shapes, fleet, million, micro, isolation, delivery, telemetry, \
                 replicas"
            );
            std::process::exit(2);
        }
    }
}
