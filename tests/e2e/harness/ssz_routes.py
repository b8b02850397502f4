"""Routes of the Beacon API with SSZ, and their responses with values of the specifications."""

import json

# Example targets by the type of their responses.
ROUTES = {
    "BeaconState": "/eth/v2/debug/beacon/states/head",
    "SignedBeaconBlock": "/eth/v2/beacon/blocks/head",
    "SignedBlindedBeaconBlock": "/eth/v1/beacon/blinded_blocks/head",
    "LightClientBootstrap": "/eth/v1/beacon/light_client/bootstrap/0xaa",
    "LightClientFinalityUpdate": "/eth/v1/beacon/light_client/finality_update",
    "LightClientOptimisticUpdate": "/eth/v1/beacon/light_client/optimistic_update",
    "BlobSidecars": "/eth/v1/beacon/blob_sidecars/head",
    "Blobs": "/eth/v1/beacon/blobs/head",
    "DataColumnSidecars": "/eth/v1/debug/beacon/data_column_sidecars/head",
    "PendingDeposits": "/eth/v1/beacon/states/head/pending_deposits",
    "PendingPartialWithdrawals": "/eth/v1/beacon/states/head/pending_partial_withdrawals",
    "PendingConsolidations": "/eth/v1/beacon/states/head/pending_consolidations",
    "ProposerLookahead": "/eth/v1/beacon/states/head/proposer_lookahead",
    "BuilderPendingPayments": "/eth/v1/beacon/states/head/builder_pending_payments",
    "BuilderPendingWithdrawals": "/eth/v1/beacon/states/head/builder_pending_withdrawals",
    "KnownProposerPreferences": "/eth/v1/beacon/proposer_preferences",
    "ValidatorBalances": "/eth/v1/beacon/states/head/validator_balances",
    "SignedExecutionPayloadEnvelope": "/eth/v1/beacon/execution_payload_envelopes/head",
    "BlockContents": "/eth/v3/validator/blocks/1",
    "BlindedBeaconBlock": "/eth/v3/validator/blocks/1",
    "PayloadAttestations": "/eth/v1/beacon/pool/payload_attestations",
    "ExecutionPayloadEnvelope": "/eth/v1/validator/execution_payload_envelopes/7/0xaa",
    "ExecutionPayloadBid": "/eth/v1/validator/execution_payload_bids/7/1",
    "PayloadAttestationData": "/eth/v1/validator/payload_attestation_data",
    "Attestation": "/eth/v2/validator/aggregate_attestation",
    "AttestationData": "/eth/v1/validator/attestation_data",
}
# From gloas on there are no blinded blocks, and contents have another route.
GLOAS_CONTENTS = "/eth/v4/validator/blocks/1"


def route(value):
    """The route whose response is a value of specified_values.py."""
    is_gloas_contents = value["type"] == "BlockContents" and value["fork"] in ("gloas", "heze")
    return GLOAS_CONTENTS if is_gloas_contents else ROUTES[value["type"]]


def enveloped(value):
    """The body and headers of a node's JSON response with the value."""
    body = {"version": value["fork"], "execution_optimistic": False, "finalized": True, "data": value["data"]}
    headers = [("Eth-Consensus-Version", value["fork"])]
    if route(value) == GLOAS_CONTENTS:
        headers.append(("Eth-Execution-Payload-Included", "true"))
    elif "validator/blocks" in route(value):
        headers.append(("Eth-Execution-Payload-Blinded", str(value["type"].startswith("Blinded")).lower()))
    return json.dumps(body).encode(), headers
