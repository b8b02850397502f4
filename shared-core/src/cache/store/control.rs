//! The family of what must last: which database this is, how many lasting
//! writes there were, the purges, and what the owner keeps here.

use std::collections::BTreeMap;

use super::config::CONTROL;
use super::marker::Marker;
use super::purges::Purges;
use super::rocks::{Failure, Rocks};

const NAME: &[u8] = b"name";
pub(super) const SERIAL: &[u8] = b"serial";
const PURGE: &[u8] = b"purge/";
const OWNERS: &[u8] = b"owner/";

/// What is written one at a time, and must last.
#[derive(Debug)]
pub(super) struct Lasting {
    pub(super) marker: Marker,
    /// Rows that are to be written; `None` takes a row out. Those that could
    /// not be written wait for the next write.
    pub(super) rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// What the family holds, apart from the owner's rows.
pub(super) struct Control {
    pub(super) name: Option<[u8; 16]>,
    pub(super) serial: u64,
    /// `None` if there are rows among the purges that are none.
    pub(super) purges: Option<Purges>,
}

/// Reads all of it, so that damage shows at once.
pub(super) fn read(rocks: &Rocks) -> Result<Control, Failure> {
    let mut control = Control {
        name: None,
        serial: 0,
        purges: None,
    };
    let mut purges = Vec::new();
    let mut sound = true;
    let mut rows = rocks.rows(CONTROL, &[], &[0xff])?;
    while let Some((key, value)) = rows.next_row()? {
        if let Some(row) = key.strip_prefix(PURGE) {
            match value.try_into() {
                Ok(generation) => purges.push((row.to_vec(), u64::from_be_bytes(generation))),
                Err(_) => sound = false,
            }
        } else if key == NAME {
            control.name = value.try_into().ok();
        } else if key == SERIAL {
            control.serial = value.try_into().map_or(0, u64::from_be_bytes);
        }
    }
    if sound {
        let rows = purges
            .iter()
            .map(|(row, generation)| (&row[..], *generation));
        control.purges = Purges::load(rows);
    }
    Ok(control)
}

/// What a new database begins with.
pub(super) fn first_rows(name: &[u8; 16], purges: &Purges) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = vec![
        (NAME.to_vec(), name.to_vec()),
        (SERIAL.to_vec(), 0u64.to_be_bytes().to_vec()),
    ];
    rows.extend(
        purges
            .rows()
            .into_iter()
            .map(|(row, generation)| (purge_row(&row), generation.to_be_bytes().to_vec())),
    );
    rows
}

/// The row of a purge.
pub(super) fn purge_row(row: &[u8]) -> Vec<u8> {
    [PURGE, row].concat()
}

/// The row of something that the owner keeps.
pub(super) fn owners_row(key: &[u8]) -> Vec<u8> {
    [OWNERS, key].concat()
}

/// The key of such a row.
pub(super) fn owners_key(row: &[u8]) -> Option<&[u8]> {
    row.strip_prefix(OWNERS)
}
