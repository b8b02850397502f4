//! The data of an exchange in each state, which is dropped when the state is left.

use super::answer::{Answer, Decoding};
use super::cache::part::Mixed;
use super::cache::waits::Waits;
use super::held::{Held, Whole};
use super::stream::Stream;
use super::transitions::State;
use crate::gzip::splice::Body;

/// A [`State`] with its data. It is small, because it is moved often.
#[derive(Debug)]
pub(super) enum Phase {
    Start,
    AwaitingHead,
    AwaitingPart(Box<Mixed>),
    AwaitingUpdate,
    Rewriting(Vec<u8>),
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
    pub(super) fn state(&self) -> State {
        match self {
            Phase::Start => State::Start,
            Phase::AwaitingHead => State::AwaitingHead,
            Phase::AwaitingPart(_) => State::AwaitingPart,
            Phase::AwaitingUpdate => State::AwaitingUpdate,
            Phase::Rewriting(_) => State::Rewriting,
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
            Phase::Rewriting(_) => Phase::AwaitingHead,
            Phase::AwaitingPart(mixed) => Phase::CollectingPart(mixed),
            Phase::Collecting(whole) => Phase::Passing(Box::new(whole.held)),
            Phase::CollectingPart(mixed) => Phase::Passing(Box::new(mixed.held)),
            Phase::Coding(whole) => Phase::Ready(Answer::of(whole.held)),
            Phase::Merging(mixed) => Phase::Ready(Answer::of(mixed.held)),
            other => other,
        }
    }

    /// Moves to `Ready` with the buffered body, and with the `stored` body if one was made from
    /// it.
    pub(super) fn coded(self, stored: Option<Body>) -> Self {
        let (held, status) = match self {
            Phase::Coding(whole) => (whole.held, 0),
            Phase::Merging(mixed) => (mixed.held, mixed.status),
            other => return other,
        };
        let mut answer = Answer::of(held);
        answer.status = status;
        answer.stored = stored;
        Phase::Ready(answer)
    }
}
