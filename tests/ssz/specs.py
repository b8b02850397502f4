"""The specifications' types, of a fork and preset, as Python classes."""

import functools
import importlib
import inspect
import re
import sys
import types

import newer_layouts
import ssz_classes
from excluded_containers import NOT_IN_THE_API
from ssz_classes import (
    BitList,
    BitVector,
    Boolean,
    ByteList,
    ByteVector,
    CompatibleUnion,
    Container,
    List,
    ProgressiveBitList,
    ProgressiveList,
    Uint,
    Vector,
    container,
    is_bytes,
    is_container,
)

FORKS = ["phase0", "altair", "bellatrix", "capella", "deneb", "electra", "fulu", "gloas", "heze"]
PRESETS = ["mainnet", "minimal", "gnosis"]

# Constants that differ from mainnet's (gnosischain/specs, beacon_chain.md) and determine a
# length.
GNOSIS = {
    "SLOTS_PER_EPOCH": 16,
    "EPOCHS_PER_SYNC_COMMITTEE_PERIOD": 512,
    "MAX_WITHDRAWALS_PER_PAYLOAD": 8,
}

# The Beacon API has no limit for lists that clients submit; sszip's is this one.
SUBMITTED = 2**20

# Types that @lodestar/types lacks, with reasons. test_types.py fails for one that it has.
_API_LIST = "a list of its API package, which is not the oracle; its elements are compared"
_API_TYPE = "a type of its API package, which is not the oracle"
_NO_SSZ = "its API has these in JSON only"
_NO_EIP_8025 = "it does not implement EIP-8025"
NOT_IN_LODESTAR = {
    "BuilderConfig": _API_TYPE,
    "BuilderEntry": _API_TYPE,
    "BuilderPreferencesEntries": _API_TYPE,
    "BuilderPreferencesEntry": _API_TYPE,
    "ExecutionProofEnvelope": _NO_EIP_8025,
    "KnownProposerPreferences": _API_LIST,
    "ManySignedProposerPreferences": _API_LIST,
    "PayloadAttestationMessages": _API_LIST,
    "SignedAggregateAndProofs": _API_LIST,
    "SignedExecutionProofEnvelope": _NO_EIP_8025,
    "SignedValidatorRegistrations": _API_LIST,
    "SubmittedAttestations": _API_LIST,
    "ValidatorBalance": _NO_SSZ,
    "ValidatorBalances": _NO_SSZ,
    "ValidatorIdentities": _NO_SSZ,
    "ValidatorIdentity": _NO_SSZ,
}
# From then on Lodestar's proofs of a block have fulu's type; its gloas type of the same name
# is a data column's.
FORK_IN_LODESTAR = {("gloas", "KZGProofs"): "fulu", ("heze", "KZGProofs"): "fulu"}

# Types that have another meaning in the specifications since these name all types (#5471).
OTHER_IN_THE_SPECS = {"KZGProofs": "there of a data column, here of a block with its blobs"}


@functools.cache
def module(fork, preset):
    """A specification as a module, with newer layouts; gnosis' is mainnet's with its constants."""
    if preset == "gnosis":
        found = gnosis_module(fork)
    else:
        found = importlib.import_module(f"eth_consensus_specs.{fork}.{preset}")
    newer_layouts.update(fork, found)
    return found


def gnosis_module(fork):
    mainnet = module(fork, "mainnet")
    source = inspect.getsource(mainnet)
    for name, value in GNOSIS.items():
        pattern = rf"^({name} = \w+)\(\d+\)$"
        source, count = re.subn(pattern, rf"\g<1>({value})", source, flags=re.MULTILINE)
        assert count == hasattr(mainnet, name), name
    gnosis = types.ModuleType(f"gnosis_{fork}")
    gnosis.__package__ = mainnet.__package__
    sys.modules[gnosis.__name__] = gnosis
    exec(compile(source, gnosis.__name__, "exec"), gnosis.__dict__)
    return gnosis


