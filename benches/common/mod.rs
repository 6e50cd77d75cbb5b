//! Shared code of the benches: the process of the replay server, hubs with listeners, and process figures.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::disallowed_methods, clippy::cast_precision_loss)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

pub mod figures;
pub mod fronts;
pub mod heap;
pub mod hub;
pub mod loaded;
pub mod memory;
pub mod process;
pub mod receiver;
pub mod server;
pub mod table;
pub mod tls;

/// Reads a number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Creates the runtime of the bench, with one worker: the hub has its own threads.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
