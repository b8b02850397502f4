//! One answer, kept without the id it was asked under.
//!
//! [`batch`] makes a JSON-RPC batch of several, [`wire`] writes them as bytes,
//! [`about`] is what has to be known by those who don't read these, `check` reads
//! those that were made at a glance, and `recompress` makes them smaller.

pub mod about;
pub mod batch;
pub(crate) mod check;
#[cfg(feature = "store")]
pub mod recompress;
pub mod wire;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use serde::{Deserialize, Serialize};

use super::chain::{Chain, Chains, Mark, Stamp};
use super::class::Class;
use super::http::Stale;
use super::{stale, Key, Namespace};
use crate::bytes::Bytes;
use crate::gzip::open::{open_in, Open};
use crate::gzip::splice::{Body, Member};
use crate::lock::locked;
use crate::memory::{Budget, Reservation};

/// Where a JSON-RPC answer has its id. Members come in any order: Nethermind
/// writes the id after the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum IdPlace {
    /// The id comes first.
    BeforeResult,
    /// The result comes first.
    AfterResult,
    /// There is none: the body of a GET.
    Nowhere,
}

/// The bytes of an answer around its id and its result, as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Where the id belongs.
    pub id: IdPlace,
    /// Bytes before the id and the result.
    pub before: Box<[u8]>,
    /// Bytes between the two.
    pub between: Box<[u8]>,
    /// Bytes after the two: a brace, perhaps other members, perhaps a newline.
    pub after: Box<[u8]>,
}

impl Envelope {
    /// Of a body that is all result.
    pub fn none() -> Self {
        Self {
            id: IdPlace::Nowhere,
            before: Box::default(),
            between: Box::default(),
            after: Box::default(),
        }
    }

    /// All that comes before the result under `id`.
    fn head<'a>(&'a self, id: &'a [u8]) -> [&'a [u8]; 3] {
        match self.id {
            IdPlace::BeforeResult => [&self.before, id, &self.between],
            IdPlace::AfterResult => [&self.before, b"", b""],
            IdPlace::Nowhere => [&self.before, b"", &self.between],
        }
    }

    /// All that comes after it; `after` is how it ends.
    fn tail<'a>(&'a self, id: &'a [u8], after: &'a [u8]) -> [&'a [u8]; 3] {
        match self.id {
            IdPlace::AfterResult => [&self.between, id, after],
            _ => [b"", b"", after],
        }
    }

    pub(super) fn length(&self) -> usize {
        self.before.len() + self.between.len() + self.after.len()
    }
}

/// The result, or the whole body of a GET.
#[derive(Clone, Debug)]
pub enum Payload {
    /// As it came: too small to be coded, or not made smaller by it.
    Raw(Bytes),
    /// Coded.
    Open(Open),
}

impl Payload {
    fn weight(&self) -> usize {
        match self {
            Self::Raw(bytes) => bytes.len(),
            Self::Open(open) => open.bytes.len(),
        }
    }
}

/// Whether and how hard to code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Answers below this many bytes, id not counted, are kept as they are.
    pub min_length: u64,
    /// libdeflate's level, 0 to 12.
    pub level: u8,
}

/// What is known of an answer besides its bytes. Elsewhere its times mean
/// nothing; its fields are written apart.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Meta {
    /// Status code.
    pub status: u16,
    /// Header fields to send, in order: the content type and what else the
    /// caller allows. Never a length or a content coding.
    #[serde(skip)]
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// When it was stored, in milliseconds of the caller's clock.
    #[serde(skip)]
    pub stored_at: u64,
    /// How old it was when it was stored, in seconds (RFC 9111, 5.1).
    pub age: u64,
    /// The node knows its `ETag` or `Last-Modified`, so that it can be
    /// revalidated.
    pub revalidates: bool,
    /// What the node says of sending it after `expires_at`.
    pub stale: Stale,
    /// From when on it must not be sent, in milliseconds of the same clock.
    #[serde(skip)]
    pub expires_at: u64,
    /// Why it may be kept.
    pub class: Class,
    /// The block that it tells of.
    pub block_number: Option<u64>,
    /// If its chain is followed: the namespace, and the reorganisations that
    /// were known when the node was asked
    /// ([`State::epoch`](super::chain::State::epoch)).
    pub follows: Option<(Namespace, u64)>,
    /// The highest block that it depends on, or the head that it tells of.
    pub height: Option<u64>,
}

