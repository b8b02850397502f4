//! Call traces of a block's transactions, in geth's nested form and in the flat form of Parity's
//! `trace_*` methods.

use serde::Serialize;

use super::chain::{self, GeneratedBlock, Transaction, TransactionPurpose};
use super::values::{Address, HexSerializedBytes, Quantity, Word};
use super::world::{SampleAccounts, SeededGenerator};

const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31];
const GET_RESERVES: [u8; 4] = [0x09, 0x02, 0xf1, 0xac];
const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
const POOL_SWAP: [u8; 4] = [0x02, 0x2c, 0x0d, 0x9f];

/// A call and its nested calls, as geth's callTracer returns them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TracedCall {
    from: Address,
    gas: Quantity<u64>,
    gas_used: Quantity<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Address>,
    input: HexSerializedBytes,
    #[serde(skip_serializing_if = "is_empty")]
    output: HexSerializedBytes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<TracedCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Quantity<u128>>,
    #[serde(rename = "type")]
    kind: &'static str,
}

fn is_empty(data: &HexSerializedBytes) -> bool {
    data.0.is_empty()
}

/// The call trace of one transaction, as `debug_traceBlockByNumber` returns it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SampleTransactionTrace {
    pub tx_hash: Word,
    pub result: TracedCall,
}

/// Returns the call traces of a block, in the order of its transactions.
pub fn block_traces(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    block: &GeneratedBlock,
) -> Vec<SampleTransactionTrace> {
    block
        .transactions
        .iter()
        .zip(&block.receipts)
        .map(|(transaction, receipt)| SampleTransactionTrace {
            tx_hash: transaction.hash,
            result: trace_transaction(world, dice, transaction, receipt.gas_used.0),
        })
        .collect()
}

/// Returns a call trace with the calls that a transaction of this purpose usually makes.
fn trace_transaction(
    world: &SampleAccounts,
    dice: &mut SeededGenerator,
    transaction: &Transaction,
    gas_used: u64,
) -> TracedCall {
    let to = transaction.to.unwrap_or_else(|| dice.random_fixed_bytes());
    let mut tracer = CallTraceGenerator {
        world,
        dice,
        gas: transaction.gas.0,
    };
    let (calls, output) = match transaction.kind {
        TransactionPurpose::Payment => (Vec::new(), HexSerializedBytes::default()),
        TransactionPurpose::TokenTransfer | TransactionPurpose::Approval => (
            tracer.proxy_contract_calls(to, &transaction.input),
            HexSerializedBytes(Word::from(1).0.to_vec()),
        ),
        TransactionPurpose::Swap => {
            let pools = tracer.dice.number_between(2, 7);
            let calls = (0..pools)
                .flat_map(|_| tracer.liquidity_pool_calls(to, transaction.from))
                .collect();
            (calls, tracer.random_output(1, 3))
        }
        TransactionPurpose::Call => (tracer.nested_calls(to, 4), tracer.random_output(0, 4)),
        TransactionPurpose::Deployment => (
            Vec::new(),
            HexSerializedBytes(chain::random_code(tracer.dice, 5500)),
        ),
    };
    TracedCall {
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

/// The generator of the calls of one transaction.
struct CallTraceGenerator<'a> {
    world: &'a SampleAccounts,
    dice: &'a mut SeededGenerator,
    gas: u64,
}

impl CallTraceGenerator<'_> {
    /// Returns a call without nested calls, and lowers the gas that is left.
    fn call(
        &mut self,
        kind: &'static str,
        from: Address,
        to: Address,
        input: Vec<u8>,
        output: HexSerializedBytes,
    ) -> TracedCall {
        // Gas decreases from call to call.
        self.gas -= self.gas / self.dice.number_between(20, 60);
        TracedCall {
            from,
            gas: Quantity(self.gas),
            gas_used: Quantity(self.dice.number_between(300, 60_000)),
            to: Some(to),
            input: HexSerializedBytes(input),
            output,
            calls: Vec::new(),
            value: (kind == "CALL").then_some(Quantity(0)),
            kind,
        }
    }

    /// Returns the output of a call, of `low` to `high` words and sometimes incompressible bytes.
    fn random_output(&mut self, low: u64, high: u64) -> HexSerializedBytes {
        let words = chain::random_words(self.world, self.dice, low, high);
        let mut output: Vec<u8> = words.iter().flat_map(|word| word.0).collect();
        self.add_incompressible(&mut output);
        HexSerializedBytes(output)
    }

    /// Occasionally adds data that does not compress: signatures, proofs, packed orders.
    fn add_incompressible(&mut self, data: &mut Vec<u8>) {
        if self.dice.is_within_percent(25) {
            let len = self.dice.number_between(2, 14) as usize * 32;
            data.extend(self.dice.random_bytes(len));
        }
    }

    /// Returns the calls of a proxy contract: the same call with the implementation's code.
    fn proxy_contract_calls(
        &mut self,
        proxy: Address,
        input: &HexSerializedBytes,
    ) -> Vec<TracedCall> {
        if self.dice.is_within_percent(55) {
            return Vec::new();
        }
        let implementation = self.world.random_contract(self.dice);
        let output = HexSerializedBytes(Word::from(1).0.to_vec());
        vec![self.call(
            "DELEGATECALL",
            proxy,
            implementation,
            input.0.clone(),
            output,
        )]
    }

    /// Returns the three calls by which a router swaps at one pool: reserves, payment, swap.
    fn liquidity_pool_calls(&mut self, router: Address, caller: Address) -> Vec<TracedCall> {
        let (pool, token) = (
            self.world.random_contract(self.dice),
            self.world.random_token_contract(self.dice),
        );
        let bought = self.dice.random_balance();
        let reserves: Vec<u8> = [
            self.dice.random_balance(),
            self.dice.random_balance(),
            u128::from(self.dice.number_below(1 << 31)),
        ]
        .iter()
        .flat_map(|number| Word::from(*number).0)
        .collect();
        let reserves = self.call(
            "STATICCALL",
            router,
            pool,
            GET_RESERVES.to_vec(),
            HexSerializedBytes(reserves),
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
            chain::encode_call(POOL_SWAP, &words),
            HexSerializedBytes::default(),
        );
        let other = self.world.random_token_contract(self.dice);
        swap.calls = vec![
            self.token_call(pool, other, caller, bought),
            self.balance_call(pool, token, pool),
            self.balance_call(pool, other, pool),
        ];
        vec![reserves, paid, swap]
    }

    fn token_call(
        &mut self,
        from: Address,
        token: Address,
        to: Address,
        amount: u128,
    ) -> TracedCall {
        let input = chain::encode_call(TRANSFER, &[to.into(), amount.into()]);
        let output = HexSerializedBytes(Word::from(1).0.to_vec());
        let mut call = self.call("CALL", from, token, input, output);
        call.calls = self.proxy_contract_calls(token, &call.input.clone());
        call
    }

    fn balance_call(&mut self, from: Address, token: Address, owner: Address) -> TracedCall {
        let input = chain::encode_call(BALANCE_OF, &[owner.into()]);
        let output = HexSerializedBytes(Word::from(self.dice.random_balance()).0.to_vec());
        self.call("STATICCALL", from, token, input, output)
    }

    /// Returns calls within calls, down to `depth`.
    fn nested_calls(&mut self, from: Address, depth: u64) -> Vec<TracedCall> {
        let most = if depth == 0 { 0 } else { depth + 1 };
        (0..self.dice.number_between(0, most))
            .map(|_| {
                let to = self.world.random_contract(self.dice);
                if self.dice.is_within_percent(40) {
                    return self.balance_call(from, to, from);
                }
                let words = chain::random_words(self.world, self.dice, 1, 9);
                let mut input = chain::encode_call(self.world.random_selector(self.dice).0, &words);
                self.add_incompressible(&mut input);
                let output = self.random_output(0, 3);
                let kind = ["CALL", "STATICCALL", "DELEGATECALL"][self.dice.skewed_index(3)];
                let mut call = self.call(kind, from, to, input, output);
                call.calls = self.nested_calls(to, depth - 1);
                call
            })
            .collect()
    }
}

