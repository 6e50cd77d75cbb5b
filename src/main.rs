//! The `informer-hub` binary.

use std::process::ExitCode;

use informer_hub::cli;

/// jemalloc returns memory to the system after a burst, unlike the system allocator. It also replaces `malloc`, so C code
/// (zstd) uses it too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main(cli::parse())
}
