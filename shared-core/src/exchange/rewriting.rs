//! A request's body that is SSZ, for a node that takes JSON only.
//!
//! With `sszip_ssz_request auto` a node that has refused SSZ once (415) gets JSON
//! from then on. What is no value of its type is refused before the node sees it:
//! nothing of it was published. No request is sent twice.

use super::actions::Misuse;
use super::answer::Answer;
use super::cache::asked::BodyLength;
use super::head::HeadEdit;
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::{Event, State};
use crate::bytes::copy_of;
use crate::config::SszRequest;
use crate::faults::{injected, panic_if, Fault};
use crate::gzip::oneshot::off_loop_length;
use crate::memory;
use crate::transcode::{Why, JSON};

/// What the SSZ and its JSON likely take, in lengths of the SSZ.
const LENGTHS: usize = 4;

impl Exchange {
    /// Whether the node is to get the request's body as JSON.
    pub(super) fn rewrites(&self) -> bool {
        let ssz = &self.config.ssz;
        let submitted = self
            .request
            .submitted
            .filter(|it| ssz.request == SszRequest::Always || ssz.refused.has(it.route()));
        submitted.is_some() && self.request_body.is_empty() && self.state() == State::AwaitingHead
    }

    /// Whether that can be, with a body of that length.
    pub(super) fn is_to_rewrite(&self, length: BodyLength) -> bool {
        match length {
            BodyLength::Known(length) => {
                let memory = length.saturating_mul(LENGTHS as u64);
                length <= self.config.ssz.max_size && memory <= self.config.memory
            }
            BodyLength::Unknown => true,
        }
    }

    /// Copies the body, to be [coded](Self::code). `false`: it goes to the node as
    /// it is.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub(super) fn begin_to_rewrite(&mut self, body: &[u8]) -> Result<bool, Misuse> {
        self.allows(Event::Rewrite)?;
        let most = usize::try_from(self.config.ssz.max_size).unwrap_or(usize::MAX);
        if body.len() > most || memory::is_short() || injected(Fault::FailAlloc) {
            return Ok(false);
        }
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let budget = &self.config.process.budget;
        let reserved = budget.reserve(body.len().saturating_mul(LENGTHS), limit);
        let (Some(reserved), Some(body)) = (reserved, copy_of(body)) else {
            return Ok(false);
        };
        self.request_memory = Some(reserved);
        self.move_on(Event::Rewrite, |_| Phase::Rewriting(body))?;
        Ok(true)
    }

    /// Whether an event loop should not wait for it.
    pub(super) fn is_long_to_rewrite(&self) -> bool {
        match &self.phase {
            Phase::Rewriting(body) => body.len() > off_loop_length(self.config.comp_level),
            _ => false,
        }
    }

    /// Makes JSON of the body, or an answer of what is wrong with it.
    pub(super) fn rewrite(&mut self) -> Result<(), Misuse> {
        let (Phase::Rewriting(body), Some(submitted)) = (&self.phase, self.request.submitted)
        else {
            return Err(self.misuse(Event::Rewritten));
        };
        panic_if(Fault::PanicCompress);
        match submitted.to_json(self.config.ssz.preset, body) {
            Ok(json) => {
                self.request_body = json;
                self.upstream_edits
                    .push(HeadEdit::set("Content-Type", JSON));
                self.move_on(Event::Rewritten, |_| Phase::AwaitingHead)
            }
            Err(why @ Why::Invalid(_)) => {
                let body = refusal(submitted.type_name(), &why);
                self.mode = why.mode();
                self.head_edits = vec![
                    HeadEdit::set("Content-Type", JSON),
                    HeadEdit::content_length(body.len()),
                ];
                let answer = Box::new(Answer {
                    status: 400,
                    is_ours: true,
                    body,
                    ..Answer::default()
                });
                self.move_on(Event::Refuse, |_| Phase::Ready(answer))
            }
            // the node is to say what it thinks of it
            Err(_) => self.move_on(Event::GiveUp, Phase::given_up),
        }
    }

    /// Whether the node gets another body than the client sent.
    pub(super) fn is_rewritten(&self) -> bool {
        !self.request_body.is_empty()
    }

    /// Whether there is an answer, and all of it is ours.
    pub(super) fn is_ours(&self) -> bool {
        self.answer().is_some_and(|answer| answer.is_ours)
    }

    /// The node's status: whether it takes SSZ, or what is coded, shows in that.
    pub(super) fn learn_of_status(&self, status: u16) {
        if status != 415 || self.is_rewritten() {
            return;
        }
        if let Some(submitted) = self.request.submitted {
            self.config.ssz.refused.learn(submitted.route());
        }
        if self.request.cache.coded {
            self.config.coded_requests.saw_refusal();
        }
    }
}

/// An error as the Beacon API has them.
fn refusal(type_name: &str, why: &Why) -> Vec<u8> {
    let message = format!("the body is no {type_name}: {why}");
    let error = serde_json::json!({ "code": 400, "message": message });
    error.to_string().into_bytes()
}
