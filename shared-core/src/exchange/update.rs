//! Fetching a new answer in the background, while the client has got the one
//! that has expired.

use std::sync::Arc;

use super::caching::{Asked, Found, Looked};
use super::fill::Fill;
use super::head::{CacheKind, Coding, Field, Response, ResponseHead};
use super::held::Held;
use super::phase::Phase;
use super::standing_in::StandIn;
use super::transitions::Event;
use super::{Exchange, HeadAction, Misuse};
use crate::beacon::Route;
use crate::cache::status::CacheStatus;
use crate::mode::Mode;

impl Exchange {
    /// The node is to be asked: for this request, or in the background while
    /// the client gets what has expired.
    pub(super) fn fetch(&mut self, mut fill: Box<Fill>, asked: &Asked<'_>) -> Found {
        if self.config.cache.background_update && fill.leads() {
            if let Some(found) = self.give_stale(CacheStatus::Stale, asked) {
                let stand_in = self.looked.stand_in.as_ref();
                fill.updates = stand_in.map(|it| (it.key, Arc::clone(&it.entry)));
                self.looked.update = Some(fill);
                return found;
            }
        }
        self.storing.fill = Some(fill);
        Found::Nothing
    }

    /// After a look-up that found something: an exchange that awaits the
    /// node's answer to the same request, for the cache alone. The host makes
    /// the request anew, with the same head and body; if it can't, it drops
    /// the exchange.
    pub fn take_update(&mut self) -> Option<Self> {
        let fill = self.looked.update.take()?;
        let mut update = Self::new(Arc::clone(&self.config));
        update
            .move_on(Event::Update, |_| Phase::AwaitingUpdate)
            .ok()?;
        update.request = self.request.clone();
        update.upstream_edits = self.upstream_edits.clone();
        update.cache_status = CacheStatus::Miss;
        update.looked = Looked {
            at: self.looked.at,
            rpc_method: self.looked.rpc_method.clone(),
            key: self.looked.key,
            stand_in: self.looked.stand_in.as_ref().map(StandIn::again),
            ..Looked::default()
        };
        update.storing.fill = Some(fill);
        if update.request.cache.kind == CacheKind::Resource {
            let route = Route::of(&update.request.cache.target);
            update.ask_on_condition(route != Route::Other);
        }
        Some(update)
    }

    /// What to do with the node's answer where there is no client.
    pub(super) fn judge_update<'a, I>(
        &mut self,
        mut head: ResponseHead<I>,
    ) -> Result<HeadAction, Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        // it becomes a part of no other answer
        head.subrequest = false;
        if !self.storing.is_judged {
            self.judge_storing(&head);
        }
        self.head_edits.clear();
        let held = Held::of(&head);
        let mode = match Response::read(head.fields).coding {
            Coding::Identity => Mode::Subrequest,
            Coding::Gzip | Coding::Other => Mode::Encoded,
        };
        self.pass(Event::HeadToPass, held, mode)?;
        Ok(self.tee_or_pass())
    }
}
