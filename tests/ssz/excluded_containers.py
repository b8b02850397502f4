"""Containers of the specifications that no response of the Beacon API contains, with reasons."""

NOT_IN_THE_API = {
    "BlobIdentifier": "nodes among themselves",
    "DataColumnsByRootIdentifier": "nodes among themselves",
    "Eth1Block": "a validator's own",
    "MatrixEntry": "a node's own",
    "PartialDataColumnGroupID": "nodes among themselves",
    "PartialDataColumnHeader": "nodes among themselves",
    "PartialDataColumnPartsMetadata": "nodes among themselves",
    "PartialDataColumnSidecar": "nodes among themselves",
    "PowBlock": "a node's own",
    "SyncAggregatorSelectionData": "only ever signed",
}
