//! The transcoder: it receives a body in one format while it arrives, and returns the other format
//! at the end.
//!
//! JSON is read while it arrives. SSZ is not: the positions of its parts are known when all of it
//! is present, so the caller buffers the body and passes it at the end.

use super::chain_spec::PresetAndForkDigests;
use super::engine::status;
use super::error::TranscodeError;
use super::format::{BodyFormat, CONSENSUS_VERSION_HEADER};
use super::light_client_updates;
use super::requested_root::{self, HashTreeRoot};
use super::ssz_routes::SszResponseType;
use super::values::{
    estimated_json_length, find_type_in_fork, grow_json_buffer, parse_fork, parse_header_bool,
    write_ssz_as_json, ReserveCallback, TranscodedBody,
};
use crate::ssz::{EnvelopeFlags, Fork, JsonEnvelopeForm, JsonToSsz, Preset, Schema, TypeId};

/// The conversion of one body to the other format, which receives the body as it arrives.
#[derive(Debug)]
pub struct Transcoder {
    way: TranscodeDirection,
    /// The fork that the response's head names. `None` if the envelope is to name it, or if there
    /// is none.
    fork: Option<Fork>,
    /// Whether the envelope may name a fork.
    is_of_a_fork: bool,
    /// The first fork that has the type, if it is the same in all later forks.
    first_fork: Option<Fork>,
    /// The type of the SSZ, as far as the head determines it.
    of: PartlyKnownSszType,
    /// Whether the value is a payload's status, which REST nests.
    nests: bool,
    /// The id of the call that is answered.
    id: Vec<u8>,
    /// The root that SSZ must have to be stored.
    root: Option<(SszResponseType, HashTreeRoot)>,
    max_size: u64,
}

