//! `light_client/updates`: no value of SSZ, but a sequence of updates (beacon-APIs), each of its
//! own fork. In JSON it is `[{"version", "data"}, ...]`. In octets each update has its length, four
//! bytes that identify its fork (`ForkDigest`), and its SSZ. The length is a `uint64` and includes
//! the digest.

use std::ops::Range;

use serde_json::value::RawValue;
use sszip_core::ssz::{
    check_ssz, hash_tree_root, locate_value_at_path, Fork, Preset, Schema, SszError, SszToJson,
    TypeId,
};

use crate::args::{NetworkName, SszTypeOptions};
use crate::input::{InputFileReader, READ_BYTES};
use crate::input_hints;
use crate::output::CommandOutputWriter;
use crate::to_ssz::convert_buffered_by_version;
use crate::CommandError;

/// The name of the sequence on the command line.
const UPDATES_TYPE: &str = "LightClientUpdates";
/// The type of an update.
const UPDATE_TYPE: &str = "LightClientUpdate";

const LENGTH_BYTES: usize = 8;
const DIGEST_BYTES: usize = 4;

/// Mainnet's fork digests, and their first epochs (`compute_fork_digest` of consensus-specs
/// v1.7.0-alpha.13; from fulu on each change of the blob limit has another one).
const MAINNET_DIGESTS: [(u64, Fork, [u8; DIGEST_BYTES]); 8] = [
    (74_240, Fork::Altair, [0xaf, 0xca, 0xab, 0xa0]),
    (144_896, Fork::Bellatrix, [0x4a, 0x26, 0xc5, 0x8b]),
    (194_048, Fork::Capella, [0xbb, 0xa4, 0xda, 0x96]),
    (269_568, Fork::Deneb, [0x6a, 0x95, 0xa1, 0xa9]),
    (364_032, Fork::Electra, [0xad, 0x53, 0x2c, 0xeb]),
    (411_392, Fork::Fulu, [0xcc, 0x2c, 0x5c, 0xdb]),
    (412_672, Fork::Fulu, [0xcb, 0x0d, 0x1a, 0xcc]),
    (419_072, Fork::Fulu, [0x8c, 0x9f, 0x62, 0xfe]),
];
const SLOTS_PER_EPOCH: u64 = 32;

/// Whether the arguments name the type `LightClientUpdates`.
///
/// # Errors
/// The other arguments do not fit the type.
pub fn is_updates_type(type_arguments: &SszTypeOptions) -> Result<bool, CommandError> {
    if type_arguments.name == UPDATES_TYPE {
        return ForkDigestTable::from_arguments(type_arguments).map(|_| true);
    }
    match type_arguments.network.is_some() || !type_arguments.fork_digests.is_empty() {
        true => {
            let why = format!("--network and --fork-digest are allowed with {UPDATES_TYPE} only");
            Err(CommandError::Usage(why))
        }
        false => Ok(false),
    }
}

/// Converts light client updates from a JSON array to the octet stream of the Beacon API.
pub fn updates_to_ssz(
    type_arguments: &SszTypeOptions,
    mut pieces: InputFileReader,
) -> Result<Vec<u8>, CommandError> {
    let digests = ForkDigestTable::from_arguments(type_arguments)?;
    let mut json = Vec::new();
    while let Some(piece) = pieces.read_input_piece()? {
        json.extend_from_slice(piece);
    }
    let items: Vec<&RawValue> = match serde_json::from_slice(&json) {
        Ok(items) => items,
        Err(error) => {
            let why =
                input_hints::explain_missing_array(&json).unwrap_or_else(|| error.to_string());
            return Err(CommandError::Data(why));
        }
    };
    let mut octets = Vec::new();
    for (n, item) in items.iter().enumerate() {
        let item = item.get().as_bytes();
        let begin = item.as_ptr() as usize - json.as_ptr() as usize;
        let wrong = |why: String| CommandError::Data(format!("[{n}], at byte {begin}: {why}"));
        let read = convert_buffered_by_version(type_arguments.preset, UPDATE_TYPE, item);
        let (fork, update) = read.map_err(|no| wrong(no.to_string()))?;
        let digest = digests
            .fork_digest_of_update(type_arguments.preset, fork, &update)
            .map_err(wrong)?;
        let len = (DIGEST_BYTES + update.len()) as u64;
        octets.extend(len.to_le_bytes());
        octets.extend(digest);
        octets.extend(update);
    }
    Ok(octets)
}

