//! A request that asks how it all goes: what workers have counted, and what the owner of
//! a store knows of itself, which may have to be waited for.

use std::sync::Arc;

use super::asked::LookUp;
use super::waits::{Awaited, Waits};
use crate::cache::process::wake::Waiter;
use crate::exchange::actions::Misuse;
use crate::exchange::head::HeadEdit;
use crate::exchange::machine::Exchange;
use crate::exchange::phase::Phase;
use crate::exchange::transitions::Event;
use crate::status::board::Board;
use crate::status::report::Report;
use crate::status::Format;

/// What is to be told.
#[derive(Clone, Copy, Debug)]
pub struct Tell<'a> {
    /// The request's method.
    pub method: &'a [u8],
    /// The request's query (docs/observability.md).
    pub query: &'a [u8],
    /// The host and its version.
    pub host: &'a str,
    /// What its workers have counted.
    pub board: Board,
    /// As of [`Asked`](super::asked::Asked); without one the owner is not asked.
    pub waiter: Option<Waiter>,
    /// The same.
    pub now: u64,
    /// Seconds since 1970.
    pub wall: u64,
}

const PLAIN: &str = "text/plain; charset=utf-8";

impl Exchange {
    /// Tells it, instead of a look-up; again once the request was woken, or its time is
    /// over.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn tell_status(&mut self, tell: &Tell<'_>) -> Result<LookUp, Misuse> {
        self.is_administrative = true;
        let waited = self.wake();
        let Phase::AwaitingHead = self.phase else {
            return Err(self.misuse(Event::Miss));
        };
        if !matches!(tell.method, b"GET" | b"HEAD") {
            let allow = HeadEdit::set("Allow", b"GET, HEAD");
            return self.answers(405, PLAIN, b"GET tells\n".to_vec(), [allow]);
        }
        let format = match Format::of(tell.query) {
            Ok(format) => format,
            Err(error) => return self.answers(400, PLAIN, (error + "\n").into_bytes(), None),
        };
        let shared = Arc::clone(&self.config.process.shared);
        let owner = shared.owner();
        if let (None, Some(owner), Some(waiter), true) =
            (&waited, owner, tell.waiter, format.needs_owner())
        {
            if owner.ask_for_status(waiter, tell.now) {
                let waits = Waits::new(&shared, waiter, Awaited::Said);
                self.move_on(Event::Wait, |_| Phase::Waiting(waits))?;
                return Ok(LookUp::Wait);
            }
        }
        let said = owner.zip(tell.waiter).filter(|_| waited.is_some());
        let said = said.and_then(|(owner, waiter)| owner.claim_said(waiter));
        drop(waited);
        let said = said.filter(|(status, _)| *status == 200);
        let body = format.write(|| Report {
            host: tell.host.to_owned(),
            now: tell.wall,
            sums: tell.board.sums(),
            owner: said.and_then(|(_, json)| serde_json::from_slice(&json).ok()),
            has_owner: owner.is_some(),
        });
        let no_store = HeadEdit::set("Cache-Control", b"no-store");
        self.answers(200, format.media_type(), body.into_bytes(), [no_store])
    }
}
