//! Roots of any value of any type.

use proptest::prelude::*;
use proptest::sample::select;
use sszip_core::ssz::{hash_tree_root, Schema};

use crate::tree::{Type, Value};

/// Types without element types, mostly of lengths at which the layout changes.
fn simple() -> impl Strategy<Value = Type> {
    let len = select(vec![1, 20, 31, 32, 33, 48, 64, 65, 96, 256, 1000]);
    let limit = prop_oneof![
        select(vec![1, 31, 32, 33, 255, 256, 257, 2048]).prop_map(Some),
        Just(Some(1 << 40)),
        Just(Some(u64::MAX)),
        Just(None),
    ];
    prop_oneof![
        select(vec![1, 2, 4, 8, 16, 32]).prop_map(Type::Uint),
        Just(Type::Boolean),
        Just(Type::Enum),
        len.clone().prop_map(Type::ByteVector),
        limit.clone().prop_map(Type::ByteList),
        (1..200_u64).prop_map(Type::Text),
        len.prop_map(Type::Bitvector),
        limit.prop_map(Type::Bitlist),
    ]
}

fn types() -> impl Strategy<Value = Type> {
    simple().prop_recursive(4, 24, 6, |of| {
        let one = of.clone().prop_map(Box::new);
        let limit = prop_oneof![
            (0..70_u64).prop_map(Some),
            Just(Some(1 << 40)),
            Just(Some(u64::MAX)),
            Just(None)
        ];
        let places = prop::collection::vec(prop::option::weighted(0.7, of.clone()), 0..24);
        prop_oneof![
            (one.clone(), 1..20_usize).prop_map(|(of, len)| Type::Vector(of, len)),
            (one.clone(), limit).prop_map(|(of, limit)| Type::List(of, limit)),
            one.prop_map(Type::Optional),
            prop::collection::vec(of.clone(), 1..9).prop_map(Type::Container),
            (places, of.clone()).prop_map(|(mut places, last)| {
                places.push(Some(last));
                Type::Progressive(places)
            }),
            (of.clone(), of).prop_map(|(a, b)| Type::Union(vec![(1, a), (127, b)])),
        ]
    })
}

/// A generator of pseudorandom numbers from a seed (xorshift64).
pub struct SeededNumbers(pub u64);

impl SeededNumbers {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Returns a count that is mostly small, and sometimes up to `most`.
    fn count(&mut self, limit: Option<u64>, most: usize) -> usize {
        let most = limit.map_or(most, |limit| {
            most.min(limit.try_into().unwrap_or(usize::MAX))
        });
        match self.below(4) {
            0 => most,
            1 => self.below(most + 1),
            _ => self.below(most.min(8) + 1),
        }
    }
}

/// Returns a value of the type whose lists have up to `most` elements.
pub fn value(ty: &Type, numbers: &mut SeededNumbers, most: usize) -> Value {
    let fewer = most / 2;
    match ty {
        Type::Uint(len) | Type::ByteVector(len) => Value::Bytes(numbers.bytes(*len)),
        Type::Boolean => Value::Bytes(vec![numbers.below(2) as u8]),
        Type::Enum => Value::Bytes(vec![numbers.below(3) as u8]),
        Type::ByteList(limit) => {
            let len = numbers.count(*limit, 40 * most);
            Value::Bytes(numbers.bytes(len))
        }
        Type::Text(limit) => Value::Bytes(vec![b'a'; numbers.count(Some(*limit), 40 * most)]),
        Type::Bitvector(len) => Value::Bits((0..*len).map(|_| numbers.below(2) == 1).collect()),
        Type::Bitlist(limit) => {
            let len = numbers.count(*limit, 300 * most);
            Value::Bits((0..len).map(|_| numbers.below(2) == 1).collect())
        }
        Type::Vector(of, len) => values(of, *len, numbers, fewer),
        Type::List(of, limit) => {
            let len = numbers.count(*limit, most);
            values(of, len, numbers, fewer)
        }
        Type::Optional(of) => {
            let len = numbers.below(2);
            values(of, len, numbers, fewer)
        }
        Type::Container(fields) => {
            Value::Values(fields.iter().map(|ty| value(ty, numbers, fewer)).collect())
        }
        Type::Progressive(places) => {
            let fields = places.iter().flatten();
            Value::Values(fields.map(|ty| value(ty, numbers, fewer)).collect())
        }
        Type::Union(options) => {
            let (selector, of) = &options[numbers.below(options.len())];
            Value::Option(*selector, Box::new(value(of, numbers, fewer)))
        }
    }
}

fn values(of: &Type, len: usize, numbers: &mut SeededNumbers, most: usize) -> Value {
    Value::Values((0..len).map(|_| value(of, numbers, most)).collect())
}

fn compare(ty: &Type, seed: u64, most: usize) {
    let value = value(ty, &mut SeededNumbers(seed | 1), most);
    compare_value(ty, &value, &format!("seed {seed}"));
}

/// Checks that both roots are equal.
pub fn compare_value(ty: &Type, value: &Value, label: &str) {
    let mut definitions = String::new();
    let text = ty.text(&mut definitions);
    let mut schema = Schema::compile_type_table(&definitions).unwrap();
    let id = schema.parse_type(&text).unwrap();
    let ssz = ty.serialize(value);
    let root = hash_tree_root(&schema, id, &ssz).unwrap();
    assert_eq!(root, ty.root(value), "{definitions}{text}, {label}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn roots_of_any_value_equal_the_reference(ty in types(), seed: u64) {
        compare(&ty, seed, 24);
    }
}
