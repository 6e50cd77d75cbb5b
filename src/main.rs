//! The `informer-hub` binary.

use std::process::ExitCode;

use informer_hub::cli;

/// Gives memory back after a burst, which the system's allocator does not. C code (zstd) gets its memory from it too: it
/// is built to be `malloc`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main(cli::parse())
}
