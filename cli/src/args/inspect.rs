//! The arguments of `sszip inspect`.

use std::path::PathBuf;

use clap::Args;

use super::connection::ConnectionArguments;
use crate::target::Target;

/// The arguments of `sszip inspect`.
#[derive(Debug, Args)]
pub struct InspectArguments {
    /// A JSON-RPC request, @FILE or - (standard input) with one, or "GET /PATH"; or a key of the
    /// cache, 64 hex digits, with --socket
    #[arg(value_name = "REQUEST|KEY")]
    pub request: String,
    /// The route to which clients send the request; "GET /PATH" is sent to its host
    #[arg(long, value_name = "URL", required_unless_present = "socket")]
    pub url: Option<Target>,
    /// The owner's Unix socket, for the details of the entry: `socket` of cached.toml, or
    /// owner.sock in the folder of sszip_cache_path
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Inspect a method that is not known to only read; a proxy without support for
    /// only-if-cached sends the request to the node
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The connection to the proxy.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
