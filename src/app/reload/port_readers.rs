//! Readers (users with read access) of the HTTP port, which follow the configuration.

use std::sync::Arc;

use super::RunningHub;
use crate::app::error::ReloadError;
use informer_hub_config::Config;

/// Function that replaces the readers of the HTTP port by those just read from the configuration.
pub(in crate::app) type ReplaceReaders = Box<dyn FnOnce() + Send>;

/// Function that reads the tokens of the configured readers. Blocks.
pub(in crate::app) type ReadReaders =
    Arc<dyn Fn(&Config) -> Result<ReplaceReaders, Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

impl RunningHub {
    /// Sets the function that reads the tokens of the readers of the HTTP port at each reload.
    #[cfg(feature = "cli")]
    pub(in crate::app) fn follow_readers(&self, read: ReadReaders) {
        // Called once, by the port that started this hub.
        let _ = self.read_readers.set(read);
    }

    /// Reads the tokens of the configured readers. Returns a function that replaces all readers of the HTTP port by the
    /// configured ones; `None` without a port.
    pub(super) async fn read_port_readers(&self, config: &Config) -> Result<Option<ReplaceReaders>, ReloadError> {
        let Some(read) = self.read_readers.get().cloned() else { return Ok(None) };
        let config = config.clone();
        let reading = self.env.io.spawn_blocking(move || read(&config));
        reading.await.map_err(|_| ReloadError::Unread)?.map(Some).map_err(ReloadError::Readers)
    }
}
