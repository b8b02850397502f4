//! `sszip`: the state and purges of proxies and caches, and SSZ and JSON, on the command line.

mod args;
mod check;
mod command_error;
mod doctor;
mod fleet;
mod http_client;
mod input;
mod input_hints;
mod inspect;
mod json_reply;
mod manuals;
mod output;
mod owner_http;
mod purge;
mod purge_scope;
mod resolve_type;
mod server_text;
mod signals;
mod status;
mod stdout_state;
mod target;
mod to_ssz;
mod types;
mod updates;
mod warm;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use sszip_core::ssz::{check_ssz, hash_tree_root, locate_value_at_path, Fork, SszError, SszToJson};

use crate::args::{CliArguments, CliCommand};
use crate::input::{InputFileReader, READ_BYTES};
use crate::output::CommandOutputWriter;

pub use command_error::CommandError;

fn main() -> ExitCode {
    let arguments = CliArguments::parse();
    let Err(error) = run_command(arguments.command) else {
        return ExitCode::SUCCESS;
    };
    if let Some(message) = error.message() {
        // a closed standard error does not change the exit code
        let _ = writeln!(io::stderr(), "sszip: {message}");
    }
    ExitCode::from(error.exit_code())
}

fn run_command(command: CliCommand) -> Result<(), CommandError> {
    match command {
        CliCommand::Json2ssz {
            type_arguments,
            files,
            form,
        } => {
            let pieces = InputFileReader::open_input(files.input.as_deref())?.buffer_input_prefix();
            let ssz = match updates::is_updates_type(&type_arguments)? {
                true => updates::updates_to_ssz(&type_arguments, pieces)?,
                false => to_ssz::json_to_ssz(&type_arguments, pieces, form.into())?,
            };
            let mut output = CommandOutputWriter::open_output(files.output.as_deref())?;
            output.write(&ssz)?;
            output.flush_and_commit_output()
        }
        CliCommand::Ssz2json {
            type_arguments,
            files,
            select: path,
            envelope,
            rlp_keys,
        } => {
            let path = path.as_deref().unwrap_or("");
            if updates::is_updates_type(&type_arguments)? {
                let octets = input::read_input(files.input.as_deref())?;
                let output = || CommandOutputWriter::open_output(files.output.as_deref());
                return updates::updates_to_json(&type_arguments, &octets, path, output);
            }
            let (schema, ty, fork) = type_arguments.resolve_type_arguments()?;
            if envelope && fork.is_none() {
                return Err(CommandError::Usage("--envelope needs --fork".into()));
            }
            let ssz = input::read_input(files.input.as_deref())?;
            let wrong = |error: SszError| {
                CommandError::Data(input_hints::explain_invalid_ssz_input(
                    &type_arguments,
                    &ssz,
                    &error,
                ))
            };
            let (ty, range) = locate_value_at_path(&schema, ty, &ssz, path).map_err(wrong)?;
            let mut json = SszToJson::new(&schema, ty, &ssz[range]).map_err(wrong)?;
            if rlp_keys {
                json = json.with_empty_witness_keys();
            }
            let mut output = CommandOutputWriter::open_output(files.output.as_deref())?;
            if let (true, Some(fork)) = (envelope, fork) {
                output.write(format!("{{\"version\":\"{fork}\",\"data\":").as_bytes())?;
            }
            let mut room = vec![0; READ_BYTES];
            loop {
                let len = json.write_next(&mut room).map_err(wrong)?;
                if len == 0 {
                    break;
                }
                output.write(&room[..len])?;
            }
            output.write(if envelope { b"}\n" } else { b"\n" })?;
            output.flush_and_commit_output()
        }
        CliCommand::CheckSsz {
            type_arguments,
            input,
        } => {
            let input = input.input.as_deref();
            if updates::is_updates_type(&type_arguments)? {
                return updates::check_updates(&type_arguments, &input::read_input(input)?);
            }
            let (schema, ty, _) = type_arguments.resolve_type_arguments()?;
            let ssz = input::read_input(input)?;
            let checked = check_ssz(&schema, ty, &ssz);
            checked.map_err(|error| {
                CommandError::Data(input_hints::explain_invalid_ssz_input(
                    &type_arguments,
                    &ssz,
                    &error,
                ))
            })
        }
        CliCommand::Root {
            type_arguments,
            input,
            select: path,
        } => {
            let path = path.as_deref().unwrap_or("");
            let input = input.input.as_deref();
            let root = if updates::is_updates_type(&type_arguments)? {
                updates::root_of_update_part(&type_arguments, path, || input::read_input(input))?
            } else {
                let (schema, ty, _) = type_arguments.resolve_type_arguments()?;
                let ssz = input::read_input(input)?;
                let wrong = |error: SszError| {
                    CommandError::Data(input_hints::explain_invalid_ssz_input(
                        &type_arguments,
                        &ssz,
                        &error,
                    ))
                };
                let (ty, range) = locate_value_at_path(&schema, ty, &ssz, path).map_err(wrong)?;
                hash_tree_root(&schema, ty, &ssz[range]).map_err(wrong)?
            };
            let mut output = CommandOutputWriter::open_output(None)?;
            output.write(format!("0x{}\n", const_hex::encode(root)).as_bytes())?;
            output.flush_and_commit_output()
        }
        CliCommand::Types { fork, preset, name } => {
            let newest = Fork::ALL.last().copied().unwrap_or(Fork::Phase0);
            let text = types::format_type_listing(fork.unwrap_or(newest), preset, name.as_deref());
            let text = text.map_err(CommandError::Usage)?;
            let mut output = CommandOutputWriter::open_output(None)?;
            output.write(text.as_bytes())?;
            output.flush_and_commit_output()
        }
        CliCommand::Fleet { command } => fleet::run_fleet_command(&command),
        CliCommand::Status(arguments) => status::run_status(&arguments),
        CliCommand::Top(arguments) => status::run_top(&arguments),
        CliCommand::Purge(arguments) => purge::run_purge(&arguments),
        CliCommand::Inspect(arguments) => inspect::run_inspect(&arguments),
        CliCommand::Warm(arguments) => warm::run_warm(&arguments),
        CliCommand::Check(arguments) => check::run_check(&arguments),
        CliCommand::Doctor(arguments) => doctor::run_doctor(&arguments),
        CliCommand::Completions { shell } => manuals::print_completions(shell),
        CliCommand::GenerateMan { folder } => manuals::write_man_pages(&folder),
    }
}
