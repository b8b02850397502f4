// Answers requests of tests/ssz about Lodestar's types: the protocol of
// shared-core/examples/ssz_oracle.rs, with other ops, for one preset (LODESTAR_PRESET).
// Its argument is the folder of the packages.
import {readSync, writeSync} from "node:fs";
import {pathToFileURL} from "node:url";
import {update} from "./newer_types.js";

const [folder] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/node_modules/${name}/lib/index.js`).href);
const {ssz} = await load("@lodestar/types");
update(ssz, await load("@chainsafe/ssz"));

const ops = {
  // types of all forks, so that each is looked up once
  names: () =>
    Object.fromEntries(
      Object.entries(ssz)
        .filter(([, types]) => types.BeaconState)
        .map(([fork, types]) => [fork, Object.keys(types)])
    ),
  // the root of the SSZ, its JSON, and the SSZ of that JSON
  all: (type, bytes) => {
    const value = type.deserialize(bytes);
    const json = type.toJson(value);
    return {
      root: Buffer.from(type.hashTreeRoot(value)).toString("hex"),
      json,
      again: Buffer.from(type.serialize(type.fromJson(json))).equals(bytes),
    };
  },
};

function answer({op, fork, type}, bytes) {
  const found = type && ssz[fork]?.[type];
  if (type && !found) throw new Error(`no type ${fork}.${type}`);
  return ops[op](found, bytes);
}

let rest = Buffer.alloc(0);

function more() {
  const chunk = Buffer.alloc(1 << 20);
  for (;;) {
    try {
      const got = readSync(0, chunk);
      if (got === 0) process.exit(rest.length === 0 ? 0 : 1);
      rest = Buffer.concat([rest, chunk.subarray(0, got)]);
      return;
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

function take(length) {
  while (rest.length < length) more();
  const bytes = rest.subarray(0, length);
  rest = rest.subarray(length);
  return bytes;
}

function line() {
  let end;
  while ((end = rest.indexOf(10)) < 0) more();
  return take(end + 1).toString();
}

function write(bytes) {
  let written = 0;
  while (written < bytes.length) {
    try {
      written += writeSync(1, bytes, written);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

for (;;) {
  const request = JSON.parse(line());
  const bytes = take(request.length);
  let head;
  let body = Buffer.alloc(0);
  try {
    body = Buffer.from(JSON.stringify(answer(request, bytes)));
    head = {ok: true, length: body.length};
  } catch (error) {
    head = {error: String(error), length: 0};
  }
  write(Buffer.from(`${JSON.stringify(head)}\n`));
  write(body);
}
