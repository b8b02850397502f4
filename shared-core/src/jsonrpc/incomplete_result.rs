//! Results that are still incomplete, though their block is finalized.

use memchr::memmem;

use super::response::{classify_result_content, ResultEmptiness};
use super::scan::{JsonValueKind, StrictJsonReader};

/// Whether an element of a list has an `error` of its own: nodes trace the transactions of a
/// block one by one, and one that took too long does not fail the others. The `error` of an
/// element that is itself a trace, not a wrapper around one, belongs to a traced call, and so
/// does an `error` further inside.
pub fn has_failed_trace(list: &[u8]) -> bool {
    // most traces have no error
    memmem::find(list, b"\"error\"").is_some() && find_failed_trace(list).unwrap_or(false)
}

/// Searches the list for a failed trace; `None` if it could not be read.
fn find_failed_trace(list: &[u8]) -> Option<bool> {
    let mut scanner = StrictJsonReader::for_trusted_utf8(list);
    let mut another =
        scanner.next_value_kind().ok()? == JsonValueKind::Array && scanner.enter_array().ok()?;
    while another {
        if scanner.next_value_kind().ok()? == JsonValueKind::Object {
            if is_failed_trace(&mut scanner, list)? {
                return Some(true);
            }
        } else {
            scanner.skip_value().ok()?;
        }
        another = scanner.next_element().ok()?;
    }
    Some(false)
}

/// Reads the next element of the list, and returns whether it has an `error` and is no trace.
fn is_failed_trace(scanner: &mut StrictJsonReader<'_>, list: &[u8]) -> Option<bool> {
    let (mut has_error, mut has_type, mut has_call, mut has_steps) = (false, false, false, false);
    let mut next = scanner.read_first_member_name().ok()?;
    while let Some(name) = next {
        let value = scanner.skip_value().ok()?;
        match &list[name.content] {
            b"error" => {
                has_error = classify_result_content(&list[value.span]) != ResultEmptiness::Null;
            }
            b"type" => has_type = value.kind == JsonValueKind::String,
            // members of geth's frames, and of Parity's
            b"from" | b"action" => has_call = true,
            b"structLogs" => has_steps = true,
            _ => {}
        }
        next = scanner.next_member().ok()?;
    }
    let is_trace = has_type && has_call || has_steps;
    Some(has_error && !is_trace)
}

/// Whether a block, or a part of one, has members that its node will fill in when the block is
/// known to another chain, as on ZKsync: the block is finalized here long before.
pub fn is_incomplete_block(result: &[u8]) -> bool {
    const NAME: &[u8] = b"\"l1BatchNumber\"";
    memmem::find_iter(result, NAME).any(|at| {
        let value = result[at + NAME.len()..].trim_ascii_start();
        value
            .strip_prefix(b":")
            .is_some_and(|value| value.trim_ascii_start().starts_with(b"null"))
    })
}

#[cfg(test)]
mod tests {
    use super::{has_failed_trace, is_incomplete_block};

