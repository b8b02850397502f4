//! The transcoder: it receives a body in one format while it arrives, and returns the other format
//! at the end.
//!
//! JSON is read while it arrives. SSZ is not: the positions of its parts are known when all of it
//! is present, so the caller buffers the body and passes it at the end.

use super::chain_spec::Chain;
use super::engine::status;
use super::error::TranscodeError;
use super::format::{Format, VERSION};
use super::root::{self, Root};
use super::ssz_routes::ResponseType;
use super::updates;
use super::values::{
    estimated_json_length, make_room, named_type, parse_bool, parse_fork, write_json, ReserveBytes,
    Transcoded,
};
use crate::ssz::{EnvelopeFlags, Fork, InputForm, Preset, Schema, ToSsz, TypeId};

/// The conversion of one body to the other format, which receives the body as it arrives.
#[derive(Debug)]
pub struct Transcoder {
    way: Direction,
    /// The fork that the response's head names. `None` if the envelope is to name it, or if there
    /// is none.
    fork: Option<Fork>,
    /// Whether the envelope may name a fork.
    is_of_a_fork: bool,
    /// The first fork that has the type, if it is the same in all later forks.
    first_fork: Option<Fork>,
    /// The type of the SSZ, as far as the head determines it.
    of: ValueType,
    /// Whether the value is a payload's status, which REST nests.
    nests: bool,
    /// The id of the call that is answered.
    id: Vec<u8>,
    /// The root that SSZ must have to be stored.
    root: Option<(ResponseType, Root)>,
    max_size: u64,
}

