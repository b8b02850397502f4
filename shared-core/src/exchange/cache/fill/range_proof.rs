//! Proof that a node has the blocks at the ends of the range for which it has sent logs.
//!
//! Nodes send the logs of the blocks that they have, and do not report that others are missing: they
//! lag, or have pruned their history. So the request for a piece of a range is a batch: the chain of
//! the node, and the number of transactions in the blocks at both ends, precede the logs. A node
//! that does not have such a block responds with `null` or an error.

use crate::bytes::try_concat_bytes;
use crate::jsonrpc::response::{CallOutcomeSpan, JsonRpcResponse};

/// Id of the call for the first block.
const FIRST_BLOCK_ID: &[u8] = b"1";

/// Id of the call for the last block.
const LAST_BLOCK_ID: &[u8] = b"2";

/// Id of the call for the chain.
const CHAIN_ID: &[u8] = b"4";

/// Id of the call for the logs.
pub(in crate::exchange) const LOGS_ID: &[u8] = b"3";

/// The calls of a batch whose results prove that the node has the ends of the range of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) struct RangeProof {
    /// First block of the range.
    pub(in crate::exchange) first: u64,
    /// Last block of the range; `None`: the range ends at the head or beyond it.
    pub(in crate::exchange) last: Option<u64>,
    /// Whether all blocks of the range are final.
    pub(in crate::exchange) is_final: bool,
}

impl RangeProof {
    /// Returns the batch of the calls that prove the range, and of the call for its logs with these
    /// params. `None` if memory is refused.
    pub(in crate::exchange) fn request_body(self, params: &[u8]) -> Option<Vec<u8>> {
        let call = |id: &[u8], block: u64| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"eth_getBlockTransactionCountByNumber","params":["0x{block:x}"]}},"#,
                String::from_utf8_lossy(id)
            )
        };
        let first = call(FIRST_BLOCK_ID, self.first);
        let last = self.last.map(|last| call(LAST_BLOCK_ID, last));
        let last = last.unwrap_or_default();
        try_concat_bytes([
            br#"[{"jsonrpc":"2.0","id":"#,
            CHAIN_ID,
            br#","method":"eth_chainId","params":[]},"#,
            first.as_bytes(),
            last.as_bytes(),
            br#"{"jsonrpc":"2.0","id":"#,
            LOGS_ID,
            br#","method":"eth_getLogs","params":"#,
            params,
            b"}]",
        ])
    }

    /// Returns the node's `eth_chainId`, if the responses of the batch in `body` show that the node
    /// has both ends of the range.
    pub(super) fn proven_chain_id<'a>(
        self,
        body: &'a [u8],
        answers: &[JsonRpcResponse],
    ) -> Option<&'a [u8]> {
        let quantity = |id: &[u8]| {
            let mut of_id = answers
                .iter()
                .filter(|answer| &body[answer.id.clone()] == id);
            match (of_id.next(), of_id.next()) {
                (Some(answer), None) => match &answer.outcome {
                    CallOutcomeSpan::Result(result) => {
                        Some(&body[result.clone()]).filter(|result| is_quantity(result))
                    }
                    CallOutcomeSpan::Error(_) => None,
                },
                _ => None,
            }
        };
        quantity(FIRST_BLOCK_ID)?;
        if self.last.is_some() {
            quantity(LAST_BLOCK_ID)?;
        }
        quantity(CHAIN_ID)
    }
}

/// Whether a JSON value is a number as the execution API writes it.
fn is_quantity(value: &[u8]) -> bool {
    let digits = value
        .strip_prefix(b"\"0x")
        .and_then(|value| value.strip_suffix(b"\""));
    digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::RangeProof;
    use crate::jsonrpc::request::{parse_jsonrpc_request, JsonRpcRequestBody};
    use crate::jsonrpc::response::parse_batch_responses;

    const BOTH_ENDS: RangeProof = RangeProof {
        first: 16,
        last: Some(31),
        is_final: true,
    };

    const OPEN_END: RangeProof = RangeProof {
        last: None,
        is_final: false,
        ..BOTH_ENDS
    };

    #[test]
    fn request_queries_the_chain_and_both_ends_before_the_logs() {
        let methods = |proof: RangeProof| {
            let body = proof.request_body(br#"[{"fromBlock":"0x10"}]"#).unwrap();
            let Ok(JsonRpcRequestBody::Batch(calls)) = parse_jsonrpc_request(&body, 4) else {
                panic!("{}", body.escape_ascii());
            };
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let calls = calls.iter().map(|call| {
                let id = text(call.id.unwrap());
                (id, text(call.method), text(call.params.unwrap()))
            });
            calls.collect::<Vec<_>>()
        };
        let count = "eth_getBlockTransactionCountByNumber";
        let call = |id: &str, method: &str, params: &str| {
            (id.to_owned(), method.to_owned(), params.to_owned())
        };
        let chain = call("4", "eth_chainId", "[]");
        let first = call("1", count, r#"["0x10"]"#);
        let last = call("2", count, r#"["0x1f"]"#);
        let logs = call("3", "eth_getLogs", r#"[{"fromBlock":"0x10"}]"#);
        let both_ends = [chain.clone(), first.clone(), last, logs.clone()];
        assert_eq!(methods(BOTH_ENDS), both_ends);
        assert_eq!(methods(OPEN_END), [chain, first, logs]);
    }

    #[test]
    fn range_is_proven_by_a_chain_id_and_the_transactions_of_both_ends() {
        const CHAIN: &str = r#"{"jsonrpc":"2.0","id":4,"result":"0x1"}"#;
        const FIRST: &str = r#"{"jsonrpc":"2.0","id":1,"result":"0x0"}"#;
        const LAST: &str = r#"{"jsonrpc":"2.0","id":2,"result":"0xfF"}"#;
        let proves = |proof: RangeProof, answers: &[&str]| {
            let body = format!("[{}]", answers.join(","));
            let answers = parse_batch_responses(body.as_bytes()).unwrap();
            let chain_id = proof.proven_chain_id(body.as_bytes(), &answers);
            assert!(chain_id.is_none_or(|id| id == b"\"0x1\""));
            chain_id.is_some()
        };
        assert!(proves(BOTH_ENDS, &[CHAIN, FIRST, LAST]));
        assert!(proves(BOTH_ENDS, &[LAST, FIRST, CHAIN]));
        assert!(proves(OPEN_END, &[FIRST, CHAIN]));
        for answers in [
            &[][..],
            &[CHAIN, FIRST],
            &[CHAIN, LAST],
            &[FIRST, LAST],
            &[CHAIN, FIRST, LAST, FIRST],
            &[CHAIN, FIRST, LAST, CHAIN],
        ] {
            assert!(!proves(BOTH_ENDS, answers), "{answers:?}");
        }
        for answers in [&[][..], &[CHAIN, LAST], &[FIRST]] {
            assert!(!proves(OPEN_END, answers), "{answers:?}");
        }
        for result in ["null", "5", "\"0x\"", "\"5\"", "\"0xg\"", "[]", "false"] {
            let with_result = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            let (last, chain) = (with_result(2), with_result(4));
            assert!(!proves(BOTH_ENDS, &[CHAIN, FIRST, &last]), "{result}");
            assert!(!proves(BOTH_ENDS, &[&chain, FIRST, LAST]), "{result}");
        }
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":4444,"message":"pruned"}}"#;
        assert!(!proves(BOTH_ENDS, &[CHAIN, error, LAST]));
    }
}
