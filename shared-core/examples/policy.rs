//! Evaluates a batch of 100 calls by 20 rules, repeatedly, for an instruction count. `valgrind
//! --tool=callgrind target/release/policy TIMES`

use std::hint::black_box;

use sszip_core::jsonrpc::method_rules::{
    MethodAccessDecision, MethodAccessRuleAction, MethodAccessRules,
};
use sszip_core::jsonrpc::request::{parse_jsonrpc_request, JsonRpcRequestBody};

fn main() {
    let times = std::env::args().nth(1);
    let times: usize = times.and_then(|times| times.parse().ok()).unwrap_or(100);
    let mut rules = MethodAccessRules::default();
    for name in [
        "debug_*",
        "admin_*",
        "personal_*",
        "miner_*",
        "engine_*",
        "txpool_*",
        "trace_*",
        "les_*",
        "clique_*",
        "eth_sign",
        "eth_signTransaction",
        "eth_sendTransaction",
        "eth_accounts",
        "eth_coinbase",
        "eth_mining",
        "eth_hashrate",
        "eth_getWork",
        "eth_submitWork",
        "eth_submitHashrate",
        "eth_newFilter",
    ] {
        if rules
            .add_rule(name.as_bytes(), MethodAccessRuleAction::Deny)
            .is_err()
        {
            std::process::exit(1);
        }
    }
    let call = |id: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_getBlockByNumber","params":["0x{id:x}",false]}}"#
        )
    };
    let calls: Vec<_> = (0..100).map(call).collect();
    let body = format!("[{}]", calls.join(","));
    let mut denied = 0;
    for _ in 0..times {
        if let Ok(JsonRpcRequestBody::Batch(calls)) =
            parse_jsonrpc_request(black_box(body.as_bytes()), usize::MAX)
        {
            denied += calls
                .iter()
                .filter(|call| {
                    matches!(
                        rules.evaluate_method(call.method),
                        MethodAccessDecision::Denied
                    )
                })
                .count();
        }
    }
    std::process::exit(i32::from(denied > 0));
}
