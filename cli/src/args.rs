//! What may be asked.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sszip_core::ssz::{Fork, Form, Preset};

/// Makes SSZ of an Ethereum API's JSON, and JSON of SSZ; checks it, and takes
/// its root. Exits with 1 if the data is bad, with 2 if the usage is.
#[derive(Debug, Parser)]
#[command(name = "sszip", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What is done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make SSZ of JSON: of a value, or of an API's answer with one
    Json2ssz {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        files: Files,
        /// Whether the input is the value itself, or an answer with it
        #[arg(long, value_enum, default_value_t = JsonForm::Auto)]
        form: JsonForm,
    },
    /// Make JSON of SSZ
    Ssz2json {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        files: Files,
        /// Only this part of the value: message.body.attestations[3].data
        #[arg(long, value_name = "PATH")]
        select: Option<String>,
        /// Write {"version": FORK, "data": ...}, as the Beacon API does
        #[arg(long)]
        envelope: bool,
        /// Give a witness in RLP a fourth list, of no keys: geth from v1.16.4 on
        /// reads no other
        #[arg(long)]
        rlp_keys: bool,
    },
    /// Check that SSZ is a value of its type, by each rule
    Check {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        input: InputFile,
    },
    /// Print the root (hash_tree_root) of SSZ
    Root {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        input: InputFile,
        /// Only of this part of the value: message
        #[arg(long, value_name = "PATH")]
        select: Option<String>,
    },
    /// List the types that are known, or what one is made of
    Types {
        /// Of which fork [default: the newest]
        #[arg(long, value_parser = fork)]
        fork: Option<Fork>,
        /// Of which preset
        #[arg(long, value_parser = preset, default_value = "mainnet")]
        preset: Preset,
        /// Only this one, with its fields
        #[arg(value_name = "TYPE")]
        name: Option<String>,
    },
}

/// Which type.
#[derive(Debug, Args)]
pub struct What {
    /// As the specs call it: SignedBeaconBlock, ExecutionWitness; or as they
    /// write it: "List[Withdrawal, 16]"; or LightClientUpdates, which are what
    /// light_client/updates answers
    #[arg(long = "type", value_name = "TYPE")]
    pub name: String,
    /// Of which fork [default: what the answer's "version" says; any, if all
    /// forks have the same]
    #[arg(long, value_parser = fork)]
    pub fork: Option<Fork>,
    /// Of which preset
    #[arg(long, value_parser = preset, default_value = "mainnet")]
    pub preset: Preset,
    /// Another value for one of its constants: MAX_WITNESS_HEADERS=512
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_parser = limit)]
    pub limits: Vec<(String, u64)>,
    /// Whose LightClientUpdates
    #[arg(long, value_enum)]
    pub network: Option<Network>,
    /// How LightClientUpdates of another network say their fork:
    /// electra=0xad532ceb
    #[arg(long = "fork-digest", value_name = "FORK=DIGEST", value_parser = fork_digest)]
    pub fork_digests: Vec<(Fork, [u8; 4])>,
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Ethereum's, from altair to fulu with at most 21 blobs: --fork-digest names
    /// what comes after
    Mainnet,
}

/// From where, and to where.
#[derive(Debug, Args)]
pub struct Files {
    /// The input; -: what comes in [default: -]
    #[arg(value_name = "IN")]
    pub input: Option<PathBuf>,
    /// The output, which takes the place of what is there once it is whole; -:
    /// what goes out [default: -]
    #[arg(value_name = "OUT")]
    pub output: Option<PathBuf>,
}

/// From where.
#[derive(Debug, Args)]
pub struct InputFile {
    /// The input; -: what comes in [default: -]
    #[arg(value_name = "IN")]
    pub input: Option<PathBuf>,
}

/// What a JSON input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JsonForm {
    /// The value, if its first name is one of the type's fields; otherwise an
    /// answer
    Auto,
    /// The value itself
    Value,
    /// An object that has it as "data" or "result"
    Answer,
}

impl From<JsonForm> for Form {
    fn from(form: JsonForm) -> Self {
        match form {
            JsonForm::Auto => Self::Either,
            JsonForm::Value => Self::Bare,
            JsonForm::Answer => Self::Enveloped,
        }
    }
}

fn fork(name: &str) -> Result<Fork, String> {
    name.parse().map_err(|unknown| format!("{unknown}"))
}

fn preset(name: &str) -> Result<Preset, String> {
    name.parse().map_err(|unknown| format!("{unknown}"))
}

fn limit(text: &str) -> Result<(String, u64), String> {
    let (name, number) = text.split_once('=').ok_or("it should be NAME=NUMBER")?;
    let number = number
        .parse()
        .map_err(|_| format!("{number:?} is no number"))?;
    Ok((name.into(), number))
}

fn fork_digest(text: &str) -> Result<(Fork, [u8; 4]), String> {
    let (name, digest) = text.split_once('=').ok_or("it should be FORK=DIGEST")?;
    let wrong = || format!("{digest:?} is no digest of four bytes, as 0xad532ceb");
    let digits = digest.strip_prefix("0x").ok_or_else(wrong)?;
    let digest = const_hex::decode_to_array(digits).map_err(|_| wrong())?;
    Ok((fork(name)?, digest))
}
