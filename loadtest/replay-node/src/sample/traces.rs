//! Call traces of a block's transactions, in geth's nested form and in the flat form of Parity's
//! `trace_*` methods.

use serde::Serialize;

use super::chain::{self, Block, Kind, Transaction};
use super::values::{Address, Data, Quantity, Word};
use super::world::{Dice, World};

const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31];
const GET_RESERVES: [u8; 4] = [0x09, 0x02, 0xf1, 0xac];
const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
const POOL_SWAP: [u8; 4] = [0x02, 0x2c, 0x0d, 0x9f];

/// A call as geth's callTracer returns it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    from: Address,
    gas: Quantity<u64>,
    gas_used: Quantity<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Address>,
    input: Data,
    #[serde(skip_serializing_if = "is_empty")]
    output: Data,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Quantity<u128>>,
    #[serde(rename = "type")]
    kind: &'static str,
}

fn is_empty(data: &Data) -> bool {
    data.0.is_empty()
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransactionTrace {
    pub tx_hash: Word,
    pub result: Call,
}

/// Returns the call traces of a block, in the order of its transactions.
pub fn block_traces(world: &World, dice: &mut Dice, block: &Block) -> Vec<TransactionTrace> {
    block
        .transactions
        .iter()
        .zip(&block.receipts)
        .map(|(transaction, receipt)| TransactionTrace {
            tx_hash: transaction.hash,
            result: root(world, dice, transaction, receipt.gas_used.0),
        })
        .collect()
}

fn root(world: &World, dice: &mut Dice, transaction: &Transaction, gas_used: u64) -> Call {
    let to = transaction.to.unwrap_or_else(|| dice.fixed());
    let mut tracer = Tracer {
        world,
        dice,
        gas: transaction.gas.0,
    };
    let (calls, output) = match transaction.kind {
        Kind::Payment => (Vec::new(), Data::default()),
        Kind::TokenTransfer | Kind::Approval => (
            tracer.proxied(to, &transaction.input),
            Data(Word::from(1).0.to_vec()),
        ),
        Kind::Swap => {
            let pools = tracer.dice.between(2, 7);
            let calls = (0..pools)
                .flat_map(|_| tracer.pool(to, transaction.from))
                .collect();
            (calls, tracer.output(1, 3))
        }
        Kind::Call => (tracer.nested(to, 4), tracer.output(0, 4)),
        Kind::Deployment => (Vec::new(), Data(chain::code(tracer.dice, 5500))),
    };
    Call {
        from: transaction.from,
        gas: transaction.gas,
        gas_used: Quantity(gas_used),
        to: Some(to),
        input: transaction.input.clone(),
        output,
        calls,
        value: Some(transaction.value),
        kind: if transaction.to.is_some() {
            "CALL"
        } else {
            "CREATE"
        },
    }
}

struct Tracer<'a> {
    world: &'a World,
    dice: &'a mut Dice,
    gas: u64,
}

