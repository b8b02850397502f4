//! Participants of the sample and their frequencies, which determine how well mainnet's data
//! compresses.
//!
//! Hashes, signatures and fresh addresses are random. Contracts, selectors and topics come from
//! short lists whose first entries are by far the most frequent; amounts are small numbers in
//! 32-byte words.

use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::values::{Address, FixedBytes, Word};

const ACCOUNTS: usize = 3000;
const CONTRACTS: usize = 400;
const SELECTORS: usize = 60;

/// Mainnet's most used contracts: tokens first, then routers.
const TOKENS: [&str; 5] = [
    "dac17f958d2ee523a2206206994597c13d831ec7",
    "a0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",
    "c02aaa39b223fe8d0a0e5c4f27ead9083c756cc2",
    "6b175474e89094c44da98b954eedeac495271d0f",
    "2260fac5e5542a773aa44fbcfedf7c193bc2c599",
];
const ROUTERS: [&str; 4] = [
    "7a250d5630b4cf539739df2c5dacb4c659f2488d",
    "3fc91a3afd70395cd496c647d5a6cc9d4b2b7fad",
    "68b3465833fb72a70ecdf485e0e4c7bd8665fc45",
    "1111111254eeb25477b68fb85ed929f73a960582",
];

/// Topics of the most frequent events in mainnet's logs.
pub const TRANSFER: &str = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
pub const APPROVAL: &str = "8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925";
pub const SWAP_V2: &str = "d78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822";
pub const SWAP_V3: &str = "c42079f94a6350d7e6235f29174924f928cc2ac818eb64fed8004e115fbcca67";
pub const SYNC: &str = "1c411e9a96e071241c2f21f7726b17ae89e3cab4c78be50e062b03a9fffbbad1";

/// The random generator of all samples, whose sequence for a seed never changes.
#[derive(Clone, Debug)]
pub struct SeededGenerator(Xoshiro256PlusPlus);

impl SeededGenerator {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns a number below `bound`.
    pub fn number_below(&mut self, bound: u64) -> u64 {
        // The high half of the product: no division, and the bias of a 64-bit draw does not
        // matter here.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both inclusive.
    pub fn number_between(&mut self, low: u64, high: u64) -> u64 {
        low + self.number_below(high - low + 1)
    }

    /// Returns `true` in `chance` of 100 cases.
    pub fn is_within_percent(&mut self, chance: u64) -> bool {
        self.number_below(100) < chance
    }

    /// Returns an index below `len`, low ones by far the most frequent.
    pub fn skewed_index(&mut self, len: usize) -> usize {
        let unit = self.number_below(1 << 20) as f64 / (1u64 << 20) as f64;
        let square = unit * unit;
        (square * square * len as f64) as usize
    }

    /// Returns `N` random bytes.
    pub fn random_fixed_bytes<const N: usize>(&mut self) -> FixedBytes<N> {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        FixedBytes(bytes)
    }

    pub fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// Returns a balance without round digits, as after trades and fees.
    pub fn random_balance(&mut self) -> u128 {
        u128::from(self.0.next_u64()) << self.number_below(28)
    }

    /// Returns an amount of wei: often a round one, otherwise up to about 2^72.
    pub fn random_amount(&mut self) -> u128 {
        const ROUND: [u128; 5] = [
            10u128.pow(16),
            10u128.pow(17),
            10u128.pow(18),
            5 * 10u128.pow(17),
            10u128.pow(9),
        ];
        if self.is_within_percent(35) {
            let unit = ROUND[self.number_below(ROUND.len() as u64) as usize];
            unit * u128::from(self.number_between(1, 20))
        } else {
            let bits = self.number_between(28, 72) as u32;
            u128::from(self.0.next_u64()) << 8 >> (72 - bits.min(72))
        }
    }
}

/// The accounts and contracts among which the sample's transactions take place.
#[derive(Debug)]
pub struct SampleAccounts {
    accounts: Vec<Address>,
    contracts: Vec<Address>,
    selectors: Vec<FixedBytes<4>>,
    topics: Vec<Word>,
}

impl SampleAccounts {
    /// Generates the accounts, and contracts that begin with well-known tokens and routers.
    pub fn new(dice: &mut SeededGenerator) -> Self {
        let named = TOKENS
            .iter()
            .chain(&ROUTERS)
            .map(|digits| decode_fixed_digits(digits));
        let mut contracts: Vec<Address> = named.collect();
        contracts.extend((contracts.len()..CONTRACTS).map(|_| dice.random_fixed_bytes::<20>()));
        Self {
            accounts: (0..ACCOUNTS).map(|_| dice.random_fixed_bytes()).collect(),
            contracts,
            selectors: (0..SELECTORS).map(|_| dice.random_fixed_bytes()).collect(),
            topics: (0..SELECTORS).map(|_| dice.random_fixed_bytes()).collect(),
        }
    }

