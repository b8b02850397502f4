//! What there is to send, or what it has to be decoded from.

use std::sync::Arc;

use super::held::{Borrowed, Held};
use crate::cache::entry::Entry;
use crate::cache::Key;
use crate::gzip::splice::Body;
use crate::memory::Reservation;

/// What there is to send.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The status of a stored one; 0: it is the node's.
    pub(super) status: u16,
    /// All of it is ours: no node was asked.
    pub(super) is_ours: bool,
    /// What the node sent, or what was made of it.
    pub(super) body: Vec<u8>,
    /// What was stored, or was made to be stored.
    pub(super) stored: Option<Body>,
    /// The memory that it takes, until it has been sent.
    pub(super) _reservation: Option<Reservation>,
    pub(super) borrowed: Borrowed,
}

impl Answer {
    pub(super) fn of(held: Held) -> Box<Self> {
        Box::new(Self {
            body: held.body,
            _reservation: held.reservation,
            borrowed: held.borrowed,
            ..Self::default()
        })
    }
}

/// A stored answer that has to be decoded before it can be sent, with the memory
/// that was taken for that.
#[derive(Debug, Default)]
pub(super) enum Decoding {
    /// Where it is stored, and the id that it gets; `None`: it is a resource.
    One(Key, Arc<Entry>, Option<Vec<u8>>, Borrowed),
    /// The answers of a batch, where they are stored, and their ids. `None`: it is denied.
    Batch {
        answers: Vec<(Option<Key>, Arc<Entry>, Vec<u8>)>,
        gzip: bool,
        borrowed: Borrowed,
    },
    /// It has begun.
    #[default]
    Begun,
}
