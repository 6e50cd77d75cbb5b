//! Metrics of this process from the kernel, with the names of Prometheus' client libraries.

use std::sync::OnceLock;

use super::catalogue::Id;
use super::snapshot::{LabelSet, Snapshot};

/// Clock ticks per second of processor time in `/proc`: 100 on all supported machines.
const TICKS: f64 = 100.0;

/// Adds the process metrics that can be read; on systems other than Linux, none. Takes about 100 µs.
pub fn put_process(snapshot: &mut Snapshot) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let none = LabelSet::NONE;
    let stat = read("stat");
    if let Some(ticks) = cpu_ticks(&stat) {
        snapshot.put(Id::ProcessCpu, none, ticks / TICKS);
    }
    let status = read("status");
    for (id, key) in [(Id::ProcessResident, "VmRSS:"), (Id::ProcessVirtual, "VmSize:")] {
        if let Some(kibibytes) = number_after(&status, key) {
            snapshot.count(id, none, kibibytes * 1024);
        }
    }
    if let Some(open) = open_files() {
        snapshot.count(Id::ProcessFds, none, open);
    }
    if let Some(most) = number_after(&read("limits"), "Max open files") {
        snapshot.count(Id::ProcessMaxFds, none, most);
    }
    if let Some(start) = start_time() {
        snapshot.put(Id::ProcessStart, none, start);
    }
}

/// Returns when the process started, in seconds since the epoch; `None` if `/proc` cannot be read.
pub(super) fn start_time() -> Option<f64> {
    static START: OnceLock<Option<f64>> = OnceLock::new();
    *START.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let since_boot: f64 = after_name(&stat)?.nth(19)?.parse().ok()?;
        let machine = std::fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(boot + since_boot / TICKS)
    })
}

/// Returns the fields of `/proc/self/stat` after the program's name. The name may itself contain spaces and
/// parentheses.
fn after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

/// Returns the processor time in user and kernel mode, in ticks; `None` if `stat` cannot be parsed.
fn cpu_ticks(stat: &str) -> Option<f64> {
    let mut fields = after_name(stat)?.skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some(next()? + next()?)
}

/// Returns the first number on the line that starts with `key`; `None` if there is none.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the number of open files; `None` if `/proc` cannot be read. Kernels since 6.2 report the number as the size
/// of `/proc/self/fd`.
fn open_files() -> Option<u64> {
    let folder = "/proc/self/fd";
    match std::fs::metadata(folder).ok()?.len() {
        // Do not count the descriptor that reads the folder.
        0 => Some(std::fs::read_dir(folder).ok()?.count().saturating_sub(1) as u64),
        open => Some(open),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use informer_hub_types::clock;

    #[test]
    fn process_metrics_of_this_process_are_plausible() {
        let mut snapshot = Snapshot::new(clock::wall());
        put_process(&mut snapshot);
        let value = |id: Id| snapshot.value(id, &[]).unwrap();
        assert!((0.0..100_000.0).contains(&value(Id::ProcessCpu)), "{}", value(Id::ProcessCpu));
        assert!(value(Id::ProcessResident) > f64::from(1 << 20));
        assert!(value(Id::ProcessVirtual) >= value(Id::ProcessResident));
        assert!(value(Id::ProcessFds) >= 3.0 && value(Id::ProcessMaxFds) > value(Id::ProcessFds));
        let now = Duration::from_millis(u64::try_from(clock::wall_millis()).unwrap());
        let age = now.as_secs_f64() - value(Id::ProcessStart);
        assert!((-2.0..100_000.0).contains(&age), "{age}");
    }

    #[test]
    fn stat_parses_with_any_program_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 2 3 4 5 150 25 0 0 20 0 1 0 4711 0";
        assert_eq!(cpu_ticks(stat), Some(175.0));
        assert_eq!(after_name(stat).unwrap().nth(19), Some("4711"));
        assert_eq!(cpu_ticks("nonsense"), None);
        assert_eq!(cpu_ticks("7 (x) S 1"), None);
    }
}
