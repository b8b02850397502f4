//! An Ethereum node's HTTP API replayed from recordings, or from a generated
//! sample, or played by a simulated chain, for tests and load tests. See
//! README.md.

mod answers;
mod canonical;
mod chain;
mod delivery;
mod faults;
mod handler;
mod options;
mod payload;
mod recording;
mod rpc;
mod sample;
mod server;
mod stats;

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;

use answers::Answers;
use chain::{ChainArgs, Simulation};
use handler::{Node, Source};
use options::{OptionError, Options};
use server::{Address, Listener};

/// How long connections may finish their responses after a signal.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Serves recorded JSON-RPC answers, or a generated sample of mainnet's.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Folders of recordings in the rpc-tests format; without any, a
    /// generated sample is served
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// Address to listen on, IP:PORT or unix:PATH; may be repeated
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9545")]
    listen: Vec<Address>,

    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,

    /// Answer params that were not recorded with the method's first answer
    #[arg(long)]
    lenient: bool,

    /// Seed of the generated sample or of the simulated chain
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    chain: ChainArgs,

    /// Print METHOD PARAMS SIZE of every answer, separated by tabs, and exit
    #[arg(long)]
    list: bool,

    /// Gzip when the request asks for it, as geth does
    #[arg(long)]
    gzip: bool,

    /// Methods answered chunked: names separated by commas, or * for all
    #[arg(long, value_name = "METHODS")]
    chunked: Option<String>,

    /// Size of the pieces a body is sent in
    #[arg(long, value_name = "BYTES")]
    piece: Option<usize>,

    /// Milliseconds between pieces; 0 sends each by itself
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

impl Args {
    /// The options of all responses, and those of single methods over them.
    fn options(&self) -> Result<(Options, HashMap<String, Options>), OptionError> {
        let mut defaults = Options::default();
        if self.gzip {
            defaults.apply("gzip=on")?;
        }
        let numbers = [
            ("piece", self.piece.map(|piece| piece as u64)),
            ("pause_ms", self.pause_ms),
            ("latency_ms", self.latency_ms),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                defaults.apply(&format!("{name}={value}"))?;
            }
        }
        if self.chunked.as_deref() == Some("*") {
            defaults.apply("framing=chunked")?;
        }
        for options in &self.with {
            defaults.apply(options)?;
        }
        let mut by_method: HashMap<String, Options> = HashMap::new();
        let mut add = |methods: &str, options: &str| {
            methods.split(',').try_for_each(|method| {
                by_method
                    .entry(method.to_owned())
                    .or_insert_with(|| defaults.clone())
                    .apply(options)
            })
        };
        if let Some(methods) = self.chunked.as_deref().filter(|methods| *methods != "*") {
            add(methods, "framing=chunked")?;
        }
        for layer in &self.for_methods {
            let (methods, options) = layer
                .split_once(':')
                .ok_or_else(|| OptionError::UnknownName(layer.clone()))?;
            add(methods, options)?;
        }
        Ok((defaults, by_method))
    }

    fn answers(&self) -> io::Result<Answers> {
        if self.folders.is_empty() {
            return Ok(sample::generate(self.seed, self.lenient));
        }
        let mut answers = Answers::new(self.lenient);
        for folder in &self.folders {
            let warn = &mut |warning| eprintln!("replay-node: {warning}");
            recording::load(folder, &mut answers, warn).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
            })?;
        }
        Ok(answers)
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replay-node: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let (defaults, by_method) = args.options()?;
    let simulation = args
        .chain
        .chain
        .then(|| Arc::new(Simulation::new(&args.chain, args.seed)));
    let source = match &simulation {
        Some(simulation) => Source::Chain(simulation.clone()),
        None => {
            let answers = args.answers()?;
            if args.list {
                return Ok(list(&answers)?);
            }
            if answers.is_empty() {
                return Err("nothing to serve in the folders given".into());
            }
            Source::Answers(answers)
        }
    };
    let node = Arc::new(Node {
        source,
        stats: Arc::default(),
        defaults,
        by_method,
    });
    let mut listeners = Vec::new();
    for address in &args.listen {
        let listener = Listener::bind(address).map_err(|error| format!("{address}: {error}"))?;
        listeners.push(listener);
    }
    let (stop, stopped) = watch::channel(false);
    server::start(&node, &listeners, args.threads.into(), &stopped)?;
    drop(stopped);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        for listener in &listeners {
            let mut stdout = io::stdout().lock();
            writeln!(stdout, "listening on {}", listener.address()?)?;
            stdout.flush()?;
        }
        if let Some(simulation) = &simulation {
            let (simulation, args, seed) = (simulation.clone(), args.chain.clone(), args.seed);
            tokio::spawn(chain::drive(simulation, args, seed));
        }
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
        stop.send_replace(true);
        if let Some(simulation) = &simulation {
            simulation.close();
        }
        // Connections that are still busy then are cut off by the exit.
        let _ = tokio::time::timeout(STOP_LIMIT, stop.closed()).await;
        Ok(())
    })
}

fn list(answers: &Answers) -> io::Result<()> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for (method, params, size) in answers.list() {
        writeln!(stdout, "{method}\t{params}\t{size}")?;
    }
    stdout.flush()
}
