//! Lookup of stored responses, before a request is forwarded to the node.

use std::sync::Arc;

use super::asked::{Asked, BodyLength, LookUp, Need, Sought};
use super::calls::{Calls, Place};
use super::fill::wanted::{Wanted, What};
use super::found::Found;
use super::waits::Waits;
use crate::cache::process::identities::is_identity;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::exchange::actions::Misuse;
use crate::exchange::head::CacheKind;
use crate::exchange::machine::Exchange;
use crate::exchange::phase::Phase;
use crate::exchange::transitions::{Event, State};
use crate::jsonrpc::request::{room_for, Call, Refusal, Request};
use crate::memory;
use crate::mode::Mode;

impl Exchange {
    /// Returns the part of the request that a lookup needs, for a body of this length.
    pub fn need(&mut self, length: BodyLength) -> Need {
        if let Some(need) = self.need_of_policy(length) {
            return need;
        }
        if self.rewrites() {
            if self.is_to_rewrite(length) {
                return Need::WholeBody;
            }
            // the body will not be rewritten, though the request is looked up without it
            self.request.submitted = None;
        }
        let need = self.need_of_cache(length);
        let others = self.may_give_result(length) || self.may_be_for_route(length);
        if others || self.is_for_node(length) {
            self.looked.is_for_others = need == Need::Nothing;
            return Need::WholeBody;
        }
        need
    }

    pub(in crate::exchange) fn need_of_cache(&mut self, length: BodyLength) -> Need {
        let (request, cache) = (&self.request.cache, &self.config.cache);
        let looks = matches!(self.state(), State::AwaitingHead | State::Waiting);
        if !looks || !self.config.process.shared.keeps() {
            return Need::Nothing;
        }
        let (fits, need) = match request.kind {
            CacheKind::Change => return Need::LookUp,
            CacheKind::None => return Need::Nothing,
            _ if self.bypasses() => return Need::Nothing,
            CacheKind::Resource => (length == BodyLength::Known(0), Need::LookUp),
            CacheKind::Call => {
                let fits = match length {
                    BodyLength::Known(length) => (1..=cache.max_request).contains(&length),
                    BodyLength::Unknown => cache.max_request > 0,
                };
                (fits, Need::Body)
            }
        };
        if !fits {
            self.reason = Reason::RequestLength;
            return Need::Nothing;
        }
        need
    }

    /// Whether stored responses must not be sent to this client.
    pub(super) fn bypasses(&self) -> bool {
        self.request.cache.credentials
    }

    /// Whether a body is too long to be looked up, now that its length is known.
    pub(in crate::exchange) fn is_too_long(&self, body: &[u8]) -> bool {
        self.is_call() && body.len() as u64 > self.config.cache.max_request
    }

    /// Whether the request's body determines the response.
    pub(in crate::exchange) fn is_call(&self) -> bool {
        self.request.cache.kind == CacheKind::Call
    }

    /// Looks up stored responses to the request.
    ///
    /// # Errors
    /// [`Misuse`] unless a response head is awaited.
    pub fn look_up(&mut self, asked: Asked<'_>) -> Result<LookUp, Misuse> {
        let waited = self.wake();
        let Phase::AwaitingHead = self.phase else {
            return Err(self.misuse(Event::Miss));
        };
        self.cache_status = CacheStatus::Bypass;
        let found = self.find(&asked, waited);
        if matches!(found, Found::Nothing) && self.ask_for_allowed()? {
            return Ok(LookUp::ForwardRewritten);
        }
        let (event, phase, look_up) = match found {
            Found::Nothing if !self.request_body.is_empty() => {
                (Event::Miss, Phase::AwaitingHead, LookUp::ForwardRewritten)
            }
            Found::Nothing => (Event::Miss, Phase::AwaitingHead, LookUp::Forward),
            Found::Answer(answer) => (Event::Hit, Phase::Ready(answer), LookUp::Respond),
            Found::ToDecode(decoding) => (
                Event::HitToDecode,
                Phase::Decoding(decoding),
                LookUp::RespondOffLoop,
            ),
            Found::Part(mixed) => (
                Event::HitInPart,
                Phase::AwaitingPart(mixed),
                LookUp::ForwardRewritten,
            ),
            Found::OnItsWay(waits) => (Event::Wait, Phase::Waiting(waits), LookUp::Wait),
        };
        self.move_on(event, |_| phase)?;
        Ok(look_up)
    }

