//! Enforcement of the operator's policy.
//!
//! Each call of a request is evaluated before the request is forwarded: a denied call is
//! answered here, and a batch is forwarded without its denied calls.
//!
//! A request that does not pass the strict reading of [`parse`] may be read differently by a
//! node, and call another method there. It is not forwarded, and neither is a request that can't
//! be read: a body that is too long, or in a content coding that is not decompressed here, or a
//! connection that leaves HTTP.

use std::sync::Arc;

use super::actions::Misuse;
use super::answer::Answer;
use super::bound::Bound;
use super::cache::asked::{BodyLength, Need, RequestBody};
use super::cache::part::{Member, Mixed};
use super::head::HeadEdit;
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::{Event, State};
use super::unjudged::Unjudged;
use crate::cache::entry::batch::{batch_identity, Element};
use crate::cache::entry::Entry;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::coded::BodyCoding;
use crate::config::Policy;
use crate::gzip::inflate::InflateError;
use crate::jsonrpc::request::{parse, room_for, Call, Refusal, Request};
use crate::jsonrpc::rules::Verdict;
use crate::memory;
use crate::mode::Mode;
use crate::transcode::JSON;

/// Maximum length in bytes to which a body is decompressed here: an event loop needs 1 ms for
/// it.
const DECODED: u64 = 1 << 20;

/// The decision about a request.
#[derive(Debug)]
pub(super) enum Ruling {
    /// The request is forwarded unchanged.
    Allowed,
    /// The request is forwarded without some of its calls, or its responses are checked one by
    /// one.
    InPart,
    /// All calls are denied; with the response, which is empty if there are only notifications.
    Denied(Vec<u8>),
    /// The calls of the request can't be verified.
    Refused(Unjudged),
}

impl Exchange {
    /// Whether the request must be evaluated before it is forwarded.
    pub(super) fn is_judged(&self) -> bool {
        let is_client = matches!(self.state(), State::AwaitingHead | State::Waiting);
        is_client && self.config.policy().is_some()
    }

    /// Returns the part of the body that the evaluation needs; `None` if there is nothing to
    /// evaluate.
    pub(super) fn need_of_policy(&mut self, length: BodyLength) -> Option<Need> {
        if !self.is_judged() {
            return None;
        }
        self.looked.refused = self.refused_by_head(length);
        if self.looked.refused.is_some() {
            return Some(Need::LookUp);
        }
        if length == BodyLength::Known(0) {
            return None;
        }
        if self.becomes_websocket() {
            return Some(Need::Nothing);
        }
        self.looked.is_for_others = self.need_of_cache(length) == Need::Nothing;
        Some(Need::WholeBody)
    }

    /// Evaluates the request. `is_too_long`: the body was not kept because of its length.
    pub(super) fn rule(&mut self, body: RequestBody<'_>, is_too_long: bool) -> Ruling {
        let Some(policy) = self.config.policy().map(Arc::clone) else {
            return Ruling::Allowed;
        };
        if !self.looked.ruled.is_empty() {
            // the request has waited: its first evaluation and its permits remain valid
            return match self.looked.allowed {
                Some(_) => Ruling::InPart,
                None => Ruling::Allowed,
            };
        }
        let length = match body {
            RequestBody::Whole(body) => BodyLength::Known(body.len() as u64),
            RequestBody::Unread | RequestBody::Unavailable => BodyLength::Unknown,
        };
        let refused = self.looked.refused.take();
        if let Some(why) = refused.or_else(|| self.refused_by_head(length)) {
            return Ruling::Refused(why);
        }
        let body = match body {
            RequestBody::Whole(b"") => return Ruling::Allowed,
            RequestBody::Whole(body) => body,
            RequestBody::Unread => return Ruling::Refused(Unjudged::Expectation),
            RequestBody::Unavailable if is_too_long => return Ruling::Refused(Unjudged::Length),
            RequestBody::Unavailable => return Ruling::Refused(Unjudged::Memory),
        };
        match self.request.coding {
            BodyCoding::None => self.rule_calls(&policy, body),
            BodyCoding::Other => Ruling::Refused(Unjudged::Coding),
            BodyCoding::Coded(_) => {
                let cap = self.config.cache.max_request.max(DECODED);
                let cap = usize::try_from(cap).unwrap_or(usize::MAX);
                match self.decoded(body, cap, None) {
                    Ok(decoded) => self.rule_calls(&policy, &decoded.body),
                    Err(InflateError::Bad) => Ruling::Refused(Unjudged::Coding),
                    Err(InflateError::TooLarge) => Ruling::Refused(Unjudged::Length),
                    Err(InflateError::OutOfMemory) => Ruling::Refused(Unjudged::Memory),
                }
            }
        }
    }

    fn rule_calls(&mut self, policy: &Policy, body: &[u8]) -> Ruling {
        if self.request.text.is_ambiguous(body) {
            return Ruling::Refused(Unjudged::Coding);
        }
        let is_batch = body.trim_ascii_start().first() == Some(&b'[');
        if memory::is_short() || is_batch && !memory::is_there(room_for(body.len())) {
            return Ruling::Refused(Unjudged::Memory);
        }
        match parse(body, policy.batch_max()) {
            Ok(Request::Single(call)) => self.rule_call(policy, &call),
            Ok(Request::Batch(calls)) => self.rule_batch(policy, &calls, body),
            Err(Refusal::Syntax(_)) => Ruling::Refused(Unjudged::Syntax),
            Err(Refusal::LongBatch) => Ruling::Refused(Unjudged::Batch(policy.batch_max())),
            Err(why) => Ruling::Refused(Unjudged::Request(why)),
        }
    }

