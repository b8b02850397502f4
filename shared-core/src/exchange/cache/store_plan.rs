//! The plan for storing a response: its fill, and the bytes from which the fill is fed.

use super::fill::CacheFill;
use crate::cache::reason::Reason;
use crate::config::RouteConfig;

/// The plan for storing the response of an exchange: its fill, and the source of the bytes that
/// feed the fill.
#[derive(Debug, Default)]
pub(in crate::exchange) struct StorePlan {
    /// Fill that is published when the response is complete.
    pub(in crate::exchange) fill: Option<Box<CacheFill>>,
    /// The node's own head was read.
    pub(in crate::exchange) is_judged: bool,
    /// The fill is fed from the node's own body.
    pub(in crate::exchange) is_apart: bool,
    /// Declared length of the node's body, and the bytes of it that have arrived.
    pub(in crate::exchange) node_length: Option<u64>,
    pub(in crate::exchange) node_sent: u64,
}

impl StorePlan {
    /// Returns the fill if it is fed from the bytes that the client receives.
    pub(in crate::exchange) fn client_fed_fill(&mut self) -> Option<&mut CacheFill> {
        self.fill.as_deref_mut().filter(|_| !self.is_apart)
    }

    /// Copies a piece that the client receives, where the fill is fed from these bytes.
    pub(in crate::exchange) fn copy_sent_bytes(
        &mut self,
        config: &RouteConfig,
        reason: &mut Reason,
        piece: &[u8],
    ) {
        if !self.is_apart {
            self.copy_into_fill(config, reason, piece);
        }
    }

    /// Copies a piece into the fill, or discards the fill if that fails.
    pub(in crate::exchange) fn copy_into_fill(
        &mut self,
        config: &RouteConfig,
        reason: &mut Reason,
        piece: &[u8],
    ) {
        let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let Some(mut fill) = self.fill.take() else {
            return;
        };
        if fill.would_exceed_max_entry(piece.len()) {
            *reason = Reason::Length;
            fill.record_piece_rejection(*reason);
            fill.finish_uncacheable();
        } else if fill.collect_body_piece(piece, &config.process.budget, limit) {
            self.fill = Some(fill);
        } else {
            *reason = Reason::Memory;
            fill.record_piece_rejection(*reason);
            fill.finish_unstored();
        }
    }
}