    /// Results by client and method: whether an element failed for a reason within the node, and
    /// the result.
    const TRACES: [(&str, bool, &str); 17] = [
        (
            "geth, debug_traceBlock*, callTracer, a call reverted",
            false,
            r#"[{"txHash":"0x1","result":{"type":"CALL","from":"0x1","error":"execution reverted","calls":[{"error":"x"}]}}]"#,
        ),
        (
            "geth, debug_traceBlock*, the tracer ran out of time",
            true,
            r#"[{"txHash":"0x1","result":{"type":"CALL"}},{"txHash":"0x2","error":"execution timeout"}]"#,
        ),
        (
            "geth, debug_traceBlock*, flatCallTracer, a call reverted",
            false,
            r#"[{"txHash":"0x1","result":[{"type":"call","action":{},"error":"execution reverted"}]}]"#,
        ),
        (
            "geth, debug_traceTransaction, callTracer, a call reverted",
            false,
            r#"{"type":"CALL","from":"0x1","gas":"0x1","error":"execution reverted","revertReason":"x"}"#,
        ),
        (
            "geth, debug_traceTransaction, flatCallTracer, a call reverted",
            false,
            r#"[{"action":{"from":"0x1"},"error":"execution reverted","type":"call"}]"#,
        ),
        (
            "geth, debug_traceTransaction, structLogs, an opcode failed",
            false,
            r#"{"gas":1,"failed":true,"returnValue":"","structLogs":[{"op":"REVERT","error":"x"}]}"#,
        ),
        (
            "Erigon, debug_traceBlock*, the tracer ran out of time",
            true,
            r#"[{"txHash":"0x1","result":{"type":"CALL","from":"0x1"},"error":{"code":-32000,"message":"x"}}]"#,
        ),
        (
            "Erigon, debug_traceBlock*, nothing was written",
            true,
            r#"[ {"txHash":"0x1" , "result":null, "error" : {"code":-32000}} ,{"result":1}]"#,
        ),
        (
            "Erigon and Nethermind, trace_replayBlockTransactions, a call reverted",
            false,
            r#"[{"output":"0x","stateDiff":null,"trace":[{"action":{},"error":"Reverted","type":"call"}],"transactionHash":"0x1","vmTrace":null}]"#,
        ),
        (
            "Erigon, trace_block and trace_transaction, a call reverted",
            false,
            r#"[{"action":{"from":"0x1"},"blockHash":"0x1","error":"Reverted","subtraces":0,"type":"call"}]"#,
        ),
        (
            "Nethermind, debug_traceBlock* without a wrapper, callTracer, a call reverted",
            false,
            r#"[{"type":"CALL","from":"0x1","to":"0x2","error":"execution reverted"},{"from":"0x1","error":"out of gas","type":"CREATE"}]"#,
        ),
        (
            "Nethermind and Besu, debug_traceBlock* without a wrapper, structLogs",
            false,
            r#"[{"gas":1,"failed":true,"returnValue":"","structLogs":[{"error":"x"}],"error":"x"}]"#,
        ),
        (
            "Nethermind, debug_traceBlock*, a call reverted",
            false,
            r#"[{"txHash":"0x1","result":{"type":"CALL","from":"0x1","error":"execution reverted"}}]"#,
        ),
        (
            "reth, debug_traceBlock*, the tracer failed",
            true,
            r#"[{"result":{"type":"CALL"},"txHash":"0x1"},{"error":"x","txHash":"0x2"}]"#,
        ),
        (
            "reth, debug_traceBlock*, nothing failed",
            false,
            r#"[{"result":{"type":"CALL"},"error":null,"txHash":"0x1"}]"#,
        ),
        (
            "reth, trace_replayTransaction, a call reverted",
            false,
            r#"{"output":"0x","stateDiff":null,"trace":[{"action":{},"error":"Reverted","type":"call"}],"vmTrace":null}"#,
        ),
        (
            "a method of an operator's",
            true,
            r#"[{"value":1},{"type":"x","error":"timeout"}]"#,
        ),
    ];

    #[test]
    fn failed_element_is_distinguished_from_a_reverted_call() {
        for (case, expected, list) in TRACES {
            assert_eq!(has_failed_trace(list.as_bytes()), expected, "{case}");
        }
        for list in [
            "[]",
            r#"[["error"],"error",{"a":"\"error\":1"}]"#,
            r#"{"error":1}"#,
        ] {
            assert!(!has_failed_trace(list.as_bytes()), "{list}");
        }
    }

    #[test]
    fn null_l1_batch_number_marks_an_incomplete_result() {
        for (result, expected) in [
            (r#"{"number":"0x1","l1BatchNumber":null}"#, true),
            (r#"{"l1BatchNumber" : null}"#, true),
            (
                r#"{"l1BatchNumber":"0x1","transactions":[{"l1BatchNumber":null}]}"#,
                true,
            ),
            (r#"{"l1BatchNumber":"0x1"}"#, false),
            (r#"{"a":"\"l1BatchNumber\":null"}"#, false),
            ("\"l1BatchNumber\"", false),
            ("{}", false),
        ] {
            assert_eq!(is_incomplete_block(result.as_bytes()), expected, "{result}");
        }
    }
}
