//! Creation of entries from a response body.

use std::sync::Arc;

use super::wanted::{Resource, Wanted, What};
use super::{Built, Fill};
use crate::beacon::Route;
use crate::bytes::{copy_of, push};
use crate::cache::chain::Heights;
use crate::cache::class::Class;
use crate::cache::entry::{Entry, Envelope, Gate, IdPlace, Meta};
use crate::cache::freshness::{Came, Judged, Known};
use crate::cache::http::Stale;
use crate::cache::process::repeated::Said;
use crate::cache::process::upstream_errors::UpstreamError;
use crate::cache::reason::Reason;
use crate::cache::resource::{other_form, tag_of};
use crate::cache::scope::name_of;
use crate::cache::Key;
use crate::exchange::cache::forms::say_the_same;
use crate::exchange::cache::identity::first_part;
use crate::exchange::head::{is_bytewise, Coding};
use crate::gzip::inflate::{self, InflateError};
use crate::gzip::oneshot::off_loop_length;
use crate::jsonrpc::block::ResultBlock;
use crate::jsonrpc::ids::{by_id, counted};
use crate::jsonrpc::outline::outline;
use crate::jsonrpc::response::{Outcome, Response};
use crate::jsonrpc::shallow::is_shallow;
use crate::jsonrpc::{response, scan};
use crate::memory;
use crate::transcode::{Made, Transcoder, Why, VERSION};

/// Minimum length in bytes of responses that are stored as unchecked entries. Reading a shorter
/// response strictly takes two microseconds at the most.
const UNREAD: usize = 8 << 10;

/// Bytes of a body that are transcoded between two updates of the reservation.
const PIECE: usize = 64 << 10;

impl Fill {
    /// Creates entries from the collected body. May take milliseconds for each megabyte.
    pub fn build(&mut self) {
        if !self.built && !memory::is_short() {
            let mut body = std::mem::take(&mut self.collected);
            if self.coding == Coding::Gzip {
                let Some(plain) = self.gunzip(&body) else {
                    return;
                };
                body = plain;
                self.decoded();
            }
            // the encoder's output is allocated in addition to the body
            match self.may_take(body.capacity(), body.len()) {
                true => self.build_of(&body, &mut Vec::new()),
                false => self.refused = Some(Reason::Memory),
            }
        }
        self.compare();
    }

    /// Creates entries from the node's body.
    fn build_of(&mut self, body: &[u8], room: &mut Vec<u8>) {
        let transcoder = match &mut self.what {
            What::Resource(resource) => resource.transcoder.take(),
            What::Call(_) | What::Batch(_) => None,
        };
        let Some(transcoder) = transcoder else {
            self.build_from(body, room);
            return;
        };
        match self.transcode(*transcoder, body) {
            Ok(mut made) => self.build_transcoded(&mut made, room),
            Err(why) => {
                self.built = true;
                self.refused = Some(why.reason());
            }
        }
    }

    /// Transcodes a whole body. Memory is reserved before it is allocated.
    fn transcode(&mut self, mut transcoder: Transcoder, body: &[u8]) -> Result<Made, Why> {
        for piece in body.chunks(PIECE) {
            transcoder.feed(piece)?;
            if !self.may_take(body.len(), transcoder.room()) {
                return Err(Why::Memory);
            }
        }
        transcoder.finish(body, &mut |room| self.may_take(body.len(), room))
    }

    /// Creates an entry from a transcoded body.
    pub(in crate::exchange) fn build_transcoded(&mut self, made: &mut Made, room: &mut Vec<u8>) {
        let What::Resource(resource) = &mut self.what else {
            return;
        };
        resource.transcoder = None;
        resource.transcoded = Some((made.flags, made.body.is_empty()));
        resource.compresses = true;
        resource.undelimited = false;
        self.coding = Coding::Identity;
        self.fields.retain(|(name, _)| {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            !is_bytewise(name) && !is("etag") && !is("content-type") && !is("content-encoding")
        });
        let mut set = |name: &str, value: &[u8]| self.fields.push((name.into(), value.to_vec()));
        set("Content-Type", made.format.media_type());
        if let Some(fork) = made.fork {
            set(VERSION, fork.as_bytes());
        }
        let format = made.format;
        let refused = match format {
            _ if made.body.len() > self.settings.max_entry => Some(Reason::Length),
            _ if made.body.in_order().is_none() => Some(Reason::Memory),
            _ if !resource.is_asked_for(made) => Some(Reason::SszRoot),
            _ => None,
        };
        match made.body.in_order() {
            Some(body) if refused.is_none() => self.built_from(body, room),
            _ => {
                self.built = true;
                self.refused = refused;
            }
        }
    }

