//! Replies of the server to commands of the purge stream. All lengths are limited, and a record that
//! cannot be read stays a record, as the stream would never be read past it otherwise.

use redis::Value;
use sszip_core::cache::fleet::stream_record::{RawStreamRecord, StreamId, MAX_FIELDS};
use sszip_core::cache::fleet::stream_sync::StreamReply;

use super::client::FleetError;

/// Maximum number of owners of a fleet.
const MAX_OWNERS: usize = 4_096;

/// Maximum length of a value in the table of owners, in bytes.
const MAX_OWNER_BYTES: usize = 64;

/// The position that an owner has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerConfirmation {
    /// Name of the owner in the table.
    pub(super) owner: Vec<u8>,
    /// Position of the owner.
    pub(super) position: u64,
    /// Number that changes with each confirmation.
    pub(super) counter: u64,
}

/// Returns the reply to `XRANGE` with at most `count` records.
pub(super) fn range_reply(reply: Result<Value, FleetError>, count: usize) -> StreamReply {
    let records = reply.ok().and_then(|value| parse_records(value, count));
    records.map_or(StreamReply::Failed, StreamReply::Records)
}

/// Returns the reply to `XREAD` of one stream with at most `count` records.
pub(super) fn read_reply(reply: Result<Value, FleetError>, count: usize) -> StreamReply {
    let streams = match reply {
        // no records
        Ok(Value::Nil) => return StreamReply::Records(Vec::new()),
        Ok(Value::Array(streams)) => match <[Value; 1]>::try_from(streams) {
            Ok([Value::Array(stream)]) => <[Value; 2]>::try_from(stream).ok(),
            _ => None,
        },
        Ok(Value::Map(streams)) => match <[(Value, Value); 1]>::try_from(streams) {
            Ok([(name, records)]) => Some([name, records]),
            _ => None,
        },
        _ => None,
    };
    let records = streams.and_then(|[_, records]| parse_records(records, count));
    records.map_or(StreamReply::Failed, StreamReply::Records)
}

/// Returns the reply to `XADD`.
pub(super) fn append_reply(reply: Result<Value, FleetError>) -> StreamReply {
    match reply {
        Ok(Value::Nil) => StreamReply::NoStream,
        Ok(Value::BulkString(_) | Value::SimpleString(_)) => StreamReply::Done,
        Err(FleetError::Rejected(text)) if text.contains("equal or smaller") => {
            StreamReply::IdTooLow
        }
        _ => StreamReply::Failed,
    }
}

/// Returns the reply to `HSET`.
pub(super) fn confirm_reply(reply: Result<Value, FleetError>) -> StreamReply {
    match reply {
        Ok(Value::Int(_)) => StreamReply::Done,
        _ => StreamReply::Failed,
    }
}

/// Returns the confirmations in the reply to `HGETALL`; `None` if it is no table.
pub(super) fn parse_confirmations(value: Value) -> Option<Vec<OwnerConfirmation>> {
    let pairs = parse_pairs(value, MAX_OWNERS)?;
    let mut confirmations = Vec::new();
    confirmations.try_reserve_exact(pairs.len()).ok()?;
    confirmations.extend(pairs.into_iter().filter_map(parse_confirmation));
    Some(confirmations)
}

fn parse_confirmation((owner, value): (Vec<u8>, Vec<u8>)) -> Option<OwnerConfirmation> {
    if owner.len().max(value.len()) > MAX_OWNER_BYTES {
        return None;
    }
    let (position, counter) = std::str::from_utf8(&value).ok()?.split_once(':')?;
    Some(OwnerConfirmation {
        owner,
        position: position.parse().ok()?,
        counter: counter.parse().ok()?,
    })
}

fn parse_records(value: Value, count: usize) -> Option<Vec<RawStreamRecord>> {
    let Value::Array(records) = value else {
        return None;
    };
    if records.len() > count {
        return None;
    }
    records.into_iter().map(parse_record).collect()
}

fn parse_record(value: Value) -> Option<RawStreamRecord> {
    let Value::Array(parts) = value else {
        return None;
    };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    Some(RawStreamRecord {
        id: StreamId::parse(&parse_bytes(id)?)?,
        // too many make the record unreadable, as none do
        fields: parse_pairs(fields, MAX_FIELDS).unwrap_or_default(),
    })
}