/// The formats from which and to which a body is converted, and the progress of the conversion.
#[derive(Debug)]
enum Direction {
    ToSsz(Box<ToSsz<'static>>),
    /// SSZ to JSON, with the number of bytes received.
    ToJson(&'static Schema, TypeId, u64),
    /// Response of REST to the result of a JSON-RPC call, with the number of bytes received.
    Reply(Format, Preset, u64),
    /// Light client updates to the given format, with the number of bytes received.
    Updates(Format, Chain, u64),
}

/// The SSZ type of the body's value, as far as the head of the response determines it.
#[derive(Clone, Copy, Debug)]
enum ValueType {
    Type(&'static Schema, TypeId),
    /// The named type in the fork that the envelope will name.
    Name(&'static str, Preset),
}

impl ValueType {
    /// Returns the type in a fork; `None` if it depends on the fork, and the fork is unknown or
    /// lacks it.
    fn in_fork(self, fork: Option<Fork>) -> Option<(&'static Schema, TypeId)> {
        match self {
            ValueType::Type(schema, ty) => Some((schema, ty)),
            ValueType::Name(name, preset) => named_type(name, fork?, preset).ok(),
        }
    }
}

impl Transcoder {
    /// Creates a transcoder for a response with the given head to `format`. At most `max_size`
    /// bytes of SSZ are written or read.
    ///
    /// # Errors
    /// The head shows that the response can't be converted.
    pub fn new<'a>(
        gives: ResponseType,
        format: Format,
        chain: &Chain,
        max_size: u64,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, TranscodeError> {
        let (mut version, mut kind) = (None, None);
        let kind_header = gives.block_kind_header();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(VERSION.as_bytes()) {
                version = Some(value);
            } else if kind_header.is_some_and(|it| name.eq_ignore_ascii_case(it.as_bytes())) {
                kind = parse_bool(value);
            }
        }
        let preset = chain.preset;
        let nests = matches!(gives, ResponseType::Status(..));
        let is_reply = matches!(gives, ResponseType::Reply(..));
        let first_fork = gives.first_fork();
        let named = match version {
            _ if first_fork.is_some() => first_fork,
            Some(version) => Some(parse_fork(version)?),
            None => None,
        };
        let (way, of) = match (named, format) {
            _ if gives.names_forks() && chain.digests.is_none() => {
                return Err(TranscodeError::NoDigests)
            }
            _ if gives.names_forks() => {
                let way = Direction::Updates(format, chain.clone(), 0);
                (way, ValueType::Name(updates::UPDATE, preset))
            }
            (_, Format::Json) if gives.has_extra_json_members() => {
                return Err(TranscodeError::ExtraJson)
            }
            (Some(fork), _) => {
                let (schema, ty) = response_type_in_fork(gives, fork, preset, kind)?;
                let way = match format {
                    format if is_reply => Direction::Reply(format, preset, 0),
                    Format::Ssz => {
                        let reader = ToSsz::new(schema, ty, InputForm::Enveloped);
                        let lead = if nests { status::RESERVED_BYTES } else { 0 };
                        Direction::ToSsz(Box::new(reader.with_prefix(lead)?))
                    }
                    Format::Json => Direction::ToJson(schema, ty, 0),
                };
                (way, ValueType::Type(schema, ty))
            }
            (None, Format::Ssz) => {
                let name = gives
                    .fork_independent_name()
                    .ok_or(TranscodeError::NoVersion)?;
                let reader = ToSsz::by_version(preset, name);
                (
                    Direction::ToSsz(Box::new(reader)),
                    ValueType::Name(name, preset),
                )
            }
            (None, Format::Json) => return Err(TranscodeError::NoVersion),
        };
        let fork = match first_fork {
            // the type does not need a fork, an envelope does
            Some(first) => version
                .and_then(|name| parse_fork(name).ok())
                .filter(|fork| *fork >= first),
            None => named,
        };
        let is_of_a_fork = gives.may_name_fork();
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

    /// Sets the id of the JSON-RPC call, which a response in JSON repeats.
    pub fn for_call(mut self, id: &[u8]) -> Self {
        self.id = id.to_vec();
        self
    }

    /// Sets the root by which the client requested the value, if it did.
    pub fn with_requested_root(mut self, gives: ResponseType, root: Option<Root>) -> Self {
        self.root = root.map(|root| (gives, root));
        self
    }

    /// Returns the type of the response's SSZ, if the head determines it.
    pub fn type_by_head(&self) -> Option<(&'static Schema, TypeId)> {
        self.of.in_fork(None).filter(|_| !self.nests)
    }

    /// Reserves memory for the SSZ that `length` bytes of JSON are likely converted to, so that the
    /// buffer need not grow. If the memory is refused, the buffer grows instead.
    pub fn reserve_output(&mut self, length: usize) {
        if let Direction::ToSsz(reader) = &mut self.way {
            let more = estimated_ssz_length(length).saturating_sub(reader.written());
            let _ = reader.make_room(more);
        }
    }

    /// Reads a piece of the body, of any size.
    ///
    /// # Errors
    /// The reason why the body can't be converted.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), TranscodeError> {
        let ssz = match &mut self.way {
            Direction::ToSsz(reader) => {
                reader.push(piece)?;
                reader.written() as u64
            }
            Direction::ToJson(_, _, received) | Direction::Reply(_, _, received) => {
                *received += piece.len() as u64;
                *received
            }
            Direction::Updates(to, _, received) => {
                *received += piece.len() as u64;
                match to {
                    Format::Json => *received,
                    // its length in SSZ is known at the end
                    Format::Ssz => 0,
                }
            }
        };
        match ssz > self.max_size {
            true => Err(TranscodeError::Length(self.max_size)),
            false => Ok(()),
        }
    }

    /// Whether [`finish`](Self::finish) needs the whole body again.
    pub fn needs_original(&self) -> bool {
        matches!(
            self.way,
            Direction::ToJson(..) | Direction::Reply(..) | Direction::Updates(..)
        )
    }

    /// Returns the number of bytes of output that are written so far, or estimated.
    pub fn written(&self) -> usize {
        match &self.way {
            Direction::ToSsz(reader) => reader.written(),
            Direction::ToJson(_, _, received) | Direction::Reply(Format::Json, _, received) => {
                estimated_json_length(*received)
            }
            Direction::Reply(Format::Ssz, _, received) => {
                usize::try_from(*received).unwrap_or(usize::MAX)
            }
            Direction::Updates(to, _, received) => estimated_updates_length(*to, *received),
        }
    }

    /// Returns the number of bytes of memory that the output occupies, or is estimated to occupy.
    pub fn room(&self) -> usize {
        match &self.way {
            Direction::ToSsz(reader) => reader.room(),
            Direction::ToJson(_, _, received) | Direction::Reply(Format::Json, _, received) => {
                estimated_json_length(*received)
            }
            Direction::Reply(Format::Ssz, _, received) => {
                usize::try_from(*received).unwrap_or(usize::MAX)
            }
            Direction::Updates(to, _, received) => estimated_updates_length(*to, *received),
        }
    }

    /// Ends the body and returns its conversion. `all` is the whole body, if it is
    /// [needed](Self::needs_original). `may_take` is called with the length of the output before
    /// memory is allocated or grows.
    ///
    /// # Errors
    /// The body was incomplete or invalid, its envelope names another fork than its head, or memory
    /// is refused.
    pub fn finish(
        self,
        all: &[u8],
        may_take: ReserveBytes<'_>,
    ) -> Result<Transcoded, TranscodeError> {
        let reader = match self.way {
            Direction::ToSsz(reader) => reader,
            Direction::ToJson(schema, ty, _) => {
                let is_it = |(gives, root)| root::has_root((schema, ty), all, gives, &root);
                return Ok(Transcoded {
                    has_requested_root: self.root.is_none_or(is_it),
                    ..json(schema, ty, self.fork, all, may_take)?
                });
            }
            Direction::Reply(format, preset, _) => {
                return Ok(Transcoded {
                    body: status::result(preset, &self.id, format, all, may_take)?.into(),
                    format,
                    fork: None,
                    flags: EnvelopeFlags::default(),
                    of: None,
                    has_requested_root: true,
                });
            }
            Direction::Updates(format, chain, _) => {
                let body = match format {
                    Format::Ssz => updates::to_ssz(&chain, self.max_size, all)?,
                    Format::Json => updates::to_json(&chain, all, may_take)?,
                };
                return Ok(Transcoded {
                    body: body.into(),
                    format,
                    fork: None,
                    flags: EnvelopeFlags::default(),
                    of: None,
                    has_requested_root: true,
                });
            }
        };
        let version = reader.version().map(str::to_owned);
        let flags = reader.flags();
        let mut body = reader.end_in_parts()?;
        if self.nests {
            status::to_route_status(body.raw_bytes()).ok_or(TranscodeError::Failed)?;
        }
        let named = version.as_ref().map(|name| parse_fork(name.as_bytes()));
        let fork = match (self.fork, named, version) {
            _ if !self.is_of_a_fork => None,
            (head, Some(named), _) if self.first_fork.is_some() => {
                let is_one = |fork: &Fork| Some(*fork) >= self.first_fork;
                named.ok().filter(|fork| head.is_none() && is_one(fork))
            }
            (Some(head), Some(named), Some(body)) if named.as_ref() != Ok(&head) => {
                return Err(TranscodeError::TwoVersions(head.name(), body));
            }
            (None, Some(named), _) => Some(named?),
            _ => None,
        };
        Ok(Transcoded {
            body,
            format: Format::Ssz,
            fork: fork.map(Fork::name),
            flags,
            of: self.of.in_fork(fork).filter(|_| !self.nests),
            has_requested_root: true,
        })
    }
}

/// Estimates the length of the SSZ that `json` bytes are converted to: most of JSON is hex.
pub(crate) const fn estimated_ssz_length(json: usize) -> usize {
    json / 2
}

/// Estimates the length in the format `to` of light client updates after `received` bytes
/// arrived.
fn estimated_updates_length(to: Format, received: u64) -> usize {
    match to {
        Format::Json => estimated_json_length(received),
        // nearly all of the JSON is hex
        Format::Ssz => usize::try_from(received / 2).unwrap_or(usize::MAX),
    }
}

/// Writes a value as JSON, in the envelope of its route. The envelope has no `finalized`, which SSZ
/// does not have either.
fn json(
    schema: &'static Schema,
    ty: TypeId,
    fork: Option<Fork>,
    ssz: &[u8],
    may_take: ReserveBytes<'_>,
) -> Result<Transcoded, TranscodeError> {
    let mut body = Vec::new();
    make_room(&mut body, estimated_json_length(ssz.len() as u64), may_take)?;
    body.push(b'{');
    if let Some(fork) = fork {
        body.extend_from_slice(b"\"version\":\"");
        body.extend_from_slice(fork.name().as_bytes());
        body.extend_from_slice(b"\",");
    }
    body.extend_from_slice(b"\"data\":");
    write_json(schema, ty, ssz, &mut body, may_take)?;
    body.push(b'}');
    Ok(Transcoded {
        body: body.into(),
        format: Format::Json,
        fork: None,
        flags: EnvelopeFlags::default(),
        of: None,
        has_requested_root: true,
    })
}

fn response_type_in_fork(
    gives: ResponseType,
    fork: Fork,
    preset: Preset,
    kind: Option<bool>,
) -> Result<(&'static Schema, TypeId), TranscodeError> {
    let name = gives.name(fork, kind);
    let name = name.ok_or_else(|| TranscodeError::Fork(fork.name().into()))?;
    named_type(name, fork, preset)
}

/// Returns the SSZ types that a route's response has, one for each fork that has one.
pub fn types(gives: ResponseType, preset: Preset) -> Vec<(&'static Schema, TypeId)> {
    let forks = Fork::ALL.iter();
    forks
        .filter_map(|fork| response_type_in_fork(gives, *fork, preset, None).ok())
        .collect()
}
