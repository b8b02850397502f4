//! The data of an exchange in each state, which is dropped when the state is left.

use super::buffered::{BodyPipeline, BufferedBody};
use super::cache::split_batch::SplitBatch;
use super::cache::waiting::WaitingRequest;
use super::response_body::{PendingDecode, ResponseBody};
use super::stream_encoder::BodyStream;
use super::transitions::State;
use crate::gzip::splice::Body;

/// A [`State`] with its data. It is small, because it is moved often.
#[derive(Debug)]
pub(super) enum Phase {
    Start,
    AwaitingHead,
    AwaitingPart(Box<SplitBatch>),
    AwaitingUpdate,
    Rewriting(Vec<u8>),
    Waiting(Box<WaitingRequest>),
    Decoding(Box<PendingDecode>),
    Replacing(Box<ResponseBody>),
    Collecting(Box<BodyPipeline>),
    CollectingPart(Box<SplitBatch>),
    Coding(Box<BodyPipeline>),
    Merging(Box<SplitBatch>),
    Ready(Box<ResponseBody>),
    Passing(Box<BufferedBody>),
    Streaming(Box<BodyStream>),
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
            Phase::Replacing(_) => State::DiscardingUpstream,
            Phase::Collecting(_) => State::Buffering,
            Phase::CollectingPart(_) => State::BufferingPart,
            Phase::Coding(_) => State::Compressing,
            Phase::Merging(_) => State::Merging,
            Phase::Ready(_) => State::Ready,
            Phase::Passing(_) => State::Passing,
            Phase::Streaming(_) => State::Streaming,
            Phase::Finished => State::Finished,
            Phase::Cut => State::Aborted,
        }
    }

    /// Moves from awaiting the upstream's part of a batch to buffering it.
    pub(super) fn into_buffering_part(self) -> Self {
        match self {
            Phase::AwaitingPart(mixed) => Phase::CollectingPart(mixed),
            other => other,
        }
    }

    /// Moves to the phase after the end of the upstream's body.
    pub(super) fn into_ended(self) -> Self {
        match self {
            Phase::Collecting(whole) => Phase::Coding(whole),
            Phase::CollectingPart(mixed) => Phase::Merging(mixed),
            Phase::Replacing(answer) => Phase::Ready(answer),
            other => other,
        }
    }

    /// Moves to the phase in which the received bytes are sent unchanged.
    pub(super) fn into_original(self) -> Self {
        match self {
            Phase::AwaitingHead | Phase::AwaitingUpdate => Phase::Passing(Box::default()),
            Phase::Rewriting(_) => Phase::AwaitingHead,
            Phase::AwaitingPart(mixed) => Phase::CollectingPart(mixed),
            Phase::Collecting(whole) => Phase::Passing(Box::new(whole.buffered)),
            Phase::CollectingPart(mixed) => Phase::Passing(Box::new(mixed.buffered)),
            Phase::Coding(whole) => Phase::Ready(ResponseBody::from_buffered(whole.buffered)),
            Phase::Merging(mixed) => Phase::Ready(ResponseBody::from_buffered(mixed.buffered)),
            other => other,
        }
    }

    /// Moves to `Ready` with the buffered body, and with the `stored` body if one was made from
    /// it.
    pub(super) fn into_ready(self, stored: Option<Body>) -> Self {
        let (buffered, status) = match self {
            Phase::Coding(whole) => (whole.buffered, 0),
            Phase::Merging(mixed) => (mixed.buffered, mixed.status),
            other => return other,
        };
        let mut answer = ResponseBody::from_buffered(buffered);
        answer.status = status;
        answer.stored = stored;
        Phase::Ready(answer)
    }
}
