//! Lookup of requests with compressed bodies, by their decompressed content.

use super::asked::Asked;
use super::found::Found;
use super::waits::Waits;
use crate::cache::reason::Reason;
use crate::exchange::machine::Exchange;
use crate::gzip::inflate::InflateError;
use crate::jsonrpc::request::room_for;
use crate::memory;

impl Exchange {
    /// Looks up the decompressed body, whose length is `cache_max_request` at most.
    pub(super) fn find_decoded(&mut self, asked: &Asked<'_>, waited: Option<Box<Waits>>) -> Found {
        let cap = usize::try_from(self.config.cache.max_request).unwrap_or(usize::MAX);
        let decoded = match self.decoded(asked.body, cap, None) {
            Ok(decoded) => decoded,
            Err(why) => {
                self.reason = match why {
                    InflateError::Bad => Reason::RequestCoding,
                    InflateError::TooLarge => Reason::RequestLength,
                    InflateError::OutOfMemory => Reason::Memory,
                };
                if why != InflateError::TooLarge {
                    self.looked.was_decoded = Some(false);
                }
                self.may_change(asked);
                return Found::Nothing;
            }
        };
        self.looked.was_decoded = Some(true);
        let found = if memory::is_there(room_for(decoded.body.len())) {
            let asked = Asked {
                body: &decoded.body,
                ..*asked
            };
            self.find_calls(&asked, waited)
        } else {
            self.reason = Reason::Memory;
            Found::Nothing
        };
        let may_be_asked = match &found {
            Found::Nothing | Found::ToDecode(_) => true,
            Found::Answer(_) => self.looked.update.is_some(),
            // the missing calls of a split batch are another body
            Found::Part(_) | Found::OnItsWay(_) => false,
        };
        if let Found::Part(_) = &found {
            self.say_decoded();
        } else if may_be_asked && self.goes_decoded() {
            self.send_decoded(decoded);
        }
        found
    }
}
