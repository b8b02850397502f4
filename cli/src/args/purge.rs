//! The arguments of `purge`.

use std::path::PathBuf;

use clap::Args;

use super::connection::ConnectionArguments;
use crate::target::Target;

/// The arguments of `purge`. Its timeout includes the time for which the owner waits for processes
/// and for other owners.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("60s")))]
pub struct PurgeArguments {
    /// everything; or namespace=NAME, method=METHOD or both; or blocks=FROM-TO, with namespace=NAME
    /// unless --url has one; or key=HEX
    #[arg(value_name = "SCOPE", required = true)]
    pub scope: Vec<String>,
    /// The URL of a proxy's purges: http://127.0.0.1:8580/sszip/purge
    #[arg(long, value_name = "URL", required_unless_present = "socket")]
    pub url: Option<Target>,
    /// The owner's Unix socket, in place of --url
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    pub socket: Option<PathBuf>,
    /// Purge everything without a question
    #[arg(long)]
    pub yes: bool,
    /// Print the response
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
