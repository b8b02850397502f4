//! What the node itself sent, where a host adds to it or changes it.
//!
//! A proxy's own modules add fields to a head and may change a body before it
//! reaches the exchange. What is stored, and whether anything is, goes by the
//! node's head alone, so a host that can show it does so before anything else
//! has touched it. What is sent goes by the head as it is then.
//!
//! A body that others change between the node and the exchange is stored from
//! the pieces that the node sent, apart from those that the client gets.

use super::actions::Misuse;
use super::cache::fill::Fill;
use super::head::{Field, HeadEdit, ResponseHead};
use super::held::Loan;
use super::machine::Exchange;
use super::phase::Phase;
use super::transitions::Event;
use crate::cache::reason::Reason;
use crate::gzip::inflate;
use crate::gzip::splice::Body;
use crate::memory::Reservation;
use crate::negotiate::vary;
use crate::transcode::{Format, Negotiated};

impl Exchange {
    /// The head as the node sent it, before [`Exchange::response_head`], with
    /// fields that the host is told to hide. Whether a stored answer takes the
    /// place of the node's: [`Exchange::status`] and [`Exchange::head_edits`]
    /// then are its head, and `response_head` will ask to hold.
    ///
    /// A host that can't tell it from what it sends leaves this out.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn node_head<'a, I>(&mut self, mut head: ResponseHead<I>) -> Result<bool, Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        self.stop_waiting();
        if !self.awaits_head() {
            return Err(self.misuse(Event::HeadToPass));
        }
        self.learn_of_status(head.status, head.fields.clone());
        self.record_status(head.status);
        self.storing.node_length = head.content_length.filter(|_| head.status != 304);
        match self.phase {
            // it becomes a part of no other answer
            Phase::AwaitingUpdate => head.subrequest = false,
            _ => self.has_changed(&head),
        }
        self.judge_storing(&head);
        self.storing.is_judged = true;
        Ok(self.status() != 0)
    }

    /// The body is changed on its way here: what is stored comes by
    /// [`Exchange::observe_node`].
    pub fn keep_apart(&mut self) {
        let fill = self.storing.fill.as_ref();
        let coded = fill.is_some_and(|fill| fill.is_coded());
        self.storing.is_apart = fill.is_some();
        let format = self.request.ssz.and_then(Negotiated::format);
        if coded || format == Some(Format::Ssz) || self.mixed().is_some() {
            self.not_stored(Reason::Filtered);
        }
    }

    /// Whether a copy of what the node sends is wanted.
    pub fn is_apart(&self) -> bool {
        self.storing.is_apart && self.storing.fill.is_some()
    }

    /// A piece of the body as the node sent it.
    pub fn observe_node(&mut self, piece: &[u8]) {
        if self.is_apart() {
            self.storing.node_sent += piece.len() as u64;
            self.storing.copy(&self.config, &mut self.reason, piece);
        }
    }

    /// The end of the body as the node sent it: what is to be stored of it.
    pub fn take_node_fill(&mut self) -> Option<Box<Fill>> {
        if !self.is_apart() {
            return None;
        }
        let sent = self.storing.node_sent;
        if self
            .storing
            .node_length
            .is_some_and(|length| length != sent)
        {
            self.not_stored(Reason::Cut);
        }
        self.storing.fill.take()
    }

    /// The node has sent so many bytes of a body that is not kept apart. If
    /// others came here, something has changed it that did not say so. Whether
    /// that is so.
    pub fn node_sent(&mut self, bytes: u64) -> bool {
        // of a part that can't be read nothing is counted
        let counts = self
            .mixed()
            .is_none_or(|it| it.lost.is_none() && !it.is_unjudged);
        let is_changed = counts && self.storing.of_sent().is_some() && bytes != self.received;
        if is_changed {
            self.not_stored(Reason::Filtered);
        }
        is_changed
    }

    /// The head of a stored answer as it has become on its way to the client:
    /// what it varies on is one line, as in an answer from the node.
    pub fn stored_head<'a>(&mut self, fields: impl Iterator<Item = Field<'a>> + Clone) {
        const NAME: &str = "Vary";
        if !self.varies {
            return;
        }
        let lines = || {
            let fields = fields.clone();
            fields
                .filter(|(name, _)| name.eq_ignore_ascii_case(NAME.as_bytes()))
                .map(|(_, value)| value)
        };
        // as it stands in an answer from the node: ours is the last
        let others = vary::without(lines(), "Accept-Encoding");
        let vary = match self.looked.host_writes_vary {
            true => others,
            false => vary::with(std::iter::once(&others[..]), "Accept-Encoding"),
        };
        self.head_edits.retain(|edit| edit.name != NAME);
        self.head_edits.push(match vary.is_empty() {
            true => HeadEdit::remove(NAME),
            false => HeadEdit::set(NAME, vary),
        });
    }

    /// What there is to send in identity, for a host that goes on to change
    /// it. `false`: there is no memory for it.
    pub fn uncode(&mut self) -> bool {
        let answer = self.answer_mut();
        let stored = answer.and_then(|it| it.stored.take_if(|body| Body::is_gzip(body)));
        let Some(coded) = stored else {
            return true;
        };
        let decoded = self.decode_stored(&coded);
        drop(coded);
        let mut body = Body::identity();
        let Some((plain, memory)) = decoded else {
            return false;
        };
        if body.push(plain).is_none() {
            return false;
        }
        self.head_edits.retain(|edit| {
            let is = |name: &str| edit.name.eq_ignore_ascii_case(name);
            !is("content-encoding") && !is("content-length")
        });
        let length = body.length().to_string().into_bytes();
        self.head_edits
            .push(HeadEdit::set("Content-Length", length));
        if let Some(answer) = self.answer_mut() {
            answer.stored = Some(body);
            answer.borrowed.push(Loan::Assembled { _memory: memory });
        }
        true
    }

    /// Decodes a gzip body into memory that counts to `memory`; `None`: it has no room.
    fn decode_stored(&self, gzip: &Body) -> Option<(Vec<u8>, Reservation)> {
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let length = usize::try_from(gzip.length()).ok()?;
        let mut memory = self.config.process.budget.reserve(length, limit)?;
        let gzip = gzip.try_to_vec()?;
        let plain = inflate::gunzip_within(&gzip, limit, |decoded| {
            memory.grow_to(length.saturating_add(decoded), limit)
        });
        let plain = plain.ok()?;
        memory.shrink_to(plain.capacity());
        Some((plain, memory))
    }

    /// Whether an answer of that media type and length (`None`: not known) would
    /// be coded, or is a stored one that is, or a part of a batch, to be put
    /// together with stored ones. Until then it is not for other coders.
    pub fn would_code(&self, content_type: &[u8], length: Option<u64>) -> bool {
        if let Some(answer) = self.answer().filter(|answer| answer.status != 0) {
            return answer.stored.as_ref().is_some_and(Body::is_gzip);
        }
        if self.mixed().is_some() || self.looked.bound.is_some() {
            // a part of a batch is read, whoever the client is and however short it is, and
            // what is bounded is measured
            return true;
        }
        let makes = |ssz: Negotiated| ssz.makes(Some(content_type));
        let negotiated = self.request.ssz.or(self.request.untyped);
        if negotiated.and_then(makes).is_some() {
            return true;
        }
        self.config.enable
            && !self.request.untouched
            && !self.request.no_transform
            && self.request.accept_encoding.prefers_gzip()
            && self.config.types.contains(content_type)
            && length.is_none_or(|length| length >= self.config.min_length)
    }

    /// Whether an answer is on its way into the cache, so that it is worth
    /// having even when the client has gone.
    pub fn is_filling(&self) -> bool {
        self.storing.fill.is_some()
    }

    /// The client has gone on to another place (an error page, a redirect):
    /// nothing more comes of this exchange, but what it gave out stays.
    pub fn abandon(&mut self) {
        self.stop_waiting();
        self.storing.fill = None;
        self.looked.update = None;
        self.give_back_permits();
    }
}
