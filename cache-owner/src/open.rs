//! The opening of the store, and its log lines.

use std::path::Path;

use sszip_core::cache::owner::disk::Disk;
use sszip_core::cache::owner::store::StoreDisk;
use sszip_core::cache::owner::Now;
use sszip_core::cache::store::{Config, OpenError, Opening, Store};

use crate::log::{Level, Log};

/// The reason why the store is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// The host does not permit an attempt yet.
    NotYet,
    /// Another process has opened it.
    Locked,
    /// Another reason, for operators.
    Failed(String),
}

/// The function that opens the store; it may be called again after a failure.
pub type Open = Box<dyn FnMut(Now) -> Result<Box<dyn Disk>, NotOpened> + Send>;

/// Returns the function that opens the store in `path`, of at most `max_size` bytes on disk.
pub fn store(path: &Path, max_size: u64, log: Log) -> Open {
    let config = Config::new(path, max_size);
    Box::new(move |now: Now| match Store::open(&config, now.unix) {
        Ok((store, opening)) => {
            tell(&config.path, opening, &log);
            Ok(Box::new(StoreDisk::new(store, now)) as Box<dyn Disk>)
        }
        Err(OpenError::Locked) => Err(NotOpened::Locked),
        Err(error) => Err(NotOpened::Failed(format!("no store: {error}"))),
    })
}

fn tell(path: &Path, opening: Opening, log: &Log) {
    let path = path.display();
    match opening {
        Opening::Fresh => log(Level::Notice, &format!("a new store in {path}")),
        Opening::Reopened => log(Level::Notice, &format!("the store in {path}")),
        Opening::SetAside { damage, to } => {
            let to = match to {
                Some(to) => format!("set aside as {}", to.display()),
                None => "nothing was left of it".into(),
            };
            let line = format!("the store in {path} begins anew: {damage}; {to}");
            log(Level::Error, &line);
        }
    }
}
