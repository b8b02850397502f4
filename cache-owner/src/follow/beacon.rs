//! Queries to a node over the Beacon API. Blocks are identified by their slots, and some slots are
//! empty.

use serde::Deserialize;
use serde_json::Value;
use sszip_core::cache::owner::tracker::{BlockHash, NodeBlock, NodeQuery, NodeResult};

use super::execution::deserialize_hash;
use super::http::{malformed_response_error, HttpNodeClient};

/// Path of the event stream of new heads, reorganisations and finalized checkpoints.
pub const EVENTS_PATH: &str = "/eth/v1/events?topics=head,chain_reorg,finalized_checkpoint";

const GENESIS: &str = "/eth/v1/beacon/genesis";
const SPEC: &str = "/eth/v1/config/spec";
const SYNCING: &str = "/eth/v1/node/syncing";
const CHECKPOINTS: &str = "/eth/v1/beacon/states/head/finality_checkpoints";

/// Sends a query of the tracker to the node over the Beacon API.
///
/// # Errors
/// The reason why there is no result: the node fails, or the server is no node.
pub async fn query_beacon_node(
    http: &HttpNodeClient,
    query: NodeQuery,
) -> Result<NodeResult, String> {
    Ok(match query {
        NodeQuery::Latest => NodeResult::Block(fetch_beacon_header(http, "head").await?),
        NodeQuery::ByHash(hash) => NodeResult::Block(fetch_block_by_root(http, &hash).await?),
        NodeQuery::ByNumber(slot) | NodeQuery::Recheck(slot) => {
            let block = fetch_beacon_header(http, &slot.to_string()).await?;
            NodeResult::Block(block.filter(|block| block.number == slot))
        }
        NodeQuery::Finalized => {
            let Some(checkpoints) = fetch_beacon_data_member(http, CHECKPOINTS).await? else {
                return Ok(missing_value_result(CHECKPOINTS));
            };
            // the root is zero before the first finalized checkpoint
            let root = read_root_at(&checkpoints, "/finalized/root")?;
            NodeResult::Block(match root == BlockHash::default() {
                true => None,
                false => fetch_block_by_root(http, &root).await?,
            })
        }
        NodeQuery::Syncing => {
            let Some(syncing) = fetch_beacon_data_member(http, SYNCING).await? else {
                return Ok(missing_value_result(SYNCING));
            };
            let is = |name: &str| syncing[name].as_bool();
            let is_syncing = is("is_syncing").ok_or_else(|| unexpected_value("is_syncing"))?;
            // its execution client may not have checked the head yet
            NodeResult::Syncing(is_syncing || is("is_optimistic") == Some(true))
        }
        NodeQuery::ChainId => {
            let spec = fetch_beacon_data_member(http, SPEC)
                .await?
                .unwrap_or_default();
            let id = spec["DEPOSIT_CHAIN_ID"].as_str();
            NodeResult::ChainId(id.and_then(|id| id.parse().ok()))
        }
        NodeQuery::Genesis => match fetch_beacon_data_member(http, GENESIS).await? {
            Some(genesis) => {
                NodeResult::Genesis(read_root_at(&genesis, "/genesis_validators_root")?)
            }
            None => missing_value_result(GENESIS),
        },
    })
}

fn missing_value_result(path: &str) -> NodeResult {
    NodeResult::Failed(format!("the node has no {path}"))
}

fn unexpected_value(at: &str) -> String {
    format!("invalid response: {at} is missing or invalid")
}

/// Fetches the member `data` of the resource under a path, or `None` if the node has none.
async fn fetch_beacon_data_member(
    http: &HttpNodeClient,
    path: &str,
) -> Result<Option<Value>, String> {
    /// The envelope of a Beacon API response.
    #[derive(Deserialize)]
    struct BeaconEnvelope {
        data: Value,
    }
    let Some(body) = http.fetch_resource(path).await? else {
        return Ok(None);
    };
    match serde_json::from_slice(&body) {
        Ok(BeaconEnvelope { data }) => Ok(Some(data)),
        Err(error) => Err(malformed_response_error(&body, &error)),
    }
}

fn read_root_at(data: &Value, at: &str) -> Result<BlockHash, String> {
    deserialize_hash(data.pointer(at).unwrap_or(&Value::Null)).map_err(|_| unexpected_value(at))
}

async fn fetch_block_by_root(
    http: &HttpNodeClient,
    hash: &BlockHash,
) -> Result<Option<NodeBlock>, String> {
    fetch_beacon_header(http, &format!("0x{}", hex::encode(hash))).await
}

async fn fetch_beacon_header(http: &HttpNodeClient, id: &str) -> Result<Option<NodeBlock>, String> {
    const SLOT: &str = "/header/message/slot";
    let Some(header) =
        fetch_beacon_data_member(http, &format!("/eth/v1/beacon/headers/{id}")).await?
    else {
        return Ok(None);
    };
    let slot = header.pointer(SLOT).and_then(Value::as_str);
    Ok(Some(NodeBlock {
        number: slot
            .and_then(|slot| slot.parse().ok())
            .ok_or_else(|| unexpected_value(SLOT))?,
        hash: read_root_at(&header, "/root")?,
        parent: read_root_at(&header, "/header/message/parent_root")?,
        timestamp: None,
    }))
}

/// Fetches the duration of a slot in milliseconds; `None` if the query fails, or the node does not
/// report it.
pub async fn fetch_slot_time(http: &HttpNodeClient) -> Option<u64> {
    let spec = fetch_beacon_data_member(http, SPEC).await.ok()??;
    let number = |name: &str| spec[name].as_str()?.parse::<u64>().ok();
    number("SLOT_DURATION_MS").or_else(|| number("SECONDS_PER_SLOT")?.checked_mul(1_000))
}
