// Types that are newer than the pinned packages, made from Lodestar's own;
// tests/ssz/newer_layouts.py has those that are newer than the specification's package.

/** Replaces types in Lodestar's tables of types by fork; `library` is @chainsafe/ssz. */
export function update({heze}, {ContainerType, ProgressiveContainerType}) {
  const options = (typeName) => ({typeName, jsonCase: "eth2"});

  // the progressive container without some of its fields, whose positions are inactive
  function without(typeName, removed) {
    const {fields} = heze[typeName];
    const names = Object.keys(fields);
    const unknown = removed.filter((name) => !names.includes(name));
    if (unknown.length > 0) {
      throw new Error(`Lodestar's ${typeName} has no ${unknown}: remove it from newer_types.js`);
    }
    const remaining = Object.entries(fields).filter(([name]) => !removed.includes(name));
    const active = names.map((name) => !removed.includes(name));
    return new ProgressiveContainerType(Object.fromEntries(remaining), active, options(typeName));
  }

  const changed = (typeName, fields) =>
    new ContainerType({...heze[typeName].fields, ...fields}, options(typeName));

  // EIP-8015, consensus-specs #5655, after v1.7.0-beta.1
  heze.BeaconState = without("BeaconState", [
    "eth1Data",
    "eth1DataVotes",
    "eth1DepositIndex",
    "depositRequestsStartIndex",
  ]);
  heze.BeaconBlockBody = without("BeaconBlockBody", ["eth1Data", "deposits"]);
  heze.BeaconBlock = changed("BeaconBlock", {body: heze.BeaconBlockBody});
  heze.SignedBeaconBlock = changed("SignedBeaconBlock", {message: heze.BeaconBlock});
  heze.BlockContents = changed("BlockContents", {block: heze.BeaconBlock});
}
