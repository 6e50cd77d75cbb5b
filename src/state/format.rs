//! Format version of the state directory.

/// Text in FORMAT before the version.
pub(super) const FORMAT_TEXT: &str = "informer-hub state ";
/// Format version that this program reads and writes.
pub(super) const VERSION: u32 = 1;