    /// Decompresses the compressed body that was copied on its way to the client.
    pub(in crate::exchange) fn gunzip(&mut self, coded: &[u8]) -> Option<Vec<u8>> {
        // a body of several members may be longer, and is not worth a second pass
        let length = inflate::claimed_length(coded);
        if length > self.settings.max_entry {
            self.refused = Some(Reason::Length);
            return None;
        }
        let decoded =
            inflate::gunzip_within(coded, length, |room| self.may_take(coded.len(), room));
        if let Err(InflateError::OutOfMemory) = decoded {
            self.refused = Some(Reason::Memory);
        }
        decoded.ok()
    }

    /// Creates entries from `body`, unless that was tried before.
    pub(in crate::exchange) fn build_from_once(&mut self, body: &[u8]) {
        if !self.built {
            self.build_of(body, &mut Vec::new());
        }
    }

    /// Whether [`Fill::build`] takes too long for an event loop.
    pub fn is_long(&self) -> bool {
        let length = match self.coding {
            Coding::Gzip => inflate::claimed_length(&self.collected),
            _ => self.collected.len(),
        };
        length > off_loop_length(self.settings.gate.level)
    }

    /// Creates entries from a body, unless it was transcoded and stored already. Returns the entry
    /// of the whole body, if there is one, and the id under which it is sent. `room` is a buffer
    /// for the encoder.
    pub(in crate::exchange) fn build_from(
        &mut self,
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Option<(&Entry, Vec<u8>)> {
        let is_done = match &self.what {
            What::Resource(resource) => resource.transcoded.is_some(),
            What::Call(_) | What::Batch(_) => false,
        };
        if !is_done {
            self.built_from(body, room);
        }
        let id = match &self.what {
            What::Batch(_) => return None,
            What::Call(wanted) => wanted.id.clone(),
            What::Resource(_) => Vec::new(),
        };
        let built = self.entries.first()?;
        Some((&built.entry, id))
    }

    /// Creates entries from `body`.
    fn built_from(&mut self, body: &[u8], room: &mut Vec<u8>) {
        self.built = true;
        if self.coding == Coding::Gzip {
            // the body could not be decoded
            return;
        }
        if let What::Resource(resource) = &self.what {
            let is_plain = self.coding == Coding::Identity && resource.transcoded.is_none();
            self.refused = is_plain.then(|| resource.refuses(body)).flatten();
            if self.refused.is_some() {
                return;
            }
        }
        self.entries = match &self.what {
            What::Batch(wanted) => self.of_batch(wanted, body, room),
            What::Call(wanted) => self.of_call(wanted, body, room).into_iter().collect(),
            What::Resource(resource) => {
                let built = self.of_resource(resource, body, room);
                built.into_iter().collect()
            }
        };
        self.settle_identity();
        if self.refused.is_some() {
            return;
        }
        self.contradicts = self.contradicted();
        let has_nothing = self.entries.iter().all(|built| built.entry.is_nothing());
        self.denied = has_nothing && self.updates.is_some() && self.denies(body, true);
        if let (true, Some(compared)) = (has_nothing, &self.compared) {
            let is_nothing = compared.is_open() && self.denies(body, false);
            if let (true, Some(compared)) = (is_nothing, &mut self.compared) {
                compared.find_nothing();
            }
        }
        if has_nothing {
            let reason = self.why_nothing(body);
            if reason == Reason::OtherApi {
                self.report_other_api();
            }
            self.refused = Some(reason);
        }
    }

    /// Returns the hot entry of the resource in its other format, if its value is different.
    fn contradicted(&self) -> Option<(Key, Arc<Entry>)> {
        let What::Resource(resource) = &self.what else {
            return None;
        };
        let negotiated = resource.ssz.filter(|ssz| ssz.format().is_some())?;
        let built = self.entries.first().filter(|it| !it.entry.is_nothing())?;
        let other_key = other_form(&resource.key);
        let other = self.shared.hot()?.stale(&other_key)?;
        let (chain, max_ssz) = (&self.settings.chain, self.settings.max_ssz);
        let mut memory = None;
        let may_take = |bytes| match &self.reservation {
            Some(reservation) => {
                memory = reservation.budget().reserve(bytes, self.limit);
                memory.is_some()
            }
            None => true,
        };
        let one = &built.entry;
        let is_one_value = say_the_same(negotiated, chain, max_ssz, one, &other, may_take);
        (!is_one_value).then_some((other_key, other))
    }

    /// Whether a complete response shows that no entry of this kind can exist any more;
    /// `or_fails`: an error shows it, too.
    fn denies(&self, body: &[u8], or_fails: bool) -> bool {
        match &self.what {
            What::Call(wanted) => response::parse(body).is_ok_and(|answer| {
                body[answer.id.clone()] == wanted.id
                    && match answer.outcome {
                        Outcome::Result(result) => self.judge(wanted, &body[result]).is_none(),
                        Outcome::Error(_) => or_fails,
                    }
            }),
            What::Resource(resource) => {
                resource.said.lifetime.is_none()
                    && (resource.transcoded.is_some() || scan::check(body).is_ok())
                    && self.judge_resource(resource, body).is_none()
            }
            What::Batch(_) => false,
        }
    }

    /// Returns the reason why a complete response yields no entry.
    fn why_nothing(&self, body: &[u8]) -> Reason {
        if let Some(why) = self.why.get() {
            return why;
        }
        match &self.what {
            // a node that sends long unusable results costs no second pass
            What::Call(_) if body.len() > UNREAD => match self.is_of_other_api() {
                true => Reason::OtherApi,
                false => Reason::Result,
            },
            What::Call(_) => match response::parse(body) {
                Ok(answer) => match answer.outcome {
                    Outcome::Result(_) if self.is_of_other_api() => Reason::OtherApi,
                    Outcome::Result(_) => Reason::Result,
                    Outcome::Error(_) => Reason::Error,
                },
                Err(_) => Reason::Malformed,
            },
            What::Resource(_) if self.is_of_other_api() => Reason::OtherApi,
            What::Batch(_) | What::Resource(_) => Reason::Result,
        }
    }

    /// Whether the response is not stored because the namespace follows a node of the other API.
    pub(in crate::exchange) fn is_of_other_api(&self) -> bool {
        match &self.what {
            What::Call(wanted) => wanted.prospect.is_of_other_api(self.mark()),
            // a lifetime that the node itself sets is valid in any case
            What::Resource(resource) => {
                resource.said.lifetime.is_none() && resource.route.is_of_other_api(self.mark())
            }
            What::Batch(_) => false,
        }
    }

    /// Logs once for a namespace that responses of the other API are not stored.
    fn report_other_api(&self) {
        let Some(mark) = self.mark() else {
            return;
        };
        let scope = self.scope.namespace();
        if !self.shared.other_api.is_due(&name_of(scope)) {
            return;
        }
        let (node, api, setting) = match mark.heights {
            Heights::Blocks => ("an execution node", "Beacon API", "beacon"),
            Heights::Slots => ("a beacon node", "JSON-RPC API", "execution"),
        };
        let name = first_part(scope).escape_ascii();
        self.shared.verified.log(format!(
            "namespace \"{name}\" follows {node}: what depends on the head of the {api} is not \
             cached there (reason other-api); give that API a cache_namespace of its own, and a \
             cache_head with api={setting}"
        ));
    }

    pub(in crate::exchange) fn of_batch(
        &self,
        wanted: &[Wanted],
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Vec<Built> {
        let mut built = Vec::new();
        let answers = match response::parse_batch(body) {
            Ok(answers) => answers,
            Err(error) => {
                self.why.set(Some(Reason::of_answer(&error)));
                return built;
            }
        };
        // responses arrive in any order; an id that is present twice does not identify its
        // response
        let Some(ids) = counted(answers.iter().map(|answer| &body[answer.id.clone()])) else {
            return built;
        };
        let mut asked = by_id();
        if asked.try_reserve(wanted.len()).is_err() {
            return built;
        }
        asked.extend(wanted.iter().map(|wanted| (&wanted.id[..], wanted)));
        // receipts may arrive before their block
        for answer in &answers {
            if let (Some(wanted), Outcome::Result(result)) =
                (asked.get(&body[answer.id.clone()]), &answer.outcome)
            {
                self.record_block_size(wanted, &body[result.clone()]);
            }
        }
        for answer in &answers {
            let id = &body[answer.id.clone()];
            let wanted = asked.get(id).filter(|_| ids.get(id) == Some(&1));
            let entry = wanted.and_then(|wanted| self.answer(wanted, body, answer, room));
            if entry.is_some_and(|entry| push(&mut built, entry).is_none()) {
                break;
            }
        }
        built
    }

    fn of_call(&self, wanted: &Wanted, body: &[u8], room: &mut Vec<u8>) -> Option<Built> {
        if body.len() >= UNREAD {
            if let Some(outline) = self.glance(wanted, body) {
                let built = self.answer(wanted, body, &outline, room)?;
                if built.is_read && body.is_ascii() {
                    // the bytes around the result are known exactly, too
                    return Some(built);
                }
                let entry = built.entry.unread();
                return Some(Built { entry, ..built });
            }
        }
        let answer = match response::parse(body) {
            Ok(answer) => answer,
            Err(error) => {
                self.why.set(Some(Reason::of_answer(&error)));
                return None;
            }
        };
        if body[answer.id.clone()] != wanted.id {
            return None;
        }
        // bytes outside the response, such as a newline, are stored with it
        let whole = Response {
            span: 0..body.len(),
            ..answer
        };
        self.answer(wanted, body, &whole, room)
    }

    /// Locates the parts of a long response, unless it has to be read now: it is nested too deep
    /// for a later check, or the last unchecked entry of its key was unreadable.
    fn glance(&self, wanted: &Wanted, body: &[u8]) -> Option<Response> {
        let asked_at = self.settings.asked_at;
        let is_known = self.shared.unreadable.contains(&wanted.key, asked_at);
        outline(body, &wanted.id).filter(|_| !is_known && is_shallow(body))
    }

    pub(in crate::exchange) fn answer(
        &self,
        wanted: &Wanted,
        body: &[u8],
        answer: &Response,
        room: &mut Vec<u8>,
    ) -> Option<Built> {
        let (result, judged) = match answer.outcome.clone() {
            Outcome::Result(result) => {
                if let What::Call(_) = self.what {
                    self.record_block_size(wanted, &body[result.clone()]);
                }
                let judged = self.judge(wanted, &body[result.clone()]);
                let believed = |judged| self.believed(judged, &wanted.key, &body[result.clone()]);
                let judged = judged.and_then(believed);
                self.observe_result(wanted, &body[result.clone()], judged.as_ref());
                (result, judged)
            }
            // an entry preserves the error's bytes; its members are not read
            Outcome::Error(error) => {
                self.record_error(&body[error.clone()]);
                (error, None)
            }
        };
        if judged.is_some_and(|judged| judged.is_implausible) {
            self.why.set(Some(Reason::Implausible));
        }
        let judged = judged.filter(|judged| judged.valid > 0 || !judged.is_implausible);
        let judged = match judged {
            Some(judged) => judged,
            None => self.judge_nothing(wanted, body, &answer.outcome)?,
        };
        let (id, first, second) = if answer.id.start < result.start {
            (IdPlace::BeforeResult, &answer.id, &result)
        } else {
            (IdPlace::AfterResult, &result, &answer.id)
        };
        let envelope = Envelope {
            id,
            before: copy_of(&body[answer.span.start..first.start])?.into(),
            between: copy_of(&body[first.end..second.start])?.into(),
            after: copy_of(&body[second.end..answer.span.end])?.into(),
        };
        let meta = Meta {
            status: 200,
            fields: self.fields.clone(),
            ..self.meta(Some(judged))
        };
        let entry = Entry::code_in(envelope, &body[result], self.settings.gate, meta, room)?;
        Some(Built {
            key: wanted.key,
            entry,
            valid: judged.valid,
            method: Some(wanted.method.clone()),
            shows: judged.of.map(|block| block.number),
            if_final: judged.if_final,
            is_read: judged.is_read,
        })
    }

    /// Counts a JSON-RPC error of the node.
    fn record_error(&self, error: &[u8]) {
        if self.compared.is_none() {
            let kind = UpstreamError::of_rpc(error);
            self.shared.upstream_errors.record(kind);
        }
    }

    pub(in crate::exchange) fn judge(&self, wanted: &Wanted, result: &[u8]) -> Option<Judged> {
        let judged = wanted.prospect.judge(result, self.known(wanted));
        let judged = match judged {
            Some(_) if self.lacks_transactions(wanted, result) => {
                Some(wanted.prospect.implausible(self.known(wanted)))
            }
            judged => judged,
        };
        judged.filter(|judged| !judged.of.is_some_and(|block| self.contradicts(&block)))
    }

    /// Classifies a response without a storable result; `None` if no request can use it.
    fn judge_nothing(&self, wanted: &Wanted, body: &[u8], outcome: &Outcome) -> Option<Judged> {
        let came = match outcome {
            Outcome::Result(result) => Came::Result(&body[result.clone()]),
            Outcome::Error(error) => Came::Error(&body[error.clone()]),
        };
        let judged = wanted.prospect.nothing(came, self.known(wanted));
        (judged.valid > 0 || self.has_waiters()).then_some(judged)
    }

    /// Whether followers wait for the response: uncacheable entries are created for them only.
    fn has_waiters(&self) -> bool {
        let mut led = self.token.iter().chain(&self.tokens);
        let has_some = led.any(|token| self.shared.flights.is_followed(token));
        self.had_no_waiters.set(!has_some);
        has_some
    }

    pub(in crate::exchange) fn known<'a>(&'a self, wanted: &'a Wanted) -> Known<'a> {
        Known {
            params: wanted.params.as_deref(),
            mark: self.mark(),
            valid: &self.settings.valid,
        }
    }

    /// Classifies a result that may be incomplete; `None` if it must be confirmed first.
    fn believed(&self, judged: Judged, key: &Key, result: &[u8]) -> Option<Judged> {
        let Some(valid) = judged.if_repeated else {
            return Some(judged);
        };
        // a new head makes no range incomplete
        let epoch = self.mark().map_or(0, |mark| mark.branch);
        let said = Said::new(
            result,
            self.settings.asked_at,
            self.settings.generation,
            epoch,
        );
        if self.shared.repeated.confirms(key, said) {
            let class = Class::Immutable;
            return Some(Judged {
                class,
                valid,
                ..judged
            });
        }
        (judged.valid > 0).then_some(judged)
    }

    /// Whether a response belongs to a block outside the chain as it is known now: one of several
    /// nodes may follow another branch.
    fn contradicts(&self, block: &ResultBlock) -> bool {
        let owner = self.shared.owner().filter(|_| self.mark().is_some());
        let chain = owner.and_then(|owner| owner.chains().get(&self.settings.namespace));
        let hash = block.hash.as_ref();
        chain
            .zip(hash)
            .is_some_and(|(chain, hash)| chain.contradicts(block.number, hash))
    }

    /// Returns the metadata of an entry; `judged` is `None` if the response sets its own lifetime.
    pub(in crate::exchange) fn meta(&self, judged: Option<Judged>) -> Meta {
        Meta {
            class: judged.map_or(Class::Resource, |judged| judged.class),
            block_number: judged.and_then(|judged| judged.block),
            follows: self
                .mark()
                .map(|mark| (self.settings.namespace, mark.epoch)),
            height: judged.and_then(|judged| judged.height),
            stale: match self.what {
                What::Resource(_) => self.stale,
                // the extensions of RFC 5861 apply to resources only
                What::Call(_) | What::Batch(_) => Stale {
                    never: self.stale.never,
                    ..Stale::default()
                },
            },
            ..Meta::default()
        }
    }

    /// Classifies the body of a resource by its route and content.
    fn judge_resource(&self, resource: &Resource, body: &[u8]) -> Option<Judged> {
        let (route, valid) = (resource.route, &resource.valid);
        match resource.transcoded {
            Some((flags, is_empty)) => route.judge_value(flags, is_empty, valid, self.mark()),
            None => route.judge(body, valid, self.mark()),
        }
    }

    fn of_resource(&self, resource: &Resource, body: &[u8], room: &mut Vec<u8>) -> Option<Built> {
        if resource.undelimited && scan::check(body).is_err() {
            return None;
        }
        let (judged, valid) = match resource.said.lifetime {
            Some(lifetime) => (None, lifetime),
            None => {
                let judged = self.judge_resource(resource, body);
                let judged = judged.or_else(|| self.nothing_of(resource))?;
                (Some(judged), judged.valid)
            }
        };
        if resource.route == Route::Constant && resource.status == 200 {
            self.observe_constant(body);
        }
        let mut fields = self.fields.clone();
        let has = |validator: &str| {
            let mut names = self.fields.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(validator.as_bytes()))
        };
        if !has("etag") && resource.status == 200 {
            fields.push((b"ETag".to_vec(), tag_of(body)));
        }
        let meta = Meta {
            status: resource.status,
            fields,
            age: resource.said.age,
            revalidates: resource.status == 200
                && resource.transcoded.is_none()
                && (has("etag") || has("last-modified")),
            ..self.meta(judged)
        };
        let gate = Gate {
            min_length: if resource.compresses {
                self.settings.gate.min_length
            } else {
                u64::MAX
            },
            ..self.settings.gate
        };
        let entry = Entry::code_in(Envelope::none(), body, gate, meta, room)?;
        Some(Built {
            key: resource.key,
            entry,
            valid,
            method: None,
            shows: None,
            if_final: None,
            is_read: true,
        })
    }

    /// Classifies a complete response that is not stored, for its followers.
    fn nothing_of(&self, resource: &Resource) -> Option<Judged> {
        let is_known = resource.route != Route::Other;
        (is_known && self.has_waiters()).then_some(Judged {
            class: Class::Nothing,
            valid: 0,
            block: None,
            height: self.mark().map(|mark| mark.seen),
            ..Judged::new(Class::Nothing, 0, None)
        })
    }
}
