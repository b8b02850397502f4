//! The control family: name of the database, number of durable writes, purges, and rows of the
//! owner.

use std::collections::BTreeMap;

use super::config::CONTROL_FAMILY;
use super::marker::StoreMarkerFile;
use super::purges::PurgeRecords;
use super::rocks::{RocksDatabase, RocksError};

const NAME_ROW: &[u8] = b"name";
pub(super) const SERIAL_ROW: &[u8] = b"serial";
const PURGE_PREFIX: &[u8] = b"purge/";
const OWNER_PREFIX: &[u8] = b"owner/";

/// The rows that wait for a durable write, and the marker file that counts these writes; writes are
/// made one at a time.
#[derive(Debug)]
pub(super) struct DurableWriteQueue {
    pub(super) marker: StoreMarkerFile,
    /// Rows to be written; `None` removes a row. Rows that could not be written wait for the next
    /// write.
    pub(super) rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The database's name, serial and purges as they are read at its opening, without the owner's
/// rows.
pub(super) struct ControlRows {
    pub(super) name: Option<[u8; 16]>,
    pub(super) serial: u64,
    /// Recorded purges; `None` if a row is invalid.
    pub(super) purges: Option<PurgeRecords>,
}

/// Reads all rows of the control family when the database is opened, so that damage shows at once.
pub(super) fn read_control_rows(rocks: &RocksDatabase) -> Result<ControlRows, RocksError> {
    let mut control = ControlRows {
        name: None,
        serial: 0,
        purges: None,
    };
    let mut purges = Vec::new();
    let mut sound = true;
    let mut rows = rocks.iterate_key_range(CONTROL_FAMILY, &[], &[0xff])?;
    while let Some((key, value)) = rows.next_row()? {
        if let Some(row) = key.strip_prefix(PURGE_PREFIX) {
            match value.try_into() {
                Ok(generation) => purges.push((row.to_vec(), u64::from_be_bytes(generation))),
                Err(_) => sound = false,
            }
        } else if key == NAME_ROW {
            control.name = value.try_into().ok();
        } else if key == SERIAL_ROW {
            control.serial = value.try_into().map_or(0, u64::from_be_bytes);
        }
    }
    if sound {
        let rows = purges
            .iter()
            .map(|(row, generation)| (&row[..], *generation));
        control.purges = PurgeRecords::decode_purge_rows(rows);
    }
    Ok(control)
}

/// Returns the rows of the control family of a new database: its name, serial and purges.
pub(super) fn initial_control_rows(
    name: &[u8; 16],
    purges: &PurgeRecords,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = vec![
        (NAME_ROW.to_vec(), name.to_vec()),
        (SERIAL_ROW.to_vec(), 0u64.to_be_bytes().to_vec()),
    ];
    rows.extend(
        purges
            .encode_purge_rows()
            .into_iter()
            .map(|(row, generation)| (purge_row_key(&row), generation.to_be_bytes().to_vec())),
    );
    rows
}

/// Returns the key of a control row for the purge `row`, with the prefix of purges.
pub(super) fn purge_row_key(row: &[u8]) -> Vec<u8> {
    [PURGE_PREFIX, row].concat()
}

/// Returns the key of the control row that stores the owner's value of `key`.
pub(super) fn owner_row_key(key: &[u8]) -> Vec<u8> {
    [OWNER_PREFIX, key].concat()
}

/// Returns the owner's key of a control row; `None` if the row is not the owner's.
pub(super) fn owner_key_of_row(row: &[u8]) -> Option<&[u8]> {
    row.strip_prefix(OWNER_PREFIX)
}
