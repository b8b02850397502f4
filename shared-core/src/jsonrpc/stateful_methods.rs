//! Methods whose responses can't be shared between callers under any configuration.

/// Families of methods that change a node, or belong to one caller.
pub(super) const STATEFUL_NAMESPACES: [&str; 21] = [
    "admin",
    "anvil",
    "clique",
    "conductor",
    "engine",
    "evm",
    "faucet",
    "flashbots",
    "ganache",
    "hardhat",
    "ibft",
    "istanbul",
    "mev",
    "miner",
    "opp2p",
    "personal",
    "qbft",
    "tenderly",
    "testing",
    "vault",
    "wallet",
];

/// First words of names of methods that change something, open something at the node, or request
/// changes since the last call.
const STATEFUL_VERBS: [&str; 74] = [
    "accept",
    "add",
    "ban",
    "cancel",
    "change",
    "clear",
    "commit",
    "compact",
    "connect",
    "create",
    "delete",
    "disable",
    "discard",
    "disconnect",
    "distribute",
    "drop",
    "enable",
    "evict",
    "force",
    "free",
    "freeze",
    "import",
    "increase",
    "insert",
    "install",
    "kill",
    "lock",
    "migrate",
    "mine",
    "modify",
    "new",
    "notify",
    "pause",
    "post",
    "propose",
    "prune",
    "publish",
    "purge",
    "put",
    "register",
    "reject",
    "release",
    "reload",
    "remove",
    "reorg",
    "replace",
    "request",
    "resend",
    "reset",
    "resume",
    "resync",
    "revert",
    "rewind",
    "rollback",
    "save",
    "send",
    "set",
    "sign",
    "snapshot",
    "start",
    "stop",
    "submit",
    "subscribe",
    "suspend",
    "unban",
    "uninstall",
    "unlock",
    "unregister",
    "unsubscribe",
    "update",
    "upload",
    "vote",
    "withdraw",
    "write",
];

/// Stateful methods whose names show it neither by family nor by verb.
const STATEFUL_METHODS: [&str; 20] = [
    // the vote locks the node's chain to the block
    "bor_getVoteOnHash",
    "debug_backtraceAt",
    "debug_batchSendRawTransaction",
    "debug_blockProfile",
    "debug_chaindbCompact",
    "debug_cpuProfile",
    // geth writes the blocks to the file that the call names
    "debug_getBadBlocks",
    "debug_goTrace",
    "debug_mutexProfile",
    // Besu imports the block again
    "debug_replayBlock",
    "debug_standardTraceBadBlockToFile",
    "debug_standardTraceBlockToFile",
    "debug_sync",
    "debug_verbosity",
    "debug_vmodule",
    "eth_getFilterChanges",
    "eth_getFilterLogs",
    "eth_getWork",
    "reth_forkchoiceUpdated",
    "reth_jit",
];

/// Whether a method changes something, or belongs to one caller, so that its responses can't be
/// shared under any configuration.
pub fn is_stateful_method(method: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(method) else {
        return false;
    };
    // the method creates only its result
    if name == "eth_createAccessList" {
        return false;
    }
    let mut parts = name.split('_');
    let family = parts.next().unwrap_or_default();
    STATEFUL_NAMESPACES.contains(&family)
        || STATEFUL_METHODS.contains(&name)
        || parts.any(|part| {
            let end = part.find(|letter: char| !letter.is_ascii_lowercase());
            STATEFUL_VERBS.contains(&&part[..end.unwrap_or(part.len())])
        })
}

#[cfg(test)]
mod tests {
    use super::super::methods;
    use super::is_stateful_method;

    #[test]
    fn methods_with_side_effects_or_caller_state_are_stateful() {
        for method in [
            "admin_addPeer",
            "anvil_mine",
            "anvil_setBalance",
            "bundler_clearState",
            "clique_propose",
            "debug_batchSendRawTransaction",
            "debug_bundler_sendBundleNow",
            "debug_freeOSMemory",
            "debug_resetHead",
            "debug_resyncWorldState",
            "debug_setHead",
            "debug_startCPUProfile",
            "debug_verbosity",
            "eea_sendRawTransaction",
            "engine_newPayloadV4",
            "eth_getFilterChanges",
            "eth_getFilterLogs",
            "eth_getWork",
            "eth_newFilter",
            "eth_newPendingTransactionFilter",
            "eth_resend",
            "eth_sendBundle",
            "eth_sendPrivateTransaction",
            "eth_sendRawTransaction",
            "eth_sendRawTransactionSync",
            "eth_sendUserOperation",
            "eth_sign",
            "eth_signTypedData_v4",
            "eth_submitHashrate",
            "eth_submitWork",
            "eth_subscribe",
            "eth_uninstallFilter",
            "eth_unsubscribe",
            "evm_increaseTime",
            "evm_revert",
            "flashbots_getUserStatsV2",
            "hardhat_impersonateAccount",
            "mev_sendBundle",
            "miner_start",
            "net_addPeer",
            "parity_addReservedPeer",
            "parity_postTransaction",
            "parity_setAuthor",
            "perm_addNodesToAllowlist",
            "personal_unlockAccount",
            "reth_jit",
            "rundler_dropLocalUserOperation",
            "shh_post",
            "tenderly_setBalance",
            "testing_commitBlockV1",
            "txpool_clear",
            "wallet_sendCalls",
            "zks_sendRawTransactionWithDetailedOutput",
        ] {
            assert!(is_stateful_method(method.as_bytes()), "{method}");
        }
    }

    #[test]
    fn methods_that_only_read_are_not_stateful() {
        for method in [
            "arbtrace_block",
            "bor_getSnapshot",
            "debug_dumpBlock",
            "eth_createAccessList",
            "eth_estimateUserOperationGas",
            "eth_syncing",
            "net_peerCount",
            "ots_getBlockDetails",
            "parity_pendingTransactions",
            "rpc_modules",
            "txpool_status",
            "web3_clientVersion",
            "zks_getBlockDetails",
            // words that only begin like a verb
            "eth_setting",
            "eth_newest",
        ] {
            assert!(!is_stateful_method(method.as_bytes()), "{method}");
        }
    }

    #[test]
    fn storable_methods_are_not_stateful() {
        for row in methods::all_method_table_rows() {
            let is_storable = row.class != methods::MethodClass::Never;
            assert!(
                !is_storable || !is_stateful_method(row.name.as_bytes()),
                "{}",
                row.name
            );
        }
    }
}
