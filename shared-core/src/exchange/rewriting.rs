//! Request bodies that are rewritten: compressed bodies are decompressed, and SSZ is converted
//! to JSON for a node that accepts JSON only.
//!
//! With `sszip_ssz_request auto` a node that has rejected SSZ once (415) gets JSON from then on.
//! A body that is no value of its type is rejected before the node receives it: nothing was
//! published. No request is sent twice.
//!
//! A payload that is submitted over REST becomes a call, if the node has the method only
//! (`sszip_ssz_witness rpc`). The node can't use the original, so a payload that can't become a
//! call is rejected, for whatever reason. A call for a witness that can't become such a payload
//! is rejected in the same way, if the node has the route only (`sszip_ssz_witness rest`).

use super::actions::Misuse;
use super::answer::Answer;
use super::cache::asked::BodyLength;
use super::decoding::Decoded;
use super::head::{Field, HeadEdit};
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::{Event, State};
use crate::bytes::copy_of;
use crate::config::{SszRequest, UpstreamEncoding};
use crate::faults::{injected, panic_if, Fault};
use crate::gzip::inflate::InflateError;
use crate::memory;
use crate::memory::Reservation;
use crate::mode::Mode;
use crate::negotiate::accept::Wish;
use crate::ssz::Preset;
use crate::transcode::engine::called::{Refusal, Submission};
use crate::transcode::engine::{self, problem, status};
use crate::transcode::{Negotiated, Submitted, Why, JSON, OCTETS};

/// Returns whether `room` bytes may be allocated in addition to the bytes that are reserved
/// already, and reserves them.
fn has_room(memory: &mut Option<Reservation>, used: usize, room: usize, limit: usize) -> bool {
    let needed = used.saturating_add(room);
    memory.as_mut().is_some_and(|it| it.grow_to(needed, limit))
}

/// Estimate of the memory for SSZ and its JSON, in lengths of the SSZ.
const LENGTHS: usize = 4;

/// Length in bytes beyond which SSZ is not converted on an event loop: 2 to 3 ms, and more than
/// a block with its blobs has.
const OFF_LOOP: usize = 4 << 20;

impl Exchange {
    /// Whether the request's body has to be rewritten for the node.
    pub(super) fn rewrites(&self) -> bool {
        let is_to_be = self.to_be_json().is_some() || self.request.payload.is_some();
        is_to_be && self.request_body.is_empty() && self.state() == State::AwaitingHead
    }

    /// The submission in SSZ for a node that accepts JSON.
    fn to_be_json(&self) -> Option<Submitted> {
        let ssz = &self.config.ssz;
        let submitted = self.request.submitted;
        submitted.filter(|it| ssz.request == SszRequest::Always || ssz.refused.has(it.route()))
    }

    /// Whether the node gets the body in the other format.
    fn is_to_be_other(&self) -> bool {
        let is_payload = self.request.payload.is_some() || self.request.called.is_some();
        is_payload || self.to_be_json().is_some()
    }

    /// Maximum length in bytes of a body that is read or decompressed for a rewrite.
    fn longest_to_rewrite(&self) -> u64 {
        let (in_other, in_same) = (self.config.ssz.max_size, self.config.max_oneshot);
        match self.is_to_be_other() {
            true => in_other,
            // the body may be a call for a route of the node
            false if self.request.route.is_some() => in_other.max(in_same),
            false => in_same,
        }
    }

    /// Maximum length in bytes of a body that is kept in memory for a lookup or, with `whole`,
    /// for a rewrite.
    pub(super) fn longest_request(&self, whole: bool) -> u64 {
        let looked_up = self.config.cache.max_request;
        match whole {
            true => self.longest_to_rewrite().max(looked_up),
            false => looked_up,
        }
    }

    /// Whether a body of this length can be rewritten.
    pub(super) fn is_to_rewrite(&self, length: BodyLength) -> bool {
        match length {
            _ if self.request.payload.is_some() => true,
            BodyLength::Known(length) => {
                let memory = match self.request.coding.coded() {
                    // the decompressed length is not known
                    Some(_) => length,
                    None => length.saturating_mul(LENGTHS as u64),
                };
                length <= self.config.ssz.max_size && memory <= self.config.memory
            }
            BodyLength::Unknown => true,
        }
    }

