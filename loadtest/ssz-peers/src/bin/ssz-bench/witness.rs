//! Measurements of large execution witnesses; each implementation runs in a separate process,
//! whose peak memory is measured.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use ssz_peers::peers::{ethereum_ssz, libssz, JsonLibrary, PeerSszCodec};
use ssz_peers::resolve_peer_type;
use sszip_core::ssz::{JsonEnvelopeForm, JsonToSsz};

use crate::case::{thread_cpu_ns, MeasurementPlan};
use crate::corpus::WitnessHexItems;

/// First argument of such a process.
pub const CHILD: &str = "witness-child";

/// Bytes that a node or a proxy reads in one call.
const PIECE: usize = 64 << 10;

/// A function that converts a witness in a JSON file to SSZ with one implementation.
type WitnessConversion = fn(File) -> Result<ConvertedWitness, Box<dyn Error>>;

/// Names of the implementations, and their functions.
const WAYS: [(&str, WitnessConversion); 5] = [
    ("sszip", convert_witness_in_pieces),
    ("serde_json, libssz", |file| {
        convert_witness_by_struct::<libssz::ExecutionWitness>(file, JsonLibrary::SerdeJson)
    }),
    ("serde_json, ethereum_ssz", |file| {
        convert_witness_by_struct::<ethereum_ssz::ExecutionWitness>(file, JsonLibrary::SerdeJson)
    }),
    ("sonic-rs, libssz", |file| {
        convert_witness_by_struct::<libssz::ExecutionWitness>(file, JsonLibrary::SonicRs)
    }),
    ("sonic-rs, ethereum_ssz", |file| {
        convert_witness_by_struct::<ethereum_ssz::ExecutionWitness>(file, JsonLibrary::SonicRs)
    }),
];

/// The measurements of a witness of one size, by all implementations.
#[derive(Serialize)]
pub struct WitnessResults {
    bytes_json: u64,
    bytes_ssz: usize,
    ways: Vec<WitnessConversionSamples>,
}

/// The samples of one implementation.
#[derive(Serialize)]
struct WitnessConversionSamples {
    who: &'static str,
    samples: Vec<WitnessConversionSample>,
}

/// One conversion's measurements, which its own process prints.
#[derive(Serialize, Deserialize)]
struct WitnessConversionSample {
    /// CPU time in ns from the first piece to the SSZ, without reading the file.
    ns: f64,
    /// CPU time of reading the file in ns.
    reading_ns: f64,
    /// Peak resident memory in KiB.
    peak_kib: u64,
    bytes_ssz: usize,
    hash: u64,
}

/// A converted witness, with the time of reading its file.
struct ConvertedWitness {
    ssz: Vec<u8>,
    reading_ns: f64,
}

/// Measures each implementation on a witness of this number of megabytes.
pub fn measure_witness_conversion(
    parts: &WitnessHexItems,
    megabytes: usize,
    plan: MeasurementPlan,
    work: &Path,
) -> Result<WitnessResults, Box<dyn Error>> {
    let path = work.join(format!("ssz-bench-{}-{megabytes}.json", std::process::id()));
    let measured =
        write_witness_file(parts, megabytes, &path).and_then(|()| measure_rounds(&path, plan));
    std::fs::remove_file(&path)?;
    measured
}

fn measure_rounds(path: &Path, plan: MeasurementPlan) -> Result<WitnessResults, Box<dyn Error>> {
    eprintln!("ExecutionWitness, {}", path.display());
    let mut ways = WAYS.map(|(who, _)| WitnessConversionSamples {
        who,
        samples: Vec::new(),
    });
    let this = std::env::current_exe()?;
    for round in 0..plan.rounds.min(5) {
        for n in 0..ways.len() {
            let way = &mut ways[(round + n) % WAYS.len()];
            let done = Command::new(&this)
                .args([CHILD, way.who])
                .arg(path)
                .output()?;
            if !done.status.success() {
                return Err(String::from_utf8_lossy(&done.stderr).into());
            }
            way.samples.push(serde_json::from_slice(&done.stdout)?);
        }
    }
    let first = &ways[0].samples[0];
    let (bytes_ssz, hash) = (first.bytes_ssz, first.hash);
    let all = ways.iter().flat_map(|way| &way.samples);
    if all
        .into_iter()
        .any(|one| (one.bytes_ssz, one.hash) != (bytes_ssz, hash))
    {
        return Err("the SSZ of a witness differs between coders".into());
    }
    Ok(WitnessResults {
        bytes_json: path.metadata()?.len(),
        bytes_ssz,
        ways: ways.into(),
    })
}

