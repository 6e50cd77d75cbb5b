//! How much memory the process has resident, and how often that is read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::Pace;

/// Says how much memory the process has resident.
pub trait Gauge: Send + Sync + fmt::Debug {
    /// Bytes; `None` where that cannot be read.
    fn resident(&self) -> Option<u64>;
}

/// What the kernel says of this process. Some 30 µs.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessGauge;

impl Gauge for ProcessGauge {
    fn resident(&self) -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    }
}

/// How a limit is kept.
#[derive(Clone, Debug)]
pub struct MemoryTuning {
    /// How often the governor looks. Default 250 ms.
    pub look: Duration,
    /// How fast it acts.
    pub pace: Pace,
    /// Where it looks.
    pub gauge: Arc<dyn Gauge>,
}

impl Default for MemoryTuning {
    fn default() -> Self {
        Self { look: Duration::from_millis(250), pace: Pace::default(), gauge: Arc::new(ProcessGauge) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_memory_resident() {
        let resident = ProcessGauge.resident().unwrap();
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
    }
}
