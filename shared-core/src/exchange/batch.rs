//! Batches of which some answers are stored.
//!
//! The node gets one batch of what is missing, under the client's own ids, so
//! that its answers are good for the client as they are. They are held until
//! the last one is there, and then all are put into the order of the request.
//! Where the node's answer can't be read, or is too long to be held, the
//! stored answers go in front of it, which JSON-RPC allows.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::caching::{Asked, LookUp};
use super::calls::{Calls, Place};
use super::coding::off_loop_length;
use super::fill::{Wanted, What};
use super::head::{Coding, HeadEdit, Response, ResponseHead};
use super::hit::Decoding;
use super::transitions::Event;
use super::{Exchange, HeadAction, Misuse, PieceAction, Task};
use crate::bytes::extend;
use crate::cache::entry::batch::{batch_gzip, batch_gzip_always, batch_identity, Element};
use crate::cache::entry::Entry;
use crate::cache::process::hot::Hot;
use crate::cache::process::Shared;
use crate::cache::reason::Reason;
use crate::cache::scope::Scope;
use crate::cache::status::CacheStatus;
use crate::cache::Key;
use crate::gzip::splice::Body;
use crate::jsonrpc::request::Call;
use crate::jsonrpc::response::{self, ResponseError};
use crate::mode::Mode;

/// Of a long answer in identity no more than this is a copy of the batch's own,
/// and what is shorter than that in all is not reserved.
const COPIED: u64 = 64 << 10;

/// A batch of which the node gets a part.
#[derive(Debug)]
pub(super) struct Mixed {
    /// In the request's order.
    places: Vec<Member>,
    /// What the node gets.
    pub(super) request: Vec<u8>,
    pub(super) gzip: bool,
}

#[derive(Debug)]
enum Member {
    /// The answer, and the id that it gets.
    Stored(Arc<Entry>, Vec<u8>),
    /// The id under which the node was asked.
    Asked(Vec<u8>),
}

/// What the owner of a store has of a batch.
#[derive(Debug)]
pub(super) struct OfOwner {
    entries: Vec<(Key, Arc<Entry>)>,
    /// The last purge that was known when it said so.
    generation: u64,
}

