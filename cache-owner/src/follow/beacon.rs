//! Questions to a node over the Beacon API. Blocks are known by their slots,
//! of which some are empty.

use hyper::body::Bytes;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use sszip_core::cache::owner::tracker::{Answer, Ask, Block, Hash};

use super::execution::root;
use super::http::{unreadable, Http};

/// What comes when there is news.
pub const EVENTS: &str = "/eth/v1/events?topics=head,chain_reorg,finalized_checkpoint";

const GENESIS: &str = "/eth/v1/beacon/genesis";
const SPEC: &str = "/eth/v1/config/spec";
const SYNCING: &str = "/eth/v1/node/syncing";
const CHECKPOINTS: &str = "/eth/v1/beacon/states/head/finality_checkpoints";

#[derive(Deserialize)]
struct Data<T> {
    data: T,
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "root")]
    root: Hash,
    header: Signed,
}

#[derive(Deserialize)]
struct Signed {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    #[serde(deserialize_with = "decimal")]
    slot: u64,
    #[serde(deserialize_with = "root")]
    parent_root: Hash,
}

#[derive(Deserialize)]
struct Genesis {
    #[serde(deserialize_with = "root")]
    genesis_validators_root: Hash,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(rename = "DEPOSIT_CHAIN_ID", default)]
    chain_id: Option<String>,
}

#[derive(Deserialize)]
struct Syncing {
    is_syncing: bool,
    /// What it has was not checked by its execution client yet.
    #[serde(default)]
    is_optimistic: bool,
}

#[derive(Deserialize)]
struct Checkpoints {
    finalized: Checkpoint,
}

#[derive(Deserialize)]
struct Checkpoint {
    #[serde(deserialize_with = "root")]
    root: Hash,
}

fn decimal<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, String> {
    let data: Data<T> = serde_json::from_slice(body).map_err(|error| unreadable(body, &error))?;
    Ok(data.data)
}

/// What the node says to a question.
///
/// # Errors
/// Why it can't be told: the node is not well, or is none.
pub async fn ask(http: &Http, ask: Ask) -> Result<Answer, String> {
    Ok(match ask {
        Ask::Latest => Answer::Block(header(http, "head").await?),
        Ask::ByHash(hash) => Answer::Block(by_root(http, &hash).await?),
        Ask::ByNumber(slot) | Ask::Again(slot) => {
            let block = header(http, &slot.to_string()).await?;
            Answer::Block(block.filter(|block| block.number == slot))
        }
        Ask::Finalized => match found::<Checkpoints>(http, CHECKPOINTS).await? {
            // before the first one
            Some(Checkpoints { finalized }) if finalized.root == Hash::default() => {
                Answer::Block(None)
            }
            Some(Checkpoints { finalized }) => Answer::Block(by_root(http, &finalized.root).await?),
            None => Answer::Failed(format!("it has no {CHECKPOINTS}")),
        },
        Ask::Syncing => match found::<Syncing>(http, SYNCING).await? {
            Some(syncing) => Answer::Syncing(syncing.is_syncing || syncing.is_optimistic),
            None => Answer::Failed(format!("it has no {SYNCING}")),
        },
        Ask::ChainId => {
            let spec = found::<Spec>(http, SPEC).await?;
            let id = spec.and_then(|spec| spec.chain_id);
            Answer::ChainId(id.and_then(|id| id.parse().ok()))
        }
        Ask::Genesis => match found::<Genesis>(http, GENESIS).await? {
            Some(genesis) => Answer::Genesis(genesis.genesis_validators_root),
            None => Answer::Failed(format!("it has no {GENESIS}")),
        },
    })
}

async fn found<T: DeserializeOwned>(http: &Http, path: &str) -> Result<Option<T>, String> {
    let body = http.get(path).await?;
    body.map(|body| read(&body)).transpose()
}

async fn by_root(http: &Http, hash: &Hash) -> Result<Option<Block>, String> {
    header(http, &format!("0x{}", hex::encode(hash))).await
}

async fn header(http: &Http, id: &str) -> Result<Option<Block>, String> {
    let path = format!("/eth/v1/beacon/headers/{id}");
    let header: Option<Header> = found(http, &path).await?;
    Ok(header.map(|header| Block {
        number: header.header.message.slot,
        hash: header.root,
        parent: header.header.message.parent_root,
    }))
}