/// Returns names and values of a map, which is an array in RESP2. Returns `None` if the value is
/// none, if it is too long, or if memory is refused.
fn parse_pairs(value: Value, max: usize) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut pairs = Vec::new();
    match value {
        Value::Array(parts) if parts.len().is_multiple_of(2) && parts.len() / 2 <= max => {
            pairs.try_reserve_exact(parts.len() / 2).ok()?;
            let mut parts = parts.into_iter().map(parse_bytes);
            while let Some(name) = parts.next() {
                pairs.push((name?, parts.next()??));
            }
        }
        Value::Map(parts) if parts.len() <= max => {
            pairs.try_reserve_exact(parts.len()).ok()?;
            for (name, value) in parts {
                pairs.push((parse_bytes(name)?, parse_bytes(value)?));
            }
        }
        _ => return None,
    }
    Some(pairs)
}

fn parse_bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn record(id: &str, fields: &[&str]) -> Value {
        let fields = fields.iter().map(|text| bulk(text)).collect();
        Value::Array(vec![bulk(id), Value::Array(fields)])
    }

    fn stream(records: Vec<Value>) -> Value {
        Value::Array(vec![Value::Array(vec![
            bulk("p:purges"),
            Value::Array(records),
        ])])
    }

    #[test]
    fn records_of_both_protocols_are_read() {
        let expected = StreamReply::Records(vec![RawStreamRecord {
            id: StreamId::from_position(5),
            fields: vec![(b"k".to_vec(), b"p".to_vec())],
        }]);
        let one = || vec![record("5-0", &["k", "p"])];
        assert_eq!(range_reply(Ok(Value::Array(one())), 1), expected);
        assert_eq!(read_reply(Ok(stream(one())), 1), expected);
        let map = Value::Map(vec![(bulk("p:purges"), Value::Array(one()))]);
        assert_eq!(read_reply(Ok(map), 1), expected);
        let empty = StreamReply::Records(Vec::new());
        assert_eq!(read_reply(Ok(Value::Nil), 1), empty);
        assert_eq!(range_reply(Ok(Value::Array(Vec::new())), 1), empty);
    }

    #[test]
    fn reply_of_another_form_has_failed() {
        let two = || vec![record("5-0", &["k", "p"]), record("6-0", &["k", "p"])];
        assert_eq!(range_reply(Ok(Value::Array(two())), 1), StreamReply::Failed);
        assert_eq!(read_reply(Ok(stream(two())), 1), StreamReply::Failed);
        assert_eq!(range_reply(Ok(Value::Okay), 1), StreamReply::Failed);
        let bad = Value::Array(vec![record("x", &["k", "p"])]);
        assert_eq!(range_reply(Ok(bad), 1), StreamReply::Failed);
        assert_eq!(
            range_reply(Err(FleetError::Timeout), 1),
            StreamReply::Failed
        );
    }

    #[test]
    fn record_with_too_many_fields_is_a_record_without_fields() {
        let many = ["k"; 2 * MAX_FIELDS + 2];
        for fields in [&many[..], &["k"][..]] {
            let reply = range_reply(Ok(Value::Array(vec![record("5-0", fields)])), 1);
            let expected = RawStreamRecord {
                id: StreamId::from_position(5),
                fields: Vec::new(),
            };
            assert_eq!(reply, StreamReply::Records(vec![expected]));
        }
    }

    #[test]
    fn refused_id_and_missing_stream_are_distinguished() {
        let text =
            "ERR The ID specified in XADD is equal or smaller than the target stream top item";
        let refused = Err(FleetError::Rejected(text.into()));
        assert_eq!(append_reply(refused), StreamReply::IdTooLow);
        assert_eq!(append_reply(Ok(bulk("5-0"))), StreamReply::Done);
        assert_eq!(append_reply(Ok(Value::Nil)), StreamReply::NoStream);
        let other = Err(FleetError::Rejected("NOPERM".into()));
        assert_eq!(append_reply(other), StreamReply::Failed);
    }

    #[test]
    fn confirmations_of_other_forms_are_ignored() {
        let fields = [
            "a",
            "12:3",
            "b",
            "x",
            "c",
            ":",
            "d",
            "5:18446744073709551616",
        ];
        let table = Value::Array(fields.iter().map(|text| bulk(text)).collect());
        let confirmed = OwnerConfirmation {
            owner: b"a".to_vec(),
            position: 12,
            counter: 3,
        };
        assert_eq!(parse_confirmations(table), Some(vec![confirmed]));
        assert_eq!(parse_confirmations(Value::Okay), None);
    }
}
