//! What is stored of an answer, and how it comes to that.

use super::fill::Fill;
use crate::cache::reason::Reason;
use crate::config::Config;

/// What is stored of an answer, and how it comes to that.
#[derive(Debug, Default)]
pub(in crate::exchange) struct Storing {
    /// What will be stored when the answer is whole.
    pub(in crate::exchange) fill: Option<Box<Fill>>,
    /// The node's own head was judged.
    pub(in crate::exchange) is_judged: bool,
    /// It is fed from the node's own body.
    pub(in crate::exchange) is_apart: bool,
    /// The length that the node gave its body, and how much of it has come.
    pub(in crate::exchange) node_length: Option<u64>,
    pub(in crate::exchange) node_sent: u64,
}

impl Storing {
    /// What is fed by what the client gets.
    pub(in crate::exchange) fn of_sent(&mut self) -> Option<&mut Fill> {
        self.fill.as_deref_mut().filter(|_| !self.is_apart)
    }

    /// Keeps a copy of what the client gets, where that is what the node sent.
    pub(in crate::exchange) fn copy_of_sent(
        &mut self,
        config: &Config,
        reason: &mut Reason,
        piece: &[u8],
    ) {
        if !self.is_apart {
            self.copy(config, reason, piece);
        }
    }

    /// Keeps a copy for what will be stored; if that can't be, nothing will.
    pub(in crate::exchange) fn copy(&mut self, config: &Config, reason: &mut Reason, piece: &[u8]) {
        let limit = usize::try_from(config.memory).unwrap_or(usize::MAX);
        let Some(mut fill) = self.fill.take() else {
            return;
        };
        if fill.is_beyond(piece.len()) {
            *reason = Reason::Length;
            fill.refuse_for_now();
        } else if fill.collect(piece, &config.process.budget, limit) {
            self.fill = Some(fill);
        } else {
            *reason = Reason::Memory;
            fill.refuse();
        }
    }
}
