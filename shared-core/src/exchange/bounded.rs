//! Answers that may be so long and no longer, where the operator has said so of their
//! methods. One that is longer is an error of JSON-RPC for its client. So that it can be,
//! nothing of an answer is sent before it is known that it is short enough: by its length,
//! which the node mostly says, or when all of it is there.
//!
//! The bytes of the decoded body count: one that is compressed is buffered and decoded.
//! Of a batch each answer counts for itself ([`merge`](super::cache::merge)).

use std::sync::Arc;

use super::actions::{Misuse, PieceAction};
use super::answer::Answer;
use super::bound::coded_at_most;
use super::head::{has_no_body, HeadEdit, ResponseHead};
use super::held::{Held, Stages, Whole};
use super::judgement::Judged;
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::Event;
use crate::cache::entry::Entry;
use crate::cache::reason::Reason;
use crate::coded::BodyCoding;
use crate::config::Policy;
use crate::memory;
use crate::mode::Mode;
use crate::transcode::JSON;

/// What describes the bytes that the node has sent, and not ours.
const OF_OTHERS: [&str; 11] = [
    "Content-Encoding",
    "Content-Language",
    "ETag",
    "Last-Modified",
    "Expires",
    "Accept-Ranges",
    "Content-Digest",
    "Repr-Digest",
    "Digest",
    "Content-MD5",
    "Trailer",
];

impl Exchange {
    /// Whether a stored answer to a single call is longer than it may be.
    pub(super) fn is_too_long_to_give(&self, entry: &Entry, id: Option<&[u8]>) -> bool {
        let bound = self.looked.bound.as_ref();
        bound.is_some_and(|bound| entry.length(id.unwrap_or_default()) > bound.most)
    }

    /// What is said in place of a stored answer.
    pub(super) fn say_too_long(&mut self) -> Option<Box<Answer>> {
        let answer = self.error_of_bound(200)?;
        self.head_edits = Vec::new();
        self.error_edits(answer.body.len());
        Some(answer)
    }

    fn error_of_bound(&mut self, status: u16) -> Option<Box<Answer>> {
        let body = self.looked.bound.take()?.error;
        self.reason = Reason::Denied;
        self.mode = Mode::Denied;
        self.looked.denied += 1;
        Some(Box::new(Answer {
            status,
            is_ours: status != 0,
            body,
            ..Answer::default()
        }))
    }

    fn error_edits(&mut self, length: usize) {
        self.head_edits.push(HeadEdit::content_length(length));
        self.head_edits.push(HeadEdit::set("Content-Type", JSON));
    }

    /// What the answer to a single call with that head may be, in bytes.
    pub(super) fn bound_of<I>(&self, head: &ResponseHead<I>) -> Option<u64> {
        let Phase::AwaitingHead = self.phase else {
            return None;
        };
        let bound = self.looked.bound.as_ref();
        bound
            .filter(|_| !has_no_body(head.status) && !head.subrequest)
            .map(|it| it.most)
    }

    /// Whether the head alone says that the answer is longer than it may be, or that its
    /// length will not be known.
    pub(super) fn is_too_long_by_head<I>(
        head: &ResponseHead<I>,
        coding: BodyCoding,
        most: u64,
    ) -> bool {
        let most = match coding {
            BodyCoding::None => most,
            BodyCoding::Coded(_) => coded_at_most(most),
            BodyCoding::Other => return true,
        };
        head.content_length.is_some_and(|length| length > most)
    }

    /// What becomes of one of which the length is not known: it is buffered, whatever else
    /// would have become of it. `None`: there is no memory for that.
    pub(super) fn judge_bounded<I>(
        &self,
        judged: Result<Judged, Mode>,
        head: &ResponseHead<I>,
        coding: BodyCoding,
        most: u64,
    ) -> Option<Judged> {
        let mut whole = match judged {
            Ok(Judged::Hold(whole)) => whole,
            Ok(other) => return Some(other),
            Err(reason) => {
                let mut whole = Box::new(Whole::new(Stages::default(), Held::of(head)));
                whole.left_alone = Some(reason);
                if let Some(declared) = whole.held.declared {
                    whole.held.begin(&self.config, declared).ok()?;
                }
                whole
            }
        };
        whole.most = Some(most);
        whole.measured = coding.coded();
        Some(Judged::Hold(whole))
    }

    /// Decodes a buffered answer that is compressed, for its length. `false`: it is
    /// longer than it may be, or there is no memory to decode it.
    pub(super) fn is_short_enough(&mut self) -> bool {
        let Phase::Coding(whole) = &mut self.phase else {
            return true;
        };
        let (Some(coded), Some(most)) = (whole.measured, whole.most) else {
            return true;
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (most, limit) = (size(most), size(self.config.memory));
        let budget = &self.config.process.budget;
        let Some(mut memory) = budget.reserve(0, limit) else {
            return false;
        };
        let may_take = |length| memory.grow_to(length, limit) && !memory::is_short();
        let is_short = coded.decode(&whole.held.body, most, may_take).is_ok();
        if is_short {
            whole.measured = None;
            whole.most = None;
        }
        is_short
    }

    /// The answer that was measured is longer than it may be: the client is told.
    pub(super) fn refuse_measured(&mut self) -> Result<(), Misuse> {
        self.allows(Event::Refuse)?;
        let Some(answer) = self.error_in_place_of_body() else {
            return Err(self.misuse(Event::Refuse));
        };
        self.move_on(Event::Refuse, |_| Phase::Ready(answer))
    }

    /// The node's answer is longer than it may be: what comes of it is dropped, and at
    /// its end the client is told.
    pub(super) fn is_too_long_to_send(&mut self) -> Result<PieceAction, Misuse> {
        self.allows(Event::Replace)?;
        let Some(answer) = self.error_in_place_of_body() else {
            return Err(self.misuse(Event::Replace));
        };
        self.move_on(Event::Replace, |_| Phase::Replacing(answer))?;
        Ok(PieceAction::Taken)
    }

    fn error_in_place_of_body(&mut self) -> Option<Box<Answer>> {
        let answer = self.error_of_bound(0)?;
        self.head_edits.retain(|edit| {
            let name = &*edit.name;
            name == "Vary" || name == "Cache-Status"
        });
        self.error_edits(answer.body.len());
        self.head_edits.extend(OF_OTHERS.map(HeadEdit::remove));
        self.refuse_fill();
        self.not_ssz = None;
        Some(answer)
    }

    /// How long the answer to a call of a batch may be.
    pub(super) fn max_answer(policy: Option<&Arc<Policy>>, method: &[u8]) -> Option<u64> {
        policy.and_then(|policy| policy.max_answer(method))
    }
}
