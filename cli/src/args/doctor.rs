//! The arguments of `sszip doctor`.

use std::path::PathBuf;

use clap::Args;

use super::connection::ConnectionArguments;
use crate::target::Target;

/// The parts of a deployment that `sszip doctor` examines.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// The status page of nginx, or of Envoy's module [default: http://127.0.0.1:8580/sszip]
    #[arg(long, value_name = "URL")]
    pub url: Option<Target>,
    /// The owner's Unix socket: `socket` of cached.toml, or owner.sock in the folder of
    /// sszip_cache_path
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The program nginx, whose configuration is tested (nginx -t)
    #[arg(long, value_name = "PROGRAM", default_value = "nginx")]
    pub nginx: PathBuf,
    /// The JSON-RPC of the node
    #[arg(long, value_name = "URL")]
    pub node: Option<Target>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
