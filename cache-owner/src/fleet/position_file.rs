//! Small files in the folder of the store: the owner's id in the fleet, its position in the purge
//! stream, and purges that were not published yet.
//!
//! A file is written under another name, synced and renamed, so that it is complete or absent. A lost
//! position costs purges that are applied again; so an unreadable file is treated as absent. Only
//! an unreadable outbox is a purge of everything, as its purges are unknown.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::fleet::own_purges::MAX_QUEUED_PURGES;
use sszip_core::cache::fleet::stream_record::{
    FleetOwnerId, PublishedPurge, PurgeRecordKind, StreamId, StreamMark,
};

use super::{random_name, random_number};

const OWNER_FILE: &str = "fleet-owner";
const POSITION_FILE: &str = "fleet-position";
const OUTBOX_FILE: &str = "fleet-outbox";

/// Maximum length of a file in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Mode of the files, which other users need not read. nginx sets no umask.
const PRIVATE_MODE: u32 = 0o600;

/// A line of the outbox.
#[derive(Serialize, Deserialize)]
struct OutboxLine {
    name: String,
    values_only: bool,
    scope: PurgeScope,
}

/// The files of the fleet in the folder of a store.
#[derive(Clone, Debug)]
pub(crate) struct FleetFiles {
    folder: PathBuf,
}

impl FleetFiles {
    /// Creates the files of the store in `folder`; they are written when they are needed.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Returns the owner's id in the fleet, which is created at the first start. If it cannot be
    /// written, the owner has another id after its next start.
    pub(crate) fn read_or_create_owner_id(&self) -> FleetOwnerId {
        let text = self.read_file(OWNER_FILE).ok().flatten();
        if let Some(id) = text.and_then(|text| decode_hex(text.trim_ascii_end())) {
            return id;
        }
        let id = random_owner_id();
        let _ = self.write_owner_id(&id);
        id
    }

    /// Stores the owner's id in the fleet.
    pub(crate) fn write_owner_id(&self, id: &FleetOwnerId) -> io::Result<()> {
        self.replace_file(OWNER_FILE, format!("{}\n", hex::encode(id)).as_bytes())
    }

    /// Returns the stored position.
    pub(crate) fn read_position(&self) -> Option<StreamMark> {
        let text = self.read_file(POSITION_FILE).ok()??;
        let mut words = text.trim_ascii_end().split(|byte| *byte == b' ');
        let mark = StreamMark {
            id: StreamId::parse(words.next()?)?,
            fingerprint: decode_hex(words.next()?)?,
        };
        words.next().is_none().then_some(mark)
    }

    /// Stores the position.
    pub(crate) fn write_position(&self, mark: &StreamMark) -> io::Result<()> {
        let text = format!("{} {}\n", mark.id, hex::encode(mark.fingerprint));
        self.replace_file(POSITION_FILE, text.as_bytes())
    }

    /// Returns the purges that were not published before the last end of the owner.
    pub(crate) fn read_outbox(&self) -> Vec<PublishedPurge> {
        match self.read_file(OUTBOX_FILE) {
            Ok(None) => Vec::new(),
            Ok(Some(text)) => parse_outbox(&text).unwrap_or_else(|| vec![purge_of_everything()]),
            Err(_) => vec![purge_of_everything()],
        }
    }

    /// Stores the purges that are not published yet, or removes the file if there are none.
    pub(crate) fn write_outbox(&self, purges: &[PublishedPurge]) -> io::Result<()> {
        if purges.is_empty() {
            return match fs::remove_file(self.folder.join(OUTBOX_FILE)) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => sync_folder(&self.folder),
            };
        }
        let mut text = String::new();
        for purge in purges {
            let line = OutboxLine {
                name: hex::encode(purge.name),
                values_only: purge.kind != PurgeRecordKind::Purge,
                scope: purge.scope.clone(),
            };
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        self.replace_file(OUTBOX_FILE, text.as_bytes())
    }

    /// Reads a file; `None` if it does not exist.
    fn read_file(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.folder.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
        Ok(Some(text))
    }