impl Tracer<'_> {
    fn call(
        &mut self,
        kind: &'static str,
        from: Address,
        to: Address,
        input: Vec<u8>,
        output: Data,
    ) -> Call {
        // Gas decreases from call to call.
        self.gas -= self.gas / self.dice.between(20, 60);
        Call {
            from,
            gas: Quantity(self.gas),
            gas_used: Quantity(self.dice.between(300, 60_000)),
            to: Some(to),
            input: Data(input),
            output,
            calls: Vec::new(),
            value: (kind == "CALL").then_some(Quantity(0)),
            kind,
        }
    }

    fn output(&mut self, low: u64, high: u64) -> Data {
        let words = chain::words(self.world, self.dice, low, high);
        let mut output: Vec<u8> = words.iter().flat_map(|word| word.0).collect();
        self.opaque(&mut output);
        Data(output)
    }

    /// Occasionally adds data that does not compress: signatures, proofs, packed orders.
    fn opaque(&mut self, data: &mut Vec<u8>) {
        if self.dice.percent(25) {
            let len = self.dice.between(2, 14) as usize * 32;
            data.extend(self.dice.bytes(len));
        }
    }

    /// Returns the calls of a proxy contract: the same call with the implementation's code.
    fn proxied(&mut self, proxy: Address, input: &Data) -> Vec<Call> {
        if self.dice.percent(55) {
            return Vec::new();
        }
        let implementation = self.world.contract(self.dice);
        let output = Data(Word::from(1).0.to_vec());
        vec![self.call(
            "DELEGATECALL",
            proxy,
            implementation,
            input.0.clone(),
            output,
        )]
    }

    /// Returns the calls of a router at one pool.
    fn pool(&mut self, router: Address, caller: Address) -> Vec<Call> {
        let (pool, token) = (self.world.contract(self.dice), self.world.token(self.dice));
        let bought = self.dice.balance();
        let reserves: Vec<u8> = [
            self.dice.balance(),
            self.dice.balance(),
            u128::from(self.dice.below(1 << 31)),
        ]
        .iter()
        .flat_map(|number| Word::from(*number).0)
        .collect();
        let reserves = self.call(
            "STATICCALL",
            router,
            pool,
            GET_RESERVES.to_vec(),
            Data(reserves),
        );
        let paid = self.token_call(router, token, pool, bought);
        let words = [
            Word::from(0),
            Word::from(bought),
            Word::from(caller),
            Word::from(128),
            Word::from(0),
        ];
        let mut swap = self.call(
            "CALL",
            router,
            pool,
            chain::encode(POOL_SWAP, &words),
            Data::default(),
        );
        let other = self.world.token(self.dice);
        swap.calls = vec![
            self.token_call(pool, other, caller, bought),
            self.balance(pool, token, pool),
            self.balance(pool, other, pool),
        ];
        vec![reserves, paid, swap]
    }

    fn token_call(&mut self, from: Address, token: Address, to: Address, amount: u128) -> Call {
        let input = chain::encode(TRANSFER, &[to.into(), amount.into()]);
        let output = Data(Word::from(1).0.to_vec());
        let mut call = self.call("CALL", from, token, input, output);
        call.calls = self.proxied(token, &call.input.clone());
        call
    }

    fn balance(&mut self, from: Address, token: Address, owner: Address) -> Call {
        let input = chain::encode(BALANCE_OF, &[owner.into()]);
        let output = Data(Word::from(self.dice.balance()).0.to_vec());
        self.call("STATICCALL", from, token, input, output)
    }

    /// Returns calls within calls, down to `depth`.
    fn nested(&mut self, from: Address, depth: u64) -> Vec<Call> {
        let most = if depth == 0 { 0 } else { depth + 1 };
        (0..self.dice.between(0, most))
            .map(|_| {
                let to = self.world.contract(self.dice);
                if self.dice.percent(40) {
                    return self.balance(from, to, from);
                }
                let words = chain::words(self.world, self.dice, 1, 9);
                let mut input = chain::encode(self.world.selector(self.dice).0, &words);
                self.opaque(&mut input);
                let output = self.output(0, 3);
                let kind = ["CALL", "STATICCALL", "DELEGATECALL"][self.dice.skewed(3)];
                let mut call = self.call(kind, from, to, input, output);
                call.calls = self.nested(to, depth - 1);
                call
            })
            .collect()
    }
}

/// A call as `trace_block` returns it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlatTrace<'a> {
    action: Action<'a>,
    block_hash: Word,
    block_number: u64,
    result: Outcome<'a>,
    subtraces: usize,
    trace_address: Vec<usize>,
    transaction_hash: Word,
    pub transaction_position: usize,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Action<'a> {
    call_type: String,
    from: Address,
    gas: Quantity<u64>,
    input: &'a Data,
    to: Option<Address>,
    value: Quantity<u128>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    gas_used: Quantity<u64>,
    output: &'a Data,
}

/// Flattens traces to one entry per call, parents before their children.
pub fn flatten<'a>(block: &Block, traces: &'a [TransactionTrace]) -> Vec<FlatTrace<'a>> {
    let mut flat = Vec::new();
    for (position, trace) in traces.iter().enumerate() {
        push_flat(
            block,
            trace.tx_hash,
            position,
            &trace.result,
            &[],
            &mut flat,
        );
    }
    flat
}

fn push_flat<'a>(
    block: &Block,
    transaction_hash: Word,
    transaction_position: usize,
    call: &'a Call,
    address: &[usize],
    flat: &mut Vec<FlatTrace<'a>>,
) {
    flat.push(FlatTrace {
        action: Action {
            call_type: call.kind.to_ascii_lowercase(),
            from: call.from,
            gas: call.gas,
            input: &call.input,
            to: call.to,
            value: call.value.unwrap_or(Quantity(0)),
        },
        block_hash: block.header.hash,
        block_number: block.header.number.0,
        result: Outcome {
            gas_used: call.gas_used,
            output: &call.output,
        },
        subtraces: call.calls.len(),
        trace_address: address.to_vec(),
        transaction_hash,
        transaction_position,
        kind: if call.kind == "CREATE" {
            "create"
        } else {
            "call"
        },
    });
    for (index, child) in call.calls.iter().enumerate() {
        let address = [address, &[index]].concat();
        push_flat(
            block,
            transaction_hash,
            transaction_position,
            child,
            &address,
            flat,
        );
    }
}
