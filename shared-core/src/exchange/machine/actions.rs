//! Actions that an exchange requests from its host, and the error for a misuse.

use std::fmt;

use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};

/// The action that the host takes after a response head: pass, copy, buffer, stream or fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseHeadAction {
    /// Send the head with the head edits, and stream the body unchanged.
    Pass,
    /// Send the response as with `Pass`, and report each piece of the body to
    /// `Exchange::observe_passed_piece`: a copy of it may be stored.
    Tee,
    /// Withhold the head and collect the body.
    Buffer,
    /// Send the head with the head edits, and the body through the encoder.
    Stream,
    /// Send nothing of the response: respond with 502.
    Fail,
}

/// The action that the host takes after a piece of a body whose head is withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPieceAction {
    /// The piece was buffered.
    Buffered,
    /// The piece was not buffered: send the head, the buffered bytes, this piece, and the rest
    /// of the body unchanged.
    SendOriginal,
    /// The piece was not buffered: send the head, then this piece and the rest through the
    /// encoder, which has the buffered bytes.
    Stream,
}

/// The action that the host takes at the end of a body whose head is withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEndAction {
    /// Run the compression.
    Code {
        /// Whether the compression takes too long for an event loop.
        off_loop: bool,
    },
    /// The body is truncated: respond with 502.
    Fail,
    /// Send the head and finish the stream: the body may be truncated, and gets no length.
    Stream,
    /// Send the head, and the body unchanged.
    Send,
}

/// The error of a call that the present state of an exchange does not allow: a mistake of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMisuse {
    /// State of the exchange.
    pub state: ExchangeState,
    /// Event that the state does not allow.
    pub event: ExchangeEvent,
}

impl fmt::Display for HostMisuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "event {:?} is not allowed in state {:?}",
            self.event, self.state
        )
    }
}

impl std::error::Error for HostMisuse {}
