//! The arguments of the command line.

mod check;
pub mod connection;
mod doctor;
mod inspect;
mod purge;
mod status;
mod warm;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sszip_core::ssz::{Fork, JsonEnvelopeForm, Preset};

pub use self::check::{CheckArguments, ConfigFormat};
pub use self::doctor::DoctorArguments;
pub use self::inspect::InspectArguments;
pub use self::purge::PurgeArguments;
pub use self::status::{MethodSort, StatusArguments, TopArguments};
pub use self::warm::WarmArguments;

/// Operates sszip's proxies and caches, and converts the JSON of Ethereum APIs to SSZ and back
///
/// Exit codes: 0 success, 1 failed, 2 invalid arguments, 3 problems found, 4 stopped and resumable,
/// 128 and the number of a signal. Each error is reported on standard error with its cause and a
/// remedy.
#[derive(Debug, Parser)]
#[command(name = "sszip", version)]
pub struct CliArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Show the state of a proxy, or of the owner of a cache
    ///
    /// In a terminal the view is updated until q is pressed; ? shows the other keys. Otherwise, and
    /// with --once, one report is printed.
    Status(StatusArguments),
    /// Show the most frequent methods or keys
    Top(TopArguments),
    /// Remove entries of a cache
    ///
    /// The command ends when no process can send these entries any more. After an error the purge
    /// may be in effect or not: repeat it.
    Purge(PurgeArguments),
    /// Show what the cache has for a request or a key, and why
    Inspect(InspectArguments),
    /// Fill the cache of a route from a range of blocks, a file or an access log
    Warm(WarmArguments),
    /// Check configurations of nginx and Envoy
    Check(CheckArguments),
    /// Examine a running deployment
    Doctor(DoctorArguments),
    /// Convert JSON to SSZ: a value, or an API's response with one
    Json2ssz {
        #[command(flatten)]
        type_arguments: SszTypeOptions,
        #[command(flatten)]
        files: InputOutputFiles,
        /// Whether the input is the value itself, or a response with it
        #[arg(long, value_enum, default_value_t = JsonInputEnvelope::Auto)]
        form: JsonInputEnvelope,
    },
    /// Convert SSZ to JSON
    Ssz2json {
        #[command(flatten)]
        type_arguments: SszTypeOptions,
        #[command(flatten)]
        files: InputOutputFiles,
        /// Only this part of the value: message.body.attestations[3].data
        #[arg(long, value_name = "PATH")]
        select: Option<String>,
        /// Write {"version": FORK, "data": ...}, as the Beacon API does
        #[arg(long)]
        envelope: bool,
        /// Write a witness in RLP with a fourth list, of no keys: geth from v1.16.4 on
        /// requires it
        #[arg(long)]
        rlp_keys: bool,
    },
    /// Check that SSZ is a valid value of its type
    CheckSsz {
        #[command(flatten)]
        type_arguments: SszTypeOptions,
        #[command(flatten)]
        input: InputFile,
    },
    /// Print the root (hash_tree_root) of SSZ
    Root {
        #[command(flatten)]
        type_arguments: SszTypeOptions,
        #[command(flatten)]
        input: InputFile,
        /// Only the root of this part of the value: message
        #[arg(long, value_name = "PATH")]
        select: Option<String>,
    },
    /// List the known types, or the fields of one
    Types {
        /// The fork [default: the newest]
        #[arg(long, value_parser = parse_fork)]
        fork: Option<Fork>,
        /// The preset
        #[arg(long, value_parser = parse_preset, default_value = "mainnet")]
        preset: Preset,
        /// Only this type, with its fields
        #[arg(value_name = "TYPE")]
        name: Option<String>,
    },
    /// Show, measure or purge the fleet tier of a machine's cache
    Fleet {
        #[command(subcommand)]
        command: FleetCommand,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the man pages of all commands to a folder
    #[command(hide = true)]
    GenerateMan {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// The subcommands of `fleet`.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Print the state of the fleet tier; exits with 1 unless the fleet is in use
    Status {
        #[command(flatten)]
        owner: OwnerSocket,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure a new connection of the owner to the fleet, and the commands PING and GET
    Ping {
        #[command(flatten)]
        owner: OwnerSocket,
        /// The length of the value that is stored and read
        #[arg(long, value_name = "N", default_value_t = 30_000,
              value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
        bytes: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Purge entries on this machine and at all owners of the fleet; exits with 1 unless all of
    /// them have confirmed
    Purge {
        #[command(flatten)]
        owner: OwnerSocket,
        /// everything; or namespace=NAME, method=METHOD or both; or namespace=NAME and
        /// blocks=FROM-TO; or key=HEX
        #[arg(value_name = "SCOPE", required = true)]
        scope: Vec<String>,
    },
}

/// The socket of the owner that a command queries.
#[derive(Debug, Args)]
pub struct OwnerSocket {
    /// The owner's Unix socket: `socket` of cached.toml, or owner.sock in the folder of
    /// sszip_cache_path
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
}

/// The options that name the type of the input, its fork and its preset.
#[derive(Debug, Args)]
pub struct SszTypeOptions {
    /// Name in the specs: SignedBeaconBlock, ExecutionWitness; or an expression of the
    /// specs: "List[Withdrawal, 16]"; or LightClientUpdates, the response of
    /// light_client/updates
    #[arg(long = "type", value_name = "TYPE")]
    pub name: String,
    /// The fork [default: the response's "version"; any, if the type is the same in all
    /// forks]
    #[arg(long, value_parser = parse_fork)]
    pub fork: Option<Fork>,
    /// The preset
    #[arg(long, value_parser = parse_preset, default_value = "mainnet")]
    pub preset: Preset,
    /// Another value for a constant of the type: MAX_WITNESS_HEADERS=512
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_parser = parse_limit)]
    pub limits: Vec<(String, u64)>,
    /// The network of LightClientUpdates
    #[arg(long, value_enum)]
    pub network: Option<NetworkName>,
    /// The fork digest of a fork, for LightClientUpdates of another network:
    /// electra=0xad532ceb
    #[arg(long = "fork-digest", value_name = "FORK=DIGEST", value_parser = parse_fork_digest)]
    pub fork_digests: Vec<(Fork, [u8; 4])>,
}

/// A network whose fork digests are built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NetworkName {
    /// Ethereum mainnet, from altair to fulu with at most 21 blobs; later forks need
    /// --fork-digest
    Mainnet,
}