    pub(in crate::exchange) fn find(
        &mut self,
        asked: &Asked<'_>,
        waited: Option<Box<Waits>>,
    ) -> Found {
        if self.request.cache.kind == CacheKind::Change {
            self.reason = self.request.cache.why;
            self.may_change(asked);
            return Found::Nothing;
        }
        if asked.local {
            self.reason = Reason::Local;
            return Found::Nothing;
        }
        if self.is_nowhere(asked) {
            self.reason = Reason::Namespace;
            return Found::Nothing;
        }
        if self.is_suspended(asked) {
            self.reason = Reason::WrongChain;
            return Found::Nothing;
        }
        if memory::is_short() || !memory::is_there(room_for(asked.body.len())) {
            self.reason = Reason::Memory;
            return Found::Nothing;
        }
        self.looked.at = asked.now;
        self.config.process.shared.unkept.saw(asked.now);
        self.looked.may_code = asked.coding_allowed;
        self.looked.host_writes_vary = asked.host_writes_vary;
        self.looked.forwards_codings = asked.forwards_codings;
        if self.request.cache.kind == CacheKind::Resource {
            let found = self.look_up_resource(asked, waited);
            self.watch_route(asked, &found);
            return found;
        }
        match self.request.coding.coded().is_some() {
            true => self.find_decoded(asked, waited),
            false => self.find_calls(asked, waited),
        }
    }

    pub(super) fn find_calls(&mut self, asked: &Asked<'_>, waited: Option<Box<Waits>>) -> Found {
        let (config, scope) = (Arc::clone(&self.config), self.scope(asked));
        let mut judge = Calls::new(&config, &scope, asked.body);
        match judge.read(config.cache.batch_max) {
            Ok((Request::Single(call), places)) => {
                let place = places.into_iter().flatten().next();
                let found = self.look_up_call(&call, place, &judge, asked, waited);
                if self.is_to_watch(&found) {
                    self.watch_calls(&[call], false, &scope);
                }
                found
            }
            Ok((Request::Batch(calls), places)) => {
                let came = waited.map(|waited| waited.of_batch());
                self.looked.name_methods(&calls);
                self.look_up_batch(calls, places, &judge, asked, came.unwrap_or_default())
            }
            Err(refusal) => {
                self.reason = match refusal {
                    Refusal::LongBatch => Reason::BatchLength,
                    _ => Reason::Malformed,
                };
                // the body is no JSON-RPC: a POST like any other
                self.may_change(asked);
                Found::Nothing
            }
        }
    }

    fn look_up_call(
        &mut self,
        call: &Call<'_>,
        place: Option<Place>,
        judge: &Calls<'_>,
        asked: &Asked<'_>,
        waited: Option<Box<Waits>>,
    ) -> Found {
        self.looked.rpc_method = call.method.to_vec();
        let (Some(id), Some(place)) = (call.id, place) else {
            self.reason = match call.id {
                Some(_) => Reason::RpcMethod,
                None => Reason::Notification,
            };
            return Found::Nothing;
        };
        self.looked.is_unverified = is_identity(call.method) && self.is_unverified(judge.scope());
        let sought = Sought {
            key: place.key,
            id: Some(id),
            is_whole: true,
            coalesces: true,
        };
        let found = self.seek(&sought, judge.scope(), asked, waited, || {
            What::Call(Wanted::new(call, id, place.key, place.prospect))
        });
        if let Found::Answer(_) | Found::ToDecode(_) = found {
            judge.remember(call, &place);
        }
        self.note_other_api(&found);
        found
    }

    /// Records that the response will not be stored because its namespace follows a node of the
    /// other API.
    pub(super) fn note_other_api(&mut self, found: &Found) {
        let fill = self.storing.fill.as_ref();
        let is_missing = matches!(found, Found::Nothing);
        if is_missing && fill.is_some_and(|fill| fill.is_of_other_api()) {
            self.reason = Reason::OtherApi;
        }
    }

    /// Ends the wait, if there is one, and returns it, so that its result can be claimed.
    pub(super) fn wake(&mut self) -> Option<Box<Waits>> {
        let mut waits = None;
        if let Phase::Waiting(_) = self.phase {
            // the transition table has this move
            let _ = self.move_on(Event::Wake, |phase| {
                if let Phase::Waiting(awaited) = phase {
                    waits = Some(awaited);
                }
                Phase::AwaitingHead
            });
        }
        waits
    }

    /// Ends the wait and discards its result.
    pub(in crate::exchange) fn stop_waiting(&mut self) {
        drop(self.wake());
    }

    /// Resets the exchange after a failed lookup.
    pub fn forget_look_up(&mut self) {
        self.storing.fill = None;
        self.looked.stand_in = None;
        self.looked.update = None;
        self.looked.update_of_one = None;
        self.looked.batch_hits = 0;
        self.looked.batch_calls.clear();
        self.mode = Mode::Off;
        self.head_edits.clear();
        self.cache_status = CacheStatus::None;
        self.reason = Reason::Memory;
    }

    /// Records the reason why the host did not look the request up.
    pub fn not_looked_up(&mut self, reason: Reason) {
        self.reason = reason;
    }
}
