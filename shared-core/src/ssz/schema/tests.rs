use super::*;

#[test]
fn type_tables_of_all_forks_and_presets_compile() {
    for fork in Fork::ALL {
        for preset in Preset::ALL {
            assert!(Schema::for_fork(*fork, *preset).named_types().count() > 0);
        }
    }
}

fn table_error(table: &str) -> String {
    Schema::compile_type_table(table).unwrap_err().to_string()
}

#[test]
fn invalid_table_is_reported_with_its_line() {
    assert_eq!(table_error("Aa = Bb\n"), "table.types:1: unknown type Bb");
    assert_eq!(
        table_error("\nAa = List[uint64]\n"),
        "table.types:2: expected ',' before \"]\""
    );
    assert_eq!(
        table_error("class Aa(Container):\n    a: uint64\n    b: Aa\n"),
        "table.types:3: Aa contains itself"
    );
    assert_eq!(
        table_error("Aa = Vector[uint8, N]\nN = 0\n"),
        "table.types:1: a vector of length 0"
    );
    assert_eq!(
        table_error("N = 2**64\nAa = ByteList[N]"),
        "table.types:1: more than 64 bits"
    );
    assert_eq!(
        table_error("class Aa(Container):\nBb = Aa\n"),
        "table.types:1: the container has no fields"
    );
    assert_eq!(
        table_error("class Aa(ProgressiveContainer(active_fields=[1, 0])):\n    a: uint8\n"),
        "table.types:1: active_fields do not match the fields"
    );
    assert_eq!(
        table_error("Aa = uint8\nAa = uint16\n"),
        "table.types:2: Aa occurs twice"
    );
    assert_eq!(
        table_error("Aa = List[uint8, 3 // (2 - 2)]\n"),
        "table.types:1: a division by zero"
    );
    assert_eq!(
        table_error("Aa = List[uint8, floorlog2(0)]\n"),
        "table.types:1: a logarithm of zero"
    );
    assert_eq!(
        table_error("\nclass Aa(Aa):\n    a: uint8\n"),
        "table.types:2: unknown container Aa"
    );
    assert_eq!(
        table_error("Aa = Enum[BAD = INVALID, INVALID]\n"),
        "table.types:1: unknown word INVALID"
    );
    assert_eq!(table_error("del Aa\n"), "table.types:1: unknown name Aa");
}

#[test]
fn number_expressions_are_evaluated_with_python_precedence() {
    let schema = Schema::compile_type_table(
        "N = 2**2**3 // 3 * 2 - (1 + 1)\n\
         Aa = ByteList[N]\n\
         Bb = List[Aa, floorlog2(105) * 1_000]\n",
    )
    .unwrap();
    let name = |name| &*schema.type_by_id(schema.find_type(name).unwrap()).name;
    assert_eq!(name("Aa"), "ByteList[168]");
    assert_eq!(name("Bb"), "List[ByteList[168], 6000]");
}

#[test]
fn fork_inherits_types_and_overrides_or_removes_some() {
    let fields = |fork, name| {
        let schema = Schema::for_fork(fork, Preset::Mainnet);
        let ty = schema.find_type(name).map(|id| &schema.type_by_id(id).kind);
        match ty {
            Some(TypeKind::Container(container)) => container.fields.len(),
            _ => 0,
        }
    };
    // fields that are appended
    assert_eq!(fields(Fork::Capella, "ExecutionPayload"), 15);
    assert_eq!(fields(Fork::Deneb, "ExecutionPayload"), 17);
    // all fields are redefined
    assert_eq!(fields(Fork::Gloas, "ExecutionPayload"), 19);
    // a field is appended to a progressive container
    assert_eq!(fields(Fork::Gloas, "ExecutionPayloadBid"), 12);
    assert_eq!(fields(Fork::Heze, "ExecutionPayloadBid"), 13);
    // fields are removed from a progressive container
    assert_eq!(fields(Fork::Gloas, "BeaconBlockBody"), 13);
    assert_eq!(fields(Fork::Heze, "BeaconBlockBody"), 11);
    // unchanged
    assert_eq!(fields(Fork::Gloas, "Withdrawal"), 4);
    // removed
    assert_eq!(fields(Fork::Phase0, "PendingAttestation"), 4);
    assert_eq!(fields(Fork::Altair, "PendingAttestation"), 0);
    // a type that changes because of its parts
    let limit = |fork| {
        let mut schema = Schema::compile_with_constants(fork, Preset::Minimal, &[]).unwrap();
        let ty = schema.parse_type("AggregationBits").unwrap();
        schema.type_by_id(ty).name.to_string()
    };
    assert_eq!(limit(Fork::Electra), "Bitlist[8192]");
    assert_eq!(limit(Fork::Gloas), "ProgressiveBitlist");
}

