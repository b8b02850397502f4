//! `sszip doctor`: examines a deployment, from the command line's machine (docs/checking.md).

mod node_checks;
mod owner_checks;
mod program;
mod proxy_checks;
mod report;
mod system_checks;

use std::fmt::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{HeaderValue, CONTENT_TYPE, DATE};
use hyper::Method;
use serde_json::Value;

use self::report::{Row, RowStatus};
use crate::args::DoctorArguments;
use crate::http_client::{connection_error, run_blocking, HttpClient, HttpReply};
use crate::json_reply::json_reply;
use crate::output::print_text;
use crate::owner_http::owner_target;
use crate::target::{Target, DEFAULT_STATUS_TARGET};
use crate::CommandError;

/// Version of this command, as the status pages write it.
const SOFTWARE: &str = concat!("sszip/", env!("CARGO_PKG_VERSION"));

/// A request that each execution node answers with its newest block.
const HEAD_REQUEST: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"eth_getBlockByNumber","params":["latest",false]}"#;

/// A response with the time at which it was sent, by this machine's clock.
pub struct Fetched {
    json: Value,
    /// The header `Date`.
    date: Option<SystemTime>,
    /// The middle of the exchange, in seconds since 1970.
    at: f64,
}

/// The state of the deployment, as far as it was reachable.
#[derive(Default)]
pub struct Context {
    proxy: Option<Fetched>,
    owner: Option<Fetched>,
    node: Option<Fetched>,
}

/// A check, which returns its rows.
type Check = fn(&Context, &DoctorArguments) -> Vec<Row>;

const CHECKS: [Check; 12] = [
    proxy_checks::check_versions,
    proxy_checks::check_encoder,
    system_checks::check_nginx,
    system_checks::check_loaded_files,
    owner_checks::check_owner,
    owner_checks::check_store,
    system_checks::check_socket,
    system_checks::check_store_folder,
    owner_checks::check_chains,
    owner_checks::check_fleet,
    node_checks::check_node_and_clocks,
    proxy_checks::check_reasons,
];

/// Runs `sszip doctor`.
///
/// # Errors
/// A check has failed.
pub fn run_doctor(arguments: &DoctorArguments) -> Result<(), CommandError> {
    let (context, mut rows) = run_blocking(async { Ok(fetch_context(arguments).await) })?;
    rows.extend(CHECKS.iter().flat_map(|check| check(&context, arguments)));
    print_text(&match arguments.json {
        true => format!("{:#}\n", rows.iter().map(Row::to_json).collect::<Value>()),
        false => rows.iter().fold(String::new(), |mut text, row| {
            // writes to a String do not fail
            let _ = writeln!(text, "{row}");
            text
        }),
    })?;
    match rows.iter().any(|row| row.status == RowStatus::Failure) {
        true => Err(CommandError::Findings),
        false => Ok(()),
    }
}

impl Context {
    /// The owner's status: its own, or the proxy's copy.
    fn owner_status(&self) -> Option<&Value> {
        let of_proxy = || {
            let owner = self.proxy.as_ref()?.json.get("owner")?;
            owner.get("generation").map(|_| owner)
        };
        self.owner.as_ref().map(|it| &it.json).or_else(of_proxy)
    }
}

/// Fetches the status of the proxy and of the owner, and the node's head. Returns rows about those
/// that are not reachable.
async fn fetch_context(arguments: &DoctorArguments) -> (Context, Vec<Row>) {
    let (mut context, mut rows) = (Context::default(), Vec::new());
    match fetch_proxy(arguments).await {
        Ok(fetched) => context.proxy = Some(fetched),
        Err(text) if arguments.url.is_none() && arguments.socket.is_some() => {
            rows.push(Row::skipped("proxy", text, "--url names its status page"));
        }
        Err(text) => rows.push(Row::failure("proxy", text, "--url names its status page")),
    }
    if let Some(socket) = &arguments.socket {
        match fetch_owner(arguments, socket).await {
            Ok(fetched) => context.owner = Some(fetched),
            Err(text) => rows.push(Row::failure("owner", text, "")),
        }
    }
    if let Some(node) = &arguments.node {
        let body = Bytes::from_static(HEAD_REQUEST.as_bytes());
        match fetch(arguments, node, Method::POST, body).await {
            Ok(fetched) => context.node = Some(fetched),
            Err(text) => rows.push(Row::failure("node", text, "")),
        }
    }
    (context, rows)
}

async fn fetch_proxy(arguments: &DoctorArguments) -> Result<Fetched, String> {
    let target = match &arguments.url {
        Some(target) => target.clone(),
        None => DEFAULT_STATUS_TARGET.parse::<Target>()?,
    };
    let path = target.endpoint.path.split('?').next().unwrap_or("/");
    let target = target.with_path(&format!("{path}?format=json"));
    let fetched = fetch(arguments, &target, Method::GET, Bytes::new()).await?;
    match fetched.json["software"].is_string() && fetched.json["requests"].is_u64() {
        true => Ok(fetched),
        false => Err(format!(
            "{target} is not the status page of nginx or of Envoy's module"
        )),
    }
}

async fn fetch_owner(arguments: &DoctorArguments, socket: &Path) -> Result<Fetched, String> {
    let target = owner_target(socket).with_path("/v1/status");
    let fetched = fetch(arguments, &target, Method::GET, Bytes::new()).await?;
    match fetched.json["generation"].is_u64() {
        true => Ok(fetched),
        false => Err(format!(
            "{} is not the socket of an sszip owner; correct --socket",
            socket.display()
        )),
    }
}

/// Sends a request, and returns its JSON, or the problem.
async fn fetch(
    arguments: &DoctorArguments,
    target: &Target,
    method: Method,
    body: Bytes,
) -> Result<Fetched, String> {
    let message = |error: CommandError| error.message().unwrap_or_default().to_owned();
    let client = HttpClient::new(target, &arguments.connection.options(1)).map_err(message)?;
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let headers = match body.is_empty() {
        true => &[][..],
        false => &headers[..],
    };
    let reply = client.send(method, None, headers, body).await;
    let reply = reply.map_err(|error| message(connection_error(target, &error)))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0.0, |now| now.as_secs_f64());
    Ok(Fetched {
        json: json_reply(target, &reply).map_err(message)?,
        date: date_of(&reply),
        at: now - reply.elapsed.as_secs_f64() / 2.0,
    })
}

fn date_of(reply: &HttpReply) -> Option<SystemTime> {
    let date = reply.headers.get(DATE)?.to_str().ok()?;
    httpdate::parse_http_date(date).ok()
}
