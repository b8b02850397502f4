//! Requests whose bodies are coded with gzip: they are looked up by what they say,
//! and the node gets them as they came, or decoded where it takes none that are.

use super::asked::Asked;
use super::found::Found;
use super::look_up::room_for;
use super::waits::Waits;
use crate::cache::reason::Reason;
use crate::exchange::head::HeadEdit;
use crate::exchange::machine::Exchange;
use crate::gzip::inflate::{gunzip, InflateError};
use crate::memory;

impl Exchange {
    /// What `find` finds for the decoded body. One that can't be decoded within
    /// `cache_max_request` goes to the node as it came.
    pub(super) fn find_decoded(&mut self, asked: &Asked<'_>, waited: Option<Box<Waits>>) -> Found {
        let cap = usize::try_from(self.config.cache.max_request).unwrap_or(usize::MAX);
        let body = match gunzip(asked.body, cap) {
            Ok(body) => body,
            Err(why) => {
                self.reason = match why {
                    InflateError::Bad => Reason::RequestCoding,
                    InflateError::TooLarge => Reason::RequestLength,
                    InflateError::OutOfMemory => Reason::Memory,
                };
                self.may_change(asked);
                return Found::Nothing;
            }
        };
        let why_not = match () {
            // it is here only to be decoded
            () if self.bypasses() => Reason::Credentials,
            () if !memory::is_there(room_for(body.len())) => Reason::Memory,
            () => Reason::None,
        };
        let found = match why_not {
            Reason::None => {
                let asked = Asked {
                    body: &body,
                    ..*asked
                };
                self.find_calls(&asked, waited)
            }
            why_not => {
                self.reason = why_not;
                Found::Nothing
            }
        };
        let may_be_asked = match &found {
            Found::Nothing | Found::ToDecode(_) => true,
            Found::Answer(_) => self.looked.update.is_some(),
            // of a part it is another body
            Found::Part(_) | Found::OnItsWay(_) => false,
        };
        if may_be_asked && self.config.coded_requests.go_decoded() {
            self.request_body = body;
        }
        if !self.request_body.is_empty() {
            self.upstream_edits
                .push(HeadEdit::remove("Content-Encoding"));
        }
        found
    }
}
