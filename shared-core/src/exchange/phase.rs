//! What an exchange has in each state, and no longer than in that.

use std::sync::Arc;

use super::batch::Mixed;
use super::held::{Held, Whole};
use super::hit::Decoding;
use super::streaming::Stream;
use super::transitions::{Event, State};
use super::waits::Waits;
use super::{Exchange, Misuse};
use crate::cache::entry::Lent;
use crate::gzip::splice::Body;
use crate::memory::Reservation;

/// A [`State`] with what belongs to it. It is moved often, so it is small.
#[derive(Debug)]
pub(super) enum Phase {
    Start,
    AwaitingHead,
    AwaitingPart(Box<Mixed>),
    AwaitingUpdate,
    Waiting(Box<Waits>),
    Decoding(Box<Decoding>),
    Replacing(Box<Answer>),
    Collecting(Box<Whole>),
    CollectingPart(Box<Mixed>),
    Coding(Box<Whole>),
    Merging(Box<Mixed>),
    Ready(Box<Answer>),
    Passing(Box<Held>),
    Streaming(Box<Stream>),
    Finished,
    Cut,
}

impl Phase {
    fn state(&self) -> State {
        match self {
            Phase::Start => State::Start,
            Phase::AwaitingHead => State::AwaitingHead,
            Phase::AwaitingPart(_) => State::AwaitingPart,
            Phase::AwaitingUpdate => State::AwaitingUpdate,
            Phase::Waiting(_) => State::Waiting,
            Phase::Decoding(_) => State::Decoding,
            Phase::Replacing(_) => State::Replacing,
            Phase::Collecting(_) => State::Collecting,
            Phase::CollectingPart(_) => State::CollectingPart,
            Phase::Coding(_) => State::Coding,
            Phase::Merging(_) => State::Merging,
            Phase::Ready(_) => State::Ready,
            Phase::Passing(_) => State::Passing,
            Phase::Streaming(_) => State::Streaming,
            Phase::Finished => State::Finished,
            Phase::Cut => State::Cut,
        }
    }
}

/// The moves that change nothing but the state; others leave it as it is.
impl Phase {
    pub(super) fn collecting_part(self) -> Self {
        match self {
            Phase::AwaitingPart(mixed) => Phase::CollectingPart(mixed),
            other => other,
        }
    }

    pub(super) fn ended(self) -> Self {
        match self {
            Phase::Collecting(whole) => Phase::Coding(whole),
            Phase::CollectingPart(mixed) => Phase::Merging(mixed),
            Phase::Replacing(answer) => Phase::Ready(answer),
            other => other,
        }
    }

    pub(super) fn given_up(self) -> Self {
        match self {
            Phase::AwaitingHead | Phase::AwaitingUpdate => Phase::Passing(Box::default()),
            Phase::AwaitingPart(mixed) => Phase::CollectingPart(mixed),
            Phase::Collecting(whole) => Phase::Passing(Box::new(whole.held)),
            Phase::CollectingPart(mixed) => Phase::Passing(Box::new(mixed.held)),
            Phase::Coding(whole) => Phase::Ready(Answer::of(whole.held)),
            Phase::Merging(mixed) => Phase::Ready(Answer::of(mixed.held)),
            other => other,
        }
    }

    /// What is held goes out, with what was made of it.
    pub(super) fn coded(self, stored: Option<Body>) -> Self {
        let held = match self {
            Phase::Coding(whole) => whole.held,
            Phase::Merging(mixed) => mixed.held,
            other => return other,
        };
        let mut answer = Answer::of(held);
        answer.stored = stored;
        Phase::Ready(answer)
    }
}

/// What there is to send.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The status of a stored one; 0: it is the node's.
    pub(super) status: u16,
    /// What the node sent, or what was made of it.
    pub(super) body: Vec<u8>,
    /// What was stored, or was made to be stored.
    pub(super) stored: Option<Body>,
    /// The memory that it takes, until it has been sent.
    pub(super) _reservation: Option<Reservation>,
    pub(super) _borrowed: Borrowed,
}

impl Answer {
    fn of(held: Held) -> Box<Self> {
        Box::new(Self {
            body: held.body,
            _reservation: held.reservation,
            _borrowed: held.borrowed,
            ..Self::default()
        })
    }
}

/// Memory for what is given out of stored answers.
pub(super) type Borrowed = Vec<Loan>;

#[derive(Debug)]
pub(super) enum Loan {
    /// For what was decoded.
    Decoded(Arc<Lent>),
    /// For what was put together of it.
    Assembled { _memory: Reservation },
}

impl Exchange {
    /// Where the exchange stands.
    pub fn state(&self) -> State {
        self.phase.state()
    }

    /// Moves along the table; `next` is made of what the state had, and does not
    /// fail.
    pub(super) fn move_on(
        &mut self,
        event: Event,
        next: impl FnOnce(Phase) -> Phase,
    ) -> Result<(), Misuse> {
        let state = self.allows(event)?;
        self.phase = next(std::mem::replace(&mut self.phase, Phase::Cut));
        debug_assert_eq!(self.state(), state, "{event:?}");
        Ok(())
    }

    /// The state after `event`.
    pub(super) fn allows(&self, event: Event) -> Result<State, Misuse> {
        self.state().after(event).ok_or_else(|| self.misuse(event))
    }

    pub(super) fn misuse(&self, event: Event) -> Misuse {
        Misuse {
            state: self.state(),
            event,
        }
    }

    /// The answer that is ready, or will be when the node's has ended.
    pub(super) fn answer(&self) -> Option<&Answer> {
        match &self.phase {
            Phase::Ready(answer) | Phase::Replacing(answer) => Some(answer),
            _ => None,
        }
    }

    pub(super) fn answer_mut(&mut self) -> Option<&mut Answer> {
        match &mut self.phase {
            Phase::Ready(answer) | Phase::Replacing(answer) => Some(answer),
            _ => None,
        }
    }

    /// The batch of which the node is asked a part.
    pub(super) fn mixed(&self) -> Option<&Mixed> {
        match &self.phase {
            Phase::AwaitingPart(mixed) | Phase::CollectingPart(mixed) | Phase::Merging(mixed) => {
                Some(mixed)
            }
            _ => None,
        }
    }
}