@functools.cache
def containers(fork, preset):
    """Containers of the specification itself, by name."""
    found = {
        name: value
        for name, value in vars(module(fork, preset)).items()
        if is_container(value) and value.__name__ == name
    }
    return {name: value for name, value in found.items() if name not in NOT_IN_THE_API}


def builder_types(fork, preset, made):
    """Types of builder-specs."""
    spec = module(fork, preset)
    since = FORKS.index(fork)
    if since < FORKS.index("bellatrix"):
        return {}
    registration = container(
        "ValidatorRegistrationV1",
        fee_recipient=spec.ExecutionAddress,
        gas_limit=spec.Uint64,
        timestamp=spec.Uint64,
        pubkey=spec.BLSPubkey,
    )
    signed = container(
        "SignedValidatorRegistrationV1", message=registration, signature=spec.BLSSignature
    )
    types = {
        "ValidatorRegistrationV1": registration,
        "SignedValidatorRegistrationV1": signed,
        "SignedValidatorRegistrations": List[signed, spec.VALIDATOR_REGISTRY_LIMIT],
    }
    if since >= FORKS.index("deneb"):
        commitments = List[spec.KZGCommitment, spec.MAX_BLOB_COMMITMENTS_PER_BLOCK]
        types["BlobsBundle"] = container(
            "BlobsBundle", commitments=commitments, proofs=made["KZGProofs"], blobs=made["Blobs"]
        )
    if since >= FORKS.index("gloas"):
        return types
    bid = {"header": spec.ExecutionPayloadHeader}
    if since >= FORKS.index("deneb"):
        bid["blob_kzg_commitments"] = commitments
        types["ExecutionPayloadAndBlobsBundle"] = container(
            "ExecutionPayloadAndBlobsBundle",
            execution_payload=spec.ExecutionPayload,
            blobs_bundle=types["BlobsBundle"],
        )
    if since >= FORKS.index("electra"):
        bid["execution_requests"] = spec.ExecutionRequests
    types["BuilderBid"] = container("BuilderBid", **bid, value=spec.Uint256, pubkey=spec.BLSPubkey)
    types["SignedBuilderBid"] = container(
        "SignedBuilderBid", message=types["BuilderBid"], signature=spec.BLSSignature
    )
    return types


def proof_types(fork, preset):
    """Types of EIP-8025. The pinned specification contains an older draft."""
    if FORKS.index(fork) < FORKS.index("gloas"):
        return {}
    spec = module(fork, preset)
    envelope = container(
        "ExecutionProofEnvelope",
        proof_data=ByteList[2**22],
        proof_type=spec.Uint8,
        beacon_block_root=spec.Root,
    )
    return {
        "NewPayloadRequest": container(
            "NewPayloadRequest",
            ssz_classes.progressive([True] * 4),
            execution_payload=spec.ExecutionPayload,
            versioned_hashes=List[spec.Bytes32, spec.MAX_BLOB_COMMITMENTS_PER_BLOCK],
            parent_beacon_block_root=spec.Root,
            execution_requests=spec.ExecutionRequests,
        ),
        "ExecutionProofEnvelope": envelope,
        "SignedExecutionProofEnvelope": container(
            "SignedExecutionProofEnvelope",
            message=envelope,
            validator_index=spec.ValidatorIndex,
            signature=spec.BLSSignature,
        ),
    }


class Url(ByteList[2048]):
    """Text, which is a string in JSON."""


