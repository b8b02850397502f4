//! Requests whose bodies are coded. They are decoded to be read, where what they say
//! is of account; the node gets them as they came or, where it takes none such,
//! decoded. One that can't be decoded, or would be too long, goes to it as it came.

use super::cache::asked::BodyLength;
use super::head::HeadEdit;
use super::machine::Exchange;
use super::transitions::State;
use crate::coded::BodyCoding;
use crate::gzip::inflate::InflateError;
use crate::memory;
use crate::memory::Reservation;

/// A body that was decoded, and the memory that it takes.
pub(super) struct Decoded {
    pub(super) body: Vec<u8>,
    pub(super) memory: Reservation,
}

impl Exchange {
    /// Whether the node gets such a body decoded, if that can be.
    pub(super) fn goes_decoded(&self) -> bool {
        let coded = self.request.coding.coded();
        coded.is_some_and(|coded| self.config.coded_requests.go_decoded(coded))
            && !self.request.no_transform
    }

    /// Whether a body of that length is to be read for the node alone.
    pub(super) fn is_for_node(&self, length: BodyLength) -> bool {
        let fits = match length {
            BodyLength::Known(length) => (1..=self.config.max_oneshot).contains(&length),
            BodyLength::Unknown => true,
        };
        fits && self.state() == State::AwaitingHead && self.goes_decoded()
    }

    /// Whether the node waits for the body to be decoded, which is left to a thread:
    /// what is short may be long then.
    pub(super) fn is_to_be_decoded(&self) -> bool {
        if self.request.coding.coded().is_none() || self.is_rewritten() {
            return false;
        }
        match self.looked.was_decoded {
            Some(is_sound) => is_sound && self.goes_decoded(),
            None => self.goes_decoded() || self.may_still_give_result(),
        }
    }

    /// The body, of `cap` bytes at most, in memory that is counted; `beside` of it is
    /// taken already.
    pub(super) fn decoded(
        &self,
        coded: &[u8],
        cap: usize,
        beside: Option<Reservation>,
    ) -> Result<Decoded, InflateError> {
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let refused = InflateError::OutOfMemory;
        let coding = self.request.coding.coded().ok_or(InflateError::Bad)?;
        if memory::is_short() {
            return Err(refused);
        }
        let budget = &self.config.process.budget;
        let mut memory = beside.or_else(|| budget.reserve(0, limit)).ok_or(refused)?;
        let before = memory.bytes();
        let body = coding.decode(coded, cap, |length| {
            memory.grow_to(before.saturating_add(length), limit)
        })?;
        memory.shrink_to(before.saturating_add(body.capacity()));
        Ok(Decoded { body, memory })
    }

    /// The node gets that in place of what was coded.
    pub(super) fn send_decoded(&mut self, decoded: Decoded) {
        self.request_body = decoded.body;
        self.request_memory = Some(decoded.memory);
        self.say_decoded();
    }

    /// What the node gets is not coded.
    pub(super) fn say_decoded(&mut self) {
        if self.request.coding != BodyCoding::None {
            self.request.coding = BodyCoding::None;
            self.upstream_edits
                .push(HeadEdit::remove("Content-Encoding"));
        }
    }
}
