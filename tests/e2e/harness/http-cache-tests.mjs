// http-cache-tests in the working directory, as its cli.mjs runs it, but a request that is
// never answered fails by itself and does not keep the others from an end.
//
//   node http-cache-tests.mjs URL [TEST...]

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const SECONDS = 20
const here = `${process.cwd()}/`
const own = path => import(pathToFileURL(here + path))
const fetch = (await import(pathToFileURL(createRequire(here).resolve('node-fetch')))).default
const { runTests, getResults } = await own('client/runner.mjs')
const tests = [...(await own('tests/index.mjs')).default, (await own('tests/surrogate-control.mjs')).default]
const fetchWithTimeout = (url, init) => fetch(url, { ...init, signal: AbortSignal.timeout(SECONDS * 1000) })

const [base, ...only] = process.argv.slice(2)
for (const suite of tests) {
  suite.tests = suite.tests.filter(test => only.length === 0 || only.includes(test.id))
}
await runTests(tests, fetchWithTimeout, false, base)
console.log(JSON.stringify(getResults()))
process.exit()