    /// Copies the body, to be processed by [`code`](Self::code). `body` is `None` if there is no
    /// memory to read it or it `is_too_long`. `false` if the body goes to the node unchanged.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub(super) fn begin_to_rewrite(
        &mut self,
        body: Option<&[u8]>,
        is_too_long: bool,
    ) -> Result<bool, Misuse> {
        self.allows(Event::Rewrite)?;
        let longest = self.longest_to_rewrite();
        let is_long = is_too_long || body.is_some_and(|body| body.len() as u64 > longest);
        let is_short = memory::is_short() || injected(Fault::FailAlloc);
        let lengths = match self.request.coding.coded() {
            Some(_) => 1,
            None => LENGTHS,
        };
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let budget = &self.config.process.budget;
        let body = body.filter(|_| !is_long && !is_short);
        let copied = body.and_then(|body| {
            let reserved = budget.reserve(body.len().saturating_mul(lengths), limit)?;
            Some((reserved, copy_of(body)?))
        });
        let why = match is_long {
            true => Why::Length(self.config.ssz.max_size),
            false => Why::Memory,
        };
        let body = match copied {
            Some((reserved, body)) => {
                self.request_memory = Some(reserved);
                body
            }
            None if self.is_refused(why) => Vec::new(),
            None => return Ok(false),
        };
        self.move_on(Event::Rewrite, |_| Phase::Rewriting(body))?;
        Ok(true)
    }

    /// Rejects the request if a body that can't be rewritten must not be forwarded. Returns
    /// whether it was rejected.
    fn is_refused(&mut self, why: Why) -> bool {
        match (&mut self.request.payload, &mut self.request.called) {
            (Some(payload), _) => payload.refuse(why),
            (None, Some(called)) => called.refuse(why),
            (None, None) => return false,
        }
        true
    }

    /// Whether the rewrite takes too long for an event loop.
    pub(super) fn is_long_to_rewrite(&self) -> bool {
        match &self.phase {
            Phase::Rewriting(_) if self.request.coding.coded().is_some() => true,
            Phase::Rewriting(body) => body.len() > OFF_LOOP,
            _ => false,
        }
    }

    /// Decompresses the body and converts it to JSON, or responds with an error.
    pub(super) fn rewrite(&mut self) -> Result<(), Misuse> {
        let Phase::Rewriting(body) = &mut self.phase else {
            return Err(self.misuse(Event::Rewritten));
        };
        let body = std::mem::take(body);
        panic_if(Fault::PanicCompress);
        let body = match self.decode_to_rewrite(body) {
            Ok(body) => body,
            Err(why) if self.is_refused(why.clone()) => Vec::new(),
            // the body goes to the node unchanged
            Err(_) => return self.not_rewritten(),
        };
        if let Some(payload) = &self.request.payload {
            let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
            let mut memory = self.request_memory.take();
            let made = payload.to_call(self.chain().preset, &body, &mut |room| {
                has_room(&mut memory, body.capacity(), room, limit)
            });
            self.request_memory = memory;
            return match made {
                Ok(call) => self.ask_by_call(call),
                Err((problem, mode)) => {
                    let refused = (problem.status(), problem::MEDIA_TYPE, problem.body());
                    self.refuse(mode, refused)
                }
            };
        }
        if let Some(called) = &self.request.called {
            let id = &self.looked.rpc_id;
            let (mode, refused) = match called.to_submission(self.chain().preset, &body) {
                Ok(submission) => return self.ask_at_route(submission),
                Err(Refusal::Wrong(problem, mode)) => (mode, problem.to_call(id)),
                Err(Refusal::OtherBlobs) => (Mode::SszInvalid, status::other_blobs(id)),
            };
            return self.refuse(mode, (200, JSON, refused));
        }
        match self.to_be_json() {
            Some(submitted) => self.rewrite_as_json(submitted, &body),
            None => self.rewrite_decoded(body),
        }
    }

    /// Forwards the body that the client sent.
    fn not_rewritten(&mut self) -> Result<(), Misuse> {
        self.request_memory = None;
        self.move_on(Event::GiveUp, Phase::given_up)
    }

    /// Decompresses the body, and reads it if it may be a call for a route of the node.
    fn decode_to_rewrite(&mut self, body: Vec<u8>) -> Result<Vec<u8>, Why> {
        if self.request.coding.coded().is_none() {
            return Ok(body);
        }
        let reserved = self.request_memory.take();
        let cap = usize::try_from(self.longest_to_rewrite()).unwrap_or(usize::MAX);
        let decoded = self.decoded(&body, cap, reserved);
        drop(body);
        let Decoded { body, mut memory } = decoded.map_err(|why| match why {
            InflateError::Bad => Why::Coding,
            InflateError::TooLarge => Why::Length(self.config.ssz.max_size),
            InflateError::OutOfMemory => Why::Memory,
        })?;
        if self.request.route.is_some() {
            self.read_called(&body);
        }
        if body.len() as u64 > self.longest_to_rewrite() {
            return Err(Why::Length(self.config.ssz.max_size));
        }
        let lengths = match self.is_to_be_other() {
            true => LENGTHS,
            false => 1,
        };
        let needed = body.capacity().saturating_mul(lengths);
        memory.shrink_to(needed);
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        if !memory.grow_to(needed, limit) {
            return Err(Why::Memory);
        }
        self.request_memory = Some(memory);
        Ok(body)
    }

    /// Forwards the decompressed body, if the node accepts nothing else.
    fn rewrite_decoded(&mut self, body: Vec<u8>) -> Result<(), Misuse> {
        if self.may_still_give_result() {
            self.read_call(&body);
        }
        if body.is_empty() || !self.goes_decoded() {
            return self.not_rewritten();
        }
        self.request_body = body;
        self.say_decoded();
        self.move_on(Event::Rewritten, |_| Phase::AwaitingHead)
    }

    fn rewrite_as_json(&mut self, submitted: Submitted, ssz: &[u8]) -> Result<(), Misuse> {
        match self.json_of(submitted, ssz) {
            Ok(json) => {
                self.request_body = json;
                self.say_decoded();
                self.request.submitted = None;
                self.upstream_edits
                    .push(HeadEdit::set("Content-Type", JSON));
                self.move_on(Event::Rewritten, |_| Phase::AwaitingHead)
            }
            Err(why @ Why::Invalid(_)) => {
                let body = refusal(submitted.type_name(), &why);
                self.refuse(why.mode(), (400, JSON, body))
            }
            // the node is to report the error
            Err(_) => self.not_rewritten(),
        }
    }

    /// Forwards this call in place of the request.
    fn ask_by_call(&mut self, call: Vec<u8>) -> Result<(), Misuse> {
        self.request_body = call;
        self.say_decoded();
        self.negotiate(Some(Negotiated {
            gives: &engine::STATUS,
            wish: Wish::SszOnly,
        }));
        let edits = &mut self.upstream_edits;
        edits.push(HeadEdit::set("Content-Type", JSON));
        if self.config.upstream_encoding != UpstreamEncoding::Identity {
            // an error is read before it is decompressed
            edits.push(HeadEdit::set("Accept-Encoding", b"identity"));
        }
        self.move_on(Event::Rewritten, |_| Phase::AwaitingHead)
    }

    /// Forwards this submission to the node's route in place of the call.
    fn ask_at_route(&mut self, submission: Submission) -> Result<(), Misuse> {
        self.request_body = submission.ssz;
        self.say_decoded();
        self.request_target = self.request.route.take().unwrap_or_default().0;
        self.negotiate(Some(Negotiated {
            gives: &engine::REPLY,
            wish: self.request.call.unwrap_or(Wish::Json),
        }));
        let edits = &mut self.upstream_edits;
        edits.push(HeadEdit::set("Content-Type", OCTETS));
        edits.push(HeadEdit::set(engine::VERSION, submission.fork));
        if self.config.upstream_encoding != UpstreamEncoding::Identity {
            edits.push(HeadEdit::set("Accept-Encoding", b"identity"));
        }
        self.move_on(Event::Rewritten, |_| Phase::AwaitingHead)
    }

    /// Responds with an error without a request to the node.
    fn refuse(
        &mut self,
        mode: Mode,
        (status, media_type, body): (u16, &'static [u8], Vec<u8>),
    ) -> Result<(), Misuse> {
        self.mode = mode;
        self.head_edits = vec![
            HeadEdit::set("Content-Type", media_type),
            HeadEdit::content_length(body.len()),
        ];
        let answer = Box::new(Answer {
            status,
            is_ours: true,
            body,
            ..Answer::default()
        });
        self.move_on(Event::Refuse, |_| Phase::Ready(answer))
    }

    /// Converts a body to JSON. If no preset is known, the presets are tried until the body is a
    /// value of one: types that presets share are written alike.
    fn json_of(&mut self, submitted: Submitted, body: &[u8]) -> Result<Vec<u8>, Why> {
        let preset = self.chain().preset;
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let mut memory = self.request_memory.take();
        let mut in_preset = |preset: Preset| {
            submitted.to_json(preset, body, &mut |room| {
                has_room(&mut memory, body.len(), room, limit)
            })
        };
        let made = in_preset(preset);
        let mut others = Preset::ALL.iter().filter(|other| **other != preset);
        let made = match &made {
            Err(Why::Invalid(_)) if !self.knows_preset() => others
                .find_map(|other| in_preset(*other).ok())
                .map_or(made, Ok),
            _ => made,
        };
        self.request_memory = memory;
        made
    }

    /// Whether the body of the upstream request differs from the client's.
    pub(super) fn is_rewritten(&self) -> bool {
        !self.request_body.is_empty()
    }

    /// Whether the response was made by sszip.
    pub(super) fn is_ours(&self) -> bool {
        self.answer().is_some_and(|answer| answer.is_ours)
    }

    /// Records whether the node rejects SSZ or a content coding, from its status. A 415 that may
    /// mean either is taken for both, unless `Accept-Encoding` shows that it means the coding
    /// (RFC 9110, 15.5.16): every node accepts the body that it gets instead.
    pub(super) fn learn_of_status<'a>(
        &self,
        status: u16,
        mut fields: impl Iterator<Item = Field<'a>>,
    ) {
        if status != 415 {
            return;
        }
        let coded = self.request.coding.coded();
        if let Some(coded) = coded {
            self.config.coded_requests.saw_refusal(coded);
        }
        let is_coding = |(name, _): Field<'_>| name.eq_ignore_ascii_case(b"accept-encoding");
        if coded.is_some() && fields.any(is_coding) {
            return;
        }
        if let Some(submitted) = self.request.submitted {
            self.config.ssz.refused.learn(submitted.route());
        }
    }
}

/// Returns an error in the form of the Beacon API.
fn refusal(type_name: &str, why: &Why) -> Vec<u8> {
    let message = format!("the body is no {type_name}: {why}");
    let error = serde_json::json!({ "code": 400, "message": message });
    error.to_string().into_bytes()
}
