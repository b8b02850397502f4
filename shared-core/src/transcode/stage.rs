//! The stage: one format goes in as it comes, and at its end there is the other.
//!
//! JSON is read while it comes. SSZ is not: where its parts lie is known when all
//! of it is there, so the one who holds it hands it over at the end.

use super::chain::Chain;
use super::engine::status;
use super::root::{self, Root};
use super::route::Gives;
use super::updates;
use super::why::Why;
use super::{Format, VERSION};
use crate::ssz::to_json::MIN_ROOM;
use crate::ssz::{Flags, Fork, Form, Parts, Preset, Schema, ToJson, ToSsz, TypeId};

/// Whether a buffer may become so many bytes long.
pub type MayTake<'a> = &'a mut dyn FnMut(usize) -> bool;

/// JSON is written in pieces of so many bytes.
const PIECE: usize = 16 << 10;

/// One body on its way to the other format.
#[derive(Debug)]
pub struct Transcoder {
    way: Way,
    /// Of the answer's head; `None`: its envelope will say, or it has none.
    fork: Option<Fork>,
    /// Whether an envelope may name a fork.
    is_of_a_fork: bool,
    /// The first fork that has the type, if all later ones have the same.
    first_fork: Option<Fork>,
    /// The type of its SSZ, as far as the head says.
    of: Of,
    /// Whether it is a payload's status, which REST nests.
    nests: bool,
    /// The id of the call that it is for.
    id: Vec<u8>,
    /// Of SSZ: the root that it has to have, to be stored.
    root: Option<(Gives, Root)>,
    max_size: u64,
}

