// Fetches logs with a client library. Arguments: CLIENT URL. Standard input: an array of jobs
// {"first", "last"}, two block numbers; without "last" the range ends at the head. Output: a line
// for each job, with the logs as the library returns them, or the error. The working directory is the
// folder of the packages.
import {readFileSync} from "node:fs";
import {JsonRpcProvider} from "ethers";
import {createPublicClient, http} from "viem";

const [name, url] = process.argv.slice(1);

function createEthersClient(options) {
  const provider = new JsonRpcProvider(url, undefined, options);
  return ({first, last}) => provider.getLogs({fromBlock: first, toBlock: last ?? "latest"});
}

function createViemClient() {
  const client = createPublicClient({transport: http(url, {retryCount: 0, timeout: 60_000})});
  const end = (last) => (last === undefined ? "latest" : BigInt(last));
  return ({first, last}) => client.getLogs({fromBlock: BigInt(first), toBlock: end(last)});
}

const clients = {
  // sends each call but the first one in a batch with eth_chainId
  ethers: () => createEthersClient({}),
  "ethers without batches": () => createEthersClient({batchMaxCount: 1, staticNetwork: true}),
  viem: createViemClient,
};

// ethers has the node's error as a member; the error of viem has its code
function describe(error) {
  return {code: error.error?.code ?? error.code, message: String(error.message)};
}

const fetchLogs = clients[name]();
for (const job of JSON.parse(readFileSync(0, "utf8"))) {
  let line;
  try {
    line = {logs: await fetchLogs(job)};
  } catch (error) {
    line = {error: describe(error)};
  }
  console.log(JSON.stringify(line, (_, value) => (typeof value === "bigint" ? String(value) : value)));
}
// once the lines are written: connections that are kept alive would delay the end of the process
process.stdout.write("", () => process.exit());
