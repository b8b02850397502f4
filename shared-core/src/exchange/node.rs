//! What the node itself sent, where a host adds to it or changes it.
//!
//! A proxy's own modules add fields to a head and may change a body before it
//! reaches the exchange. What is stored, and whether anything is, goes by the
//! node's head alone, so a host that can show it does so before anything else
//! has touched it. What is sent goes by the head as it is then.
//!
//! A body that others change between the node and the exchange is stored from
//! the pieces that the node sent, apart from those that the client gets.

use super::head::{Field, HeadEdit, ResponseHead};
use super::transitions::{Event, State};
use super::{Exchange, Fill, Misuse, Task};
use crate::cache::reason::Reason;
use crate::gzip::inflate;
use crate::gzip::splice::Body;
use crate::negotiate::vary;

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
        if self.state != State::AwaitingHead {
            return Err(self.misuse(Event::HeadToPass));
        }
        if self.background {
            // it becomes a part of no other answer
            head.subrequest = false;
        }
        self.node_length = head.content_length.filter(|_| head.status != 304);
        if !self.background {
            self.has_changed(&head);
        }
        self.judge_storing(&head);
        self.node_judged = true;
        Ok(self.status != 0)
    }

    /// The body is changed on its way here: what is stored comes by
    /// [`Exchange::observe_node`].
    pub fn keep_apart(&mut self) {
        self.apart = self.fill.is_some();
        let coded = self.fill.as_ref().is_some_and(|fill| fill.is_coded());
        if coded || self.mixed.is_some() {
            self.not_stored(Reason::Filtered);
        }
    }

    /// Whether a copy of what the node sends is wanted.
    pub fn is_apart(&self) -> bool {
        self.apart && self.fill.is_some()
    }

    /// A piece of the body as the node sent it.
    pub fn observe_node(&mut self, piece: &[u8]) {
        if self.is_apart() {
            self.node_sent += piece.len() as u64;
            self.copy_to_fill(piece);
        }
    }

    /// The end of the body as the node sent it: what is to be stored of it.
    pub fn take_node_fill(&mut self) -> Option<Box<Fill>> {
        if !self.is_apart() {
            return None;
        }
        if self
            .node_length
            .is_some_and(|length| length != self.node_sent)
        {
            self.not_stored(Reason::Cut);
        }
        self.fill.take()
    }

    /// The node has sent so many bytes of a body that is not kept apart. If
    /// others came here, something has changed it that did not say so. Whether
    /// that is so.
    pub fn node_sent(&mut self, bytes: u64) -> bool {
        let counts = !matches!(
            self.task,
            Task::Merge {
                unreadable: true,
                ..
            }
        );
        let is_changed = counts && self.fill.is_some() && !self.apart && bytes != self.received;
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
        let vary = match self.host_writes_vary {
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
        let Some(coded) = self.stored.take_if(|body| Body::is_gzip(body)) else {
            return true;
        };
        let plain = coded
            .try_to_vec()
            .and_then(|coded| inflate::gunzip(&coded, usize::MAX >> 1).ok());
        let mut body = Body::identity();
        if plain.and_then(|plain| body.push(plain)).is_none() {
            return false;
        }
        self.head_edits.retain(|edit| {
            let is = |name: &str| edit.name.eq_ignore_ascii_case(name);
            !is("content-encoding") && !is("content-length")
        });
        let length = body.length().to_string().into_bytes();
        self.head_edits
            .push(HeadEdit::set("Content-Length", length));
        self.stored = Some(body);
        true
    }

    /// Whether an answer of that media type and length (`None`: not known) would
    /// be coded, or is a stored one that is, or a part of a batch, to be put
    /// together with stored ones. Until then it is not for other coders.
    pub fn would_code(&self, content_type: &[u8], length: Option<u64>) -> bool {
        if self.status != 0 {
            return self.stored.as_ref().is_some_and(Body::is_gzip);
        }
        if self.mixed.is_some() {
            // a part of a batch is read, whoever the client is and however short it is
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
        self.fill.is_some()
    }

    /// The client has gone on to another place (an error page, a redirect):
    /// nothing more comes of this exchange, but what it gave out stays.
    pub fn abandon(&mut self) {
        self.stop_waiting();
        self.fill = None;
        self.update = None;
    }

    /// Nothing of this answer is to be stored, for that reason.
    pub fn not_stored(&mut self, reason: Reason) {
        if self.fill.is_some() {
            self.reason = reason;
            self.refuse_fill();
        }
    }

    /// The same, and the next one will be told the same.
    pub(super) fn not_stored_for_now(&mut self, reason: Reason) {
        if let Some(fill) = self.fill.take() {
            self.reason = reason;
            fill.refuse_for_now();
        }
    }

    /// Why the answer did not come from the cache, or will not from it.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The host did not look it up, for that reason.
    pub fn not_looked_up(&mut self, reason: Reason) {
        self.reason = reason;
    }
}