#[test]
fn removed_fields_leave_inactive_positions() {
    let inactive = |fork, name| -> Vec<usize> {
        let schema = Schema::for_fork(fork, Preset::Mainnet);
        let id = schema.find_type(name).unwrap();
        let TypeKind::Container(container) = &schema.type_by_id(id).kind else {
            panic!("{name}");
        };
        let active = container.active_fields.as_deref().unwrap();
        (0..active.len()).filter(|at| !active[*at]).collect()
    };
    assert_eq!(inactive(Fork::Heze, "BeaconBlockBody"), [1, 6]);
    assert_eq!(inactive(Fork::Heze, "BeaconState"), [8, 9, 10, 28]);
    assert!(inactive(Fork::Gloas, "BeaconState").is_empty());
}

/// Fields are only ever appended, and keep their positions (EIP-7495).
#[test]
fn appended_fields_of_a_progressive_container_are_active() {
    let mut by_name = BTreeMap::new();
    let tables = [
        "class Aa(ProgressiveContainer(active_fields=[1, 0] * 2 + [1])):\n\
         \x20   a: uint8\n    b: uint8\n    c: uint8\n",
        "class Aa(Aa):\n    d: uint16\n    e: uint8\n",
        "class Aa(Aa):\n    f: uint8\n",
    ];
    for (n, table) in ["first", "second", "third"].into_iter().zip(tables) {
        source::read_type_table(n, table, Preset::Mainnet, &mut by_name).unwrap();
    }
    let schema = Schema::compile_definitions(by_name, &[]).unwrap();
    let TypeKind::Container(container) = &schema.type_by_id(schema.find_type("Aa").unwrap()).kind
    else {
        panic!("Aa");
    };
    let active = [true, false, true, false, true, true, true, true];
    assert_eq!(container.active_fields.as_deref(), Some(&active[..]));
    assert_eq!(container.fields.len(), 6);
    // invalid lists are rejected
    for list in ["[1]", "[1] * 300", "[1] +", "[2]", "[1] * 2 + [0]"] {
        let table = format!("class Aa(ProgressiveContainer(active_fields={list})):\n");
        Schema::compile_type_table(&format!("{table}    a: uint8\n    b: uint8\n")).unwrap_err();
    }
}

#[test]
fn type_sizes_depend_on_the_preset() {
    let size = |preset, name| {
        let schema = Schema::for_fork(Fork::Fulu, preset);
        schema.type_by_id(schema.find_type(name).unwrap()).size
    };
    assert_eq!(size(Preset::Mainnet, "ProposerLookahead"), Some(64 * 8));
    assert_eq!(size(Preset::Minimal, "ProposerLookahead"), Some(16 * 8));
    assert_eq!(size(Preset::Gnosis, "ProposerLookahead"), Some(32 * 8));
    assert_eq!(size(Preset::Gnosis, "SyncCommittee"), Some(513 * 48));
}

