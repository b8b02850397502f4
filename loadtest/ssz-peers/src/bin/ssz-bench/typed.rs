//! Measurements of the four walkers and of the peers, on values for which every peer has a type.

use std::error::Error;

use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::Value as Tree;
use ssz_peers::peers::{ethereum_ssz, libssz, ssz_rs, Serde, Value};
use ssz_peers::table_of;
use sszip_core::ssz::{self, check, hash_tree_root, select, to_json, to_ssz};
use sszip_core::ssz::{Schema, ToJson, TypeId};

use crate::case::{compare, Case, Group, MeasurementPlan, OURS};
use crate::state;

const IN_PIECES: &str = "sszip, in pieces";

/// One value in its formats.
struct Subject {
    value: String,
    validators: usize,
    schema: &'static Schema,
    ty: TypeId,
    ssz: Vec<u8>,
    json: Vec<u8>,
    /// The JSON with white space, if that is measured too.
    indented: Option<Vec<u8>>,
    /// Path of a part that is read without the rest.
    path: Option<String>,
}

/// A type of a peer that has JSON.
trait Typed: Value + Serialize + DeserializeOwned {}

impl<T: Value + Serialize + DeserializeOwned> Typed for T {}

/// Usual maximum bytes of a block in SSZ.
const USUAL: usize = 150_000;

/// Measures a SignedBeaconBlock, and the same block without its longest transactions if it
/// exceeds the usual size.
pub fn blocks(json: &Tree, plan: MeasurementPlan) -> Result<Vec<Group>, Box<dyn Error>> {
    let mut block: libssz::SignedBeaconBlock = serde_json::from_value(json.clone())?;
    let mut groups = measure_block(&block, "as it is", plan)?;
    let payload = &mut block.message.body.execution_payload;
    let mut transactions = std::mem::take(&mut payload.transactions).into_inner();
    let mut left: Vec<usize> = transactions.iter().map(|one| one.len()).collect();
    left.sort_unstable();
    let mut longest = 0;
    let mut budget = USUAL.saturating_sub(block.encode().len());
    for len in left {
        budget = budget.saturating_sub(len + 4);
        if budget == 0 {
            break;
        }
        longest = len;
    }
    transactions.retain(|one| one.len() <= longest);
    block.message.body.execution_payload.transactions = transactions.try_into()?;
    groups.extend(measure_block(&block, "of a usual length", plan)?);
    Ok(groups)
}

fn measure_block(
    block: &libssz::SignedBeaconBlock,
    which: &str,
    plan: MeasurementPlan,
) -> Result<Vec<Group>, Box<dyn Error>> {
    let (schema, ty) = table_of("SignedBeaconBlock");
    let subject = Subject {
        value: format!("SignedBeaconBlock, {which}"),
        validators: 0,
        schema,
        ty,
        ssz: block.encode(),
        // the peers' order of fields equals the order of the specs
        json: Serde::SerdeJson.write(block)?,
        indented: Some(serde_json::to_vec_pretty(block)?),
        path: None,
    };
    subject.measure::<
        libssz::SignedBeaconBlock,
        ethereum_ssz::SignedBeaconBlock,
        ssz_rs::SignedBeaconBlock,
    >(plan)
}

/// Measures a BeaconState with this number of validators.
pub fn state(validators: usize, plan: MeasurementPlan) -> Result<Vec<Group>, Box<dyn Error>> {
    let (schema, ty) = table_of("BeaconState");
    let ssz = state::state(validators)?;
    let subject = Subject {
        value: "BeaconState".into(),
        validators,
        schema,
        ty,
        json: Serde::SerdeJson.write(&libssz::BeaconState::decode(&ssz)?)?,
        ssz,
        indented: None,
        path: Some(format!("validators[{}].pubkey", validators / 2)),
    };
    subject.measure::<libssz::BeaconState, ethereum_ssz::BeaconState, ssz_rs::BeaconState>(plan)
}

impl Subject {
    fn measure<L: Typed, E: Typed, R: Value>(
        &self,
        plan: MeasurementPlan,
    ) -> Result<Vec<Group>, Box<dyn Error>> {
        self.verify::<L, E, R>()?;
        let mut groups = vec![self.group("JSON to SSZ", &self.json, plan, {
            self.to_ssz::<L, E>(&self.json)
        })];
        if let Some(indented) = &self.indented {
            let cases = self.to_ssz::<L, E>(indented);
            groups.push(self.group("indented JSON to SSZ", indented, plan, cases));
        }
        let cases = self.to_json::<L, E>();
        groups.push(self.group("SSZ to JSON", &self.ssz, plan, cases));
        let cases = self.check::<L, E, R>();
        groups.push(self.group("check", &self.ssz, plan, cases));
        let (mut libssz, mut ethereum_ssz, mut ssz_rs) = self.decoded_values::<L, E, R>()?;
        let cases = vec![
            Case::new("libssz", || libssz.encode()),
            Case::new("ethereum_ssz", || ethereum_ssz.encode()),
            Case::new("ssz_rs", || ssz_rs.encode()),
        ];
        groups.push(self.group("encode", &self.ssz, plan, cases));
        let cases = vec![
            Case::new(OURS, || hash_tree_root(self.schema, self.ty, &self.ssz)),
            Case::new("libssz", || libssz.root()),
            Case::new("ethereum_ssz", || ethereum_ssz.root()),
            Case::new("ssz_rs", || ssz_rs.root()),
        ];
        groups.push(self.group("hash_tree_root", &self.ssz, plan, cases));
        if let Some(path) = &self.path {
            select(self.schema, self.ty, &self.ssz, path)?;
            let whole = self.check::<L, E, R>().into_iter().skip(1);
            let part = Case::new(OURS, || select(self.schema, self.ty, &self.ssz, path));
            let cases = std::iter::once(part).chain(whole).collect();
            groups.push(self.group("one part", &self.ssz, plan, cases));
        }
        Ok(groups)
    }