/// A call without its nested calls, as `trace_block` returns it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlatTrace<'a> {
    action: TraceAction<'a>,
    block_hash: Word,
    block_number: u64,
    result: FlatTraceResult<'a>,
    subtraces: usize,
    trace_address: Vec<usize>,
    transaction_hash: Word,
    pub transaction_position: usize,
    #[serde(rename = "type")]
    kind: &'static str,
}

/// The inputs of a traced call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TraceAction<'a> {
    call_type: String,
    from: Address,
    gas: Quantity<u64>,
    input: &'a HexSerializedBytes,
    to: Option<Address>,
    value: Quantity<u128>,
}

/// The outputs of a traced call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FlatTraceResult<'a> {
    gas_used: Quantity<u64>,
    output: &'a HexSerializedBytes,
}

/// Flattens traces to one entry per call, parents before their children.
pub fn flatten_traces<'a>(
    block: &GeneratedBlock,
    traces: &'a [SampleTransactionTrace],
) -> Vec<FlatTrace<'a>> {
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

/// Appends a call and its nested calls in depth-first order; `address` is the path of indices to
/// the call.
fn push_flat<'a>(
    block: &GeneratedBlock,
    transaction_hash: Word,
    transaction_position: usize,
    call: &'a TracedCall,
    address: &[usize],
    flat: &mut Vec<FlatTrace<'a>>,
) {
    flat.push(FlatTrace {
        action: TraceAction {
            call_type: call.kind.to_ascii_lowercase(),
            from: call.from,
            gas: call.gas,
            input: &call.input,
            to: call.to,
            value: call.value.unwrap_or(Quantity(0)),
        },
        block_hash: block.header.hash,
        block_number: block.header.number.0,
        result: FlatTraceResult {
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