/// Converts light client updates from an octet stream to JSON: all updates, or the part at `path`.
pub fn updates_to_json(
    type_arguments: &SszTypeOptions,
    octets: &[u8],
    path: &str,
    output: impl FnOnce() -> Result<CommandOutputWriter, CommandError>,
) -> Result<(), CommandError> {
    let updates = EncodedLightClientUpdate::parse_updates(type_arguments, octets)?;
    let mut room = vec![0; READ_BYTES];
    if !path.is_empty() {
        let (update, ty, part) = EncodedLightClientUpdate::find_update_part(&updates, path)?;
        let mut output = output()?;
        update.write_part_json(ty, part, &mut room, &mut output)?;
        output.write(b"\n")?;
        return output.flush_and_commit_output();
    }
    let mut output = output()?;
    output.write(b"[")?;
    for (n, update) in updates.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        let begin = format!("{comma}{{\"version\":\"{}\",\"data\":", update.fork);
        output.write(begin.as_bytes())?;
        update.write_part_json(update.ty, update.ssz, &mut room, &mut output)?;
        output.write(b"}")?;
    }
    output.write(b"]\n")?;
    output.flush_and_commit_output()
}

/// Checks that octets are a valid stream of light client updates.
pub fn check_updates(type_arguments: &SszTypeOptions, octets: &[u8]) -> Result<(), CommandError> {
    EncodedLightClientUpdate::parse_updates(type_arguments, octets).map(|_| ())
}

/// Computes the hash tree root of a part of the updates; the sequence itself has none.
pub fn root_of_update_part(
    type_arguments: &SszTypeOptions,
    path: &str,
    octets: impl FnOnce() -> Result<Vec<u8>, CommandError>,
) -> Result<[u8; 32], CommandError> {
    if path.is_empty() {
        let why = format!(
            "{UPDATES_TYPE} have no root; select one, such as the first with --select '[0]'"
        );
        return Err(CommandError::Usage(why));
    }
    let octets = octets()?;
    let updates = EncodedLightClientUpdate::parse_updates(type_arguments, &octets)?;
    let (update, ty, part) = EncodedLightClientUpdate::find_update_part(&updates, path)?;
    hash_tree_root(update.schema, ty, part).map_err(|error| update.invalid_update_error(&error))
}

/// One update of a `LightClientUpdates` sequence: its fork, its type and its SSZ bytes.
struct EncodedLightClientUpdate<'o> {
    n: usize,
    /// Offset of its SSZ.
    at: usize,
    fork: Fork,
    schema: &'static Schema,
    ty: TypeId,
    ssz: &'o [u8],
}

impl<'o> EncodedLightClientUpdate<'o> {
    fn parse_updates(
        type_arguments: &SszTypeOptions,
        octets: &'o [u8],
    ) -> Result<Vec<Self>, CommandError> {
        let digests = ForkDigestTable::from_arguments(type_arguments)?;
        let mut all = Vec::new();
        let mut rest = octets;
        while !rest.is_empty() {
            let n = all.len();
            let at = octets.len() - rest.len();
            let wrong = |why: String| {
                let content_hint = input_hints::describe_unsupported_input(octets);
                let content_hint =
                    content_hint.map_or(String::new(), |nature| format!("; the input is {nature}"));
                CommandError::Data(format!("[{n}], byte {at}: {why}{content_hint}"))
            };
            let Some((len, after)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
                return Err(wrong(format!(
                    "{} bytes in place of a length of {LENGTH_BYTES}",
                    rest.len()
                )));
            };
            let len = u64::from_le_bytes(*len);
            let item = usize::try_from(len)
                .ok()
                .and_then(|len| after.split_at_checked(len));
            let Some((item, after)) = item else {
                return Err(wrong(format!(
                    "{len} bytes are announced, and {} remain",
                    after.len()
                )));
            };
            let Some((digest, ssz)) = item.split_first_chunk::<DIGEST_BYTES>() else {
                return Err(wrong(format!("{len} bytes have no fork digest")));
            };
            let fork = digests.fork_for_digest(*digest).map_err(wrong)?;
            let schema = Schema::for_fork(fork, type_arguments.preset);
            let Some(ty) = schema.find_type(UPDATE_TYPE) else {
                return Err(wrong(format!("{fork} has no type {UPDATE_TYPE}")));
            };
            let update = Self {
                n,
                at: at + LENGTH_BYTES + DIGEST_BYTES,
                fork,
                schema,
                ty,
                ssz,
            };
            check_ssz(schema, ty, ssz).map_err(|error| update.invalid_update_error(&error))?;
            all.push(update);
            rest = after;
        }
        Ok(all)
    }

