//! What to do with a response, by its head.

use std::sync::Arc;

use super::head::{Coding, Field, HeadEdit, Response, ResponseHead};
use super::held::{Held, Task, Whole};
use super::phase::Phase;
use super::streaming::Stream;
use super::Exchange;
use crate::config::Config;
use crate::memory;
use crate::mode::Mode;
use crate::negotiate::media_type;

/// What becomes of an answer that is not left alone.
pub(super) enum Judged {
    /// It is coded when all of it is there.
    Hold(Box<Whole>),
    /// It is coded as it comes.
    Stream(Box<Stream>),
    /// It is put together with what is stored of the batch.
    Merge,
}

impl Exchange {
    /// What to do with a head, or the reason to leave the answer alone. Sets the
    /// head edits on the way.
    pub(super) fn judge<'a, I>(&mut self, head: &ResponseHead<I>) -> Result<Judged, Mode>
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
        // any other status is the node's own answer to all of it
        if let (Phase::AwaitingPart(_), 200) = (&self.phase, head.status) {
            self.judge_part(&response, head);
            return Ok(Judged::Merge);
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
        let mut held = Held::of(head);
        response.recoded_edits(&mut held.recoded_edits);

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
        let mut whole = Box::new(Whole::new(task, held));
        whole.judge_length(&config)?;
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
            self.head_edits.append(&mut whole.held.recoded_edits);
            return Err(Mode::Head);
        }
        if memory::is_short() {
            return Err(Mode::Memory);
        }
        let declared = whole.held.declared;
        let at_once = head.unbuffered
            || config.hold == 0 && declared.is_none()
            || whole.is_beyond_oneshot(&config)
            // an answer that is given a length has no place for them
            || response.announces_trailers && head.delimited && declared.is_none()
            || response
                .content_type
                .is_some_and(media_type::is_event_stream);
        if at_once && task != Task::Gunzip {
            return self.judged_to_stream(&mut whole.held);
        }
        // all of it now: later there is no way back but giving up
        match declared.map(|length| whole.held.reserve(&config, length)) {
            None | Some(Ok(())) => Ok(Judged::Hold(whole)),
            Some(Err(_)) if task != Task::Gunzip => {
                whole.held.reservation = None;
                self.judged_to_stream(&mut whole.held)
            }
            Some(Err(reason)) => Err(reason),
        }
    }

    fn judged_to_stream(&mut self, held: &mut Held) -> Result<Judged, Mode> {
        let mut stream = Stream::open(&self.config, held)?;
        self.head_of_stream(&mut stream);
        Ok(Judged::Stream(stream))
    }
}

impl Whole {
    fn is_beyond_oneshot(&self, config: &Config) -> bool {
        let declared = self.held.declared;
        declared.is_some_and(|length| length as u64 > config.max_oneshot)
    }

    fn judge_length(&self, config: &Config) -> Result<(), Mode> {
        let Some(length) = self.held.declared else {
            return Ok(());
        };
        if length == 0 || self.is_below_gate(config, length) {
            return Err(Mode::TooSmall);
        }
        if self.task == Task::Gunzip && self.is_beyond_oneshot(config) {
            // it keeps its coding where it can't be held
            return Err(Mode::Encoded);
        }
        Ok(())
    }
}
