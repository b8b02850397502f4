//! The data of an exchange in each state, which is dropped when the state is left.

use crate::exchange::cache::batch::split::SplitBatch;
use crate::exchange::cache::waiting::WaitingRequest;
use crate::exchange::machine::transitions::ExchangeState;
use crate::exchange::response::body::{PendingDecode, ResponseBody};
use crate::exchange::response::pipeline::{BodyPipeline, BufferedBody};
use crate::exchange::response::stream_encoder::BodyStream;
use crate::gzip::splice::SlicedBody;

/// The data of an exchange in each [`ExchangeState`], one variant per state. It is small, because
/// it is moved often.
#[derive(Debug)]
pub(in crate::exchange) enum Phase {
    Start,
    AwaitingHead,
    AwaitingPart(Box<SplitBatch>),
    AwaitingUpdate,
    Rewriting(Vec<u8>),
    Waiting(Box<WaitingRequest>),
    Decoding(Box<PendingDecode>),
    DiscardingUpstream(Box<ResponseBody>),
    Buffering(Box<BodyPipeline>),
    BufferingPart(Box<SplitBatch>),
    Compressing(Box<BodyPipeline>),
    Merging(Box<SplitBatch>),
    Ready(Box<ResponseBody>),
    Passing(Box<BufferedBody>),
    Streaming(Box<BodyStream>),
    Finished,
    Aborted,
}

impl Phase {
    pub(in crate::exchange) fn exchange_state(&self) -> ExchangeState {
        match self {
            Phase::Start => ExchangeState::Start,
            Phase::AwaitingHead => ExchangeState::AwaitingHead,
            Phase::AwaitingPart(_) => ExchangeState::AwaitingPart,
            Phase::AwaitingUpdate => ExchangeState::AwaitingUpdate,
            Phase::Rewriting(_) => ExchangeState::Rewriting,
            Phase::Waiting(_) => ExchangeState::Waiting,
            Phase::Decoding(_) => ExchangeState::Decoding,
            Phase::DiscardingUpstream(_) => ExchangeState::DiscardingUpstream,
            Phase::Buffering(_) => ExchangeState::Buffering,
            Phase::BufferingPart(_) => ExchangeState::BufferingPart,
            Phase::Compressing(_) => ExchangeState::Compressing,
            Phase::Merging(_) => ExchangeState::Merging,
            Phase::Ready(_) => ExchangeState::Ready,
            Phase::Passing(_) => ExchangeState::Passing,
            Phase::Streaming(_) => ExchangeState::Streaming,
            Phase::Finished => ExchangeState::Finished,
            Phase::Aborted => ExchangeState::Aborted,
        }
    }

    /// Moves from awaiting the upstream's part of a batch to buffering it.
    pub(in crate::exchange) fn into_buffering_part(self) -> Self {
        match self {
            Phase::AwaitingPart(mixed) => Phase::BufferingPart(mixed),
            other => other,
        }
    }

    /// Moves to the phase after the end of the upstream's body.
    pub(in crate::exchange) fn into_ended(self) -> Self {
        match self {
            Phase::Buffering(whole) => Phase::Compressing(whole),
            Phase::BufferingPart(mixed) => Phase::Merging(mixed),
            Phase::DiscardingUpstream(answer) => Phase::Ready(answer),
            other => other,
        }
    }

    /// Moves to the phase in which the received bytes are sent unchanged.
    pub(in crate::exchange) fn into_original(self) -> Self {
        match self {
            Phase::AwaitingHead | Phase::AwaitingUpdate => Phase::Passing(Box::default()),
            Phase::Rewriting(_) => Phase::AwaitingHead,
            Phase::AwaitingPart(mixed) => Phase::BufferingPart(mixed),
            Phase::Buffering(whole) => Phase::Passing(Box::new(whole.buffered)),
            Phase::BufferingPart(mixed) => Phase::Passing(Box::new(mixed.buffered)),
            Phase::Compressing(whole) => Phase::Ready(ResponseBody::from_buffered(whole.buffered)),
            Phase::Merging(mixed) => Phase::Ready(ResponseBody::from_buffered(mixed.buffered)),
            other => other,
        }
    }

    /// Moves to `Ready` with the buffered body, and with the `stored` body if one was made from
    /// it.
    pub(in crate::exchange) fn into_ready(self, stored: Option<SlicedBody>) -> Self {
        let (buffered, status) = match self {
            Phase::Compressing(whole) => (whole.buffered, 0),
            Phase::Merging(mixed) => (mixed.buffered, mixed.status),
            other => return other,
        };
        let mut answer = ResponseBody::from_buffered(buffered);
        answer.status = status;
        answer.stored = stored;
        Phase::Ready(answer)
    }
}
