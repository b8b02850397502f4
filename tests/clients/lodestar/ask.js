// Sends requests to a Beacon API as Lodestar's validator client does, URL FORK <JOBS, from
// the folder of its packages: each job {"group", "call", "args", "wire"} results in a line:
// the status, the response's format, its fork, and its value as SSZ; or the error.
//
// A "value" of a job, {"type", "json"}, becomes an argument of that name.
import {readFileSync} from "node:fs";
import {getClient, WireFormat} from "@lodestar/api";
import {createChainForkConfig, defaultChainConfig} from "@lodestar/config";
import {ssz} from "@lodestar/types";

const [url, fork] = process.argv.slice(1);

// all values are of that fork, at any slot
const forks = ["altair", "bellatrix", "capella", "deneb", "electra", "fulu", "gloas"];
const epochs = {};
forks.forEach((name, place) => {
  epochs[`${name.toUpperCase()}_FORK_EPOCH`] = place <= forks.indexOf(fork) ? 0 : Infinity;
});
const config = createChainForkConfig({...defaultChainConfig, ...epochs});
const client = getClient({baseUrl: url}, {config});

for (const {group, call, args = {}, wire, value, type} of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    if (value) {
      args[value.name] = ssz[value.fork ?? fork][value.type].fromJson(value.json);
    }
    const options = {[value ? "requestWireFormat" : "responseWireFormat"]: WireFormat[wire]};
    const response = await client[group][call](args, options);
    const line = {status: response.status, ok: response.ok};
    if (response.ok && type) {
      line.wire = response.wireFormat();
      line.version = response.meta()?.version;
      line.ssz = Buffer.from(ssz[fork][type].serialize(response.value())).toString("hex");
    } else if (!response.ok) {
      line.error = response.error().message;
    }
    console.log(JSON.stringify(line));
  } catch (error) {
    console.log(JSON.stringify({error: String(error?.message ?? error)}));
  }
}