impl Exchange {
    pub(super) fn look_up_batch(
        &mut self,
        calls: &[Call<'_>],
        places: Vec<Option<Place>>,
        judge: &Calls<'_>,
        asked: &Asked<'_>,
    ) -> LookUp {
        self.batch_size = Some(calls.len());
        let process = self.config.process.clone();
        if !process.shared.keeps() {
            return LookUp::Forward;
        }
        let hot = process.shared.hot();
        let looks = !asked.bypass && process.shared.may_send(asked.monotonic);
        let (has_waited, landed) = match self.claim_flights() {
            Some(landed) => (true, landed),
            None => (false, Vec::new()),
        };
        let generation = process.shared.generation();
        let of_owner = match self.claim_all() {
            Some(entries) => Some(Box::new(OfOwner {
                entries,
                generation,
            })),
            None => self.of_owner.take(),
        };
        let owned = match &of_owner {
            Some(has) if has.generation == generation => &has.entries[..],
            _ => &[],
        };
        let mut found: Vec<Option<Arc<Entry>>> = calls
            .iter()
            .zip(&places)
            .map(|(call, place)| {
                let place = place.as_ref().filter(|_| looks)?;
                let is_it = |(key, _): &&(Key, Arc<Entry>)| *key == place.key;
                let in_hand = || {
                    let landed = landed.iter().find(is_it);
                    let owned = || owned.iter().find(is_it);
                    let owned = || owned().filter(|(_, entry)| entry.is_fresh(asked.now));
                    Some(landed.or_else(owned)?.1.clone())
                };
                let entry = hot.and_then(|hot| hot.get(&place.key, asked.now));
                let entry = entry.or_else(in_hand)?;
                judge.remember(call, place);
                Some(entry)
            })
            .collect();
        let has_asked = of_owner.is_some();
        if !has_waited
            && (!has_asked && self.asks_for_all(&process.shared, &places, &found, asked)
                || self.follows_all(calls, &places, &found, judge.scope(), asked))
        {
            self.of_owner = of_owner;
            return LookUp::Wait;
        }
        let Some(gzip) = self.borrow_for(&found, asked) else {
            // the node's answers go through, and what is stored stays as it is
            self.cache_status = CacheStatus::Miss;
            self.reason = Reason::Memory;
            return LookUp::Forward;
        };
        let most = off_loop_length(self.config.comp_level) as u64;
        // what is sent together is sent under one head
        let mut alike = are_alike(&found);
        if alike && found.iter().all(Option::is_some) {
            let entries = || found.iter().flatten();
            let work: u64 = entries()
                .map(|entry| unread(entry) + work(entry, gzip))
                .sum();
            if work > most {
                let answers = calls.iter().zip(&places).zip(found);
                let answers = answers.filter_map(|((call, place), entry)| {
                    Some((place.as_ref()?.key, entry?, call.id?.to_vec()))
                });
                let answers = answers.collect();
                self.batch_hits = calls.len();
                self.decoding = Some(Decoding::Batch { answers, gzip });
                self.task = Task::Decode;
                return LookUp::RespondOffLoop;
            }
        }
        if read(hot, &places, &mut found, most) {
            alike = are_alike(&found);
        }
        if let (Some(Some(first)), true, true) =
            (found.first(), alike, found.iter().all(Option::is_some))
        {
            let mut elements: Vec<Element<'_>> = Vec::with_capacity(found.len());
            elements.extend(
                found
                    .iter()
                    .flatten()
                    .zip(calls.iter().filter_map(|call| call.id))
                    .map(|(entry, id)| Element::Stored(entry, id)),
            );
            if let Some(body) = self.batch_of(&elements, gzip) {
                self.batch_hits = calls.len();
                self.respond(first, Some(body), asked);
                return LookUp::Respond;
            }
        }
        if !places.iter().any(Option::is_some) {
            return LookUp::Forward;
        }
        // an answer is known by its id alone
        let Some(ids) = counted(calls.iter().filter_map(|call| call.id)) else {
            return LookUp::Forward;
        };
        let distinct = ids.len() == calls.len();
        if !asked.bypass {
            self.cache_status = CacheStatus::Miss;
        }
        let mixed = (distinct && alike && !asked.whole).then(|| mixed(calls, &found, asked.body));
        let fetched = calls
            .iter()
            .zip(places)
            .zip(&found)
            .filter(|(_, found)| mixed.is_none() || found.is_none())
            .filter_map(|((call, place), _)| {
                let id = call.id.filter(|id| ids.get(id) == Some(&1))?;
                let place = place?;
                Some(Wanted::new(call, id, place.key, place.prospect))
            })
            .collect();
        if !self.request.cache.no_store {
            let what = What::Batch(fetched);
            let mut fill = self.new_fill(what, judge.scope().clone(), None, asked);
            if self.config.cache.lock && !asked.bypass {
                fill.lead_all();
            }
            self.fill = Some(fill);
        }
        match mixed {
            Some(mixed) => {
                self.batch_hits = found.iter().flatten().count();
                self.mixed = Some(Box::new(Mixed { gzip, ..mixed }));
                if self.upstream_edits.is_empty() {
                    // what can't be read can't be put together
                    self.upstream_edits
                        .push(HeadEdit::set("Accept-Encoding", b"identity"));
                }
                LookUp::ForwardRewritten
            }
            None => LookUp::Forward,
        }
    }

    /// Whether the owner of a store is asked for what is not in memory.
    fn asks_for_all(
        &mut self,
        shared: &Shared,
        places: &[Option<Place>],
        found: &[Option<Arc<Entry>>],
        asked: &Asked<'_>,
    ) -> bool {
        let (Some(waiter), Some(owner), false) = (asked.waiter, shared.owner(), asked.bypass)
        else {
            return false;
        };
        let missing = || {
            let places = places.iter().zip(found);
            places
                .filter(|(_, found)| found.is_none())
                .filter_map(|(place, _)| Some(place.as_ref()?.key))
        };
        let mut keys: Vec<Key> = Vec::new();
        if keys.try_reserve_exact(missing().count()).is_err() {
            return false;
        }
        keys.extend(missing());
        if keys.is_empty() || !owner.ask_for_all(keys, waiter, asked.now) {
            return false;
        }
        self.waiting_for_all = Some(waiter);
        true
    }

    /// Whether other requests fetch all that is missing, so that there is nothing
    /// to do but to wait for them.
    fn follows_all(
        &mut self,
        calls: &[Call<'_>],
        places: &[Option<Place>],
        found: &[Option<Arc<Entry>>],
        scope: &Scope,
        asked: &Asked<'_>,
    ) -> bool {
        let (Some(waiter), true) = (asked.waiter, self.config.cache.lock && !asked.bypass) else {
            return false;
        };
        if self.request.cache.no_store {
            return false;
        }
        let mut keys: Vec<Key> = Vec::new();
        if keys.try_reserve_exact(calls.len()).is_err() {
            return false;
        }
        for (place, _) in places.iter().zip(found).filter(|(_, it)| it.is_none()) {
            match place {
                Some(place) => keys.push(place.key),
                None => return false,
            }
        }
        let since = self.since(scope);
        let shared = &self.config.process.shared;
        if keys.is_empty() || !shared.flights.follow_all(keys, waiter) {
            return false;
        }
        self.waiting_for_flights = Some(Box::new((waiter, since)));
        true
    }

    /// What came of the flights that it waited for, if it did.
    pub(super) fn claim_flights(&mut self) -> Option<Vec<(Key, Arc<Entry>)>> {
        let (waiter, since) = *self.waiting_for_flights.take()?;
        let shared = &self.config.process.shared;
        shared.forget(waiter);
        let mut landed = shared.flights.claim_all(waiter);
        landed.retain(|(_, entry)| since.admits(shared, entry));
        Some(landed)
    }

    /// Takes the memory for a batch of these: whether it is to be gzip, or
    /// `None` where there is not enough for either.
    fn borrow_for(&mut self, found: &[Option<Arc<Entry>>], asked: &Asked<'_>) -> Option<bool> {
        let first = self.may_gzip(asked);
        // what the client can do with, too
        let second = (!first && self.may_gzip_at_all(asked)).then_some(true);
        [Some(first), second]
            .into_iter()
            .flatten()
            .find(|gzip| self.borrow_all(found, *gzip))
    }

    fn borrow_all(&mut self, found: &[Option<Arc<Entry>>], gzip: bool) -> bool {
        self.lent.clear();
        let mut copied: u64 = 0;
        for entry in found.iter().flatten() {
            // of what is coded the bytes are shared
            copied += match (gzip, entry.is_coded()) {
                (true, true) => 0,
                (true, false) => entry.length(b""),
                (false, _) if !self.borrow(entry) => return self.give_all_back(),
                (false, _) => entry.length(b"").min(COPIED),
            };
        }
        if copied < COPIED {
            return true;
        }
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let copied = usize::try_from(copied).unwrap_or(usize::MAX);
        self.assembled = self.config.process.budget.reserve(copied, limit);
        self.assembled.is_some() || self.give_all_back()
    }

    fn give_all_back(&mut self) -> bool {
        self.lent.clear();
        self.assembled = None;
        false
    }

    fn batch_of(&self, elements: &[Element<'_>], gzip: bool) -> Option<Body> {
        if gzip {
            match self.request.accept_encoding.refuses_identity() {
                true => batch_gzip_always(elements, self.gate()),
                false => batch_gzip(elements, self.gate()),
            }
        } else {
            batch_identity(elements)
        }
    }

    /// The same of answers that were put aside. If that can't be, there are
    /// none.
    pub(super) fn decode_batch(
        &mut self,
        answers: &[(Key, Arc<Entry>, Vec<u8>)],
        gzip: bool,
        asked: &Asked<'_>,
    ) {
        let shared = Arc::clone(&self.config.process.shared);
        let mut stand = true;
        for (key, entry, _) in answers {
            if !entry.stands() {
                stand = false;
                if let Some(hot) = shared.hot() {
                    hot.remove_this(key, entry);
                }
            }
        }
        if !stand {
            return;
        }
        let elements: Vec<Element<'_>> = answers
            .iter()
            .map(|(_, entry, id)| Element::Stored(entry, id))
            .collect();
        let body = self.batch_of(&elements, gzip);
        if let (Some((_, first, _)), Some(_)) = (answers.first(), &body) {
            self.respond(first, body, asked);
        }
    }

    /// How many bytes of stored answers have to be coded or decoded for a batch
    /// that is put together.
    pub(super) fn merging_length(&self) -> u64 {
        let Some(mixed) = &self.mixed else {
            return 0;
        };
        let stored = mixed.places.iter().filter_map(|place| match place {
            Member::Stored(entry, _) => Some(work(entry, mixed.gzip)),
            Member::Asked(_) => None,
        });
        stored.sum()
    }

    /// What the node is to get after [`LookUp::ForwardRewritten`].
    pub fn request_body(&self) -> &[u8] {
        self.mixed.as_ref().map_or(&[], |mixed| &mixed.request)
    }

    /// The node's answers and the stored ones together; `None`: the node's
    /// answer is none of a batch, and stands for the whole.
    fn merged(&self, answer: &[u8]) -> Result<Option<Body>, Refused> {
        let Some(mixed) = &self.mixed else {
            return Ok(None);
        };
        let answers = match response::parse_batch(answer) {
            Ok(answers) => answers,
            Err(ResponseError::OutOfMemory) => return Err(Refused),
            Err(_) => return self.prefixed(answer),
        };
        let mut by_id = by_id();
        by_id.try_reserve(answers.len()).map_err(|_| Refused)?;
        by_id.extend(
            answers
                .iter()
                .map(|one| (&answer[one.id.clone()], &answer[one.span.clone()])),
        );
        if by_id.len() != answers.len() {
            return self.prefixed(answer);
        }
        let mut elements: Vec<Element<'_>> = Vec::new();
        elements
            .try_reserve(mixed.places.len() + answers.len())
            .map_err(|_| Refused)?;
        elements.extend(mixed.places.iter().filter_map(|place| match place {
            Member::Stored(entry, id) => {
                // asked all the same, by a body of the operator's
                by_id.remove(&id[..]);
                Some(Element::Stored(entry, id))
            }
            Member::Asked(id) => by_id.remove(&id[..]).map(Element::Text),
        }));
        // what nobody asked for is not ours to drop
        elements.extend(
            answers
                .iter()
                .filter(|one| by_id.contains_key(&answer[one.id.clone()]))
                .map(|one| Element::Text(&answer[one.span.clone()])),
        );
        self.batch_of(&elements, mixed.gzip)
            .map(Some)
            .ok_or(Refused)
    }

    /// The stored answers in front of an array that can't be read.
    fn prefixed(&self, answer: &[u8]) -> Result<Option<Body>, Refused> {
        let Some(opened) = self.opened(answer)? else {
            return Ok(None);
        };
        let mut body = Body::identity();
        body.push(opened).ok_or(Refused)?;
        Ok(Some(body))
    }

    /// What to do with the head of the node's answer to what was missing.
    pub(super) fn judge_mixed<I>(
        &mut self,
        response: &Response<'_>,
        head: &ResponseHead<I>,
    ) -> HeadAction {
        self.varies = true;
        response.vary_edits(head.host_writes_vary, &mut self.head_edits);
        response.recoded_edits(&mut self.recoded_edits);
        self.task = Task::Merge {
            gunzip: response.coding == Coding::Gzip,
            unreadable: response.coding == Coding::Other,
        };
        self.delimited = head.delimited;
        self.declared = head
            .content_length
            .map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if let (Some(mixed), true) = (&mut self.mixed, response.no_transform) {
            mixed.gzip = false;
        }
        HeadAction::Hold
    }

    /// A piece of the node's answer to what was missing.
    pub(super) fn piece_of_mixed(&mut self, piece: &[u8]) -> Result<PieceAction, Misuse> {
        let Task::Merge { unreadable, .. } = self.task else {
            return Err(self.misuse(Event::Piece));
        };
        if unreadable {
            return Ok(PieceAction::Taken);
        }
        let length = self.body.len() + piece.len();
        let room = if length as u64 > self.config.max_oneshot {
            Err(Mode::Memory)
        } else {
            self.make_room_for_part(length)
        };
        // before that it is not known how to give up
        let begun = self.body.iter().filter(|byte| !byte.is_ascii_whitespace());
        if let (Err(reason), 2..) = (room, begun.take(2).count()) {
            self.give_up(reason)?;
            return Ok(PieceAction::GiveUp);
        }
        self.move_on(Event::Piece)?;
        self.body.extend_from_slice(piece);
        self.received = self.body.len() as u64;
        Ok(PieceAction::Taken)
    }

    /// Gives up on an order, not on the stored answers.
    pub(super) fn open_what_was_held(&mut self) -> Result<(), Refused> {
        if matches!(self.task, Task::Merge { gunzip: true, .. }) {
            // nothing can be put in front of coded answers
            return Err(Refused);
        }
        let Some(opened) = self.opened(&self.body)? else {
            return Ok(());
        };
        let more = opened.len() - self.body.len();
        if let Some(declared) = self.declared {
            let length = declared.saturating_add(more);
            self.set_content_length(length);
        }
        self.body = opened;
        self.head_edits.append(&mut self.recoded_edits);
        Ok(())
    }

    /// Puts the answers together.
    pub(super) fn merge(&mut self, gunzip: bool) -> Result<(), Refused> {
        if gunzip {
            // of what can't be decoded nobody can say what is missing
            let Ok((plain, _)) = self.gunzip() else {
                return Err(Refused);
            };
            self.body = plain;
            self.head_edits.push(HeadEdit::remove("Content-Encoding"));
        }
        if let Some(fill) = &mut self.fill {
            fill.build_from(&self.body, &mut self.coded);
        }
        let Some(merged) = self.merged(&self.body)? else {
            // the node's own answer to all of it
            let length = self.body.len();
            self.set_content_length(length);
            return Ok(());
        };
        if merged.is_gzip() {
            self.head_edits
                .push(HeadEdit::set("Content-Encoding", b"gzip"));
        }
        let length = usize::try_from(merged.length()).unwrap_or(usize::MAX);
        self.set_content_length(length);
        self.head_edits.append(&mut self.recoded_edits);
        self.body = Vec::new();
        self.stored = Some(merged);
        Ok(())
    }

    /// The beginning of an array with the stored answers in front of what is
    /// in it; `None` if it is no array.
    fn opened(&self, answer: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        let start = answer.iter().position(|byte| !byte.is_ascii_whitespace());
        let (Some(mixed), Some(start)) = (&self.mixed, start) else {
            return Ok(None);
        };
        if answer[start] != b'[' {
            return Ok(None);
        }
        let stored: Vec<Element<'_>> = mixed
            .places
            .iter()
            .filter_map(|place| match place {
                Member::Stored(entry, id) => Some(Element::Stored(entry, id)),
                Member::Asked(_) => None,
            })
            .collect();
        let stored = batch_identity(&stored).and_then(|stored| stored.try_to_vec());
        let mut opened = stored.ok_or(Refused)?;
        // the bracket that closes it
        opened.pop();
        let rest = &answer[start + 1..];
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        let comma: &[u8] = match next {
            Some(byte) if *byte != b']' => b",",
            _ => b"",
        };
        extend(&mut opened, comma).ok_or(Refused)?;
        extend(&mut opened, rest).ok_or(Refused)?;
        Ok(Some(opened))
    }
}

/// Memory was refused, and there is nothing that could be sent instead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

/// Whether there are stored answers, all of one head.
fn are_alike(found: &[Option<Arc<Entry>>]) -> bool {
    let mut stored = found.iter().flatten();
    let first = stored.next();
    first.is_some_and(|first| stored.all(|other| other.meta().fields == first.meta().fields))
}

/// How many bytes have to be read before the entry is given out.
fn unread(entry: &Entry) -> u64 {
    match entry.is_unread() {
        true => entry.length(b""),
        false => 0,
    }
}

/// Leaves those that may be given out; whether others were there. What was not
/// read yet is read now, as much as a single answer may be: at most so many
/// bytes; others count as not found.
fn read(
    hot: Option<&Hot>,
    places: &[Option<Place>],
    found: &mut [Option<Arc<Entry>>],
    most: u64,
) -> bool {
    let mut all = 0;
    let mut fewer = false;
    for (place, found) in places.iter().zip(found) {
        let (Some(place), Some(entry)) = (place, &found) else {
            continue;
        };
        all += unread(entry);
        if all > most && entry.is_unread() {
            *found = None;
            fewer = true;
        } else if !entry.stands() {
            if let Some(hot) = hot {
                hot.remove_this(&place.key, entry);
            }
            *found = None;
            fewer = true;
        }
    }
    fewer
}

/// The batch of what is missing, notifications included.
fn mixed(calls: &[Call<'_>], found: &[Option<Arc<Entry>>], body: &[u8]) -> Mixed {
    let mut places = Vec::with_capacity(calls.len());
    let mut request = vec![b'['];
    for (call, found) in calls.iter().zip(found) {
        match (found, call.id) {
            (Some(entry), Some(id)) => {
                places.push(Member::Stored(Arc::clone(entry), id.to_vec()));
                continue;
            }
            (_, Some(id)) => places.push(Member::Asked(id.to_vec())),
            (_, None) => {}
        }
        if request.len() > 1 {
            request.push(b',');
        }
        request.extend_from_slice(&body[call.span.clone()]);
    }
    request.push(b']');
    Mixed {
        places,
        request,
        gzip: false,
    }
}

/// How many bytes of a stored answer have to be coded or decoded before it can
/// be sent in a batch.
fn work(entry: &Entry, gzip: bool) -> u64 {
    match (gzip, entry.is_coded()) {
        (false, _) => entry.inflates(),
        (true, false) => entry.length(b""),
        (true, true) => 0,
    }
}

/// An empty map from ids.
///
/// All have the process's keys. A map's own would be made of a thread-local
/// variable, whose first use in a thread allocates in C, which ends the process
/// if that is refused.
pub(super) fn by_id<'a, T>() -> HashMap<&'a [u8], T> {
    HashMap::with_hasher(KEYS.clone())
}

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Makes the keys of [`by_id`].
pub(super) fn prepare() {
    LazyLock::force(&KEYS);
}

/// How often each occurs. `None` when memory is refused.
pub(super) fn counted<'a>(ids: impl Iterator<Item = &'a [u8]>) -> Option<HashMap<&'a [u8], usize>> {
    let mut counts = by_id();
    for id in ids {
        counts.try_reserve(1).ok()?;
        *counts.entry(id).or_default() += 1;
    }
    Some(counts)
}
