//! Benchmark of the store: the cost of the write-ahead log, and the behaviour of a full store.
//!
//! `cargo bench -p sszip-core --features store --bench store -- [--json FILE] [--rounds N] [--mb
//! N] [FOLDER]` stores `--mb` megabytes of values of 1, 30 and 300 KB in new stores in `FOLDER`
//! (the folder for temporary files), with and without the log in turn. It prints the number of
//! bytes written: as RocksDB counts them, and as the kernel counts them for this process on the
//! way to the disk (none on a tmpfs). Results are medians over the rounds. Then a store is filled
//! three times over, to measure its size on disk and the duration of look-ups.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::store::{
    DiskEntryStore, EntryRecordAttributes, StoreConfig, StoreWriteRejection,
};
use sszip_core::cache::CacheKey;

struct Options {
    json: Option<PathBuf>,
    rounds: usize,
    megabytes: u64,
    folder: PathBuf,
}

/// Results of one run with or without the log.
#[derive(Clone, Copy, Default)]
struct StoreRunResults {
    /// Bytes written by the log, flushes and compactions.
    written: u64,
    /// Bytes of `write_bytes` in proc(5).
    kernel: u64,
    /// Time until all values were flushed.
    elapsed: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = parse(std::env::args().skip(1))?;
    let mut rows = Vec::new();
    println!("| values | log | bytes written / stored | the kernel's count | MB/s |");
    println!("|---|---|---|---|---|");
    for length in [1_000, 30_000, 300_000] {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            // the first of the two finds another state of the disk's cache
            for log in [round % 2 == 0, round % 2 != 0] {
                let load = measure_store_fill(&options, length, log)?;
                if log { &mut with } else { &mut without }.push(load);
            }
        }
        let stored = (options.megabytes << 20) as f64;
        for (name, loads) in [("on", &with), ("off", &without)] {
            let median = median(loads);
            let [written, kernel] = [median.written, median.kernel].map(|n| n as f64 / stored);
            let speed = stored / 1e6 / median.elapsed.as_secs_f64();
            println!("| {length} | {name} | {written:.2} | {kernel:.2} | {speed:.0} |");
            rows.push(json!({
                "values": length, "log": name, "written": written, "kernel": kernel,
                "mb_s": speed, "rounds": loads.len(),
            }));
        }
        let (on, off) = (median(&with), median(&without));
        let ratio = off.written as f64 / on.written as f64;
        let kernel = off.kernel as f64 / (on.kernel as f64).max(1.0);
        let speed = on.elapsed.as_secs_f64() / off.elapsed.as_secs_f64();
        println!("| {length} | **off / on** | **{ratio:.2}** | {kernel:.2} | {speed:.2} |");
    }
    rows.push(measure_full_store(&options)?);
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&Value::from(rows))?)?;
    }
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        json: None,
        rounds: 3,
        megabytes: 256,
        folder: std::env::temp_dir(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            // arguments of Cargo
            "--bench" | "--test" => {}
            "--json" => options.json = Some(value()?.into()),
            "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
            "--mb" => options.megabytes = value()?.parse::<u64>()?.max(1),
            _ if argument.starts_with('-') => return Err(format!("unknown {argument}").into()),
            _ => options.folder = argument.into(),
        }
    }
    Ok(options)
}

fn median(loads: &[StoreRunResults]) -> StoreRunResults {
    let middle = |of: fn(&StoreRunResults) -> u64| {
        let mut all: Vec<_> = loads.iter().map(of).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    };
    StoreRunResults {
        written: middle(|load| load.written),
        kernel: middle(|load| load.kernel),
        elapsed: Duration::from_nanos(middle(|load| load.elapsed.as_nanos() as u64)),
    }
}

/// Fills a new store, and removes it.
fn measure_store_fill(
    options: &Options,
    length: usize,
    log: bool,
) -> Result<StoreRunResults, Box<dyn Error>> {
    let folder = tempfile::TempDir::with_prefix_in("sszip-bench-", &options.folder)?;
    let config = StoreConfig {
        log_entries: log,
        ..StoreConfig::new(folder.path().join("store"), 4 << 30)
    };
    let (store, _) = DiskEntryStore::open_store(&config, 1)?;
    let values = IncompressibleValues::new(length);
    let count = (options.megabytes << 20) / length as u64;
    let before = written_disk_bytes()?;
    let start = Instant::now();
    for n in 0..count {
        put(&store, n, values.value(n))?;
    }
    store.flush()?;
    let elapsed = start.elapsed();
    let written = store.store_status().written;
    let kernel = written_disk_bytes()? - before;
    if store.get(&key(count / 2), 2).as_deref() != Some(values.value(count / 2)) {
        return Err("a value is not what was stored".into());
    }
    store.flush_and_close()?;
    Ok(StoreRunResults {
        written: written.wal + written.flush + written.compaction,
        kernel,
        elapsed,
    })
}

