//! The transition table of the exchange. The machine makes no move that is not in the table, and
//! the diagram in `docs/exchange.md` is generated from it.

/// The position of an exchange in the transition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeState {
    /// No request head was received.
    Start,
    /// The request was forwarded or is being looked up; no response head was received.
    AwaitingHead,
    /// The part of a batch that is not stored was forwarded.
    AwaitingPart,
    /// A background update was sent for the cache alone; no client waits for it.
    AwaitingUpdate,
    /// The request's body is being rewritten before the request is forwarded.
    Rewriting,
    /// Another request fetches the response, or the lookup is repeated at once.
    Waiting,
    /// A stored response must be decompressed before it is sent, or a response to a call of a batch
    /// be assembled.
    Decoding,
    /// A stored response or an error replaces the upstream's response, whose body is discarded.
    DiscardingUpstream,
    /// The head is withheld, and the body is being buffered.
    Buffering,
    /// The head is withheld, and the upstream's part of a batch is being buffered.
    BufferingPart,
    /// The body is complete, and the compression has not run.
    Compressing,
    /// The upstream's part of a batch is complete, and is to be merged with the stored part.
    Merging,
    /// The response is decided: its head edits and body are ready to send.
    Ready,
    /// The response is passed unchanged; the buffered bytes are sent first.
    Passing,
    /// The head was sent, and the body is compressed while it arrives.
    Streaming,
    /// The end of the stream was sent.
    Finished,
    /// The upstream truncated the body: there is no response to complete.
    Aborted,
}

/// An occurrence that moves an exchange from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeEvent {
    /// The client's request head was received.
    RequestHead,
    /// The exchange takes over a background update from another one.
    Update,
    /// The response is stored.
    Hit,
    /// The response is stored in a form that must be decompressed first.
    HitToDecode,
    /// A part of the responses to a batch is stored.
    PartialHit,
    /// The response is not stored, or not yet.
    Miss,
    /// The request's body is to be rewritten.
    Rewrite,
    /// The request's body was rewritten.
    Rewritten,
    /// The request can't be rewritten or must not be forwarded: an error is the response.
    Refuse,
    /// Another request fetches the response, or the lookup has to be repeated.
    Wait,
    /// The wait ended, with or without a result.
    Wake,
    /// The upstream's head shows that a stored response is to be sent, or that the upstream's
    /// response exceeds its limit.
    Replace,
    /// A response head was received whose response is passed.
    HeadToPass,
    /// A response head was received whose body is to be buffered.
    HeadToBuffer,
    /// A response head was received whose body is to be merged with stored responses.
    HeadToMerge,
    /// A response head was received whose body is to be streamed through the encoder.
    HeadToStream,
    /// A piece of the body was received.
    Piece,
    /// A piece of a body that is passed was received; a copy of it may be stored.
    Observe,
    /// The head can't be withheld any longer: the body is streamed through the encoder.
    StartStream,
    /// The exchange can't proceed: the bytes received are sent unchanged.
    SendOriginal,
    /// The exchange can't proceed, and the response must not be sent unchanged.
    Fail,
    /// The body ended and is complete.
    End,
    /// The body or the connection ended before the body was complete.
    Truncated,
    /// The compression ran; its output, or the original, is to be sent.
    Compressed,
    /// The end of the stream was encoded.
    Finish,
}

