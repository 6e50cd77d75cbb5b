//! Resident memory of the process, and how often it is measured.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::Pace;

/// Source of the resident memory size.
pub trait Gauge: Send + Sync + fmt::Debug {
    /// Returns the resident bytes, or `None` if they cannot be read.
    fn resident(&self) -> Option<u64>;
}

/// Reads `VmRSS` of this process from `/proc`. Takes about 30 µs.
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

/// Settings of the memory governor.
#[derive(Clone, Debug)]
pub struct MemoryTuning {
    /// Interval at which memory use is compared with the limit. Default 250 ms.
    pub look: Duration,
    /// Timing of the memory governor's decisions.
    pub pace: Pace,
    /// Source of the resident memory size.
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
    fn process_gauge_reads_resident_memory() {
        let resident = ProcessGauge.resident().unwrap();
        assert!((1 << 20..1 << 40).contains(&resident), "{resident}");
    }
}