/// Fills a store of `--mb` megabytes three times over, and measures look-ups.
fn measure_full_store(options: &Options) -> Result<Value, Box<dyn Error>> {
    let folder = tempfile::TempDir::with_prefix_in("sszip-bench-", &options.folder)?;
    let max_size = (options.megabytes << 20).max(64 << 20);
    let config = StoreConfig::new(folder.path().join("store"), max_size);
    let (store, _) = DiskEntryStore::open_store(&config, 1)?;
    let values = IncompressibleValues::new(20_000);
    let count = 3 * max_size / 20_000;
    let (mut most, start) = (0, Instant::now());
    for n in 0..count {
        put(&store, n, values.value(n))?;
        if n % 256 == 0 {
            most = most.max(folder_size_bytes(&config.path)?);
        }
    }
    store.flush()?;
    let elapsed = start.elapsed();
    let (mut hits, mut misses) = (Vec::new(), Vec::new());
    for n in 0..20_000 {
        // the newest eighth is found, values that were never stored are not
        let (wanted, times) = if n % 2 == 0 {
            (count - 1 - n * 7919 % (count / 24), &mut hits)
        } else {
            (count + n, &mut misses)
        };
        let start = Instant::now();
        let found = store.get(&key(wanted), 2).is_some();
        times.push(start.elapsed().as_nanos() as u64);
        if found != (n % 2 == 0) {
            return Err(format!("{wanted} of {count}: found {found}").into());
        }
    }
    let speed = (count * 20_000) as f64 / 1e6 / elapsed.as_secs_f64();
    let share = most as f64 / max_size as f64;
    let [hit, miss] = [&mut hits, &mut misses].map(|times| {
        times.sort_unstable();
        [50, 99].map(|percent| times[times.len() * percent / 100] as f64 / 1e3)
    });
    let compaction = store.store_status().written.compaction;
    println!();
    println!(
        "A store of {} MB, filled three times over with values of 20 KB:",
        max_size >> 20
    );
    println!(
        "at most {:.0} % of that on disk, {speed:.0} MB/s,",
        share * 100.0
    );
    println!("{compaction} bytes written by compactions,");
    println!(
        "hit p50/p99 {:.0}/{:.0} us, miss {:.0}/{:.0} us",
        hit[0], hit[1], miss[0], miss[1]
    );
    Ok(json!({
        "max_size": max_size, "most": share, "mb_s": speed, "compaction": compaction,
        "hit_us": hit, "miss_us": miss,
    }))
}

fn key(n: u64) -> CacheKey {
    *blake3::hash(&n.to_le_bytes()).as_bytes()
}

/// Incompressible values, made beforehand.
struct IncompressibleValues {
    noise: Vec<u8>,
    length: usize,
}

impl IncompressibleValues {
    fn new(length: usize) -> Self {
        let mut noise = vec![0; length + (64 << 10)];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        Self { noise, length }
    }

    fn value(&self, n: u64) -> &[u8] {
        &self.noise[(n % (64 << 10)) as usize..][..self.length]
    }
}

fn put(store: &DiskEntryStore, n: u64, body: &[u8]) -> Result<(), Box<dyn Error>> {
    let header = EntryRecordAttributes {
        about: StoredEntryAttributes {
            class: LifetimeClass::Immutable,
            namespace: [1; 16],
            method: Some("eth_getBlockByNumber".into()),
            block: Some(n),
            generation: store.purge_generation(),
            epoch: 0,
            height: None,
        },
        requested_at: 1,
        expires_at: u64::MAX,
        is_shareable: false,
    };
    for _ in 0..100_000 {
        match store.put_entry(&key(n), &header, body) {
            Err(StoreWriteRejection::Busy) => std::thread::sleep(Duration::from_micros(200)),
            done => return Ok(done?),
        }
    }
    Err("busy for twenty seconds".into())
}

/// Bytes that this process has written towards the disk.
fn written_disk_bytes() -> Result<u64, Box<dyn Error>> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let mut lines = io.lines();
    let line = lines.find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("no write_bytes")?.parse()?)
}

/// Bytes of all files below `folder`; files that are removed meanwhile do not count.
fn folder_size_bytes(folder: &Path) -> Result<u64, Box<dyn Error>> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        bytes += match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => folder_size_bytes(&path)?,
            Ok(meta) => meta.len(),
            Err(_) => 0,
        };
    }
    Ok(bytes)
}
