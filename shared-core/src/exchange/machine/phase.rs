//! The data of an exchange in each state, which is dropped when the state is left.

use crate::exchange::cache::batch::split::SplitBatch;
use crate::exchange::cache::waiting::WaitingRequest;
use crate::exchange::machine::transitions::ExchangeState;
use crate::exchange::response::pipeline::{BufferedBody, BufferedBodyPipeline};
use crate::exchange::response::ready_response::{ReadyResponse, StoredResponseToDecode};
use crate::exchange::response::stream_encoder::CompressedBodyStream;
use crate::gzip::splice::SlicedBody;

/// The data of an exchange in each [`ExchangeState`], one variant per state. It is small, because
/// it is moved often.
#[derive(Debug)]
pub(in crate::exchange) enum ExchangePhase {
    Start,
    AwaitingHead,
    AwaitingPart(Box<SplitBatch>),
    AwaitingUpdate,
    Rewriting(Vec<u8>),
    Waiting(Box<WaitingRequest>),
    Decoding(Box<StoredResponseToDecode>),
    DiscardingUpstream(Box<ReadyResponse>),
    Buffering(Box<BufferedBodyPipeline>),
    BufferingPart(Box<SplitBatch>),
    Compressing(Box<BufferedBodyPipeline>),
    Merging(Box<SplitBatch>),
    Ready(Box<ReadyResponse>),
    Passing(Box<BufferedBody>),
    Streaming(Box<CompressedBodyStream>),
    Finished,
    Aborted,
}

impl ExchangePhase {
    pub(in crate::exchange) fn exchange_state(&self) -> ExchangeState {
        match self {
            ExchangePhase::Start => ExchangeState::Start,
            ExchangePhase::AwaitingHead => ExchangeState::AwaitingHead,
            ExchangePhase::AwaitingPart(_) => ExchangeState::AwaitingPart,
            ExchangePhase::AwaitingUpdate => ExchangeState::AwaitingUpdate,
            ExchangePhase::Rewriting(_) => ExchangeState::Rewriting,
            ExchangePhase::Waiting(_) => ExchangeState::Waiting,
            ExchangePhase::Decoding(_) => ExchangeState::Decoding,
            ExchangePhase::DiscardingUpstream(_) => ExchangeState::DiscardingUpstream,
            ExchangePhase::Buffering(_) => ExchangeState::Buffering,
            ExchangePhase::BufferingPart(_) => ExchangeState::BufferingPart,
            ExchangePhase::Compressing(_) => ExchangeState::Compressing,
            ExchangePhase::Merging(_) => ExchangeState::Merging,
            ExchangePhase::Ready(_) => ExchangeState::Ready,
            ExchangePhase::Passing(_) => ExchangeState::Passing,
            ExchangePhase::Streaming(_) => ExchangeState::Streaming,
            ExchangePhase::Finished => ExchangeState::Finished,
            ExchangePhase::Aborted => ExchangeState::Aborted,
        }
    }

    /// Moves from awaiting the upstream's part of a batch to buffering it.
    pub(in crate::exchange) fn into_buffering_part(self) -> Self {
        match self {
            ExchangePhase::AwaitingPart(mixed) => ExchangePhase::BufferingPart(mixed),
            other => other,
        }
    }

    /// Moves to the phase after the end of the upstream's body.
    pub(in crate::exchange) fn into_body_ended(self) -> Self {
        match self {
            ExchangePhase::Buffering(whole) => ExchangePhase::Compressing(whole),
            ExchangePhase::BufferingPart(mixed) => ExchangePhase::Merging(mixed),
            ExchangePhase::DiscardingUpstream(answer) => ExchangePhase::Ready(answer),
            other => other,
        }
    }

    /// Moves to the phase in which the received bytes are sent unchanged.
    pub(in crate::exchange) fn into_sending_original(self) -> Self {
        match self {
            ExchangePhase::AwaitingHead | ExchangePhase::AwaitingUpdate => {
                ExchangePhase::Passing(Box::default())
            }
            ExchangePhase::Rewriting(_) => ExchangePhase::AwaitingHead,
            ExchangePhase::AwaitingPart(mixed) => ExchangePhase::BufferingPart(mixed),
            ExchangePhase::Buffering(whole) => ExchangePhase::Passing(Box::new(whole.buffered)),
            ExchangePhase::BufferingPart(mixed) => ExchangePhase::Passing(Box::new(mixed.buffered)),
            ExchangePhase::Compressing(whole) => {
                ExchangePhase::Ready(ReadyResponse::from_buffered_body(whole.buffered))
            }
            ExchangePhase::Merging(mixed) => {
                ExchangePhase::Ready(ReadyResponse::from_buffered_body(mixed.buffered))
            }
            other => other,
        }
    }

    /// Moves to `Ready` with the buffered body, and with the `stored` body if one was made from
    /// it.
    pub(in crate::exchange) fn into_ready(self, stored: Option<SlicedBody>) -> Self {
        let (buffered, status) = match self {
            ExchangePhase::Compressing(whole) => (whole.buffered, 0),
            ExchangePhase::Merging(mixed) => (mixed.buffered, mixed.status),
            other => return other,
        };
        let mut answer = ReadyResponse::from_buffered_body(buffered);
        answer.status = status;
        answer.stored = stored;
        ExchangePhase::Ready(answer)
    }
}