impl Default for Meta {
    /// A 200 of which nothing more is known.
    fn default() -> Self {
        Self {
            status: 200,
            fields: Vec::new(),
            stored_at: 0,
            age: 0,
            revalidates: false,
            stale: Stale::default(),
            expires_at: 0,
            class: Class::default(),
            block_number: None,
            follows: None,
            height: None,
        }
    }
}

impl Meta {
    fn weight(&self) -> usize {
        let fields = self.fields.iter();
        fields
            .map(|(name, value)| size_of::<(Vec<u8>, Vec<u8>)>() + name.len() + value.len())
            .sum()
    }
}

/// An answer that can be sent under any id, in either content coding.
pub struct Entry {
    envelope: Envelope,
    payload: Payload,
    meta: Meta,
    /// What it weighs in one coding.
    weight: u64,
    plain: Mutex<Decoded>,
    /// What it has to hold against, if that is followed.
    chain: Option<Arc<Chain>>,
    /// It is to be read before it is given out: `check` says more.
    pub(super) unread: AtomicBool,
    /// A place where it is used may send it when it has expired.
    kept_stale: AtomicBool,
    /// The last change before the node was asked for it.
    changes: u64,
    /// How often the tip of its chain had ended then ([`Chain::tip_ends`]).
    tip_ends: u64,
    /// It came from elsewhere, and what its other format is of was not compared.
    uncompared: AtomicBool,
}

/// The identity form of a coded payload.
#[derive(Debug)]
struct Decoded {
    kept: Plain,
    /// The same bytes, as long as somebody sends them.
    lent: Weak<Lent>,
}

/// Decoded bytes of an entry, for those who send them: they are reserved
/// once, however many these are, and whether a tier still has the entry or not.
#[derive(Debug)]
pub struct Lent {
    bytes: OnceLock<Bytes>,
    _reservation: Reservation,
}

/// Shorter bytes are not reserved: what is kept for a connection takes as much.
const RESERVED: u64 = 64 << 10;

/// Whether decoded bytes may be sent, and kept until they are.
#[derive(Debug)]
pub enum Lending {
    /// There is nothing to be reserved.
    Free,
    /// To be held until they are sent.
    Lent(Arc<Lent>),
    /// They would take more than there may be.
    Refused,
}

/// What is kept: from the second time on that somebody wants it.
#[derive(Debug)]
enum Plain {
    Unwanted,
    WantedOnce,
    Kept(Bytes),
    /// There is no room for it.
    Never,
}

/// What an answer is written to, copied: a member, or a body in identity.
trait Sink {
    /// More of it; `None` when memory is refused.
    fn text(&mut self, more: &[u8]) -> Option<()>;
}

impl Sink for Member {
    fn text(&mut self, more: &[u8]) -> Option<()> {
        Member::text(self, more)
    }
}

impl Sink for Body {
    fn text(&mut self, more: &[u8]) -> Option<()> {
        self.copy(more)
    }
}

impl Entry {
    /// Codes `result` if the gate says so and that makes it smaller. `None`
    /// when memory is refused, or there is no such level.
    pub fn code(envelope: Envelope, result: &[u8], gate: Gate, meta: Meta) -> Option<Self> {
        Self::code_in(envelope, result, gate, meta, &mut Vec::new())
    }

    /// The same, with memory to work in.
    pub fn code_in(
        envelope: Envelope,
        result: &[u8],
        gate: Gate,
        meta: Meta,
        room: &mut Vec<u8>,
    ) -> Option<Self> {
        let length = (envelope.length() + result.len()) as u64;
        let coded = if length < gate.min_length {
            None
        } else {
            Some(open_in(result, gate.level, room)?).filter(|open| open.bytes.len() < result.len())
        };
        let payload = match coded {
            Some(open) => Payload::Open(open),
            None => Payload::Raw(Bytes::copy_of(result)?),
        };
        Some(Self::new(envelope, payload, meta))
    }

    /// Of what was coded before, here or elsewhere.
    pub fn new(envelope: Envelope, payload: Payload, meta: Meta) -> Self {
        Self {
            weight: (OVERHEAD + envelope.length() + meta.weight() + payload.weight()) as u64,
            envelope,
            payload,
            meta,
            plain: Mutex::new(Decoded {
                kept: Plain::Unwanted,
                lent: Weak::new(),
            }),
            chain: None,
            unread: AtomicBool::new(false),
            kept_stale: AtomicBool::new(false),
            changes: 0,
            tip_ends: 0,
            uncompared: AtomicBool::new(false),
        }
    }