#[test]
fn sizes_and_offsets_are_computed_from_the_fields() {
    let schema = Schema::compile_type_table(
        "N = 3, 4, 5\n\
         class Inner(Container):\n    a: uint64\n    b: ByteVector[N * 2**4 - 1]\n\
         class Outer(Container):\n    a: Bitvector[9]\n    b: List[Inner, N]\n    c: boolean\n",
    )
    .unwrap();
    let inner = schema.type_by_id(schema.find_type("Inner").unwrap());
    assert_eq!((inner.size, inner.is_plain), (Some(8 + 47), true));
    let outer = schema.type_by_id(schema.find_type("Outer").unwrap());
    assert_eq!(
        (outer.size, outer.min_size, outer.is_plain),
        (None, 7, false)
    );
    let TypeKind::Container(outer) = &outer.kind else {
        panic!("{outer:?}");
    };
    let offsets: Vec<usize> = outer.fields.iter().map(|field| field.offset).collect();
    assert_eq!(offsets, [0, 2, 6]);
    assert_eq!(
        &*schema.type_by_id(outer.fields[1].ty).name,
        "List[Inner, 3]"
    );
    assert_eq!(outer.names.find_field(b"c"), Some(2));
    assert_eq!(outer.names.find_field(b"d"), None);
}

#[test]
fn frequent_containers_of_blocks_and_states_have_a_template() {
    let many = [
        (Fork::Phase0, "Validator"),
        (Fork::Phase0, "Attestation"),
        (Fork::Phase0, "PendingAttestation"),
        (Fork::Phase0, "SignedVoluntaryExit"),
        (Fork::Capella, "Withdrawal"),
        (Fork::Capella, "SignedBLSToExecutionChange"),
        (Fork::Electra, "PendingDeposit"),
        (Fork::Electra, "PendingConsolidation"),
        (Fork::Electra, "PendingPartialWithdrawal"),
        (Fork::Electra, "ConsolidationRequest"),
    ];
    for (since, name) in many {
        for fork in Fork::ALL.iter().filter(|fork| **fork >= since) {
            let schema = Schema::for_fork(*fork, Preset::Mainnet);
            let Some(id) = schema.find_type(name) else {
                // removed by a later fork
                assert_eq!(name, "PendingAttestation");
                continue;
            };
            let TypeKind::Container(container) = &schema.type_by_id(id).kind else {
                panic!("{name}");
            };
            assert!(container.template.is_some(), "{fork} {name}");
        }
    }
}

#[test]
fn template_contains_all_constant_text() {
    let table = r#"
class Point(Container):
    x: uint64
    y "yAxis": boolean
class Shape(Container):
    name: ByteList[9]
    at: Point
    bits: Bitlist[9]
    hash: ByteVector[32]
class Deep(Container):
    shape: Shape
class Long(Container):
    a_name_that_makes_more_than_forty_eight_bytes: uint64
"#;
    let schema = Schema::compile_type_table(table).unwrap();
    let template = |name| match &schema.type_by_id(schema.find_type(name).unwrap()).kind {
        TypeKind::Container(container) => container.template.clone(),
        _ => None,
    };
    let shape = template("Shape").unwrap();
    let text =
        |literal: &TemplateLiteral| String::from_utf8(literal.bytes[..literal.len].into()).unwrap();
    let before: Vec<_> = shape.steps.iter().map(|step| text(&step.before)).collect();
    assert_eq!(
        before,
        [
            "{\"name\":\"0x",
            "\",\"at\":{\"x\":\"",
            "\",\"yAxis\":",
            "},\"bits\":\"0x",
            "\",\"hash\":\"0x",
        ]
    );
    assert_eq!(text(&shape.end), "\"}");
    let places: Vec<_> = shape.steps.iter().map(|step| step.offset).collect();
    assert_eq!(places, [0, 4, 12, 13, 17]);
    let next: Vec<_> = shape.steps.iter().map(|step| step.next_offset).collect();
    assert_eq!(next, [Some(13), Some(13), Some(13), None, None]);
    // parts of variable size, and a text that is too long to be copied at once
    assert!(template("Deep").is_none());
    assert!(template("Long").is_none());
}