    /// Returns an account, a known one in half of the cases.
    pub fn random_account(&self, dice: &mut SeededGenerator) -> Address {
        if dice.is_within_percent(50) {
            self.accounts[dice.skewed_index(self.accounts.len())]
        } else {
            dice.random_fixed_bytes()
        }
    }

    /// Returns a contract, well-known ones by far the most frequently.
    pub fn random_contract(&self, dice: &mut SeededGenerator) -> Address {
        self.contracts[dice.skewed_index(self.contracts.len())]
    }

    /// Returns a token, mostly one of the large ones.
    pub fn random_token_contract(&self, dice: &mut SeededGenerator) -> Address {
        if dice.is_within_percent(65) {
            self.contracts[dice.number_below(TOKENS.len() as u64) as usize]
        } else {
            self.random_contract(dice)
        }
    }

    pub fn random_router(&self, dice: &mut SeededGenerator) -> Address {
        self.contracts[TOKENS.len() + dice.number_below(ROUTERS.len() as u64) as usize]
    }

    pub fn random_selector(&self, dice: &mut SeededGenerator) -> FixedBytes<4> {
        self.selectors[dice.skewed_index(self.selectors.len())]
    }

    pub fn random_topic(&self, dice: &mut SeededGenerator) -> Word {
        self.topics[dice.skewed_index(self.topics.len())]
    }

    /// Returns a word of call data or of a log: an offset, a flag, an address, an amount,
    /// occasionally 32 random bytes.
    pub fn random_word(&self, dice: &mut SeededGenerator) -> Word {
        match dice.number_below(100) {
            0..=29 => Word::from(u128::from(dice.number_between(0, 20) * 32)),
            30..=34 => Word::from(u128::from(dice.number_below(2))),
            35..=59 => Word::from(self.random_contract(dice)),
            60..=69 => Word::from(self.random_account(dice)),
            70..=92 => Word::from(dice.random_amount()),
            93..=95 => FixedBytes([0xff; 32]),
            _ => dice.random_fixed_bytes(),
        }
    }
}

/// Decodes one of the constants above.
pub fn decode_fixed_digits<const N: usize>(digits: &str) -> FixedBytes<N> {
    let mut bytes = [0; N];
    // The constants have the right length; the test below decodes each.
    let read = hex::decode_to_slice(digits, &mut bytes);
    debug_assert!(read.is_ok(), "{digits}");
    FixedBytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_decoded_completely() {
        for digits in TOKENS.iter().chain(&ROUTERS) {
            assert_eq!(hex::encode(decode_fixed_digits::<20>(digits).0), *digits);
        }
        for digits in [TRANSFER, APPROVAL, SWAP_V2, SWAP_V3, SYNC] {
            assert_eq!(hex::encode(decode_fixed_digits::<32>(digits).0), digits);
        }
    }

    #[test]
    fn dice_are_deterministic_and_within_bounds() {
        let (mut one, mut two) = (SeededGenerator::new(7), SeededGenerator::new(7));
        for _ in 0..10_000 {
            let number = one.number_between(3, 9);
            assert!((3..=9).contains(&number));
            assert_eq!(number, two.number_between(3, 9));
            assert!(one.skewed_index(5) < 5);
            two.skewed_index(5);
            assert!(one.random_amount() < 1 << 72);
            two.random_amount();
        }
    }
}
