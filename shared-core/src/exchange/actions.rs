//! What an exchange asks of its host, and what it refuses.

use std::fmt;

use super::transitions::{Event, State};

/// What to do with a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadAction {
    /// Send it, with the head edits, and the body as it comes.
    Pass,
    /// The same, and `Exchange::observe` each piece of the body: a copy of
    /// it may be stored.
    Tee,
    /// Keep it back and collect the body.
    Hold,
    /// Send it, with the head edits, and the body through the encoder.
    Stream,
    /// Send nothing of it: answer 502.
    Fail,
}

/// What to do with a piece of a held body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceAction {
    /// It was taken.
    Taken,
    /// It was not: send the head, what was taken so far, this piece, the rest.
    GiveUp,
    /// It was not: send the head, this piece and the rest through the encoder,
    /// which has what was taken so far.
    Stream,
}

/// What to do at the end of a held body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndAction {
    /// Run the coder, soon.
    Code {
        /// It will take so long that an event loop should not wait for it.
        off_loop: bool,
    },
    /// The body is not whole. There is nothing to send but a 502.
    Fail,
    /// It may be whole or not, so it gets no length: send the head and finish
    /// the stream.
    Stream,
    /// There is nothing to code: send the head, and the body as it is.
    Send,
}

/// A call that the present state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse {
    /// Where the exchange stood.
    pub state: State,
    /// What it was told.
    pub event: Event,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} can't happen in state {:?}", self.event, self.state)
    }
}

impl std::error::Error for Misuse {}
