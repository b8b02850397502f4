//! Specification of the compared types, once for all peers: each peer declares its own structs
//! from it. It follows consensus-specs (phase0 to deneb, preset mainnet); the JSON notation,
//! given as the name of a module of [`crate::json`], follows beacon-APIs.

/// Passes all containers to a macro of a peer, which defines `List`, `Vector`, `ByteList`,
/// `Bitlist`, `Bitvector`, `BytesN` and `Uint256`.
macro_rules! containers {
    ($declare:ident) => {
        $declare! {
            ExecutionWitness {
                state: List<ByteList<MAX_BYTES_PER_WITNESS_NODE>, MAX_WITNESS_NODES> = "hexes",
                codes: List<ByteList<MAX_BYTES_PER_WITNESS_CODE>, MAX_WITNESS_CODES> = "hexes",
                headers: List<ByteList<MAX_BYTES_PER_WITNESS_HEADER>, MAX_WITNESS_HEADERS> = "hexes",
            }
            Fork {
                previous_version: Bytes4 = "hex",
                current_version: Bytes4 = "hex",
                epoch: u64 = "uint",
            }
            Checkpoint {
                epoch: u64 = "uint",
                root: Bytes32 = "hex",
            }
            Validator {
                pubkey: Bytes48 = "hex",
                withdrawal_credentials: Bytes32 = "hex",
                effective_balance: u64 = "uint",
                slashed: bool = "itself",
                activation_eligibility_epoch: u64 = "uint",
                activation_epoch: u64 = "uint",
                exit_epoch: u64 = "uint",
                withdrawable_epoch: u64 = "uint",
            }
            AttestationData {
                slot: u64 = "uint",
                index: u64 = "uint",
                beacon_block_root: Bytes32 = "hex",
                source: Checkpoint = "itself",
                target: Checkpoint = "itself",
            }
            IndexedAttestation {
                attesting_indices: List<u64, MAX_VALIDATORS_PER_COMMITTEE> = "uints",
                data: AttestationData = "itself",
                signature: Bytes96 = "hex",
            }
            PendingAttestation {
                aggregation_bits: Bitlist<MAX_VALIDATORS_PER_COMMITTEE> = "hex",
                data: AttestationData = "itself",
                inclusion_delay: u64 = "uint",
                proposer_index: u64 = "uint",
            }
            Eth1Data {
                deposit_root: Bytes32 = "hex",
                deposit_count: u64 = "uint",
                block_hash: Bytes32 = "hex",
            }
            DepositData {
                pubkey: Bytes48 = "hex",
                withdrawal_credentials: Bytes32 = "hex",
                amount: u64 = "uint",
                signature: Bytes96 = "hex",
            }
            BeaconBlockHeader {
                slot: u64 = "uint",
                proposer_index: u64 = "uint",
                parent_root: Bytes32 = "hex",
                state_root: Bytes32 = "hex",
                body_root: Bytes32 = "hex",
            }
            SignedBeaconBlockHeader {
                message: BeaconBlockHeader = "itself",
                signature: Bytes96 = "hex",
            }
            ProposerSlashing {
                signed_header_1: SignedBeaconBlockHeader = "itself",
                signed_header_2: SignedBeaconBlockHeader = "itself",
            }
            AttesterSlashing {
                attestation_1: IndexedAttestation = "itself",
                attestation_2: IndexedAttestation = "itself",
            }
            Attestation {
                aggregation_bits: Bitlist<MAX_VALIDATORS_PER_COMMITTEE> = "hex",
                data: AttestationData = "itself",
                signature: Bytes96 = "hex",
            }
            Deposit {
                proof: Vector<Bytes32, DEPOSIT_PROOF_LENGTH> = "hexes",
                data: DepositData = "itself",
            }
            VoluntaryExit {
                epoch: u64 = "uint",
                validator_index: u64 = "uint",
            }
            SignedVoluntaryExit {
                message: VoluntaryExit = "itself",
                signature: Bytes96 = "hex",
            }
            SyncAggregate {
                sync_committee_bits: Bitvector<SYNC_COMMITTEE_SIZE> = "hex",
                sync_committee_signature: Bytes96 = "hex",
            }
            SyncCommittee {
                pubkeys: Vector<Bytes48, SYNC_COMMITTEE_SIZE> = "hexes",
                aggregate_pubkey: Bytes48 = "hex",
            }
            Withdrawal {
                index: u64 = "uint",
                validator_index: u64 = "uint",
                address: Bytes20 = "hex",
                amount: u64 = "uint",
            }
            ExecutionPayload {
                parent_hash: Bytes32 = "hex",
                fee_recipient: Bytes20 = "hex",
                state_root: Bytes32 = "hex",
                receipts_root: Bytes32 = "hex",
                logs_bloom: Bytes256 = "hex",
                prev_randao: Bytes32 = "hex",
                block_number: u64 = "uint",
                gas_limit: u64 = "uint",
                gas_used: u64 = "uint",
                timestamp: u64 = "uint",
                extra_data: ByteList<MAX_EXTRA_DATA_BYTES> = "hex",
                base_fee_per_gas: Uint256Conversion = "uint256",
                block_hash: Bytes32 = "hex",
                transactions: List<ByteList<MAX_BYTES_PER_TRANSACTION>, MAX_TRANSACTIONS_PER_PAYLOAD> = "hexes",
                withdrawals: List<Withdrawal, MAX_WITHDRAWALS_PER_PAYLOAD> = "list",
                blob_gas_used: u64 = "uint",
                excess_blob_gas: u64 = "uint",
            }
            ExecutionPayloadHeader {
                parent_hash: Bytes32 = "hex",
                fee_recipient: Bytes20 = "hex",
                state_root: Bytes32 = "hex",
                receipts_root: Bytes32 = "hex",
                logs_bloom: Bytes256 = "hex",
                prev_randao: Bytes32 = "hex",
                block_number: u64 = "uint",
                gas_limit: u64 = "uint",
                gas_used: u64 = "uint",
                timestamp: u64 = "uint",
                extra_data: ByteList<MAX_EXTRA_DATA_BYTES> = "hex",
                base_fee_per_gas: Uint256Conversion = "uint256",
                block_hash: Bytes32 = "hex",
                transactions_root: Bytes32 = "hex",
                withdrawals_root: Bytes32 = "hex",
                blob_gas_used: u64 = "uint",
                excess_blob_gas: u64 = "uint",
            }
            BLSToExecutionChange {
                validator_index: u64 = "uint",
                from_bls_pubkey: Bytes48 = "hex",
                to_execution_address: Bytes20 = "hex",
            }
            SignedBLSToExecutionChange {
                message: BLSToExecutionChange = "itself",
                signature: Bytes96 = "hex",
            }
            HistoricalSummary {
                block_summary_root: Bytes32 = "hex",
                state_summary_root: Bytes32 = "hex",
            }
            BeaconBlockBody {
                randao_reveal: Bytes96 = "hex",
                eth1_data: Eth1Data = "itself",
                graffiti: Bytes32 = "hex",
                proposer_slashings: List<ProposerSlashing, MAX_PROPOSER_SLASHINGS> = "list",
                attester_slashings: List<AttesterSlashing, MAX_ATTESTER_SLASHINGS> = "list",
                attestations: List<Attestation, MAX_ATTESTATIONS> = "list",
                deposits: List<Deposit, MAX_DEPOSITS> = "list",
                voluntary_exits: List<SignedVoluntaryExit, MAX_VOLUNTARY_EXITS> = "list",
                sync_aggregate: SyncAggregate = "itself",
                execution_payload: ExecutionPayload = "itself",
                bls_to_execution_changes: List<SignedBLSToExecutionChange, MAX_BLS_TO_EXECUTION_CHANGES> = "list",
                blob_kzg_commitments: List<Bytes48, MAX_BLOB_COMMITMENTS_PER_BLOCK> = "hexes",
            }
            BeaconBlock {
                slot: u64 = "uint",
                proposer_index: u64 = "uint",
                parent_root: Bytes32 = "hex",
                state_root: Bytes32 = "hex",
                body: BeaconBlockBody = "itself",
            }
            SignedBeaconBlock {
                message: BeaconBlock = "itself",
                signature: Bytes96 = "hex",
            }
            BeaconState {
                genesis_time: u64 = "uint",
                genesis_validators_root: Bytes32 = "hex",
                slot: u64 = "uint",
                fork: Fork = "itself",
                latest_block_header: BeaconBlockHeader = "itself",
                block_roots: Vector<Bytes32, SLOTS_PER_HISTORICAL_ROOT> = "hexes",
                state_roots: Vector<Bytes32, SLOTS_PER_HISTORICAL_ROOT> = "hexes",
                historical_roots: List<Bytes32, HISTORICAL_ROOTS_LIMIT> = "hexes",
                eth1_data: Eth1Data = "itself",
                eth1_data_votes: List<Eth1Data, MAX_ETH1_DATA_VOTES> = "list",
                eth1_deposit_index: u64 = "uint",
                validators: List<Validator, VALIDATOR_REGISTRY_LIMIT> = "list",
                balances: List<u64, VALIDATOR_REGISTRY_LIMIT> = "uints",
                randao_mixes: Vector<Bytes32, EPOCHS_PER_HISTORICAL_VECTOR> = "hexes",
                slashings: Vector<u64, EPOCHS_PER_SLASHINGS_VECTOR> = "uints",
                previous_epoch_participation: List<u8, VALIDATOR_REGISTRY_LIMIT> = "uints",
                current_epoch_participation: List<u8, VALIDATOR_REGISTRY_LIMIT> = "uints",
                justification_bits: Bitvector<JUSTIFICATION_BITS_LENGTH> = "hex",
                previous_justified_checkpoint: Checkpoint = "itself",
                current_justified_checkpoint: Checkpoint = "itself",
                finalized_checkpoint: Checkpoint = "itself",
                inactivity_scores: List<u64, VALIDATOR_REGISTRY_LIMIT> = "uints",
                current_sync_committee: SyncCommittee = "itself",
                next_sync_committee: SyncCommittee = "itself",
                latest_execution_payload_header: ExecutionPayloadHeader = "itself",
                next_withdrawal_index: u64 = "uint",
                next_withdrawal_validator_index: u64 = "uint",
                historical_summaries: List<HistoricalSummary, HISTORICAL_ROOTS_LIMIT> = "list",
            }
            BeaconStatePhase0 {
                genesis_time: u64 = "uint",
                genesis_validators_root: Bytes32 = "hex",
                slot: u64 = "uint",
                fork: Fork = "itself",
                latest_block_header: BeaconBlockHeader = "itself",
                block_roots: Vector<Bytes32, SLOTS_PER_HISTORICAL_ROOT> = "hexes",
                state_roots: Vector<Bytes32, SLOTS_PER_HISTORICAL_ROOT> = "hexes",
                historical_roots: List<Bytes32, HISTORICAL_ROOTS_LIMIT> = "hexes",
                eth1_data: Eth1Data = "itself",
                eth1_data_votes: List<Eth1Data, MAX_ETH1_DATA_VOTES> = "list",
                eth1_deposit_index: u64 = "uint",
                validators: List<Validator, VALIDATOR_REGISTRY_LIMIT> = "list",
                balances: List<u64, VALIDATOR_REGISTRY_LIMIT> = "uints",
                randao_mixes: Vector<Bytes32, EPOCHS_PER_HISTORICAL_VECTOR> = "hexes",
                slashings: Vector<u64, EPOCHS_PER_SLASHINGS_VECTOR> = "uints",
                previous_epoch_attestations: List<PendingAttestation, MAX_PENDING_ATTESTATIONS> = "list",
                current_epoch_attestations: List<PendingAttestation, MAX_PENDING_ATTESTATIONS> = "list",
                justification_bits: Bitvector<JUSTIFICATION_BITS_LENGTH> = "hex",
                previous_justified_checkpoint: Checkpoint = "itself",
                current_justified_checkpoint: Checkpoint = "itself",
                finalized_checkpoint: Checkpoint = "itself",
            }
        }
    };
}

