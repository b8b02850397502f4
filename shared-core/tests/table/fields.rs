//! Functions for headers, bodies and comparisons that cases and sequences use.

use std::io::Write;

use sszip_core::exchange::HeadEdit;

use super::support::gunzip;
use super::unzstd::unzstd;
use zstd::zstd_safe::get_frame_content_size;

/// The headers of a message, in order.
pub type Fields = Vec<(String, String)>;

pub fn header_bytes(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    fields
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

pub fn apply_head_edits(fields: &Fields, edits: &[HeadEdit]) -> Fields {
    let mut fields = fields.clone();
    for HeadEdit { name, value } in edits {
        fields.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
        if let Some(value) = value {
            fields.push((name.to_string(), String::from_utf8(value.to_vec()).unwrap()));
        }
    }
    fields
}

pub fn joined_header_values(fields: &Fields, name: &str) -> Option<String> {
    let lines: Vec<_> = fields
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
        .collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

pub fn check_fields(
    side: &str,
    fields: &Fields,
    present: &Fields,
    absent: &[String],
) -> Result<(), String> {
    for (name, value) in present {
        check_equal(
            &format!("{side} {name}"),
            joined_header_values(fields, name).as_deref(),
            Some(value),
        )?;
    }
    for name in absent {
        check_equal(
            &format!("{side} {name}"),
            joined_header_values(fields, name),
            None,
        )?;
    }
    Ok(())
}

pub fn check_equal<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(
    name: &str,
    found: T,
    expected: U,
) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{name} is {found:?}, not {expected:?}"))
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Compresses a node's or a client's body in the coding that a row names.
pub fn encode_body(coding: &str, body: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" | "x-gzip" => gzip(body),
        "zstd" => zstd::bulk::compress(body, 3).unwrap(),
        other => panic!("no encoder for {other}"),
    }
}

/// Decompresses a body as a client does that received this `Content-Encoding`; a body in another
/// coding is returned unchanged. A zstd body with a length must declare its content size.
pub fn decode_body(coding: Option<&str>, body: &[u8], is_sized: bool) -> Result<Vec<u8>, String> {
    match coding {
        Some("gzip" | "x-gzip") => gunzip(body).map_err(|error| format!("not gzip: {error}")),
        Some("zstd") => {
            let decoded = unzstd(body).map_err(|error| format!("not zstd: {error}"))?;
            if is_sized {
                let size = get_frame_content_size(body).ok().flatten();
                check_equal("content size", size, Some(decoded.len() as u64))?;
            }
            Ok(decoded)
        }
        _ => Ok(body.to_vec()),
    }
}