def builder_choice_types(fork, preset):
    """Types for builders that a proposer chooses: beacon-APIs #630, builder-specs #165."""
    if FORKS.index(fork) < FORKS.index("gloas"):
        return {}
    spec = module(fork, preset)
    auth = container("BuilderRequestAuth", data=ByteList[4096], slot=spec.Slot)
    signed = container("SignedBuilderRequestAuth", message=auth, signature=spec.BLSSignature)
    entry = container(
        "BuilderEntry",
        url=Url,
        auth=signed,
        builder_pubkeys=List[spec.BLSPubkey, 64],
        max_execution_payment=spec.Gwei,
        min_bid=spec.Gwei,
        builder_boost_factor=spec.Uint64,
    )
    preferences = container("BuilderPreferences", max_execution_payment=spec.Gwei)
    preferred = container(
        "BuilderPreferencesEntry",
        proposer_pubkey=spec.BLSPubkey,
        url=Url,
        auth=signed,
        max_execution_payment=spec.Gwei,
    )
    slots = (spec.MIN_SEED_LOOKAHEAD + 1) * spec.SLOTS_PER_EPOCH
    return {
        "BuilderRequestAuth": auth,
        "SignedBuilderRequestAuth": signed,
        "BuilderEntry": entry,
        "BuilderConfig": container(
            "BuilderConfig",
            min_bid=spec.Gwei,
            builder_boost_factor=spec.Uint64,
            builders=List[entry, 64],
        ),
        "BuilderPreferences": preferences,
        "BuilderPreferencesRequest": container(
            "BuilderPreferencesRequest", preferences=preferences, auth=signed
        ),
        "BuilderPreferencesEntry": preferred,
        "BuilderPreferencesEntries": List[preferred, 64 * int(slots)],
    }


@functools.cache
def api_types(fork, preset):
    """Types of specifications other than the consensus layer's."""
    spec = module(fork, preset)
    since = FORKS.index(fork)
    made = {
        "ValidatorIdentity": container(
            "ValidatorIdentity",
            index=spec.ValidatorIndex,
            pubkey=spec.BLSPubkey,
            activation_epoch=spec.Epoch,
        ),
        "ValidatorBalance": container(
            "ValidatorBalance", index=spec.ValidatorIndex, balance=spec.Gwei
        ),
    }
    made["ValidatorIdentities"] = List[made["ValidatorIdentity"], spec.VALIDATOR_REGISTRY_LIMIT]
    made["ValidatorBalances"] = List[made["ValidatorBalance"], spec.VALIDATOR_REGISTRY_LIMIT]
    attestation = spec.SingleAttestation if since >= FORKS.index("electra") else spec.Attestation
    made["SubmittedAttestations"] = List[attestation, SUBMITTED]
    made["SignedAggregateAndProofs"] = List[spec.SignedAggregateAndProof, SUBMITTED]
    if since >= FORKS.index("gloas"):
        made["PayloadAttestations"] = ProgressiveList[spec.PayloadAttestation]
        made["PayloadAttestationMessages"] = List[spec.PayloadAttestationMessage, SUBMITTED]
        made["ManySignedProposerPreferences"] = List[spec.SignedProposerPreferences, SUBMITTED]
        made["KnownProposerPreferences"] = ProgressiveList[spec.SignedProposerPreferences]
    if FORKS.index("bellatrix") <= since < FORKS.index("gloas"):
        body = {}
        for name, ty in ssz_classes.fields(spec.BeaconBlockBody).items():
            if name == "execution_payload":
                name, ty = "execution_payload_header", spec.ExecutionPayloadHeader
            body[name] = ty
        made["BlindedBeaconBlockBody"] = container("BlindedBeaconBlockBody", **body)
        block = {**ssz_classes.fields(spec.BeaconBlock), "body": made["BlindedBeaconBlockBody"]}
        made["BlindedBeaconBlock"] = container("BlindedBeaconBlock", **block)
        made["SignedBlindedBeaconBlock"] = container(
            "SignedBlindedBeaconBlock",
            message=made["BlindedBeaconBlock"],
            signature=spec.BLSSignature,
        )
    if since >= FORKS.index("deneb"):
        limit = spec.MAX_BLOB_COMMITMENTS_PER_BLOCK
        sidecar = module("deneb", preset).BlobSidecar
        cells = 1 if fork in ("deneb", "electra") else spec.FIELD_ELEMENTS_PER_EXT_BLOB
        made["BlobSidecar"] = sidecar
        made["BlobSidecars"] = List[sidecar, limit]
        made["Blobs"] = List[spec.Blob, limit]
        made["KZGProofs"] = List[spec.KZGProof, cells * limit]
        blobs = {"kzg_proofs": made["KZGProofs"], "blobs": made["Blobs"]}
        if since < FORKS.index("gloas"):
            made["BlockContents"] = container("BlockContents", block=spec.BeaconBlock, **blobs)
            made["SignedBlockContents"] = container(
                "SignedBlockContents", signed_block=spec.SignedBeaconBlock, **blobs
            )
        else:
            made["BlockContents"] = container(
                "BlockContents",
                block=spec.BeaconBlock,
                execution_payload_envelope=spec.ExecutionPayloadEnvelope,
                **blobs,
            )
            made["SignedExecutionPayloadEnvelopeContents"] = container(
                "SignedExecutionPayloadEnvelopeContents",
                signed_execution_payload_envelope=spec.SignedExecutionPayloadEnvelope,
                **blobs,
            )
    state = ssz_classes.fields(spec.BeaconState)
    for field, name in [
        ("pending_deposits", "PendingDeposits"),
        ("pending_partial_withdrawals", "PendingPartialWithdrawals"),
        ("pending_consolidations", "PendingConsolidations"),
        ("proposer_lookahead", "ProposerLookahead"),
        ("builder_pending_payments", "BuilderPendingPayments"),
        ("builder_pending_withdrawals", "BuilderPendingWithdrawals"),
    ]:
        if field in state:
            made[name] = state[field]
    if since >= FORKS.index("fulu"):
        made["DataColumnSidecars"] = List[spec.DataColumnSidecar, spec.NUMBER_OF_COLUMNS]
    return {
        **made,
        **builder_types(fork, preset, made),
        **builder_choice_types(fork, preset),
        **proof_types(fork, preset),
    }


