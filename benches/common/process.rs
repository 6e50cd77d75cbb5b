//! What the kernel says of this process.

use std::time::Duration;

/// User and system time of this process.
pub fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<_> = after_name.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // USER_HZ is 100 on every Linux that this runs on.
    Duration::from_millis(ticks * 10)
}

/// Bytes resident now.
pub fn rss() -> u64 {
    status("VmRSS:")
}

/// Bytes resident now that are nobody else's: heap, stacks, and data that was written to. What is not among them are
/// pages of the program's file, which the kernel has once for all who run it and takes back when it wants to.
pub fn anonymous() -> u64 {
    status("RssAnon:")
}

/// The most bytes that were ever resident, or since [`forget_peak`].
pub fn peak_rss() -> u64 {
    status("VmHWM:")
}

/// Lets [`peak_rss`] start again from what is resident now.
pub fn forget_peak() {
    // Without the right to (some sandboxes), the peak is the one since the start.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// A size from this process's status, in bytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