#[derive(Debug)]
enum Way {
    ToSsz(Box<ToSsz<'static>>),
    /// So many bytes came.
    ToJson(&'static Schema, TypeId, u64),
    /// The same of what REST has of a payload's status and JSON-RPC otherwise.
    Reply(Format, Preset, u64),
    /// The same of light clients' updates.
    Updates(Format, Chain, u64),
}

/// A type of SSZ.
#[derive(Clone, Copy, Debug)]
enum Of {
    Type(&'static Schema, TypeId),
    /// That of the name in the fork that the envelope will say.
    Name(&'static str, Preset),
}

impl Of {
    fn in_fork(self, fork: Option<Fork>) -> Option<(&'static Schema, TypeId)> {
        match self {
            Of::Type(schema, ty) => Some((schema, ty)),
            Of::Name(name, preset) => named_type(name, fork?, preset).ok(),
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Made {
    /// The body.
    pub body: Parts,
    /// Its format.
    pub format: Format,
    /// The fork that only the envelope has named: the head is to say so.
    pub fork: Option<&'static str>,
    /// What the envelope has said of the value.
    pub flags: Flags,
    /// The type of the body, if that is SSZ.
    pub of: Option<(&'static Schema, TypeId)>,
    /// Of JSON: the SSZ that it was made of has the root that was asked for, if one was.
    pub is_asked_for: bool,
}

impl Transcoder {
    /// For an answer with that head, to become `format`. No more than `max_size`
    /// bytes of SSZ are made or read.
    ///
    /// # Errors
    /// It is known already that it can't be.
    pub fn new<'a>(
        gives: Gives,
        format: Format,
        chain: &Chain,
        max_size: u64,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Why> {
        let (mut version, mut kind) = (None, None);
        let says_kind = gives.kind();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(VERSION.as_bytes()) {
                version = Some(value);
            } else if says_kind.is_some_and(|it| name.eq_ignore_ascii_case(it.as_bytes())) {
                kind = bool_of(value);
            }
        }
        let preset = chain.preset;
        let nests = matches!(gives, Gives::Status(..));
        let is_reply = matches!(gives, Gives::Reply(..));
        let first_fork = gives.first_fork();
        let named = match version {
            _ if first_fork.is_some() => first_fork,
            Some(version) => Some(fork_of(version)?),
            None => None,
        };
        let (way, of) = match (named, format) {
            _ if gives.names_forks() && chain.digests.is_none() => return Err(Why::NoDigests),
            _ if gives.names_forks() => {
                let way = Way::Updates(format, chain.clone(), 0);
                (way, Of::Name(updates::UPDATE, preset))
            }
            (_, Format::Json) if gives.says_more() => return Err(Why::More),
            (Some(fork), _) => {
                let (schema, ty) = type_of(gives, fork, preset, kind)?;
                let way = match format {
                    format if is_reply => Way::Reply(format, preset, 0),
                    Format::Ssz => {
                        let reader = ToSsz::new(schema, ty, Form::Enveloped);
                        let lead = if nests { status::LEAD } else { 0 };
                        Way::ToSsz(Box::new(reader.behind(lead)?))
                    }
                    Format::Json => Way::ToJson(schema, ty, 0),
                };
                (way, Of::Type(schema, ty))
            }
            (None, Format::Ssz) => {
                let name = gives.name_in_any().ok_or(Why::NoVersion)?;
                let reader = ToSsz::by_version(preset, name);
                (Way::ToSsz(Box::new(reader)), Of::Name(name, preset))
            }
            (None, Format::Json) => return Err(Why::NoVersion),
        };
        let fork = match first_fork {
            // the type can do without one, an envelope can't
            Some(first) => version
                .and_then(|name| fork_of(name).ok())
                .filter(|fork| *fork >= first),
            None => named,
        };
        let is_of_a_fork = gives.may_be_of_a_fork();
        Ok(Self {
            way,
            fork: fork.filter(|_| is_of_a_fork),
            is_of_a_fork,
            first_fork,
            of,
            nests,
            id: Vec::new(),
            root: None,
            max_size,
        })
    }

    /// The same for a call with that id.
    pub fn for_call(mut self, id: &[u8]) -> Self {
        self.id = id.to_vec();
        self
    }

    /// The same for who asks by a root, if it is that.
    pub fn asked_by(mut self, gives: Gives, root: Option<Root>) -> Self {
        self.root = root.map(|root| (gives, root));
        self
    }

    /// The type of an answer's SSZ, as its head says it.
    pub fn type_by_head(&self) -> Option<(&'static Schema, TypeId)> {
        self.of.in_fork(None).filter(|_| !self.nests)
    }

    /// Makes room for all that will likely be made of `length` bytes, so that it
    /// need not grow. Where memory for that is refused it grows.
    pub fn expect(&mut self, length: usize) {
        if let Way::ToSsz(reader) = &mut self.way {
            let more = ssz_of_json(length).saturating_sub(reader.written());
            let _ = reader.make_room(more);
        }
    }

    /// A piece of the body, of any size.
    ///
    /// # Errors
    /// Why it can't be, and nothing of it can.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Why> {
        let ssz = match &mut self.way {
            Way::ToSsz(reader) => {
                reader.push(piece)?;
                reader.written() as u64
            }
            Way::ToJson(_, _, came) | Way::Reply(_, _, came) => {
                *came += piece.len() as u64;
                *came
            }
            Way::Updates(to, _, came) => {
                *came += piece.len() as u64;
                match to {
                    Format::Json => *came,
                    // what it comes to shows at the end
                    Format::Ssz => 0,
                }
            }
        };
        match ssz > self.max_size {
            true => Err(Why::Length(self.max_size)),
            false => Ok(()),
        }
    }

    /// Whether all of the body is wanted again at its end.
    pub fn wants_all(&self) -> bool {
        matches!(
            self.way,
            Way::ToJson(..) | Way::Reply(..) | Way::Updates(..)
        )
    }

    /// Bytes that will be made, or have been so far.
    pub fn written(&self) -> usize {
        match &self.way {
            Way::ToSsz(reader) => reader.written(),
            Way::ToJson(_, _, came) | Way::Reply(Format::Json, _, came) => json_of(*came),
            Way::Reply(Format::Ssz, _, came) => usize::try_from(*came).unwrap_or(usize::MAX),
            Way::Updates(to, _, came) => updates_of(*to, *came),
        }
    }

    /// Bytes that it takes for them.
    pub fn room(&self) -> usize {
        match &self.way {
            Way::ToSsz(reader) => reader.room(),
            Way::ToJson(_, _, came) | Way::Reply(Format::Json, _, came) => json_of(*came),
            Way::Reply(Format::Ssz, _, came) => usize::try_from(*came).unwrap_or(usize::MAX),
            Way::Updates(to, _, came) => updates_of(*to, *came),
        }
    }

    /// The body has ended; `all` is what came, if it [is wanted](Self::wants_all).
    /// `may_take` is called with the length of what is made before that is allocated or
    /// grows.
    ///
    /// # Errors
    /// It was no whole value, or names another fork than its head; or memory is refused.
    pub fn finish(self, all: &[u8], may_take: MayTake<'_>) -> Result<Made, Why> {
        let reader = match self.way {
            Way::ToSsz(reader) => reader,
            Way::ToJson(schema, ty, _) => {
                let is_it = |(gives, root)| root::has((schema, ty), all, gives, &root);
                return Ok(Made {
                    is_asked_for: self.root.is_none_or(is_it),
                    ..json(schema, ty, self.fork, all, may_take)?
                });
            }
            Way::Reply(format, preset, _) => {
                return Ok(Made {
                    body: status::result(preset, &self.id, format, all, may_take)?.into(),
                    format,
                    fork: None,
                    flags: Flags::default(),
                    of: None,
                    is_asked_for: true,
                });
            }
            Way::Updates(format, chain, _) => {
                let body = match format {
                    Format::Ssz => updates::to_ssz(&chain, self.max_size, all)?,
                    Format::Json => updates::to_json(&chain, all, may_take)?,
                };
                return Ok(Made {
                    body: body.into(),
                    format,
                    fork: None,
                    flags: Flags::default(),
                    of: None,
                    is_asked_for: true,
                });
            }
        };
        let said = reader.version().map(str::to_owned);
        let flags = reader.flags();
        let mut body = reader.end_in_parts()?;
        if self.nests {
            status::nest(body.as_it_lies()).ok_or(Why::Failed)?;
        }
        let named = said.as_ref().map(|name| fork_of(name.as_bytes()));
        let fork = match (self.fork, named, said) {
            _ if !self.is_of_a_fork => None,
            (head, Some(named), _) if self.first_fork.is_some() => {
                let is_one = |fork: &Fork| Some(*fork) >= self.first_fork;
                named.ok().filter(|fork| head.is_none() && is_one(fork))
            }
            (Some(head), Some(named), Some(body)) if named.as_ref() != Ok(&head) => {
                return Err(Why::TwoVersions(head.name(), body));
            }
            (None, Some(named), _) => Some(named?),
            _ => None,
        };
        Ok(Made {
            body,
            format: Format::Ssz,
            fork: fork.map(Fork::name),
            flags,
            of: self.of.in_fork(fork).filter(|_| !self.nests),
            is_asked_for: true,
        })
    }
}

/// How long the JSON of so much SSZ likely is: hex is twice as long, and what is
/// mostly numbers longer than that.
pub(super) fn json_of(ssz: u64) -> usize {
    let ssz = usize::try_from(ssz).unwrap_or(usize::MAX);
    ssz.saturating_mul(2)
        .saturating_add(ssz / 4)
        .saturating_add(PIECE)
}

/// Estimated length of the SSZ that `json` bytes are converted to: most of JSON is hex.
pub(crate) const fn ssz_of_json(json: usize) -> usize {
    json / 2
}

/// The same of light clients' updates, in either format.
fn updates_of(to: Format, came: u64) -> usize {
    match to {
        Format::Json => json_of(came),
        // nearly all of it is hex
        Format::Ssz => usize::try_from(came / 2).unwrap_or(usize::MAX),
    }
}

/// The value in an envelope. It does not say whether it is final, which SSZ does
/// not either.
fn json(
    schema: &'static Schema,
    ty: TypeId,
    fork: Option<Fork>,
    ssz: &[u8],
    may_take: MayTake<'_>,
) -> Result<Made, Why> {
    let mut body = Vec::new();
    make_room(&mut body, json_of(ssz.len() as u64), may_take)?;
    body.push(b'{');
    if let Some(fork) = fork {
        body.extend_from_slice(b"\"version\":\"");
        body.extend_from_slice(fork.name().as_bytes());
        body.extend_from_slice(b"\",");
    }
    body.extend_from_slice(b"\"data\":");
    write_json(schema, ty, ssz, &mut body, may_take)?;
    body.push(b'}');
    Ok(Made {
        body: body.into(),
        format: Format::Json,
        fork: None,
        flags: Flags::default(),
        of: None,
        is_asked_for: true,
    })
}

/// Appends the value alone, and leaves room for a byte.
pub(super) fn write_json(
    schema: &'static Schema,
    ty: TypeId,
    ssz: &[u8],
    body: &mut Vec<u8>,
    may_take: MayTake<'_>,
) -> Result<(), Why> {
    let writer = ToJson::new(schema, ty, ssz)?;
    if body.capacity() == 0 {
        make_room(body, json_of(ssz.len() as u64), may_take)?;
    }
    write(writer, body, may_take)
}

/// The same of one that is written already, in part or not.
pub(super) fn write(
    mut writer: ToJson<'_, &[u8]>,
    body: &mut Vec<u8>,
    may_take: MayTake<'_>,
) -> Result<(), Why> {
    const _: () = assert!(PIECE >= MIN_ROOM);
    let mut piece = [0; PIECE];
    loop {
        let written = writer.write(&mut piece)?;
        make_room(body, written + 1, may_take)?;
        if written == 0 {
            return Ok(());
        }
        body.extend_from_slice(&piece[..written]);
    }
}

/// Makes room for `more` bytes, by at least a quarter of what there is.
fn make_room(body: &mut Vec<u8>, more: usize, may_take: MayTake<'_>) -> Result<(), Why> {
    let needed = body.len().saturating_add(more);
    if needed <= body.capacity() {
        return Ok(());
    }
    let room = needed.max(body.capacity() + body.capacity() / 4);
    if !may_take(room) {
        return Err(Why::Memory);
    }
    let more = room - body.len();
    body.try_reserve_exact(more).map_err(|_| Why::Memory)
}

/// The fork that a header field or an envelope names.
pub(super) fn fork_of(name: &[u8]) -> Result<Fork, Why> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    name.parse().map_err(|_| Why::Fork(name))
}

/// The value of a header field that is `true` or `false`, in any letter case.
pub(super) fn bool_of(value: &[u8]) -> Option<bool> {
    match () {
        () if value.eq_ignore_ascii_case(b"true") => Some(true),
        () if value.eq_ignore_ascii_case(b"false") => Some(false),
        () => None,
    }
}

fn type_of(
    gives: Gives,
    fork: Fork,
    preset: Preset,
    kind: Option<bool>,
) -> Result<(&'static Schema, TypeId), Why> {
    let name = gives.name(fork, kind);
    let name = name.ok_or_else(|| Why::Fork(fork.name().into()))?;
    named_type(name, fork, preset)
}

/// What a route gives in each fork that has it.
pub fn types(gives: Gives, preset: Preset) -> Vec<(&'static Schema, TypeId)> {
    let forks = Fork::ALL.iter();
    forks
        .filter_map(|fork| type_of(gives, *fork, preset, None).ok())
        .collect()
}

/// The type of that name in a fork.
pub(super) fn named_type(
    name: &str,
    fork: Fork,
    preset: Preset,
) -> Result<(&'static Schema, TypeId), Why> {
    let schema = Schema::of(fork, preset);
    let ty = schema.find(name);
    let ty = ty.ok_or_else(|| Why::Fork(fork.name().into()))?;
    Ok((schema, ty))
}
