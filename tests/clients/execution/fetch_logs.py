"""Fetches logs with web3.py. Argument: URL. Standard input: an array of jobs {"first", "last"}, two
block numbers; without "last" the range ends at the head. Output: a line for each job, in the form of
fetch_logs.js."""

import json
import sys

from web3 import HTTPProvider, Web3
from web3.exceptions import Web3RPCError

(url,) = sys.argv[1:]
web3 = Web3(HTTPProvider(url, request_kwargs={"timeout": 60}))


def fetch(job):
    try:
        logs = web3.eth.get_logs({"fromBlock": job["first"], "toBlock": job.get("last", "latest")})
    except Web3RPCError as error:
        response = error.rpc_response or {}
        return {"error": {"code": response.get("error", {}).get("code"), "message": str(error)}}
    return {"logs": [json.loads(Web3.to_json(log)) for log in logs]}


for job in json.load(sys.stdin):
    print(json.dumps(fetch(job)))