/// The paths of the input and the output; `-` or absent is a standard stream.
#[derive(Debug, Args)]
pub struct InputOutputFiles {
    /// The input file, or - for standard input [default: -]
    #[arg(value_name = "IN")]
    pub input: Option<PathBuf>,
    /// The output file, which is replaced once the output is complete, or - for standard
    /// output [default: -]
    #[arg(value_name = "OUT")]
    pub output: Option<PathBuf>,
}

/// The path of the input; `-` or absent is standard input.
#[derive(Debug, Args)]
pub struct InputFile {
    /// The input file, or - for standard input [default: -]
    #[arg(value_name = "IN")]
    pub input: Option<PathBuf>,
}

/// The form of a JSON input: the value itself, or a response with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JsonInputEnvelope {
    /// The value, if its first name is one of the type's fields; otherwise a
    /// response
    Auto,
    /// The value itself
    Value,
    /// An object with the value as "data" or "result"
    Answer,
}

impl From<JsonInputEnvelope> for JsonEnvelopeForm {
    fn from(form: JsonInputEnvelope) -> Self {
        match form {
            JsonInputEnvelope::Auto => Self::Either,
            JsonInputEnvelope::Value => Self::Bare,
            JsonInputEnvelope::Answer => Self::Enveloped,
        }
    }
}

fn parse_fork(name: &str) -> Result<Fork, String> {
    name.parse().map_err(|unknown| format!("{unknown}"))
}

fn parse_preset(name: &str) -> Result<Preset, String> {
    name.parse().map_err(|unknown| format!("{unknown}"))
}

fn parse_limit(text: &str) -> Result<(String, u64), String> {
    let (name, number) = text.split_once('=').ok_or("expected NAME=NUMBER")?;
    let number = number
        .parse()
        .map_err(|_| format!("{number:?} is not a number"))?;
    Ok((name.into(), number))
}

fn parse_fork_digest(text: &str) -> Result<(Fork, [u8; 4]), String> {
    let (name, digest) = text.split_once('=').ok_or("expected FORK=DIGEST")?;
    let wrong = || format!("{digest:?} is not a digest of four bytes, such as 0xad532ceb");
    let digits = digest.strip_prefix("0x").ok_or_else(wrong)?;
    let digest = const_hex::decode_to_array(digits).map_err(|_| wrong())?;
    Ok((parse_fork(name)?, digest))
}
