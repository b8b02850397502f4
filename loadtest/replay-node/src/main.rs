//! An Ethereum node's HTTP API, replayed from recordings, generated as a sample, or simulated as
//! a chain, for tests and load tests. See README.md.

mod body_slices;
mod canonical;
mod chain;
mod delivery;
mod envelope;
mod faults;
mod handler;
mod options;
mod page;
mod recording;
mod respond;
mod responses;
mod rpc;
mod sample;
mod served_formats;
mod server;
mod stats;
mod submissions;
mod witness;
mod witness_submissions;

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use sszip_core::ssz::Preset;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;

use chain::{SimulatedChainArguments, SimulatedNode};
use handler::{ReplayNode, ReplayResponseSource};
use options::{DeliveryOptionError, ReplayResponseOptions};
use responses::ResponseTable;
use served_formats::ServedFormats;
use server::{ListenAddress, NodeListener};
use submissions::ReceivedSubmissions;
use witness::{WitnessByteSize, WitnessGenerator};

/// Time for which connections may finish their responses after a signal.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Serves recorded JSON-RPC responses, or a generated sample of mainnet's.
#[derive(Debug, Parser)]
#[command(version)]
struct NodeArguments {
    /// Folders of recordings in the rpc-tests format; without any, a
    /// generated sample is served
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// Address to listen on, IP:PORT or unix:PATH; may be repeated
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9545")]
    listen: Vec<ListenAddress>,

    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,

    /// Respond to params that were not recorded with the method's first response
    #[arg(long)]
    lenient: bool,

    /// Seed of the generated sample or of the simulated chain
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Serve and accept the Beacon API in these formats, and convert pages that were recorded in
    /// one format only
    #[arg(long, value_name = "FORMS", value_enum, conflicts_with = "chain")]
    beacon: Option<ServedFormats>,

    /// Preset of the Beacon API's values
    #[arg(long, value_name = "NAME", default_value = "mainnet", value_parser = parse_preset)]
    preset: Preset,

    /// Serve a file, *.json or *.ssz, or *.headers for its headers, as the page at a path; may be
    /// repeated
    #[arg(long, value_name = "PATH=FILE", value_parser = parse_page, conflicts_with = "chain")]
    page: Vec<(String, PathBuf)>,

    /// Generate witnesses of about this many bytes of JSON for debug_executionWitness and
    /// engine_newPayloadWithWitness, and serve /engine/v1/payloads/witness: 500M
    #[arg(long, value_name = "SIZE", conflicts_with = "chain")]
    witness: Option<WitnessByteSize>,

    #[command(flatten)]
    chain: SimulatedChainArguments,

    /// Print METHOD PARAMS SIZE of every response, separated by tabs, and exit
    #[arg(long)]
    list: bool,

    /// Gzip if Accept-Encoding contains gzip, as geth does
    #[arg(long)]
    gzip: bool,

    /// Methods with chunked responses: names separated by commas, or * for all
    #[arg(long, value_name = "METHODS")]
    chunked: Option<String>,

    /// Bytes of the pieces in which a body is sent
    #[arg(long, value_name = "BYTES")]
    piece: Option<usize>,

    /// Milliseconds between pieces; 0 flushes each piece
    #[arg(long, value_name = "MS")]
    pause_ms: Option<u64>,

    /// Milliseconds before a response begins
    #[arg(long, value_name = "MS")]
    latency_ms: Option<u64>,

    /// Options for all responses, as in a query string: name=value&name=value
    #[arg(long = "with", value_name = "OPTIONS")]
    with: Vec<String>,

    /// Options for some methods: METHOD[,METHOD]:OPTIONS; "batch" and "GET"
    /// name batches and pages
    #[arg(long = "for", value_name = "METHODS:OPTIONS")]
    for_methods: Vec<String>,
}