/// All transitions of an exchange.
pub const TRANSITIONS: &[(ExchangeState, ExchangeEvent, ExchangeState)] = {
    use ExchangeEvent::*;
    use ExchangeState::*;
    &[
        (Start, RequestHead, AwaitingHead),
        (AwaitingHead, Hit, Ready),
        (AwaitingHead, HitToDecode, Decoding),
        (AwaitingHead, PartialHit, AwaitingPart),
        (AwaitingHead, Miss, AwaitingHead),
        (AwaitingHead, Rewrite, Rewriting),
        (AwaitingHead, Refuse, Ready),
        (Rewriting, Rewritten, AwaitingHead),
        (Rewriting, Refuse, Ready),
        (Rewriting, SendOriginal, AwaitingHead),
        (AwaitingHead, Wait, Waiting),
        (Waiting, Wake, AwaitingHead),
        (Decoding, Hit, Ready),
        (Decoding, Miss, AwaitingHead),
        (Decoding, Wait, Waiting),
        (Decoding, SendOriginal, AwaitingHead),
        (AwaitingHead, HeadToPass, Passing),
        (AwaitingHead, HeadToBuffer, Buffering),
        (AwaitingHead, HeadToStream, Streaming),
        (AwaitingHead, Replace, DiscardingUpstream),
        (AwaitingHead, SendOriginal, Passing),
        (AwaitingHead, Fail, Aborted),
        (AwaitingPart, HeadToPass, Passing),
        (AwaitingPart, HeadToMerge, BufferingPart),
        (AwaitingPart, SendOriginal, BufferingPart),
        (AwaitingPart, Fail, Aborted),
        (Start, Update, AwaitingUpdate),
        (AwaitingUpdate, HeadToPass, Passing),
        (AwaitingUpdate, SendOriginal, Passing),
        (DiscardingUpstream, HeadToBuffer, DiscardingUpstream),
        (DiscardingUpstream, Piece, DiscardingUpstream),
        (DiscardingUpstream, SendOriginal, DiscardingUpstream),
        (DiscardingUpstream, End, Ready),
        (DiscardingUpstream, Truncated, Aborted),
        (Buffering, Piece, Buffering),
        (Buffering, StartStream, Streaming),
        (Buffering, SendOriginal, Passing),
        (Buffering, Replace, DiscardingUpstream),
        (Buffering, End, Compressing),
        (Buffering, Truncated, Aborted),
        (BufferingPart, Piece, BufferingPart),
        (BufferingPart, SendOriginal, Passing),
        (BufferingPart, End, Merging),
        (BufferingPart, Truncated, Aborted),
        (Passing, Observe, Passing),
        (Compressing, Compressed, Ready),
        (Compressing, SendOriginal, Ready),
        (Compressing, Refuse, Ready),
        (Compressing, Truncated, Aborted),
        (Merging, Compressed, Ready),
        (Merging, SendOriginal, Ready),
        (Merging, Truncated, Aborted),
        (Streaming, Piece, Streaming),
        (Streaming, Finish, Finished),
        (Streaming, Truncated, Aborted),
    ]
};

impl ExchangeState {
    /// Returns the state after `event`, or `None` if this state does not allow the event.
    pub fn state_after_event(self, event: ExchangeEvent) -> Option<ExchangeState> {
        TRANSITIONS
            .iter()
            .find(|(from, on, _)| (*from, *on) == (self, event))
            .map(|(_, _, to)| *to)
    }
}

/// Returns the table as a Mermaid state diagram.
pub fn mermaid_diagram() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> Start\n");
    for (from, on, to) in TRANSITIONS {
        text.push_str(&format!("    {from:?} --> {to:?}: {on:?}\n"));
    }
    for last in [
        ExchangeState::Ready,
        ExchangeState::Passing,
        ExchangeState::Finished,
        ExchangeState::Aborted,
    ] {
        text.push_str(&format!("    {last:?} --> [*]\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{mermaid_diagram, TRANSITIONS};

    #[test]
    fn states_have_at_most_one_transition_per_event() {
        for (n, (from, on, _)) in TRANSITIONS.iter().enumerate() {
            let twice = TRANSITIONS[n + 1..]
                .iter()
                .any(|(other, event, _)| (other, event) == (from, on));
            assert!(!twice, "{from:?} on {on:?}");
        }
    }

    #[test]
    fn documented_diagram_equals_the_transition_table() {
        let document = include_str!("../../../../docs/exchange.md");
        assert!(
            document.contains(&mermaid_diagram()),
            "docs/exchange.md needs this diagram:\n{}",
            mermaid_diagram()
        );
    }
}
