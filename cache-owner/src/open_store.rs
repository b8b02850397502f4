//! The opening of the store, and its log lines.

use std::path::Path;

use sszip_core::cache::owner::disk::OwnerStore;
use sszip_core::cache::owner::store::RocksOwnerStore;
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::store::{DiskEntryStore, StoreConfig, StoreOpenError, StoreOpenOutcome};

use crate::log::{LogFunction, LogLevel};

/// The reason why an attempt to open the store failed; it may succeed later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenStoreError {
    /// The host does not permit an attempt yet.
    NotYet,
    /// Another process has opened it.
    Locked,
    /// Another reason, for operators.
    Failed(String),
}

/// A function that attempts to open the store; it may be called again after a failure.
pub type StoreOpener =
    Box<dyn FnMut(ClockReading) -> Result<Box<dyn OwnerStore>, OpenStoreError> + Send>;

/// Returns a function that opens the store in the folder `path`, of at most `max_size` bytes on
/// disk.
pub fn create_store_opener(path: &Path, max_size: u64, log: LogFunction) -> StoreOpener {
    let config = StoreConfig::new(path, max_size);
    Box::new(
        move |now: ClockReading| match DiskEntryStore::open_store(&config, now.unix) {
            Ok((store, opening)) => {
                log_store_opening(&config.path, opening, &log);
                Ok(Box::new(RocksOwnerStore::new(store, now)) as Box<dyn OwnerStore>)
            }
            Err(StoreOpenError::Locked) => Err(OpenStoreError::Locked),
            Err(error) => Err(OpenStoreError::Failed(format!(
                "cannot open the store in {}: {error}",
                config.path.display()
            ))),
        },
    )
}

fn log_store_opening(path: &Path, opening: StoreOpenOutcome, log: &LogFunction) {
    let path = path.display();
    match opening {
        StoreOpenOutcome::Fresh => log(LogLevel::Notice, &format!("created a new store in {path}")),
        StoreOpenOutcome::Reopened => log(LogLevel::Notice, &format!("opened the store in {path}")),
        StoreOpenOutcome::SetAside { damage, to } => {
            let to = match to {
                Some(to) => format!("its files were moved to {}", to.display()),
                None => "it left no files".into(),
            };
            let line = format!("replaced the store in {path} by an empty one: {damage}; {to}");
            log(LogLevel::Error, &line);
        }
    }
}
