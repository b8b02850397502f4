//! The arguments of `sszip warm`.

use std::path::PathBuf;

use clap::Args;

use super::connection::ConnectionArguments;
use crate::target::Target;
use crate::warm::block_range::BlockRange;

/// The arguments of `sszip warm`.
#[derive(Debug, Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("60s")))]
pub struct WarmArguments {
    /// The route to which clients send their requests; GETs are sent to its host
    #[arg(long, value_name = "URL")]
    pub url: Target,
    /// Requests for these blocks: FROM-TO, where TO may be `finalized` or `latest`; or last:N, the
    /// N newest finalized ones
    #[arg(long, value_name = "RANGE",
          required_unless_present_any = ["requests", "log"],
          conflicts_with_all = ["requests", "log"])]
    pub blocks: Option<BlockRange>,
    /// A method for each block; may be repeated [default: eth_getBlockByNumber and
    /// eth_getBlockReceipts, unless there is --call or --get]
    #[arg(long = "method", value_name = "NAME",
          conflicts_with_all = ["requests", "log"])]
    pub methods: Vec<String>,
    /// A call for each block, with $BLOCK (hexadecimal) or $NUMBER (decimal); may be repeated:
    /// 'debug_traceBlockByNumber ["$BLOCK",{"tracer":"prestateTracer"}]'
    #[arg(long = "call", value_name = "METHOD PARAMS",
          conflicts_with_all = ["requests", "log"])]
    pub calls: Vec<String>,
    /// A GET for each block or slot; may be repeated: '/eth/v2/beacon/blocks/$NUMBER'
    #[arg(long = "get", value_name = "PATH",
          conflicts_with_all = ["requests", "log"])]
    pub paths: Vec<String>,
    /// The requests in a file, or - for standard input: a line is JSON-RPC, or GET /PATH
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    pub requests: Option<PathBuf>,
    /// The requests in an access log, or - for standard input: a line is a JSON object with the
    /// member "body", "request" ("GET /PATH"), or "method" and "path"
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The owner's Unix socket, so that entries are written to disk at once, not at their second
    /// request: `socket` of cached.toml, or owner.sock in the folder of sszip_cache_path
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Maximum number of requests to the node in a second [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: Option<u32>,
    /// Number of requests that are in flight at a time
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub concurrency: u16,
    /// Stop after this number of failures in a row, of all requests or of one method
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_errors: u32,
    /// Record the progress in this file, and continue from it if it exists
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Send methods that are not known to only read, too, such as rows of sszip_cache_method
    #[arg(long)]
    pub force: bool,
    /// Print the requests, as lines for --requests, and do not send them
    #[arg(long)]
    pub dry_run: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// The connection to the proxy.
    #[command(flatten)]
    pub connection: ConnectionArguments,
}
