//! A probe in flight, with its response as far as it was received.

use crate::config::node_capabilities::BeaconProbeEndpoint;
use crate::exchange::machine::message_head::ResponseContentCoding;
use crate::memory;

/// Maximum length of a response. Bytes. The constants of mainnet have 10 KB.
pub(in crate::exchange) const MAX_RESPONSE_LENGTH: usize = 128 << 10;

/// A background request for one capability of a node, with its response as far as it was received.
#[derive(Debug)]
pub(in crate::exchange) struct NodeProbe {
    /// Name of the node within its route.
    pub(in crate::exchange) name: Vec<u8>,
    pub(in crate::exchange) endpoint: BeaconProbeEndpoint,
    pub(in crate::exchange) coding: ResponseContentCoding,
    /// Response as far as it was received; `None` if it is unusable or too long.
    pub(in crate::exchange) body: Option<Vec<u8>>,
}

impl NodeProbe {
    /// Appends a piece of the response. A response above [`MAX_RESPONSE_LENGTH`], or without
    /// memory, is discarded.
    pub(in crate::exchange) fn append_probe_response_piece(&mut self, piece: &[u8]) {
        let Some(body) = &mut self.body else {
            return;
        };
        let is_usable =
            body.len() + piece.len() <= MAX_RESPONSE_LENGTH && !memory::is_memory_short();
        if is_usable && body.try_reserve(piece.len()).is_ok() {
            body.extend_from_slice(piece);
        } else {
            self.body = None;
        }
    }
}