    fn replace_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let new = self.folder.join(format!("{name}.new"));
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(PRIVATE_MODE)
            .open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, self.folder.join(name))?;
        sync_folder(&self.folder)
    }
}

/// Returns an id for an owner.
pub(crate) fn random_owner_id() -> FleetOwnerId {
    random_number().to_be_bytes()
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn parse_outbox(text: &[u8]) -> Option<Vec<PublishedPurge>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut purges = Vec::new();
    for line in text.lines() {
        let line: OutboxLine = serde_json::from_str(line).ok()?;
        purges.push(PublishedPurge {
            kind: match line.values_only {
                true => PurgeRecordKind::ValuesOnly,
                false => PurgeRecordKind::Purge,
            },
            name: decode_hex(line.name.as_bytes())?,
            scope: line.scope,
        });
    }
    (purges.len() <= MAX_QUEUED_PURGES && !purges.is_empty()).then_some(purges)
}

fn purge_of_everything() -> PublishedPurge {
    PublishedPurge {
        kind: PurgeRecordKind::Purge,
        name: random_name(),
        scope: PurgeScope::Everything,
    }
}

fn decode_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn purge(name: u8, scope: PurgeScope) -> PublishedPurge {
        PublishedPurge {
            kind: PurgeRecordKind::Purge,
            name: [name; 16],
            scope,
        }
    }

    #[test]
    fn owner_id_is_the_same_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let id = FleetFiles::new(folder.path()).read_or_create_owner_id();
        let files = FleetFiles::new(folder.path());
        assert_eq!(files.read_or_create_owner_id(), id);
        fs::write(folder.path().join(OWNER_FILE), "x").unwrap();
        assert_ne!(files.read_or_create_owner_id(), id);
        files.write_owner_id(&id).unwrap();
        assert_eq!(files.read_or_create_owner_id(), id);
    }

    #[test]
    fn unreadable_position_is_treated_as_absent() {
        let folder = tempfile::tempdir().unwrap();
        let files = FleetFiles::new(folder.path());
        assert_eq!(files.read_position(), None);
        let mark = StreamMark {
            id: StreamId::from_position(1_700_000_000_000),
            fingerprint: [0xab; 16],
        };
        files.write_position(&mark).unwrap();
        assert_eq!(files.read_position(), Some(mark));
        for text in ["", "1-0", "1-0 ab", "1-0 zz", "x"] {
            fs::write(folder.path().join(POSITION_FILE), text).unwrap();
            assert_eq!(files.read_position(), None, "{text}");
        }
        files.write_position(&mark).unwrap();
        assert_eq!(files.read_position(), Some(mark));
    }

    #[test]
    fn outbox_is_restored_and_removed_when_it_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let files = FleetFiles::new(folder.path());
        assert_eq!(files.read_outbox(), []);
        let method = PurgeScope::Method {
            namespace: Some([1; 16]),
            method: "eth_call".into(),
        };
        let blocks = PurgeScope::Blocks {
            namespace: [2; 16],
            from: 0,
            to: u64::MAX,
        };
        let values_only = PublishedPurge {
            kind: PurgeRecordKind::ValuesOnly,
            ..purge(3, blocks)
        };
        let purges = [
            purge(1, PurgeScope::Everything),
            purge(2, method),
            values_only,
            purge(4, PurgeScope::Key([7; 32])),
        ];
        files.write_outbox(&purges).unwrap();
        assert_eq!(files.read_outbox(), purges);
        files.write_outbox(&[]).unwrap();
        files.write_outbox(&[]).unwrap();
        assert_eq!(files.read_outbox(), []);
    }

    #[test]
    fn unreadable_outbox_is_a_purge_of_everything() {
        let folder = tempfile::tempdir().unwrap();
        let files = FleetFiles::new(folder.path());
        for text in ["", "{}\n", "{\"name\":\"00\"}\n"] {
            fs::write(folder.path().join(OUTBOX_FILE), text).unwrap();
            let purges = files.read_outbox();
            assert_eq!(purges.len(), 1);
            assert_eq!(purges[0].scope, PurgeScope::Everything);
        }
    }
}