def types_of(fork, preset):
    """All types that sszip's tables must have, by name."""
    return {**containers(fork, preset), **api_types(fork, preset)}


def type_text(ty):
    """A type in the notation of sszip's tables."""
    if issubclass(ty, Container):
        return ty.__name__
    if issubclass(ty, Boolean):
        return "boolean"
    if issubclass(ty, Uint):
        return f"uint{8 * ssz_classes.byte_length(ty)}"
    if issubclass(ty, ByteVector):
        return f"ByteVector[{ssz_classes.byte_length(ty)}]"
    if issubclass(ty, Url):
        return f"Text[{ssz_classes.limit(ty)}]"
    if issubclass(ty, ByteList):
        return f"ByteList[{ssz_classes.limit(ty)}]"
    if issubclass(ty, BitVector):
        return f"Bitvector[{ssz_classes.length(ty)}]"
    if issubclass(ty, ProgressiveBitList):
        return "ProgressiveBitlist"
    if issubclass(ty, BitList):
        return f"Bitlist[{ssz_classes.limit(ty)}]"
    if issubclass(ty, ProgressiveList):
        if is_bytes(ty):
            return "ProgressiveByteList"
        return f"ProgressiveList[{type_text(ssz_classes.element(ty))}]"
    if issubclass(ty, List):
        return f"List[{type_text(ssz_classes.element(ty))}, {ssz_classes.limit(ty)}]"
    if issubclass(ty, Vector):
        return f"Vector[{type_text(ssz_classes.element(ty))}, {ssz_classes.length(ty)}]"
    if issubclass(ty, CompatibleUnion):
        options = [f"{int(option)}: {type_text(of)}" for option, of in ssz_classes.options(ty).items()]
        return f"CompatibleUnion({{{', '.join(options)}}})"
    raise TypeError(ty)


def json_of(value):
    """A value in the Beacon API's form, ready for json.dumps."""
    ty = type(value)
    if isinstance(value, Boolean):
        return bool(value)
    if isinstance(value, Uint):
        return str(int(value))
    if isinstance(value, Url):
        return value.encode_bytes().decode()
    if isinstance(value, ByteVector | ByteList | BitVector | BitList | ProgressiveBitList):
        return "0x" + value.encode_bytes().hex()
    if is_bytes(ty):
        return "0x" + value.encode_bytes().hex()
    if isinstance(value, Container):
        return {name: json_of(getattr(value, name)) for name in ssz_classes.fields(ty)}
    if isinstance(value, CompatibleUnion):
        return {"selector": str(int(value.selector())), "data": json_of(value.data())}
    return [json_of(element) for element in value]
