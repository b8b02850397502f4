"""Fetches logs with web3.py, fetch_logs.py URL <JOBS: each job {"first", "last"}, block numbers,
results in a line: the logs as the library returns them, or the error, as fetch_logs.js prints them."""

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
