//! Allocations that are refused to the walkers at every point where one can be: the output is
//! right, or an error reports that memory is missing.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "support/refused.rs"]
mod support;

use sszip_core::allocator::{ReserveAllocator, MAX_RESERVE_ALLOCATION};
use sszip_core::ssz::{
    check_ssz, hash_tree_root, json_to_ssz, ssz_to_json, Fork, JsonEnvelopeForm, JsonToSsz, Preset,
    Schema, SszError, SszToJson, TypeId,
};

use support::repeat_with_refusals;

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

const TABLE: &str = r#"
class Point(Container):
    x: uint64
    y: ByteVector[32]
class Vote(Container):
    bits: Bitlist[2048]
    point: Point
class Whole(Container):
    items: List[ByteList[2**20], 2**20]
    points: List[Point, 2**20]
    votes: List[Vote, 2**20]
    lists: List[List[uint64, 2**20], 2**20]
    text: Text[2**20]
"#;

/// Returns a value with each kind of list, longer than the reserve for small allocations.
fn value() -> String {
    let all = |count: usize, each: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..count).map(each).collect();
        format!("[{}]", all.join(","))
    };
    let point = |n: usize| format!(r#"{{"x":"{n}","y":"0x{n:064x}"}}"#);
    format!(
        r#"{{"items":{},"points":{},"votes":{},"lists":{},"text":"{}"}}"#,
        all(40_000, &|n| format!("\"0x{}\"", "ab".repeat(n % 40))),
        all(3_000, &point),
        all(3_000, &|n| format!(
            r#"{{"bits":"0x{n:04x}01","point":{}}}"#,
            point(n)
        )),
        all(30, &|n| all(n * 10, &|n| format!("\"{n}\""))),
        "text".repeat(100),
    )
}

fn in_pieces(schema: &Schema, ty: TypeId, json: &[u8]) -> Result<Vec<u8>, SszError> {
    let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Bare);
    for piece in json.chunks(3001) {
        reader.feed_json_piece(piece)?;
    }
    reader.finish()
}

/// Returns the length of the JSON that is written into small buffers; other tests compare the
/// JSON itself.
fn write_json_into_small_buffers(
    schema: &Schema,
    ty: TypeId,
    ssz: &[u8],
) -> Result<usize, SszError> {
    let mut writer = SszToJson::new(schema, ty, ssz)?;
    let mut room = [0; 2048];
    let mut whole = 0;
    loop {
        match writer.write_next(&mut room)? {
            0 => return Ok(whole),
            len => whole += len,
        }
    }
}

fn each_walker(schema: &Schema, ty: TypeId, json: &[u8]) {
    let ssz = json_to_ssz(schema, ty, json).unwrap();
    let back = ssz_to_json(schema, ty, &ssz).unwrap();
    assert_eq!(back, json);
    let root = hash_tree_root(schema, ty, &ssz).unwrap();
    // only long allocations; then all of them, with the small ones from the reserve
    for from in [MAX_RESERVE_ALLOCATION + 1, 1] {
        assert!(repeat_with_refusals(from, &ssz, || json_to_ssz(schema, ty, json)) > 0);
        assert!(repeat_with_refusals(from, &ssz, || in_pieces(schema, ty, json)) > 0);
        assert!(repeat_with_refusals(from, &back, || ssz_to_json(schema, ty, &ssz)) > 0);
        repeat_with_refusals(from, &back.len(), || {
            write_json_into_small_buffers(schema, ty, &ssz)
        });
        repeat_with_refusals(from, &(), || check_ssz(schema, ty, &ssz));
        repeat_with_refusals(from, &root, || hash_tree_root(schema, ty, &ssz));
    }
}

#[test]
fn walkers_are_right_or_fail_for_each_kind_of_list_when_allocations_are_refused() {
    let schema = Schema::compile_type_table(TABLE).unwrap();
    each_walker(
        &schema,
        schema.find_type("Whole").unwrap(),
        value().as_bytes(),
    );
}

#[test]
fn walkers_are_right_or_fail_for_an_rlp_witness_when_allocations_are_refused() {
    let schema = Schema::for_fork(Fork::Deneb, Preset::Mainnet);
    let codes: Vec<String> = (0..100)
        .map(|n: usize| format!("\"0x{}\"", "cd".repeat(n * n)))
        .collect();
    let witness = format!(
        r#"{{"state":["0x{}"],"codes":[{}],"headers":["0xc0"]}}"#,
        "ab".repeat(1000),
        codes.join(",")
    );
    let plain = schema.find_type("ExecutionWitness").unwrap();
    let witness = json_to_ssz(schema, plain, witness.as_bytes()).unwrap();
    // status, three offsets, and the bytes that they point to
    let head = b"\0\x0d\0\0\0\x0d\0\0\0\x0d\0\0\0\x04\0\0\0";
    let ty = schema.find_type("NewPayloadWithWitness").unwrap();
    let json = ssz_to_json(schema, ty, &[head, &witness[..]].concat()).unwrap();
    each_walker(schema, ty, &json);
}
