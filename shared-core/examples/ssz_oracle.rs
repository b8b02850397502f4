//! Executes the requests of tests/ssz to the walkers, until its input ends.
//!
//! A request is a line of JSON, followed by the bytes to convert; so is a response:
//!
//! ```text
//! {"op": "check", "fork": "deneb", "preset": "minimal", "type": "Fork", "length": 16}
//! {"ok": true, "length": 0}
//! ```
//!
//! A `table` may replace `fork` and `preset`. `op` is `check`, `root`, `to_json` or `to_ssz`,
//! with `piece` bytes at a time, or `describe`: each name of the schema with its type.
//! `{"error": "...", "at": 4}` is a response, too.

use sszip_core::hash_keys::HashMap;
use std::error::Error;
use std::io::{self, BufRead, Read, Write};

use serde::Deserialize;
use serde_json::{json, Value};
use sszip_core::ssz::schema::TypeKind;
use sszip_core::ssz::to_json::MIN_JSON_BUFFER;
use sszip_core::ssz::{self, Fork, JsonEnvelopeForm, JsonToSsz, Preset, Schema, SszToJson, TypeId};

#[derive(Deserialize)]
struct OracleRequest {
    op: String,
    fork: Option<String>,
    preset: Option<String>,
    table: Option<String>,
    #[serde(rename = "type", default)]
    ty: String,
    length: usize,
    #[serde(default)]
    piece: usize,
}

/// Bytes, or the error of the walker.
type OracleResponse = Result<Vec<u8>, ssz::SszError>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut tables = HashMap::default();
    let mut line = String::new();
    while input.read_line(&mut line)? != 0 {
        let request: OracleRequest = serde_json::from_str(&line)?;
        let mut bytes = vec![0; request.length];
        input.read_exact(&mut bytes)?;
        match answer(schema(&mut tables, &request)?, &request, &bytes)? {
            Ok(bytes) => {
                writeln!(output, "{}", json!({"ok": true, "length": bytes.len()}))?;
                output.write_all(&bytes)?;
            }
            Err(error) => {
                let (text, at) = (error.to_string(), error.byte_offset());
                writeln!(output, "{}", json!({"error": text, "at": at, "length": 0}))?;
            }
        }
        output.flush()?;
        line.clear();
    }
    Ok(())
}

fn schema<'t>(
    tables: &'t mut HashMap<String, Schema>,
    request: &OracleRequest,
) -> Result<&'t Schema, Box<dyn Error>> {
    let Some(text) = &request.table else {
        let fork: Fork = request.fork.as_deref().ok_or("no fork")?.parse()?;
        let preset: Preset = request.preset.as_deref().ok_or("no preset")?.parse()?;
        return Ok(Schema::for_fork(fork, preset));
    };
    if !tables.contains_key(text) {
        tables.insert(text.clone(), Schema::compile_type_table(text)?);
    }
    Ok(&tables[text])
}

fn answer(
    schema: &Schema,
    request: &OracleRequest,
    bytes: &[u8],
) -> Result<OracleResponse, Box<dyn Error>> {
    if request.op == "describe" {
        return Ok(Ok(describe(schema).to_string().into_bytes()));
    }
    let ty = schema
        .find_type(&request.ty)
        .ok_or_else(|| format!("no type {}", request.ty))?;
    Ok(match request.op.as_str() {
        "check" => ssz::check_ssz(schema, ty, bytes).map(|()| Vec::new()),
        "root" => ssz::hash_tree_root(schema, ty, bytes).map(Vec::from),
        "to_json" => to_json(schema, ty, bytes, request.piece),
        "to_ssz" => to_ssz(schema, ty, bytes, request.piece),
        op => return Err(format!("no op {op}").into()),
    })
}

fn to_json(schema: &Schema, ty: TypeId, ssz: &[u8], piece: usize) -> OracleResponse {
    let mut writer = SszToJson::new(schema, ty, ssz)?;
    let mut room = vec![0; piece.max(MIN_JSON_BUFFER)];
    let mut json = Vec::new();
    loop {
        match writer.write_next(&mut room)? {
            0 => return Ok(json),
            len => json.extend_from_slice(&room[..len]),
        }
    }
}

fn to_ssz(schema: &Schema, ty: TypeId, json: &[u8], piece: usize) -> OracleResponse {
    let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Bare);
    for piece in json.chunks(piece.max(1)) {
        reader.feed_json_piece(piece)?;
    }
    reader.finish()
}

fn describe(schema: &Schema) -> Value {
    let name = |id: TypeId| schema.type_by_id(id).name.to_string();
    let types = schema.named_types().map(|(called, id)| {
        let TypeKind::Container(container) = &schema.type_by_id(id).kind else {
            return (called.to_owned(), json!({"is": name(id)}));
        };
        let fields: Vec<Value> = container
            .fields
            .iter()
            .map(|field| json!([field.name, field.json_name, name(field.ty)]))
            .collect();
        let active = container.active_fields.as_deref();
        (
            called.to_owned(),
            json!({"fields": fields, "active": active}),
        )
    });
    Value::Object(types.collect())
}
