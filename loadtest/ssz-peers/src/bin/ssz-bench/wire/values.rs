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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    corpus: PathBuf,
    /// Files' names without `.json` and `.ssz`.
    to: PathBuf,
    /// A block whose JSON has at most so many bytes: a recorded one without its
    /// longest transactions.
    block: Option<usize>,
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
            self.put(&block)?;
            println!("{}", serde_json::json!({ "recorded": is_recorded }));
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
