//! Pieces of a request body that the proxy must not buffer itself.

use proxy_wasm::types::BufferType;

use crate::abi;

/// Maximum size of joined pieces, in bytes: short pieces are joined, so that
/// none takes much more memory than its bytes.
const MAX_JOINED_BYTES: usize = 16 << 10;

/// The pieces of a request body that the filter buffers itself, in the order of their arrival. One
/// growing buffer would be copied, and leave a hole in the sandbox's memory, each time it grows.
#[derive(Debug, Default)]
pub struct RequestBodyPieces {
    all: Vec<Vec<u8>>,
    total_length: usize,
}

impl RequestBodyPieces {
    /// Returns the number of bytes of all pieces.
    pub fn total_length(&self) -> usize {
        self.total_length
    }

    /// Whether [`push`](Self::push) has the memory for another piece.
    pub fn has_piece_room(&mut self) -> bool {
        self.all.try_reserve(1).is_ok()
    }

    /// Appends a piece. Short pieces are joined up to [`MAX_JOINED_BYTES`], so that many of them
    /// need few allocations.
    pub fn push(&mut self, piece: Vec<u8>) {
        self.total_length += piece.len();
        if let Some(last) = self.all.last_mut() {
            let is_short = last.len() + piece.len() <= MAX_JOINED_BYTES;
            if is_short && last.try_reserve(piece.len()).is_ok() {
                last.extend_from_slice(&piece);
                return;
            }
        }
        self.all.push(piece);
    }

    /// Inserts all pieces before the proxy's part of the body. `false`: the
    /// proxy has no buffer for them.
    pub fn restore_to_proxy(&mut self) -> bool {
        let all = std::mem::take(self).all;
        let mut pieces = all.iter().rev();
        pieces.all(|piece| abi::prepend_to_buffer(BufferType::HttpRequestBody, piece))
    }
}
