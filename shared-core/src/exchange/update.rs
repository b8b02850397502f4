//! Fetching a new answer in the background, while the client has got the one
//! that has expired.

use std::sync::Arc;

use super::caching::{Asked, LookUp};
use super::fill::Fill;
use super::head::{CacheKind, Coding, Field, Response, ResponseHead};
use super::standing_in::StandIn;
use super::transitions::{Event, State};
use super::{Exchange, HeadAction, Misuse};
use crate::beacon::Route;
use crate::cache::status::CacheStatus;
use crate::mode::Mode;

impl Exchange {
    /// The node is to be asked: for this request, or in the background while
    /// the client gets what has expired.
    pub(super) fn fetch(&mut self, mut fill: Box<Fill>, asked: &Asked<'_>) -> LookUp {
        if self.config.cache.background_update && fill.leads() {
            if let Some(found) = self.give_stale(CacheStatus::Stale, asked) {
                let stand_in = self.stand_in.as_ref();
                fill.updates = stand_in.map(|it| (it.key, Arc::clone(&it.entry)));
                self.update = Some(fill);
                return found;
            }
        }
        self.fill = Some(fill);
        LookUp::Forward
    }

    /// After a look-up that found something: an exchange that awaits the
    /// node's answer to the same request, for the cache alone. The host makes
    /// the request anew, with the same head and body; if it can't, it drops
    /// the exchange.
    pub fn take_update(&mut self) -> Option<Self> {
        let fill = self.update.take()?;
        let mut update = Self::new(Arc::clone(&self.config));
        update.state = State::AwaitingHead;
        update.background = true;
        update.request = self.request.clone();
        update.upstream_edits = self.upstream_edits.clone();
        update.rpc_method = self.rpc_method.clone();
        update.key = self.key;
        update.cache_status = CacheStatus::Miss;
        update.looked_up_at = self.looked_up_at;
        update.fill = Some(fill);
        update.stand_in = self.stand_in.as_ref().map(StandIn::again);
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
        if !self.node_judged {
            self.judge_storing(&head);
        }
        self.head_edits.clear();
        self.move_on(Event::HeadToPass)?;
        // the length that a 304 gives is not of its own body
        self.declared = head
            .content_length
            .filter(|_| head.status != 304)
            .map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        self.mode = match Response::read(head.fields).coding {
            Coding::Identity => Mode::Subrequest,
            Coding::Gzip | Coding::Other => Mode::Encoded,
        };
        Ok(self.tee_or_pass())
    }
}