    /// The bytes around id and result.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The result.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// What else is known of it.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether it is kept only as long as there is nothing to keep.
    pub fn is_nothing(&self) -> bool {
        self.meta.class == Class::Nothing
    }

    /// The same, stored at `now` and fresh for `valid`, both in milliseconds.
    pub fn stored(mut self, now: u64, valid: u64) -> Self {
        self.meta.stored_at = now;
        self.meta.expires_at = now.saturating_add(valid);
        self
    }

    /// The same, asked for after so many [changes](super::process::changes::Changes).
    pub fn after(mut self, changes: u64) -> Self {
        self.changes = changes;
        self
    }

    /// The same, asked for when the tip of its chain had ended so often.
    pub fn after_tip_ends(mut self, tip_ends: u64) -> Self {
        self.tip_ends = tip_ends;
        self
    }

    /// The last change before the node was asked for it.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The same, to be compared with the same resource in its other format before it
    /// is given out.
    pub fn uncompared(mut self) -> Self {
        self.uncompared = AtomicBool::new(true);
        self
    }

    /// Whether it is to be.
    pub fn is_uncompared(&self) -> bool {
        self.uncompared.load(Ordering::Relaxed)
    }

    /// It was, and may be given out.
    pub fn was_compared(&self) {
        self.uncompared.store(false, Ordering::Relaxed);
    }

    /// The same; if its chain is one of `chains`, it has to hold against that.
    pub fn among(mut self, chains: &Chains) -> Self {
        let follows = self.meta.follows;
        self.chain = follows.and_then(|(namespace, _)| chains.get(&namespace));
        self
    }

    /// As [`among`](Self::among), of an entry that the owner had: `None` if it is about a head
    /// that the owner does not know yet to be over.
    pub fn of_owner(self, chains: &Chains) -> Option<Self> {
        let mut entry = self.among(chains);
        if let (Some(chain), Some((_, epoch))) = (&entry.chain, entry.meta.follows) {
            // first: what ends between is not missed
            entry.tip_ends = chain.tip_ends();
            let is_about_head = matches!(entry.meta.class, Class::Tip | Class::Nothing);
            if is_about_head && chain.is_below_floor(epoch, entry.meta.height) {
                return None;
            }
        }
        Some(entry)
    }

