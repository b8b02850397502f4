//! Values with about as many leaves as are hashed together.

use super::random::{compare_value, value, SeededNumbers};
use crate::tree::{Type, Value};

const LIMITS: [Option<u64>; 2] = [Some(1 << 40), None];

/// Numbers near the 1024 leaves of series.rs, the 64 nodes of tree.rs' buffers, and the ends of
/// progressive subtrees (1, 5, 21, 85, 341, 1365, 5461).
const LEAVES: [usize; 12] = [
    340, 1023, 1024, 1025, 1056, 1087, 1088, 1365, 1366, 2048, 4100, 5462,
];

#[test]
fn roots_of_long_byte_lists_equal_the_reference() {
    let mut numbers = SeededNumbers(1);
    for limit in LIMITS {
        for leaves in LEAVES {
            for more in [0, 1, 31] {
                let bytes = numbers.bytes(32 * leaves + more);
                let label = format!("{} bytes", bytes.len());
                compare_value(&Type::ByteList(limit), &Value::Bytes(bytes), &label);
            }
        }
    }
}

#[test]
fn roots_of_long_bitlists_equal_the_reference() {
    let mut numbers = SeededNumbers(1);
    for limit in LIMITS {
        for leaves in [1023, 1024, 1025, 1365] {
            for more in [0, 1, 7, 8, 9, 247, 248, 249, 255] {
                let len = 256 * leaves + more;
                let bits = (0..len).map(|_| numbers.below(2) == 1).collect();
                compare_value(
                    &Type::Bitlist(limit),
                    &Value::Bits(bits),
                    &format!("{len} bits"),
                );
            }
        }
    }
}

#[test]
fn roots_of_long_lists_of_fixed_size_values_equal_the_reference() {
    let key = || Type::ByteVector(48);
    let fields = vec![
        key(),
        Type::Uint(8),
        Type::Boolean,
        Type::Bitvector(12),
        Type::Container(vec![Type::ByteVector(32), Type::Vector(Box::new(key()), 2)]),
    ];
    for limit in LIMITS {
        for leaves in LEAVES.into_iter().filter(|leaves| *leaves < 2048) {
            let ty = Type::List(Box::new(Type::Container(fields.clone())), limit);
            compare_list(&ty, leaves, 1);
            let ty = Type::List(Box::new(Type::ByteVector(20)), limit);
            compare_list(&ty, leaves, 1);
        }
    }
}

#[test]
fn roots_of_long_lists_of_variable_size_values_equal_the_reference() {
    for limit in LIMITS {
        for leaves in [1023, 1025, 2100] {
            let bytes = || Type::ByteList(limit);
            compare_list(&Type::List(Box::new(bytes()), limit), leaves, 20);
            let container = Type::Container(vec![bytes(), Type::Uint(8), bytes()]);
            compare_list(&Type::List(Box::new(container), limit), leaves, 20);
        }
        // lists in lists, some of them large
        let inner = Type::List(Box::new(Type::ByteVector(33)), limit);
        let ty = Type::List(Box::new(inner), limit);
        compare_list(&ty, 16, 2400);
        // byte lists, some of them large
        let ty = Type::List(Box::new(Type::ByteList(limit)), limit);
        compare_list(&ty, 16, 2400);
    }
}

fn compare_list(ty: &Type, len: usize, most: usize) {
    let Type::List(of, _) = ty else {
        panic!("{ty:?}");
    };
    let mut numbers = SeededNumbers(len as u64);
    let values = (0..len).map(|_| value(of, &mut numbers, most)).collect();
    compare_value(ty, &Value::Values(values), &format!("{len} elements"));
}
