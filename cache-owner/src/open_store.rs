//! The opening of the store, and its log lines.

use std::path::Path;

use sszip_core::cache::owner::disk::OwnerStore;
use sszip_core::cache::owner::store::StoreDisk;
use sszip_core::cache::owner::CallTime;
use sszip_core::cache::store::{OpenError, OpenOutcome, Store, StoreConfig};

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
    Box<dyn FnMut(CallTime) -> Result<Box<dyn OwnerStore>, OpenStoreError> + Send>;

/// Returns a function that opens the store in the folder `path`, of at most `max_size` bytes on
/// disk.
pub fn store_opener(path: &Path, max_size: u64, log: LogFunction) -> StoreOpener {
    let config = StoreConfig::new(path, max_size);
    Box::new(
        move |now: CallTime| match Store::open_store(&config, now.unix) {
            Ok((store, opening)) => {
                log_opening(&config.path, opening, &log);
                Ok(Box::new(StoreDisk::new(store, now)) as Box<dyn OwnerStore>)
            }
            Err(OpenError::Locked) => Err(OpenStoreError::Locked),
            Err(error) => Err(OpenStoreError::Failed(format!(
                "cannot open the store in {}: {error}",
                config.path.display()
            ))),
        },
    )
}

fn log_opening(path: &Path, opening: OpenOutcome, log: &LogFunction) {
    let path = path.display();
    match opening {
        OpenOutcome::Fresh => log(LogLevel::Notice, &format!("created a new store in {path}")),
        OpenOutcome::Reopened => log(LogLevel::Notice, &format!("opened the store in {path}")),
        OpenOutcome::SetAside { damage, to } => {
            let to = match to {
                Some(to) => format!("its files were moved to {}", to.display()),
                None => "it left no files".into(),
            };
            let line = format!("replaced the store in {path} by an empty one: {damage}; {to}");
            log(LogLevel::Error, &line);
        }
    }
}
