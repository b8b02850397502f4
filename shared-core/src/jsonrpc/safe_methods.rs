//! Methods that a safe request may call (RFC 9110, 9.2.1): clients and caches repeat it at will.

use super::known_methods::{uncached_dependency, UncachedDependency};
use super::methods::{MethodClass, MethodRow};
use super::stateful_methods::is_stateful_method;

/// Whether a method with this `row` is known to change nothing, and to keep nothing at the node for
/// its caller. An operator's row shows it, unless its class is `Never`; unknown methods are not
/// safe.
pub fn is_safe_method(method: &[u8], row: &MethodRow) -> bool {
    if is_stateful_method(method) {
        return false;
    }
    if row.class != MethodClass::Never {
        return true;
    }
    let dependency = std::str::from_utf8(method)
        .ok()
        .and_then(uncached_dependency);
    match dependency {
        Some(
            UncachedDependency::Pool
            | UncachedDependency::Node
            | UncachedDependency::Blocks
            | UncachedDependency::Input
            | UncachedDependency::OtherChain,
        ) => true,
        Some(
            UncachedDependency::Effect
            | UncachedDependency::Caller
            | UncachedDependency::Unexamined,
        )
        | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_safe_method;
    use crate::jsonrpc::method_spec::MethodSpecs;
    use crate::jsonrpc::methods::{all_method_table_rows, find_method_row, MethodClass};

    #[test]
    fn methods_that_only_read_are_safe() {
        for method in [
            "eth_blockNumber",
            "eth_call",
            "eth_chainId",
            "eth_createAccessList",
            "eth_getLogs",
            "eth_syncing",
            "trace_filter",
            "txpool_status",
            "web3_clientVersion",
        ] {
            let method = method.as_bytes();
            let name = method.escape_ascii();
            assert!(is_safe_method(method, find_method_row(method)), "{name}");
        }
        for row in all_method_table_rows() {
            let is_cached = row.class != MethodClass::Never;
            assert!(
                !is_cached || is_safe_method(row.name.as_bytes(), row),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn methods_that_change_something_or_are_unknown_are_not_safe() {
        for method in [
            "acme_mint",
            "admin_addPeer",
            "debug_setHead",
            "engine_newPayloadV4",
            "eth_getFilterChanges",
            "eth_newFilter",
            "eth_sendRawTransaction",
            "eth_sendTransaction",
            "eth_sign",
            "eth_subscribe",
            "ETH_call",
            "",
            "\u{e9}",
        ] {
            let row = find_method_row(method.as_bytes());
            assert!(!is_safe_method(method.as_bytes(), row), "{method}");
        }
    }

    #[test]
    fn method_row_of_an_operator_is_safe_if_it_is_cached() {
        let mut rows = MethodSpecs::default();
        rows.add_method_row(b"acme_price", &[&b"class=tip"[..]])
            .unwrap();
        rows.add_method_row(b"acme_mint", &[&b"class=none"[..]])
            .unwrap();
        for (method, expected) in [(&b"acme_price"[..], true), (&b"acme_mint"[..], false)] {
            let row = rows.find_operator_method_row(method).unwrap();
            assert_eq!(is_safe_method(method, row), expected);
        }
    }
}
