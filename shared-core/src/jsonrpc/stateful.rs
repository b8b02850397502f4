//! Methods whose answers no configuration can make fit for another caller.

/// Families of methods that are there to change a node, or belong to one caller.
pub(super) const FAMILIES: [&str; 20] = [
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
    "vault",
    "wallet",
];

/// The first words of names that change something, open something at the node, or
/// ask what has come since.
const VERBS: [&str; 71] = [
    "accept",
    "add",
    "ban",
    "cancel",
    "change",
    "clear",
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
    "revert",
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

/// What neither shows.
const OTHERS: [&str; 13] = [
    "debug_backtraceAt",
    "debug_blockProfile",
    "debug_chaindbCompact",
    "debug_cpuProfile",
    "debug_goTrace",
    "debug_mutexProfile",
    "debug_standardTraceBadBlockToFile",
    "debug_standardTraceBlockToFile",
    "debug_verbosity",
    "debug_vmodule",
    "eth_getFilterChanges",
    "eth_getFilterLogs",
    "eth_getWork",
];

/// Whether a method changes something, or belongs to one caller: no
/// configuration can make its answers fit for another.
pub fn is_stateful(method: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(method) else {
        return false;
    };
    // it creates nothing but its answer
    if name == "eth_createAccessList" {
        return false;
    }
    let mut parts = name.split('_');
    let family = parts.next().unwrap_or_default();
    FAMILIES.contains(&family)
        || OTHERS.contains(&name)
        || parts.any(|part| {
            let end = part.find(|letter: char| !letter.is_ascii_lowercase());
            VERBS.contains(&&part[..end.unwrap_or(part.len())])
        })
}

#[cfg(test)]
mod tests {
    use super::super::methods;
    use super::is_stateful;

    #[test]
    fn what_changes_something_or_is_one_callers() {
        for method in [
            "admin_addPeer",
            "anvil_mine",
            "anvil_setBalance",
            "bundler_clearState",
            "clique_propose",
            "debug_bundler_sendBundleNow",
            "debug_freeOSMemory",
            "debug_resetHead",
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
            "rundler_dropLocalUserOperation",
            "shh_post",
            "tenderly_setBalance",
            "txpool_clear",
            "wallet_sendCalls",
            "zks_sendRawTransactionWithDetailedOutput",
        ] {
            assert!(is_stateful(method.as_bytes()), "{method}");
        }
    }

    #[test]
    fn what_only_reads() {
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
            // words that only begin like one
            "eth_setting",
            "eth_newest",
        ] {
            assert!(!is_stateful(method.as_bytes()), "{method}");
        }
    }

    #[test]
    fn what_is_stored_by_itself_is_not_among_them() {
        for row in methods::all() {
            let is_kept = row.class != methods::Class::Never;
            assert!(
                !is_kept || !is_stateful(row.name.as_bytes()),
                "{}",
                row.name
            );
        }
    }
}