/// The formats from which and to which a body is converted, and the progress of the conversion.
#[derive(Debug)]
enum TranscodeDirection {
    ToSsz(Box<JsonToSsz<'static>>),
    /// SSZ to JSON, with the number of bytes received.
    ToJson(&'static Schema, TypeId, u64),
    /// Response of REST to the result of a JSON-RPC call, with the number of bytes received.
    Reply(BodyFormat, Preset, u64),
    /// Light client updates to the given format, with the number of bytes received.
    Updates(BodyFormat, PresetAndForkDigests, u64),
}

/// The SSZ type of the body's value, as far as the head of the response determines it.
#[derive(Clone, Copy, Debug)]
enum PartlyKnownSszType {
    Type(&'static Schema, TypeId),
    /// The named type in the fork that the envelope will name.
    Name(&'static str, Preset),
}

impl PartlyKnownSszType {
    /// Returns the type in a fork; `None` if it depends on the fork, and the fork is unknown or
    /// lacks it.
    fn in_fork(self, fork: Option<Fork>) -> Option<(&'static Schema, TypeId)> {
        match self {
            PartlyKnownSszType::Type(schema, ty) => Some((schema, ty)),
            PartlyKnownSszType::Name(name, preset) => find_type_in_fork(name, fork?, preset).ok(),
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
        gives: SszResponseType,
        format: BodyFormat,
        chain: &PresetAndForkDigests,
        max_size: u64,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, TranscodeError> {
        let (mut version, mut kind) = (None, None);
        let kind_header = gives.block_kind_header_name();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(CONSENSUS_VERSION_HEADER.as_bytes()) {
                version = Some(value);
            } else if kind_header.is_some_and(|it| name.eq_ignore_ascii_case(it.as_bytes())) {
                kind = parse_header_bool(value);
            }
        }
        let preset = chain.preset;
        let nests = matches!(gives, SszResponseType::Status(..));
        let is_reply = matches!(gives, SszResponseType::Reply(..));
        let first_fork = gives.first_fork_if_unchanged();
        let named = match version {
            _ if first_fork.is_some() => first_fork,
            Some(version) => Some(parse_fork(version)?),
            None => None,
        };
        let (way, of) = match (named, format) {
            _ if gives.names_forks_by_digest() && chain.digests.is_none() => {
                return Err(TranscodeError::NoDigests)
            }
            _ if gives.names_forks_by_digest() => {
                let way = TranscodeDirection::Updates(format, chain.clone(), 0);
                (
                    way,
                    PartlyKnownSszType::Name(light_client_updates::UPDATE_TYPE, preset),
                )
            }
            (_, BodyFormat::Json) if gives.has_extra_json_members() => {
                return Err(TranscodeError::ExtraJson)
            }
            (Some(fork), _) => {
                let (schema, ty) = response_type_in_fork(gives, fork, preset, kind)?;
                let way = match format {
                    format if is_reply => TranscodeDirection::Reply(format, preset, 0),
                    BodyFormat::Ssz => {
                        let reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Enveloped);
                        let lead = if nests { status::RESERVED_BYTES } else { 0 };
                        TranscodeDirection::ToSsz(Box::new(reader.with_reserved_zero_prefix(lead)?))
                    }
                    BodyFormat::Json => TranscodeDirection::ToJson(schema, ty, 0),
                };
                (way, PartlyKnownSszType::Type(schema, ty))
            }
            (None, BodyFormat::Ssz) => {
                let name = gives
                    .fork_independent_type_name()
                    .ok_or(TranscodeError::NoVersion)?;
                let reader = JsonToSsz::for_versioned_envelope(preset, name);
                (
                    TranscodeDirection::ToSsz(Box::new(reader)),
                    PartlyKnownSszType::Name(name, preset),
                )
            }
            (None, BodyFormat::Json) => return Err(TranscodeError::NoVersion),
        };
        let fork = match first_fork {
            // the type does not need a fork, an envelope does
            Some(first) => version
                .and_then(|name| parse_fork(name).ok())
                .filter(|fork| *fork >= first),
            None => named,
        };
        let is_of_a_fork = gives.may_envelope_name_fork();
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
    pub fn with_call_id(mut self, id: &[u8]) -> Self {
        self.id = id.to_vec();
        self
    }

    /// Sets the root by which the client requested the value, if it did.
    pub fn with_requested_root(
        mut self,
        gives: SszResponseType,
        root: Option<HashTreeRoot>,
    ) -> Self {
        self.root = root.map(|root| (gives, root));
        self
    }

    /// Returns the type of the response's SSZ, if the head determines it.
    pub fn ssz_type_from_head(&self) -> Option<(&'static Schema, TypeId)> {
        self.of.in_fork(None).filter(|_| !self.nests)
    }

    /// Reserves memory for the SSZ that `length` bytes of JSON are likely converted to, so that the
    /// buffer need not grow. If the memory is refused, the buffer grows instead.
    pub fn reserve_output(&mut self, length: usize) {
        if let TranscodeDirection::ToSsz(reader) = &mut self.way {
            let more = estimated_ssz_length(length).saturating_sub(reader.written_bytes());
            let _ = reader.reserve_ssz(more);
        }
    }

    /// Reads a piece of the body, of any size.
    ///
    /// # Errors
    /// The reason why the body can't be converted.
    pub fn feed_body_piece(&mut self, piece: &[u8]) -> Result<(), TranscodeError> {
        let ssz = match &mut self.way {
            TranscodeDirection::ToSsz(reader) => {
                reader.feed_json_piece(piece)?;
                reader.written_bytes() as u64
            }
            TranscodeDirection::ToJson(_, _, received)
            | TranscodeDirection::Reply(_, _, received) => {
                *received += piece.len() as u64;
                *received
            }
            TranscodeDirection::Updates(to, _, received) => {
                *received += piece.len() as u64;
                match to {
                    BodyFormat::Json => *received,
                    // its length in SSZ is known at the end
                    BodyFormat::Ssz => 0,
                }
            }
        };
        match ssz > self.max_size {
            true => Err(TranscodeError::Length(self.max_size)),
            false => Ok(()),
        }
    }

    /// Whether [`finish_conversion`](Self::finish_conversion) needs the whole body again.
    pub fn needs_original(&self) -> bool {
        matches!(
            self.way,
            TranscodeDirection::ToJson(..)
                | TranscodeDirection::Reply(..)
                | TranscodeDirection::Updates(..)
        )
    }

    /// Returns the number of bytes of output that are written so far, or estimated.
    pub fn written_bytes(&self) -> usize {
        match &self.way {
            TranscodeDirection::ToSsz(reader) => reader.written_bytes(),
            TranscodeDirection::ToJson(_, _, received)
            | TranscodeDirection::Reply(BodyFormat::Json, _, received) => {
                estimated_json_length(*received)
            }
            TranscodeDirection::Reply(BodyFormat::Ssz, _, received) => {
                usize::try_from(*received).unwrap_or(usize::MAX)
            }
            TranscodeDirection::Updates(to, _, received) => {
                estimated_updates_length(*to, *received)
            }
        }
    }

    /// Returns the number of bytes of memory that the output occupies, or is estimated to occupy.
    pub fn occupied_output_memory(&self) -> usize {
        match &self.way {
            TranscodeDirection::ToSsz(reader) => reader.occupied_output_memory(),
            TranscodeDirection::ToJson(_, _, received)
            | TranscodeDirection::Reply(BodyFormat::Json, _, received) => {
                estimated_json_length(*received)
            }
            TranscodeDirection::Reply(BodyFormat::Ssz, _, received) => {
                usize::try_from(*received).unwrap_or(usize::MAX)
            }
            TranscodeDirection::Updates(to, _, received) => {
                estimated_updates_length(*to, *received)
            }
        }
    }

    /// Ends the body and returns its conversion. `all` is the whole body, if it is
    /// [needed](Self::needs_original). `may_take` is called with the length of the output before
    /// memory is allocated or grows.
    ///
    /// # Errors
    /// The body was incomplete or invalid, its envelope names another fork than its head, or memory
    /// is refused.
    pub fn finish_conversion(
        self,
        all: &[u8],
        may_take: ReserveCallback<'_>,
    ) -> Result<TranscodedBody, TranscodeError> {
        let reader = match self.way {
            TranscodeDirection::ToSsz(reader) => reader,
            TranscodeDirection::ToJson(schema, ty, _) => {
                let is_it = |(gives, root)| {
                    requested_root::matches_hash_tree_root((schema, ty), all, gives, &root)
                };
                return Ok(TranscodedBody {
                    has_requested_root: self.root.is_none_or(is_it),
                    ..write_enveloped_json(schema, ty, self.fork, all, may_take)?
                });
            }
            TranscodeDirection::Reply(format, preset, _) => {
                return Ok(TranscodedBody {
                    body: status::payload_status_to_result(
                        preset, &self.id, format, all, may_take,
                    )?
                    .into(),
                    format,
                    fork: None,
                    flags: EnvelopeFlags::default(),
                    of: None,
                    has_requested_root: true,
                });
            }
            TranscodeDirection::Updates(format, chain, _) => {
                let body = match format {
                    BodyFormat::Ssz => {
                        light_client_updates::updates_to_ssz(&chain, self.max_size, all)?
                    }
                    BodyFormat::Json => {
                        light_client_updates::updates_to_json(&chain, all, may_take)?
                    }
                };
                return Ok(TranscodedBody {
                    body: body.into(),
                    format,
                    fork: None,
                    flags: EnvelopeFlags::default(),
                    of: None,
                    has_requested_root: true,
                });
            }
        };
        let version = reader.envelope_version().map(str::to_owned);
        let flags = reader.envelope_flags();
        let mut body = reader.finish_in_parts()?;
        if self.nests {
            status::payload_status_to_rest(body.unordered_buffer())
                .ok_or(TranscodeError::Failed)?;
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
        Ok(TranscodedBody {
            body,
            format: BodyFormat::Ssz,
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
fn estimated_updates_length(to: BodyFormat, received: u64) -> usize {
    match to {
        BodyFormat::Json => estimated_json_length(received),
        // nearly all of the JSON is hex
        BodyFormat::Ssz => usize::try_from(received / 2).unwrap_or(usize::MAX),
    }
}

/// Writes a value as JSON, in the envelope of its route. The envelope has no `finalized`, which SSZ
/// does not have either.
fn write_enveloped_json(
    schema: &'static Schema,
    ty: TypeId,
    fork: Option<Fork>,
    ssz: &[u8],
    may_take: ReserveCallback<'_>,
) -> Result<TranscodedBody, TranscodeError> {
    let mut body = Vec::new();
    grow_json_buffer(&mut body, estimated_json_length(ssz.len() as u64), may_take)?;
    body.push(b'{');
    if let Some(fork) = fork {
        body.extend_from_slice(b"\"version\":\"");
        body.extend_from_slice(fork.name().as_bytes());
        body.extend_from_slice(b"\",");
    }
    body.extend_from_slice(b"\"data\":");
    write_ssz_as_json(schema, ty, ssz, &mut body, may_take)?;
    body.push(b'}');
    Ok(TranscodedBody {
        body: body.into(),
        format: BodyFormat::Json,
        fork: None,
        flags: EnvelopeFlags::default(),
        of: None,
        has_requested_root: true,
    })
}

/// Returns the type of a response in a fork. An error means that the fork has no such response.
fn response_type_in_fork(
    gives: SszResponseType,
    fork: Fork,
    preset: Preset,
    kind: Option<bool>,
) -> Result<(&'static Schema, TypeId), TranscodeError> {
    let name = gives.type_name(fork, kind);
    let name = name.ok_or_else(|| TranscodeError::Fork(fork.name().into()))?;
    find_type_in_fork(name, fork, preset)
}

/// Returns the SSZ types that a route's response has, one for each fork that has one.
pub fn response_types_by_fork(
    gives: SszResponseType,
    preset: Preset,
) -> Vec<(&'static Schema, TypeId)> {
    let forks = Fork::ALL.iter();
    forks
        .filter_map(|fork| response_type_in_fork(gives, *fork, preset, None).ok())
        .collect()
}
