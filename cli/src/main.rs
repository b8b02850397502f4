//! `sszip`: SSZ and JSON on the command line.

mod args;
mod explain;
mod input;
mod output;
mod resolve_type;
mod stdout_state;
mod to_ssz;
mod types;
mod updates;

use std::process::ExitCode;

use clap::Parser;
use sszip_core::ssz::{check, hash_tree_root, select, Fork, SszError, ToJson};

use crate::args::{Arguments, Command};
use crate::input::{Pieces, PIECE};
use crate::output::Output;

/// The reason why a command stops before its end, which determines the exit code.
enum Failure {
    /// An error in the data or the files; exit code 1.
    Data(String),
    /// An error in the arguments; exit code 2.
    Usage(String),
    /// The reader of the output has closed it.
    Pipe,
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
        Command::Json2ssz {
            type_arguments,
            files,
            form,
        } => {
            let pieces = Pieces::open(files.input.as_deref())?.buffer_prefix();
            let ssz = match updates::is_updates_type(&type_arguments)? {
                true => updates::to_ssz(&type_arguments, pieces)?,
                false => to_ssz::to_ssz(&type_arguments, pieces, form.into())?,
            };
            let mut output = Output::to(files.output.as_deref())?;
            output.write(&ssz)?;
            output.end()
        }
        Command::Ssz2json {
            type_arguments,
            files,
            select: path,
            envelope,
            rlp_keys,
        } => {
            let path = path.as_deref().unwrap_or("");
            if updates::is_updates_type(&type_arguments)? {
                let octets = input::whole(files.input.as_deref())?;
                let output = || Output::to(files.output.as_deref());
                return updates::to_json(&type_arguments, &octets, path, output);
            }
            let (schema, ty, fork) = type_arguments.resolve()?;
            if envelope && fork.is_none() {
                return Err(Failure::Usage("--envelope needs --fork".into()));
            }
            let ssz = input::whole(files.input.as_deref())?;
            let wrong =
                |error: SszError| Failure::Data(explain::ssz(&type_arguments, &ssz, &error));
            let (ty, range) = select(&schema, ty, &ssz, path).map_err(wrong)?;
            let mut json = ToJson::new(&schema, ty, &ssz[range]).map_err(wrong)?;
            if rlp_keys {
                json = json.with_rlp_keys();
            }
            let mut output = Output::to(files.output.as_deref())?;
            if let (true, Some(fork)) = (envelope, fork) {
                output.write(format!("{{\"version\":\"{fork}\",\"data\":").as_bytes())?;
            }
            let mut room = vec![0; PIECE];
            loop {
                let len = json.write(&mut room).map_err(wrong)?;
                if len == 0 {
                    break;
                }
                output.write(&room[..len])?;
            }
            output.write(if envelope { b"}\n" } else { b"\n" })?;
            output.end()
        }
        Command::Check {
            type_arguments,
            input,
        } => {
            let input = input.input.as_deref();
            if updates::is_updates_type(&type_arguments)? {
                return updates::check_all(&type_arguments, &input::whole(input)?);
            }
            let (schema, ty, _) = type_arguments.resolve()?;
            let ssz = input::whole(input)?;
            let checked = check(&schema, ty, &ssz);
            checked.map_err(|error| Failure::Data(explain::ssz(&type_arguments, &ssz, &error)))
        }
        Command::Root {
            type_arguments,
            input,
            select: path,
        } => {
            let path = path.as_deref().unwrap_or("");
            let input = input.input.as_deref();
            let root = if updates::is_updates_type(&type_arguments)? {
                updates::root(&type_arguments, path, || input::whole(input))?
            } else {
                let (schema, ty, _) = type_arguments.resolve()?;
                let ssz = input::whole(input)?;
                let wrong =
                    |error: SszError| Failure::Data(explain::ssz(&type_arguments, &ssz, &error));
                let (ty, range) = select(&schema, ty, &ssz, path).map_err(wrong)?;
                hash_tree_root(&schema, ty, &ssz[range]).map_err(wrong)?
            };
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
