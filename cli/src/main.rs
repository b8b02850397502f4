//! `sszip`: SSZ and JSON on the command line.

mod args;
mod closed;
mod input;
mod output;
mod types;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use sszip_core::ssz::{check, hash_tree_root, select, Fork, Form, Schema, ToJson, ToSsz, TypeId};

use crate::args::{Arguments, Command, What};
use crate::input::{Pieces, PIECE};
use crate::output::Output;

/// Why nothing came of it.
enum Failure {
    /// Of the data, or of the files: 1.
    Data(String),
    /// Of the arguments: 2.
    Usage(String),
    /// Whoever read the output has had enough.
    Pipe,
}

impl From<sszip_core::ssz::Error> for Failure {
    fn from(error: sszip_core::ssz::Error) -> Self {
        Self::Data(error.to_string())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(()) | Err(Failure::Pipe) => ExitCode::SUCCESS,
        Err(Failure::Data(why)) => {
            eprintln!("sszip: {why}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(why)) => {
            eprintln!("sszip: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Json2ssz { what, files, form } => {
            let ssz = json2ssz(&what, files.input.as_deref(), form.into())?;
            let mut output = Output::to(files.output.as_deref())?;
            output.write(&ssz)?;
            output.end()
        }
        Command::Ssz2json {
            what,
            files,
            select: path,
            envelope,
            rlp_keys,
        } => {
            let (schema, ty, fork) = what.resolve()?;
            if envelope && fork.is_none() {
                return Err(Failure::Usage("--envelope needs --fork".into()));
            }
            let ssz = input::whole(files.input.as_deref())?;
            let (ty, range) = select(&schema, ty, &ssz, path.as_deref().unwrap_or(""))?;
            let mut json = ToJson::new(&schema, ty, &ssz[range])?;
            if rlp_keys {
                json = json.with_rlp_keys();
            }
            let mut output = Output::to(files.output.as_deref())?;
            if let (true, Some(fork)) = (envelope, fork) {
                output.write(format!("{{\"version\":\"{fork}\",\"data\":").as_bytes())?;
            }
            let mut room = vec![0; PIECE];
            loop {
                let len = json.write(&mut room)?;
                if len == 0 {
                    break;
                }
                output.write(&room[..len])?;
            }
            output.write(if envelope { b"}\n" } else { b"\n" })?;
            output.end()
        }
        Command::Check { what, input } => {
            let (schema, ty, _) = what.resolve()?;
            let ssz = input::whole(input.input.as_deref())?;
            Ok(check(&schema, ty, &ssz)?)
        }
        Command::Root {
            what,
            input,
            select: path,
        } => {
            let (schema, ty, _) = what.resolve()?;
            let ssz = input::whole(input.input.as_deref())?;
            let (ty, range) = select(&schema, ty, &ssz, path.as_deref().unwrap_or(""))?;
            let root = hash_tree_root(&schema, ty, &ssz[range])?;
            let mut output = Output::to(None)?;
            output.write(format!("0x{}\n", const_hex::encode(root)).as_bytes())?;
            output.end()
        }
        Command::Types { fork, preset, name } => {
            let newest = Fork::ALL.last().copied().unwrap_or(Fork::Phase0);
            let text = types::list(fork.unwrap_or(newest), preset, name.as_deref());
            let text = text.map_err(Failure::Usage)?;
            let mut output = Output::to(None)?;
            output.write(text.as_bytes())?;
            output.end()
        }
    }
}

impl What {
    /// The type, and the fork that was named.
    fn resolve(&self) -> Result<(Schema, TypeId, Option<Fork>), Failure> {
        let fork = match self.fork {
            Some(fork) => fork,
            None if Schema::is_of_every_fork(&self.name) => Fork::Phase0,
            None => {
                let why = format!(
                    "{} is another type in each fork: --fork is missing",
                    self.name
                );
                return Err(Failure::Usage(why));
            }
        };
        let limits: Vec<(&str, u64)> = self
            .limits
            .iter()
            .map(|(name, number)| (name.as_str(), *number))
            .collect();
        let usage = |bad: sszip_core::ssz::schema::BadSchema| {
            Failure::Usage(format!("{fork}, {}: {bad}", self.preset))
        };
        let mut schema = Schema::with_limits(fork, self.preset, &limits).map_err(usage)?;
        let ty = schema.parse(&self.name).map_err(usage)?;
        Ok((schema, ty, self.fork))
    }
}

fn json2ssz(what: &What, input: Option<&Path>, form: Form) -> Result<Vec<u8>, Failure> {
    let is_known = what.fork.is_some() || Schema::is_of_every_fork(&what.name);
    if is_known {
        let (schema, ty, fork) = what.resolve()?;
        let mut reader = ToSsz::new(&schema, ty, form);
        read(&mut reader, input)?;
        if let (Some(fork), Some(version)) = (fork, reader.version()) {
            if version != fork.name() {
                let why = format!("the answer's version is {version:?}, not {fork}");
                return Err(Failure::Data(why));
            }
        }
        return Ok(reader.end()?);
    }
    if !what.limits.is_empty() {
        return Err(Failure::Usage("--limit needs --fork".into()));
    }
    if form == Form::Bare {
        return Err(Failure::Usage(
            "a value without its answer needs --fork".into(),
        ));
    }
    let known = Fork::ALL
        .iter()
        .any(|fork| Schema::of(*fork, what.preset).find(&what.name).is_some());
    if !known {
        return Err(Failure::Usage(format!("no fork has {}", what.name)));
    }
    let mut reader = ToSsz::by_version(what.preset, &what.name);
    read(&mut reader, input)?;
    Ok(reader.end()?)
}

fn read(reader: &mut ToSsz<'_>, input: Option<&Path>) -> Result<(), Failure> {
    let mut pieces = Pieces::of(input)?;
    while let Some(piece) = pieces.next()? {
        reader.push(piece)?;
    }
    Ok(())
}
