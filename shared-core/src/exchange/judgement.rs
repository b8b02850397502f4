//! What to do with a response, by its head.

use std::sync::Arc;

use super::head::{Coding, Field, HeadEdit, Response, ResponseHead};
use super::{Exchange, HeadAction, Task};
use crate::memory;
use crate::mode::Mode;
use crate::negotiate::media_type;

impl Exchange {
    /// What to do with a head, or the reason to leave the answer alone. Sets the
    /// head edits and the task on the way.
    pub(super) fn judge<'a, I>(&mut self, head: ResponseHead<I>) -> Result<HeadAction, Mode>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let config = Arc::clone(&self.config);
        if !config.enable {
            return Err(Mode::Off);
        }
        if head.subrequest {
            return Err(Mode::Subrequest);
        }
        match head.status {
            101 => return Err(Mode::Upgrade),
            0..=199 | 204 | 205 | 206 | 304 => return Err(Mode::Status),
            _ => {}
        }
        let response = Response::read(head.fields.clone());
        if self.mixed.is_some() {
            if head.status == 200 {
                return Ok(self.judge_mixed(&response, &head));
            }
            // the node's own answer to all of it
            self.mixed = None;
        }
        if response.coding == Coding::Other {
            return Err(Mode::Encoded);
        }
        if !response
            .content_type
            .is_some_and(|content_type| config.types.contains(content_type))
        {
            return Err(match response.coding {
                Coding::Identity => Mode::Type,
                _ => Mode::Encoded,
            });
        }
        if response.no_transform || self.request.no_transform {
            return Err(Mode::NoTransform);
        }
        self.varies = true;
        response.vary_edits(head.host_writes_vary, &mut self.head_edits);
        response.recoded_edits(&mut self.recoded_edits);

        let accept = self.request.accept_encoding;
        let task = if response.coding == Coding::Gzip {
            if accept.allows_gzip() {
                return Err(Mode::Encoded);
            }
            Task::Gunzip
        } else {
            Task::Gzip {
                at_any_length: accept.refuses_identity() && accept.prefers_gzip(),
            }
        };
        self.task = task;
        self.delimited = head.delimited;
        self.judge_length(head.content_length)?;
        if task != Task::Gunzip {
            if !accept.prefers_gzip() {
                return Err(Mode::AcceptEncoding);
            }
            if !head.coding_allowed {
                return Err(Mode::HostPolicy);
            }
        }
        if self.request.head {
            // GET would send another length (RFC 9110, 9.3.2 and 8.6)
            self.head_edits.push(HeadEdit::remove("Content-Length"));
            if task == Task::Gunzip {
                self.head_edits.push(HeadEdit::remove("Content-Encoding"));
            }
            self.head_edits.append(&mut self.recoded_edits);
            return Err(Mode::Head);
        }
        if memory::is_short() {
            return Err(Mode::Memory);
        }
        let at_once = head.unbuffered
            || self.config.hold == 0 && self.declared.is_none()
            || self.is_beyond_oneshot()
            // an answer that is given a length has no place for them
            || response.announces_trailers && self.delimited && self.declared.is_none()
            || response
                .content_type
                .is_some_and(media_type::is_event_stream);
        if at_once && task != Task::Gunzip {
            return self.open_stream().map(|()| HeadAction::Stream);
        }
        match self.declared {
            None => Ok(HeadAction::Hold),
            // all of it now: later there is no way back but giving up
            Some(length) => match self.reserve(length) {
                Ok(()) => Ok(HeadAction::Hold),
                Err(_) if task != Task::Gunzip => {
                    self.reservation = None;
                    self.open_stream().map(|()| HeadAction::Stream)
                }
                Err(reason) => {
                    self.reservation = None;
                    Err(reason)
                }
            },
        }
    }

    fn is_beyond_oneshot(&self) -> bool {
        self.declared
            .is_some_and(|length| length as u64 > self.config.max_oneshot)
    }

    fn judge_length(&mut self, content_length: Option<u64>) -> Result<(), Mode> {
        let Some(length) = content_length else {
            return Ok(());
        };
        // beyond the address space is beyond max_oneshot
        self.declared = Some(usize::try_from(length).unwrap_or(usize::MAX));
        if length == 0 || self.is_below_gate(length) {
            return Err(Mode::TooSmall);
        }
        if self.task == Task::Gunzip && self.is_beyond_oneshot() {
            // it keeps its coding where it can't be held
            return Err(Mode::Encoded);
        }
        Ok(())
    }

    /// Whether a body of `length` is too short to be compressed.
    pub(super) fn is_below_gate(&self, length: u64) -> bool {
        let gated = self.task
            == Task::Gzip {
                at_any_length: false,
            };
        gated && length < self.config.min_length
    }
}