/// Writes nodes and codes repeatedly up to the requested size.
fn write_witness_file(
    parts: &WitnessHexItems,
    megabytes: usize,
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let length = |texts: &[String]| texts.iter().map(|text| text.len() + 3).sum::<usize>();
    let once = length(&parts.state) + length(&parts.codes) + length(&parts.keys);
    let times = (megabytes * 1_000_000).div_ceil(once);
    let mut to = BufWriter::new(File::create(path)?);
    let lists = [
        ("{\"state\":[", &parts.state, times),
        ("],\"keys\":[", &parts.keys, times),
        ("],\"codes\":[", &parts.codes, times),
        ("],\"headers\":[", &parts.headers, 1),
    ];
    for (begin, texts, times) in lists {
        to.write_all(begin.as_bytes())?;
        for n in 0..times {
            for (m, text) in texts.iter().enumerate() {
                let comma = if n + m == 0 { "" } else { "," };
                write!(to, "{comma}\"{text}\"")?;
            }
        }
    }
    to.write_all(b"]}")?;
    to.flush()?;
    Ok(())
}

/// Converts the witness with one implementation, in a process of its own, and prints the
/// measurements.
pub fn measure_one_witness_conversion(
    implementation: Option<String>,
    path: Option<String>,
) -> Result<(), Box<dyn Error>> {
    let way = WAYS
        .iter()
        .find(|(name, _)| implementation.as_deref() == Some(name));
    let (Some((_, way)), Some(path)) = (way, path) else {
        return Err(format!("usage: ssz-bench {CHILD} WAY FILE").into());
    };
    let file = File::open(path)?;
    let begin = thread_cpu_ns();
    let done = way(file)?;
    let ns = thread_cpu_ns() - begin - done.reading_ns;
    let sample = WitnessConversionSample {
        ns,
        reading_ns: done.reading_ns,
        peak_kib: peak_memory_kib()?,
        bytes_ssz: done.ssz.len(),
        hash: fnv_hash(&done.ssz),
    };
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
}

/// Converts the witness in pieces, as a proxy does.
fn convert_witness_in_pieces(mut file: File) -> Result<ConvertedWitness, Box<dyn Error>> {
    let (schema, ty) = resolve_peer_type("ExecutionWitness");
    let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Bare);
    let mut piece = vec![0; PIECE];
    let mut reading_ns = 0.0;
    loop {
        let begin = thread_cpu_ns();
        let len = file.read(&mut piece)?;
        reading_ns += thread_cpu_ns() - begin;
        if len == 0 {
            let ssz = reader.finish()?;
            return Ok(ConvertedWitness { ssz, reading_ns });
        }
        reader.feed_json_piece(&piece[..len])?;
    }
}

/// Reads the complete text, then builds the struct, then the SSZ, as a client does.
fn convert_witness_by_struct<T>(
    mut file: File,
    serde: JsonLibrary,
) -> Result<ConvertedWitness, Box<dyn Error>>
where
    T: PeerSszCodec + serde::de::DeserializeOwned,
{
    let begin = thread_cpu_ns();
    let mut json = Vec::with_capacity(file.metadata()?.len() as usize + 1);
    file.read_to_end(&mut json)?;
    let reading_ns = thread_cpu_ns() - begin;
    let value: T = serde.parse_peer_json(&json)?;
    drop(json);
    let ssz = value.encode_ssz();
    Ok(ConvertedWitness { ssz, reading_ns })
}

/// Returns VmHWM of this process in KiB.
fn peak_memory_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    Ok(kib.ok_or("no VmHWM in /proc/self/status")?.parse()?)
}

/// Returns FNV-1a over words, to compare outputs.
fn fnv_hash(bytes: &[u8]) -> u64 {
    bytes
        .chunks(8)
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
        })
}
