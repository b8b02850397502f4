//! Pieces of a request's body that the proxy must not keep itself.

use super::REQUEST;
use crate::abi;

/// Shorter pieces are joined, so that none takes much more than its bytes. Bytes.
const JOINED: usize = 16 << 10;

/// Pieces in the order in which they came. They are not joined in one buffer, which would
/// be copied, and leave a hole in the sandbox's memory, each time it grew.
#[derive(Debug, Default)]
pub struct Pieces {
    all: Vec<Vec<u8>>,
    length: usize,
}

impl Pieces {
    /// Bytes of all pieces.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether [`push`](Self::push) has the memory for another piece.
    pub fn has_room(&mut self) -> bool {
        self.all.try_reserve(1).is_ok()
    }

    pub fn push(&mut self, piece: Vec<u8>) {
        self.length += piece.len();
        if let Some(last) = self.all.last_mut() {
            let is_short = last.len() + piece.len() <= JOINED;
            if is_short && last.try_reserve(piece.len()).is_ok() {
                last.extend_from_slice(&piece);
                return;
            }
        }
        self.all.push(piece);
    }

    /// Puts all pieces before what the proxy has of the body. `false`: it has no place for
    /// them.
    pub fn give_back(&mut self) -> bool {
        let all = std::mem::take(self).all;
        let mut pieces = all.iter().rev();
        pieces.all(|piece| abi::prepend(REQUEST, piece))
    }
}