    /// What it has to hold against its chain, if that is followed.
    pub fn stamp(&self) -> Option<Stamp<'_>> {
        let (chain, (_, epoch)) = (self.chain.as_ref()?, self.meta.follows?);
        let stamp = Stamp::new(chain, self.meta.class, epoch, self.meta.height);
        Some(stamp.after_tip_ends(self.tip_ends))
    }

    /// Whether it is as true as when it was asked for, but for the time.
    pub fn holds(&self) -> bool {
        self.stamp().is_none_or(|stamp| stamp.holds())
    }

    /// Whether it is an answer to who asked when `mark` was known, though there
    /// may be a newer one by now.
    pub fn answers(&self, mark: Option<&Mark>) -> bool {
        let stamp = self.stamp();
        stamp.is_none_or(|stamp| mark.is_none_or(|mark| stamp.answers(mark)))
    }

    /// Whether nothing but time has passed since it was true: there may be a
    /// newer head.
    pub fn is_untouched(&self) -> bool {
        self.stamp().is_none_or(|stamp| stamp.is_untouched())
    }

    /// The same body under another head.
    pub fn with(&self, meta: Meta) -> Self {
        let mut other = Self::new(self.envelope.clone(), self.payload.clone(), meta);
        other.unread.store(self.is_unread(), Ordering::Relaxed);
        other.chain.clone_from(&self.chain);
        other.tip_ends = self.tip_ends;
        other
    }

    /// Some place may send it when it has expired: see [`stands_in`](Self::stands_in).
    pub fn keep_stale(&self) {
        // when there is nothing to be had, nothing is not what is wanted; and a
        // hit changes no line of memory that others read
        if !self.is_nothing() && !self.kept_stale.load(Ordering::Relaxed) {
            self.kept_stale.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it may be sent at `now`, expired or not, where the operator
    /// allows it. Milliseconds of the caller's clock.
    pub fn stands_in(&self, now: u64) -> bool {
        self.kept_stale.load(Ordering::Relaxed)
            && !self.meta.stale.never
            && self.is_untouched()
            && now < self.meta.expires_at.saturating_add(stale::MOST)
    }

    /// Whether it may stand in for an error at `now`, as the node says (RFC
    /// 5861, 4).
    pub fn stands_in_for_error(&self, now: u64) -> bool {
        let until = self.meta.expires_at;
        self.is_untouched() && now < until.saturating_add(self.meta.stale.if_error)
    }

    /// Whether it may be sent at `now` while a new one is fetched, as the node
    /// says (RFC 5861, 3).
    pub fn stands_in_while_revalidated(&self, now: u64) -> bool {
        let until = self.meta.expires_at;
        self.is_untouched() && now < until.saturating_add(self.meta.stale.while_revalidate)
    }

    /// Whether it is of use at `now`, when it is stale.
    pub fn is_of_use_stale(&self, now: u64) -> bool {
        let is_of_use = self.meta.revalidates && self.is_untouched()
            || self.stands_in_for_error(now)
            || self.stands_in_while_revalidated(now)
            || self.stands_in(now);
        is_of_use && !self.is_nothing()
    }

    /// Whether it may be sent at `now`, in milliseconds of the caller's clock.
    pub fn is_fresh(&self, now: u64) -> bool {
        now < self.meta.expires_at && self.holds()
    }

    /// Whether there is a coded form of it.
    pub fn is_coded(&self) -> bool {
        matches!(self.payload, Payload::Open(_))
    }

    /// Its exact length under `id` in identity coding.
    pub fn length(&self, id: &[u8]) -> u64 {
        let id = match self.envelope.id {
            IdPlace::Nowhere => 0,
            _ => id.len(),
        };
        (self.envelope.length() + id) as u64 + self.payload_length()
    }

    /// The payload's length as it is kept.
    pub(super) fn coded_length(&self) -> usize {
        self.payload.weight()
    }

    /// The payload's length in identity.
    pub(super) fn plain_length(&self) -> usize {
        usize::try_from(self.payload_length()).unwrap_or(usize::MAX)
    }

    fn payload_length(&self) -> u64 {
        match &self.payload {
            Payload::Raw(bytes) => bytes.len() as u64,
            Payload::Open(open) => open.length,
        }
    }

    /// The answer under `id`, raw JSON, for a client that accepts gzip. What
    /// was not coded is sent in identity: see [`Body::is_gzip`]. `None` when memory
    /// is refused.
    pub fn gzip(&self, id: &[u8]) -> Option<Body> {
        match &self.payload {
            Payload::Raw(bytes) => self.assemble(id, bytes),
            Payload::Open(_) => self.gzip_always(id),
        }
    }

    /// The answer under `id` for a client that wants identity. A coded one is
    /// decoded, see [`inflates`](Self::inflates); from the second time on the
    /// decoded bytes are kept, and [`weight`](Self::weight) grows by them.
    /// `None` when memory is refused.
    pub fn identity(&self, id: &[u8]) -> Option<Body> {
        let plain = self.plain()?;
        self.assemble(id, &plain)
    }

    /// How many bytes [`identity`](Self::identity) would have to decode now.
    /// 0 when it has them: it then takes as long as [`gzip`](Self::gzip).
    pub fn inflates(&self) -> u64 {
        let Payload::Open(open) = &self.payload else {
            return 0;
        };
        let decoded = locked(&self.plain);
        match decoded.bytes() {
            Some(_) => 0,
            None => open.length,
        }
    }

    /// To be called, and its result held, before [`identity`](Self::identity)
    /// and [`batch_identity`](self::batch::batch_identity): what they decode
    /// is part of `budget`, of which at most `limit` bytes may be in use.
    pub fn lend(&self, budget: &Budget, limit: usize) -> Lending {
        let length = self.payload_length();
        if !self.is_coded() || length < RESERVED {
            return Lending::Free;
        }
        let mut decoded = locked(&self.plain);
        if let Some(lent) = decoded.lent.upgrade() {
            return Lending::Lent(lent);
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        match budget.reserve(length, limit) {
            Some(reservation) => {
                let lent = Arc::new(Lent {
                    bytes: OnceLock::new(),
                    _reservation: reservation,
                });
                decoded.lent = Arc::downgrade(&lent);
                Lending::Lent(lent)
            }
            None => Lending::Refused,
        }
    }

    /// As [`gzip`](Self::gzip), for a client that takes nothing else: what was
    /// not coded stands in the member as it is.
    pub fn gzip_always(&self, id: &[u8]) -> Option<Body> {
        let copied = match &self.payload {
            Payload::Raw(bytes) => bytes.len(),
            Payload::Open(open) => Body::copied(open.bytes.len()),
        };
        let own = self.envelope.length() + id.len() + copied;
        let mut member = Member::with_room(2, own)?;
        self.write(&mut member, id, false, |member| match &self.payload {
            Payload::Raw(bytes) => member.text(bytes),
            Payload::Open(open) => member.open(open),
        })?;
        member.finish()
    }

    /// Writes it under `id`, with what `payload` writes of it; `trims`: and no
    /// white space at its end.
    fn write<S: Sink>(
        &self,
        to: &mut S,
        id: &[u8],
        trims: bool,
        payload: impl FnOnce(&mut S) -> Option<()>,
    ) -> Option<()> {
        let mut head = self.envelope.head(id).into_iter();
        head.try_for_each(|text| to.text(text))?;
        payload(to)?;
        let after = match trims {
            true => self.envelope.after.trim_ascii_end(),
            false => &self.envelope.after,
        };
        let mut tail = self.envelope.tail(id, after).into_iter();
        tail.try_for_each(|text| to.text(text))
    }

    fn assemble(&self, id: &[u8], payload: &Bytes) -> Option<Body> {
        let mut body = Body::identity();
        let copied = Body::copied(payload.len());
        body.make_room(self.envelope.length() + id.len() + copied)?;
        self.write(&mut body, id, false, |body| body.push_shared(payload))?;
        Some(body)
    }

    /// The payload in identity.
    pub(crate) fn plain(&self) -> Option<Bytes> {
        let open = match &self.payload {
            Payload::Raw(bytes) => return Some(bytes.clone()),
            Payload::Open(open) => open,
        };
        let there = {
            let decoded = locked(&self.plain);
            if let Plain::Kept(bytes) = &decoded.kept {
                // as nearly always
                return Some(bytes.clone());
            }
            decoded.bytes()
        };
        let bytes = match there {
            Some(bytes) => bytes,
            // not under the lock: others may want gzip, or the length
            None => Bytes::from(open.inflate()?),
        };
        let mut decoded = locked(&self.plain);
        // somebody else may have done the same
        let bytes = match (decoded.bytes(), decoded.lent.upgrade()) {
            (Some(bytes), _) => bytes,
            (None, Some(lent)) => lent.bytes.get_or_init(|| bytes).clone(),
            (None, None) => bytes,
        };
        decoded.kept = match decoded.kept {
            Plain::Unwanted => Plain::WantedOnce,
            Plain::WantedOnce | Plain::Kept(_) => Plain::Kept(bytes.clone()),
            Plain::Never => Plain::Never,
        };
        Some(bytes)
    }

    /// Bytes that [`decoded`](Self::decoded) takes, and a copy of what is stored.
    pub fn decoding_takes(&self) -> usize {
        let stored = match &self.payload {
            Payload::Raw(_) => 0,
            Payload::Open(open) => open.bytes.len(),
        };
        let plain = usize::try_from(self.length(b"")).unwrap_or(usize::MAX);
        plain.saturating_add(stored)
    }

    /// The payload in identity, to be looked at once: it is not kept. `None` when
    /// memory is refused. The caller has [reserved](Self::decoding_takes) it.
    pub fn decoded(&self) -> Option<Bytes> {
        match &self.payload {
            Payload::Raw(bytes) => Some(bytes.clone()),
            Payload::Open(open) => Some(Bytes::from(open.inflate()?)),
        }
    }

    /// Drops the decoded bytes, and never keeps them again: for a tier that
    /// has no room for both codings.
    pub(super) fn keep_no_plain(&self) {
        locked(&self.plain).kept = Plain::Never;
    }

    /// What it takes in memory, in bytes, with its share of a tier's tables.
    pub fn weight(&self) -> u64 {
        match &locked(&self.plain).kept {
            Plain::Kept(bytes) => self.weight + bytes.len() as u64,
            _ => self.weight,
        }
    }
}

/// The entry itself, the headers of its allocations (at most nine, of 16
/// bytes), its key in the tier and some 64 bytes of the tier's own.
const OVERHEAD: usize = size_of::<Entry>() + 9 * 16 + size_of::<Key>() + 64;

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("meta", &self.meta)
            .field("id", &self.envelope.id)
            .field("payload_length", &self.payload_length())
            .finish_non_exhaustive()
    }
}

impl Decoded {
    /// If they are there.
    fn bytes(&self) -> Option<Bytes> {
        match &self.kept {
            Plain::Kept(bytes) => Some(bytes.clone()),
            _ => self.lent.upgrade()?.bytes.get().cloned(),
        }
    }
}