    fn rule_call(&mut self, policy: &Policy, call: &Call<'_>) -> Ruling {
        self.looked.rpc_method = call.method.to_vec();
        let denied = self.judge_call(policy, call);
        self.looked.ruled.push(denied.clone());
        let Some(denied) = denied else {
            self.looked.bound = Bound::of(policy, call);
            return Ruling::Allowed;
        };
        self.looked.denied = 1;
        let answer = match call.id {
            None => Some(Vec::new()),
            Some(id) => {
                let answer = denied.identity(id);
                answer.and_then(|answer| answer.try_to_vec())
            }
        };
        answer.map_or(Ruling::Refused(Unjudged::Memory), Ruling::Denied)
    }

    fn rule_batch(&mut self, policy: &Policy, calls: &[Call<'_>], body: &[u8]) -> Ruling {
        self.looked.batch_size = Some(calls.len());
        self.looked.name_methods(calls);
        let ruled: Vec<_> = calls
            .iter()
            .map(|call| self.judge_call(policy, call))
            .collect();
        let denied = ruled.iter().flatten().count();
        self.looked.denied = denied;
        let each = || calls.iter().zip(&ruled);
        if denied == calls.len() {
            let elements = each().filter_map(|(call, denied)| {
                let denied = denied.as_deref()?;
                Some(Element::Stored(denied, call.id?))
            });
            let elements: Vec<_> = elements.collect();
            let answer = match elements.is_empty() {
                true => Some(Vec::new()),
                false => batch_identity(&elements).and_then(|answer| answer.try_to_vec()),
            };
            return answer.map_or(Ruling::Refused(Unjudged::Memory), Ruling::Denied);
        }
        let is_bounded =
            |call: &Call<'_>| call.id.is_some() && policy.max_answer(call.method).is_some();
        if denied == 0 && !calls.iter().any(is_bounded) {
            self.looked.ruled = ruled;
            return Ruling::Allowed;
        }
        let mut places = Vec::with_capacity(calls.len());
        let mut request = Vec::with_capacity(body.len());
        for (call, denied) in each() {
            match (denied, call.id) {
                (Some(denied), Some(id)) => {
                    places.push(Member::Denied(Arc::clone(denied), id.to_vec()));
                    continue;
                }
                (Some(_), None) => continue,
                (None, Some(id)) => {
                    let most = policy.max_answer(call.method);
                    places.push(Member::Asked(id.to_vec(), most));
                }
                (None, None) => {}
            }
            request.push(if request.is_empty() { b'[' } else { b',' });
            request.extend_from_slice(&body[call.span.clone()]);
        }
        request.push(b']');
        let mixed = Mixed {
            places,
            gzip: self.request.accept_encoding.prefers_gzip() && !self.request.no_transform,
            ..Mixed::default()
        };
        self.looked.allowed = Some((Box::new(mixed), request));
        self.looked.ruled = ruled;
        Ruling::InPart
    }

    /// Returns the error for a call that is denied or over its concurrency limit; `None` if it
    /// is allowed.
    fn judge_call(&mut self, policy: &Policy, call: &Call<'_>) -> Option<Arc<Entry>> {
        if !call.method.iter().all(u8::is_ascii_graphic) {
            // Nethermind trims the name, and other nodes may change it further
            return Some(Arc::clone(policy.misnamed()));
        }
        match policy.judge(call.method) {
            Verdict::Allowed => None,
            Verdict::Denied => Some(Arc::clone(policy.denied())),
            Verdict::Limited(limit) => match limit.take() {
                Some(permit) => {
                    self.looked.permits.push(permit);
                    None
                }
                None => Some(Arc::clone(policy.limited())),
            },
        }
    }

    /// Returns the permits: none of the calls is at the node any more.
    pub(super) fn give_back_permits(&mut self) {
        self.looked.permits.clear();
    }

    /// Forwards the allowed calls of a batch with denied calls. `false` if none is denied.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub(super) fn ask_for_allowed(&mut self) -> Result<bool, Misuse> {
        let Some((mixed, body)) = self.looked.allowed.take() else {
            return Ok(false);
        };
        self.stop_waiting();
        self.move_on(Event::HitInPart, |_| Phase::AwaitingPart(mixed))?;
        self.request_body = body;
        self.say_decoded();
        self.ask_for_plain_part();
        Ok(true)
    }

    /// Responds with an error in place of the upstream's response.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub(super) fn deny(&mut self, ruling: Ruling) -> Result<(), Misuse> {
        self.stop_waiting();
        self.give_back_permits();
        let (status, body, field) = match ruling {
            Ruling::Denied(body) => (200, body, None),
            Ruling::Refused(why) => (why.status(), why.body(), why.field()),
            // these requests are forwarded
            Ruling::Allowed | Ruling::InPart => return Err(self.misuse(Event::Refuse)),
        };
        if self.config.caches() {
            self.cache_status = CacheStatus::Bypass;
        }
        self.reason = Reason::Denied;
        self.mode = Mode::Denied;
        self.head_edits = vec![HeadEdit::content_length(body.len())];
        if !body.is_empty() {
            self.head_edits.push(HeadEdit::set("Content-Type", JSON));
        }
        self.head_edits.extend(field);
        let answer = Box::new(Answer {
            status,
            is_ours: true,
            body,
            ..Answer::default()
        });
        self.move_on(Event::Refuse, |_| Phase::Ready(answer))
    }
}