    /// Finds the part at a path, such as `[0].attested_header`, with its update and type.
    fn find_update_part<'u>(
        all: &'u [Self],
        path: &str,
    ) -> Result<(&'u Self, TypeId, &'o [u8]), CommandError> {
        let index = path.strip_prefix('[').and_then(|path| path.split_once(']'));
        let number = index.and_then(|(number, _)| number.parse::<usize>().ok());
        let (Some((_, rest)), Some(number)) = (index, number) else {
            let why = format!("{path:?} must begin with an index, such as [0]");
            return Err(CommandError::Data(why));
        };
        let Some(update) = all.get(number) else {
            let why = format!("index {number} is out of range: {} elements", all.len());
            return Err(CommandError::Data(why));
        };
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        let (ty, range): (TypeId, Range<usize>) =
            locate_value_at_path(update.schema, update.ty, update.ssz, rest)
                .map_err(|error| update.invalid_update_error(&error))?;
        Ok((update, ty, &update.ssz[range]))
    }

    fn write_part_json(
        &self,
        ty: TypeId,
        ssz: &[u8],
        room: &mut [u8],
        output: &mut CommandOutputWriter,
    ) -> Result<(), CommandError> {
        let wrong = |error: SszError| self.invalid_update_error(&error);
        let mut json = SszToJson::new(self.schema, ty, ssz).map_err(wrong)?;
        loop {
            match json.write_next(room).map_err(wrong)? {
                0 => return Ok(()),
                len => output.write(&room[..len])?,
            }
        }
    }

    fn invalid_update_error(&self, error: &SszError) -> CommandError {
        let Self { n, at, fork, .. } = self;
        CommandError::Data(format!("[{n}], of {fork}, at byte {at}: {error}"))
    }
}

/// The fork digests by which updates name their forks, from the arguments and the built-in network.
struct ForkDigestTable<'w> {
    type_arguments: &'w SszTypeOptions,
}

impl<'w> ForkDigestTable<'w> {
    fn from_arguments(type_arguments: &'w SszTypeOptions) -> Result<Self, CommandError> {
        let usage = |why: &str| Err(CommandError::Usage(why.into()));
        if type_arguments.fork.is_some() {
            return usage("--fork is not allowed here: each update names its own fork");
        }
        if !type_arguments.limits.is_empty() {
            return usage("--limit is not allowed here: updates have no limits");
        }
        if type_arguments.network.is_some() && type_arguments.preset != Preset::Mainnet {
            return usage("--network mainnet needs --preset mainnet");
        }
        if type_arguments.network.is_none() && type_arguments.fork_digests.is_empty() {
            return usage(
                "--network or --fork-digest is missing: the fork of each digest is unknown",
            );
        }
        Ok(Self { type_arguments })
    }

    /// Iterates over the digests on the command line, then the network's.
    fn fork_digests_from_arguments(&self) -> impl Iterator<Item = (Fork, [u8; DIGEST_BYTES])> + '_ {
        let named = self.type_arguments.fork_digests.iter().copied();
        let network = self
            .type_arguments
            .network
            .iter()
            .flat_map(|NetworkName::Mainnet| MAINNET_DIGESTS);
        named.chain(network.map(|(_, fork, digest)| (fork, digest)))
    }

    fn fork_for_digest(&self, digest: [u8; DIGEST_BYTES]) -> Result<Fork, String> {
        let found = self
            .fork_digests_from_arguments()
            .find(|(_, known)| *known == digest);
        found.map(|(fork, _)| fork).ok_or_else(|| {
            format!(
                "the fork digest 0x{} is unknown; add --fork-digest",
                const_hex::encode(digest)
            )
        })
    }

    /// Returns the fork digest of an update, by its fork and the epoch of its attested header.
    fn fork_digest_of_update(
        &self,
        preset: Preset,
        fork: Fork,
        ssz: &[u8],
    ) -> Result<[u8; DIGEST_BYTES], String> {
        let mut named = self
            .type_arguments
            .fork_digests
            .iter()
            .filter(|(of, _)| *of == fork);
        match (named.next(), named.next()) {
            (Some((_, digest)), None) => return Ok(*digest),
            (Some(_), Some(_)) => return Err(format!("--fork-digest occurs twice for {fork}")),
            (None, _) if self.type_arguments.network.is_none() => {
                return Err(format!("--fork-digest {fork}=... is missing"));
            }
            (None, _) => {}
        }
        let schema = Schema::for_fork(fork, preset);
        let slot = schema
            .find_type(UPDATE_TYPE)
            .and_then(|ty| {
                locate_value_at_path(schema, ty, ssz, "attested_header.beacon.slot").ok()
            })
            .and_then(|(_, range)| ssz.get(range)?.first_chunk())
            .map(|slot| u64::from_le_bytes(*slot))
            .ok_or("no slot")?;
        let epoch = slot / SLOTS_PER_EPOCH;
        let now = MAINNET_DIGESTS
            .iter()
            .rev()
            .find(|(since, ..)| *since <= epoch);
        match now {
            Some((_, of, digest)) if *of == fork => Ok(*digest),
            Some((_, of, _)) => Err(format!(
                "its version is {fork}, but mainnet has {of} at slot {slot}; for another network, \
                 add --fork-digest"
            )),
            None => Err(format!(
                "mainnet has no updates at slot {slot}; for another network, add --fork-digest"
            )),
        }
    }
}
