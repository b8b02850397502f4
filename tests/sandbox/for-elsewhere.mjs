// The filter for a host that knows less than Envoy: without the imports that nothing in it
// calls (the SDK's traits have gRPC, and no linker sees that it is never called), and with the
// names that this host has for two exports. The rest is as it is shipped.
//
//   node for-elsewhere.mjs FOLDER-WITH-BINARYEN FILTER.wasm TO.wasm

import { readFileSync, writeFileSync } from "node:fs";

const [folder, from, to] = process.argv.slice(2);
const { default: binaryen } = await import(`${folder}/node_modules/binaryen/index.js`);

const NEVER_CALLED = /^proxy_(grpc_\w+|get_status|get_current_time_nanoseconds)$/;
const NOT_FOUND = 1;

const module = binaryen.readBinary(readFileSync(from));
module.setFeatures(binaryen.Features.All);
const all = [...Array(module.getNumFunctions()).keys()];
const functions = all.map((n) => binaryen.getFunctionInfo(module.getFunctionByIndex(n)));
for (const { name, params, results } of functions.filter(({ base }) => NEVER_CALLED.test(base))) {
    module.removeFunction(name);
    module.addFunction(name, params, results, [], module.i32.const(NOT_FOUND));
}
const exports = new Map();
for (let n = 0; n < module.getNumExports(); n++) {
    const { name, value } = binaryen.getExportInfo(module.getExportByIndex(n));
    exports.set(name, value);
}
module.addFunctionExport(exports.get("_initialize"), "_start");
module.addFunctionExport(exports.get("malloc"), "proxy_on_memory_allocate");
writeFileSync(to, module.emitBinary());