/// Passes the limits to a macro of a peer, by their names in the specs, as powers of 2.
macro_rules! limits {
    ($declare:ident) => {
        $declare! {
            MAX_BYTES_PER_WITNESS_NODE = 10,
            MAX_WITNESS_NODES = 22,
            MAX_BYTES_PER_WITNESS_CODE = 16,
            MAX_WITNESS_CODES = 18,
            MAX_BYTES_PER_WITNESS_HEADER = 10,
            MAX_WITNESS_HEADERS = 8,
            MAX_VALIDATORS_PER_COMMITTEE = 11,
            MAX_PROPOSER_SLASHINGS = 4,
            MAX_ATTESTER_SLASHINGS = 1,
            MAX_ATTESTATIONS = 7,
            MAX_DEPOSITS = 4,
            MAX_VOLUNTARY_EXITS = 4,
            MAX_BLS_TO_EXECUTION_CHANGES = 4,
            MAX_BLOB_COMMITMENTS_PER_BLOCK = 12,
            SYNC_COMMITTEE_SIZE = 9,
            MAX_EXTRA_DATA_BYTES = 5,
            MAX_TRANSACTIONS_PER_PAYLOAD = 20,
            MAX_BYTES_PER_TRANSACTION = 30,
            MAX_WITHDRAWALS_PER_PAYLOAD = 4,
            SLOTS_PER_HISTORICAL_ROOT = 13,
            HISTORICAL_ROOTS_LIMIT = 24,
            MAX_ETH1_DATA_VOTES = 11,
            VALIDATOR_REGISTRY_LIMIT = 40,
            EPOCHS_PER_HISTORICAL_VECTOR = 16,
            EPOCHS_PER_SLASHINGS_VECTOR = 13,
            JUSTIFICATION_BITS_LENGTH = 2,
            MAX_PENDING_ATTESTATIONS = 12,
        }
    };
}
