//! Values in files, written by a typed peer: what a node serves, and what is
//! to come of it.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use ssz_peers::peers::libssz::{BeaconState, SignedBeaconBlock};
use ssz_peers::peers::{Serde, Value};

use crate::{corpus, state};

/// Bytes of each.
const PROOF: usize = 48;
const BLOB: usize = 131_072;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    corpus: PathBuf,
    /// Files' names without `.json` and `.ssz`.
    to: PathBuf,
    /// A block whose JSON has at most so many bytes: a recorded one without its
    /// longest transactions.
    block: Option<usize>,
    /// The block with so many blobs, as it is published.
    #[serde(default)]
    blobs: usize,
    /// A state of so many validators.
    validators: Option<usize>,
}

impl Values {
    pub fn write(&self) -> Result<(), Box<dyn Error>> {
        if let Some(most) = self.block {
            let (json, is_recorded) = corpus::block(&self.corpus)?;
            let block = serde_json::to_vec(&json)?;
            let mut block: SignedBeaconBlock = Serde::SerdeJson.read(&block)?;
            shorten(&mut block, most)?;
            match self.blobs {
                0 => self.put(&block)?,
                blobs => self.put_contents(&block, blobs)?,
            }
            let root: String = block
                .message
                .root()
                .iter()
                .map(|it| format!("{it:02x}"))
                .collect();
            let said = serde_json::json!({ "recorded": is_recorded, "root": root });
            println!("{said}");
        }
        if let Some(validators) = self.validators {
            self.put(&BeaconState::decode(&state::state(validators)?)?)?;
            println!("{}", serde_json::json!({ "recorded": false }));
        }
        Ok(())
    }

    fn put<T: Value + Serialize>(&self, value: &T) -> Result<(), Box<dyn Error>> {
        fs::write(self.to.with_extension("ssz"), value.encode())?;
        let mut file = BufWriter::new(File::create(self.to.with_extension("json"))?);
        file.write_all(
            br#"{"version":"deneb","execution_optimistic":false,"finalized":true,"data":"#,
        )?;
        serde_json::to_writer(&mut file, value)?;
        file.write_all(b"}")?;
        Ok(file.flush()?)
    }
}

impl Values {
    /// SignedBlockContents, which no peer has a struct of: a block, a proof for
    /// each blob, and the blobs.
    fn put_contents(&self, block: &SignedBeaconBlock, blobs: usize) -> Result<(), Box<dyn Error>> {
        let mut rng = fastrand::Rng::with_seed(blobs as u64);
        let mut made = |len: usize| -> Vec<Vec<u8>> {
            let one = |_| (0..len).map(|_| rng.u8(..)).collect();
            (0..blobs).map(one).collect()
        };
        let (proofs, blobs) = (made(PROOF), made(BLOB));
        let parts = [block.encode(), proofs.concat(), blobs.concat()];
        let mut ssz = Vec::new();
        let mut offset = 4 * parts.len();
        for part in &parts {
            ssz.extend_from_slice(&u32::try_from(offset)?.to_le_bytes());
            offset += part.len();
        }
        parts.iter().for_each(|part| ssz.extend_from_slice(part));
        fs::write(self.to.with_extension("ssz"), ssz)?;
        let hex = |all: Vec<Vec<u8>>| -> Vec<String> {
            all.iter().map(const_hex::encode_prefixed).collect()
        };
        let json = serde_json::json!({
            "signed_block": block, "kzg_proofs": hex(proofs), "blobs": hex(blobs),
        });
        Ok(fs::write(
            self.to.with_extension("json"),
            serde_json::to_vec(&json)?,
        )?)
    }
}

fn shorten(block: &mut SignedBeaconBlock, most: usize) -> Result<(), Box<dyn Error>> {
    let payload = &mut block.message.body.execution_payload;
    let mut transactions: Vec<_> = payload.transactions.iter().cloned().collect();
    let mut len = serde_json::to_vec(&*block)?.len();
    while len > most {
        let lengths = transactions.iter().map(|transaction| transaction.len());
        let longest = lengths.enumerate().max_by_key(|(_, len)| *len);
        let (at, length) = longest.ok_or("the block is longer without any transaction")?;
        transactions.remove(at);
        // with `"0x",`
        len -= 2 * length + 5;
    }
    block.message.body.execution_payload.transactions = transactions.try_into()?;
    Ok(())
}
