//! The transition table of the exchange. The table is the program: the
//! machine moves along it and nowhere else, and the diagram in
//! `docs/exchange.md` is made from it.

/// Where an exchange stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The request head has not been seen.
    Start,
    /// The request is on its way; no response head yet.
    AwaitingHead,
    /// Of a batch only the part that is not stored is on its way.
    AwaitingPart,
    /// The same request is on its way for the cache alone: there is no client.
    AwaitingUpdate,
    /// The request's body is to be in another format, before it is sent.
    Rewriting,
    /// The answer is on its way for another request.
    Waiting,
    /// A stored answer has to be decoded first.
    Decoding,
    /// A stored answer, or an error, takes the place of the node's, whose body is of no
    /// account.
    Replacing,
    /// The head is held, the body is being collected.
    Collecting,
    /// The same of the node's part of a batch.
    CollectingPart,
    /// The whole body is here, the coder has not run.
    Coding,
    /// The node's part of a batch is here, to be put together with the stored one.
    Merging,
    /// The answer is decided: its head edits and body are ready to send.
    Ready,
    /// The response goes through as it comes; what was collected goes first.
    Passing,
    /// The head is out, the body is coded as it comes.
    Streaming,
    /// All of the stream is out.
    Finished,
    /// The node cut the body short: there is no answer to complete.
    Cut,
}

/// What can happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The client's request head.
    RequestHead,
    /// It takes over what another exchange is to fetch.
    Update,
    /// The answer is stored.
    Hit,
    /// It is, in a form that has to be decoded first.
    HitToDecode,
    /// A part of it is.
    HitInPart,
    /// It is not, or not yet.
    Miss,
    /// The request's body is to be in another format.
    Rewrite,
    /// It is.
    Rewritten,
    /// It can't be, or must not go on: that is the answer.
    Refuse,
    /// Another request fetches it.
    Wait,
    /// Waiting is over, however it went.
    Wake,
    /// The node's head says that what is stored is to be sent, or its answer is longer
    /// than it may be.
    Replace,
    /// A response head that is not to be held.
    HeadToPass,
    /// A response head whose body is to be collected.
    HeadToHold,
    /// The same, to be put together with what is stored.
    HeadToMerge,
    /// A response head whose body is to be coded as it comes.
    HeadToStream,
    /// A piece of the body.
    Piece,
    /// A piece of a body that passes, of which a copy may be stored.
    Observe,
    /// The head can't be held any longer: code the body as it comes.
    StartStream,
    /// The exchange can't go on: send what came as it came.
    GiveUp,
    /// The same where what comes must not be sent as it is.
    Fail,
    /// The end of the body, all of it being there.
    End,
    /// The end of the body, or of the node, before all of it was there.
    CutShort,
    /// The coder ran; what it made, or the original, is to be sent.
    Coded,
    /// The end of the stream has been coded.
    Finish,
}

/// Every move an exchange can make.
pub const TRANSITIONS: &[(State, Event, State)] = {
    use Event::*;
    use State::*;
    &[
        (Start, RequestHead, AwaitingHead),
        (AwaitingHead, Hit, Ready),
        (AwaitingHead, HitToDecode, Decoding),
        (AwaitingHead, HitInPart, AwaitingPart),
        (AwaitingHead, Miss, AwaitingHead),
        (AwaitingHead, Rewrite, Rewriting),
        (AwaitingHead, Refuse, Ready),
        (Rewriting, Rewritten, AwaitingHead),
        (Rewriting, Refuse, Ready),
        (Rewriting, GiveUp, AwaitingHead),
        (AwaitingHead, Wait, Waiting),
        (Waiting, Wake, AwaitingHead),
        (Decoding, Hit, Ready),
        (Decoding, Miss, AwaitingHead),
        (Decoding, GiveUp, AwaitingHead),
        (AwaitingHead, HeadToPass, Passing),
        (AwaitingHead, HeadToHold, Collecting),
        (AwaitingHead, HeadToStream, Streaming),
        (AwaitingHead, Replace, Replacing),
        (AwaitingHead, GiveUp, Passing),
        (AwaitingHead, Fail, Cut),
        (AwaitingPart, HeadToPass, Passing),
        (AwaitingPart, HeadToMerge, CollectingPart),
        (AwaitingPart, GiveUp, CollectingPart),
        (AwaitingPart, Fail, Cut),
        (Start, Update, AwaitingUpdate),
        (AwaitingUpdate, HeadToPass, Passing),
        (AwaitingUpdate, GiveUp, Passing),
        (Replacing, HeadToHold, Replacing),
        (Replacing, Piece, Replacing),
        (Replacing, GiveUp, Replacing),
        (Replacing, End, Ready),
        (Replacing, CutShort, Cut),
        (Collecting, Piece, Collecting),
        (Collecting, StartStream, Streaming),
        (Collecting, GiveUp, Passing),
        (Collecting, Replace, Replacing),
        (Collecting, End, Coding),
        (Collecting, CutShort, Cut),
        (CollectingPart, Piece, CollectingPart),
        (CollectingPart, GiveUp, Passing),
        (CollectingPart, End, Merging),
        (CollectingPart, CutShort, Cut),
        (Passing, Observe, Passing),
        (Coding, Coded, Ready),
        (Coding, GiveUp, Ready),
        (Coding, Refuse, Ready),
        (Coding, CutShort, Cut),
        (Merging, Coded, Ready),
        (Merging, GiveUp, Ready),
        (Merging, CutShort, Cut),
        (Streaming, Piece, Streaming),
        (Streaming, Finish, Finished),
        (Streaming, CutShort, Cut),
    ]
};

impl State {
    /// The state after `event`, or `None` where the event can't happen.
    pub fn after(self, event: Event) -> Option<State> {
        TRANSITIONS
            .iter()
            .find(|(from, on, _)| (*from, *on) == (self, event))
            .map(|(_, _, to)| *to)
    }
}

/// The table as a Mermaid state diagram.
pub fn diagram() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> Start\n");
    for (from, on, to) in TRANSITIONS {
        text.push_str(&format!("    {from:?} --> {to:?}: {on:?}\n"));
    }
    for last in [State::Ready, State::Passing, State::Finished, State::Cut] {
        text.push_str(&format!("    {last:?} --> [*]\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{diagram, TRANSITIONS};

    #[test]
    fn no_state_has_two_ways_for_one_event() {
        for (n, (from, on, _)) in TRANSITIONS.iter().enumerate() {
            let twice = TRANSITIONS[n + 1..]
                .iter()
                .any(|(other, event, _)| (other, event) == (from, on));
            assert!(!twice, "{from:?} on {on:?}");
        }
    }

    #[test]
    fn the_documented_diagram_is_this_table() {
        let document = include_str!("../../../docs/exchange.md");
        assert!(
            document.contains(&diagram()),
            "docs/exchange.md needs this diagram:\n{}",
            diagram()
        );
    }
}