impl NodeArguments {
    /// Returns the default options, and the options by method that override them.
    fn delivery_options_from_arguments(
        &self,
    ) -> Result<
        (
            ReplayResponseOptions,
            HashMap<String, ReplayResponseOptions>,
        ),
        DeliveryOptionError,
    > {
        let mut defaults = ReplayResponseOptions::default();
        if self.gzip {
            defaults.parse_query_options("gzip=on")?;
        }
        let numbers = [
            ("piece", self.piece.map(|piece| piece as u64)),
            ("pause_ms", self.pause_ms),
            ("latency_ms", self.latency_ms),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                defaults.parse_query_options(&format!("{name}={value}"))?;
            }
        }
        if self.chunked.as_deref() == Some("*") {
            defaults.parse_query_options("framing=chunked")?;
        }
        for options in &self.with {
            defaults.parse_query_options(options)?;
        }
        let mut by_method: HashMap<String, ReplayResponseOptions> = HashMap::new();
        let mut add = |methods: &str, options: &str| {
            methods.split(',').try_for_each(|method| {
                by_method
                    .entry(method.to_owned())
                    .or_insert_with(|| defaults.clone())
                    .parse_query_options(options)
            })
        };
        if let Some(methods) = self.chunked.as_deref().filter(|methods| *methods != "*") {
            add(methods, "framing=chunked")?;
        }
        for layer in &self.for_methods {
            let (methods, options) = layer
                .split_once(':')
                .ok_or_else(|| DeliveryOptionError::UnknownName(layer.clone()))?;
            add(methods, options)?;
        }
        Ok((defaults, by_method))
    }

    /// Returns the responses of the recordings and pages on the command line, or a generated sample
    /// if there are none. Entries that cannot be read are printed as warnings.
    fn load_responses(&self) -> io::Result<ResponseTable> {
        let named = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let warn = &mut |warning| eprintln!("replay-node: {warning}");
        let of_sample = self.folders.is_empty() && self.page.is_empty();
        let mut answers = match of_sample {
            true => sample::generate_sample_responses(self.seed, self.lenient),
            false => ResponseTable::new(self.lenient),
        };
        for folder in &self.folders {
            recording::load_folder(folder, &mut answers, warn)
                .map_err(|error| named(folder, error))?;
        }
        for (path, file) in &self.page {
            recording::load_page_file(path, file, &mut answers, warn)
                .map_err(|error| named(file, error))?;
        }
        if let Some(size) = self.witness {
            answers.enable_witnesses(WitnessGenerator::new(self.seed, size));
        }
        answers
            .pages_mut()
            .for_each(|(_, page)| page.memoize_response_headers());
        match (of_sample, self.beacon) {
            (true, forms) => {
                let forms = forms.unwrap_or(ServedFormats::Both);
                served_formats::apply_served_formats(&mut answers, forms, Preset::Mainnet, warn);
            }
            (false, Some(forms)) => {
                served_formats::apply_served_formats(&mut answers, forms, self.preset, warn);
            }
            (false, None) => (),
        }
        Ok(answers)
    }
}

fn parse_preset(name: &str) -> Result<Preset, String> {
    name.parse().map_err(|unknown| format!("{unknown}"))
}

/// Parses `PATH=FILE`, where the path begins with a slash.
fn parse_page(text: &str) -> Result<(String, PathBuf), String> {
    let (path, file) = text.split_once('=').ok_or("expected PATH=FILE")?;
    match path.starts_with('/') {
        true => Ok((path.to_owned(), file.into())),
        false => Err("expected a path that begins with a slash".to_owned()),
    }
}

fn main() -> ExitCode {
    match run_node(&NodeArguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replay-node: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM or SIGINT, or prints the responses if `--list` is set.
fn run_node(args: &NodeArguments) -> Result<(), Box<dyn std::error::Error>> {
    let (defaults, by_method) = args.delivery_options_from_arguments()?;
    let simulation = args
        .chain
        .chain
        .then(|| Arc::new(SimulatedNode::new(&args.chain, args.seed)));
    let source = match &simulation {
        Some(simulation) => ReplayResponseSource::Chain(simulation.clone()),
        None => {
            let answers = args.load_responses()?;
            if args.list {
                return Ok(print_responses(&answers)?);
            }
            if answers.is_empty() {
                return Err("nothing to serve: the folders have no recordings".into());
            }
            ReplayResponseSource::Answers(answers)
        }
    };
    let node = Arc::new(ReplayNode {
        source,
        stats: Arc::default(),
        publishes: ReceivedSubmissions::new(args.beacon.unwrap_or(ServedFormats::Both)),
        defaults,
        by_method,
    });
    let mut listeners = Vec::new();
    for address in &args.listen {
        let listener = NodeListener::bind_address(address)
            .map_err(|error| format!("cannot listen on {address}: {error}"))?;
        listeners.push(listener);
    }
    let (stop, stopped) = watch::channel(false);
    server::start_server_workers(&node, &listeners, args.threads.into(), &stopped)?;
    drop(stopped);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        for listener in &listeners {
            let mut stdout = io::stdout().lock();
            writeln!(stdout, "listening on {}", listener.bound_address()?)?;
            stdout.flush()?;
        }
        if let Some(simulation) = &simulation {
            let (simulation, args, seed) = (simulation.clone(), args.chain.clone(), args.seed);
            tokio::spawn(chain::grow_chain(simulation, args, seed));
        }
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
        stop.send_replace(true);
        if let Some(simulation) = &simulation {
            simulation.close_streams();
        }
        // The exit closes connections that are still busy by then.
        let _ = tokio::time::timeout(STOP_LIMIT, stop.closed()).await;
        Ok(())
    })
}

/// Prints method, params and length in bytes of each response, separated by tabs.
fn print_responses(answers: &ResponseTable) -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for (method, params, size) in answers.response_size_rows() {
        writeln!(stdout, "{method}\t{params}\t{size}")?;
    }
    stdout.flush()
}