    fn group(
        &self,
        operation: &'static str,
        input: &[u8],
        plan: MeasurementPlan,
        cases: Vec<Case>,
    ) -> Group {
        eprintln!("{} {}, {operation}", self.value, self.validators);
        Group {
            value: self.value.clone(),
            operation,
            validators: self.validators,
            bytes_in: input.len(),
            ways: compare(cases, plan),
        }
    }

    fn to_ssz<'c, L: Typed, E: Typed>(&'c self, json: &'c [u8]) -> Vec<Case<'c>> {
        let mut cases = vec![Case::new(OURS, || to_ssz(self.schema, self.ty, json))];
        for serde in Serde::ALL {
            let name = |peer| format!("{serde}, {peer}");
            cases.push(Case::new(name("libssz"), move || {
                serde.read::<L>(json).map(|value| value.encode())
            }));
            cases.push(Case::new(name("ethereum_ssz"), move || {
                serde.read::<E>(json).map(|value| value.encode())
            }));
        }
        cases
    }

    fn to_json<L: Typed, E: Typed>(&self) -> Vec<Case<'_>> {
        let mut cases = vec![
            Case::new(OURS, || to_json(self.schema, self.ty, &self.ssz)),
            Case::new(IN_PIECES, || self.to_json_in_pieces()),
        ];
        for serde in Serde::ALL {
            let name = |peer| format!("{peer}, {serde}");
            cases.push(Case::new(name("libssz"), move || {
                L::decode(&self.ssz).map(|value| serde.write(&value))
            }));
            cases.push(Case::new(name("ethereum_ssz"), move || {
                E::decode(&self.ssz).map(|value| serde.write(&value))
            }));
        }
        cases
    }

    /// Writes JSON into one buffer repeatedly, as for a client; returns the number of bytes.
    fn to_json_in_pieces(&self) -> Result<usize, ssz::SszError> {
        let mut writer = ToJson::new(self.schema, self.ty, &self.ssz)?;
        let mut room = vec![0; 64 << 10];
        let mut all = 0;
        loop {
            match std::hint::black_box(writer.write(&mut room)?) {
                0 => return Ok(all),
                len => all += len,
            }
        }
    }

    /// Returns the cases of a check; the peers decode.
    fn check<L: Typed, E: Typed, R: Value>(&self) -> Vec<Case<'_>> {
        vec![
            Case::new(OURS, || check(self.schema, self.ty, &self.ssz)),
            Case::new("libssz", || L::decode(&self.ssz)),
            Case::new("ethereum_ssz", || E::decode(&self.ssz)),
            Case::new("ssz_rs", || R::decode(&self.ssz)),
        ]
    }

    fn decoded_values<L: Value, E: Value, R: Value>(&self) -> Result<(L, E, R), String> {
        Ok((
            L::decode(&self.ssz)?,
            E::decode(&self.ssz)?,
            R::decode(&self.ssz)?,
        ))
    }

    /// Checks, before any measurement, that all implementations have the same output.
    fn verify<L: Typed, E: Typed, R: Value>(&self) -> Result<(), Box<dyn Error>> {
        let same = |output: &str, one: &[u8], other: &[u8]| match one == other {
            true => Ok(()),
            false => Err(format!("{}: {output} differs", self.value)),
        };
        check(self.schema, self.ty, &self.ssz)?;
        let ours = to_ssz(self.schema, self.ty, &self.json)?;
        same("our SSZ", &ours, &self.ssz)?;
        if let Some(indented) = &self.indented {
            let ours = to_ssz(self.schema, self.ty, indented)?;
            same("our SSZ of indented JSON", &ours, &self.ssz)?;
        }
        let ours = to_json(self.schema, self.ty, &self.ssz)?;
        same("our JSON", &ours, &self.json)?;
        assert_eq!(self.to_json_in_pieces()?, ours.len());
        let root = hash_tree_root(self.schema, self.ty, &self.ssz)?;
        let (mut libssz, mut ethereum_ssz, mut ssz_rs) = self.decoded_values::<L, E, R>()?;
        same("the SSZ of ssz_rs", &ssz_rs.encode(), &self.ssz)?;
        same("the root of libssz", &libssz.root(), &root)?;
        same("the root of ethereum_ssz", &ethereum_ssz.root(), &root)?;
        same("the root of ssz_rs", &ssz_rs.root(), &root)?;
        for serde in Serde::ALL {
            let ssz = serde.read::<L>(&self.json)?.encode();
            same("the SSZ of libssz", &ssz, &self.ssz)?;
            let ssz = serde.read::<E>(&self.json)?.encode();
            same("the SSZ of ethereum_ssz", &ssz, &self.ssz)?;
            same("the JSON of libssz", &serde.write(&libssz)?, &self.json)?;
            let json = serde.write(&ethereum_ssz)?;
            same("the JSON of ethereum_ssz", &json, &self.json)?;
        }
        Ok(())
    }
}
