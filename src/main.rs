//! The `informer-hub` binary.
fn main() {}
