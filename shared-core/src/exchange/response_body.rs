//! Bodies that are ready to send, and entries that must be decompressed first.

use std::sync::Arc;

use super::buffered::{BufferedBody, EntryReservations};
use crate::cache::entry::CacheEntry;
use crate::cache::Key;
use crate::gzip::splice::Body;
use crate::memory::Reservation;

/// A response whose body is decided, with the memory that it keeps until it is sent.
#[derive(Debug, Default)]
pub(super) struct ResponseBody {
    /// Status of a stored response; 0 if the upstream's status is sent.
    pub(super) status: u16,
    /// Whether sszip made the response, without a request to the node.
    pub(super) is_ours: bool,
    /// Body that the upstream sent, or that was made from it.
    pub(super) body: Vec<u8>,
    /// Body of an entry that was stored, or was made to be stored.
    pub(super) stored: Option<Body>,
    /// Memory of the body, until it was sent.
    pub(super) _reservation: Option<Reservation>,
    pub(super) borrowed: EntryReservations,
}

impl ResponseBody {
    pub(super) fn from_buffered(buffered: BufferedBody) -> Box<Self> {
        Box::new(Self {
            body: buffered.body,
            _reservation: buffered.reservation,
            borrowed: buffered.borrowed,
            ..Self::default()
        })
    }
}

/// A stored response that must be decompressed before it is sent, with the memory that was
/// reserved for it.
#[derive(Debug, Default)]
pub(super) enum PendingDecode {
    /// A single entry with its key and the id of its response; the id is `None` for a resource.
    One(Key, Arc<CacheEntry>, Option<Vec<u8>>, EntryReservations),
    /// The entries of a batch, with their keys and ids. A key is `None` for a denied call.
    Batch {
        answers: Vec<(Option<Key>, Arc<CacheEntry>, Vec<u8>)>,
        gzip: bool,
        borrowed: EntryReservations,
    },
    /// The decompression has begun.
    #[default]
    Running,
}
