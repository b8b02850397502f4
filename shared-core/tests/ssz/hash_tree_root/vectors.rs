//! Roots that the specs' own library has computed.

use sszip_core::ssz::{hash_tree_root, Schema};

const TABLE: &str = "\
class Checkpoint(Container):
    epoch: uint64
    root: ByteVector[32]
class Outer(Container):
    a: uint16
    b: List[uint16, 100]
    c: Checkpoint
    d: ByteList[70]
class Square(ProgressiveContainer(active_fields=[1, 0, 1])):
    side: uint16
    color: uint8
class Circle(ProgressiveContainer(active_fields=[0, 1, 1])):
    radius: List[uint16, 4]
    color: uint8
Shape = CompatibleUnion({1: Square, 2: Square})
";

#[test]
fn roots_equal_the_vectors_of_the_specs() {
    let mut schema = Schema::compile_type_table(TABLE).unwrap();
    let lines = include_str!("vectors.txt").lines();
    let mut count = 0;
    for line in lines.filter(|line| !line.starts_with('#')) {
        let [ty, ssz, root] = *line.split('|').collect::<Vec<_>>() else {
            panic!("{line}");
        };
        let id = schema.parse_type(ty).unwrap();
        let found = hash_tree_root(&schema, id, &bytes(ssz)).unwrap();
        assert_eq!(found[..], bytes(root), "{line}");
        count += 1;
    }
    assert!(count > 40, "{count}");
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}
