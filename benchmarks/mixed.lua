-- wrk script: POST requests of many sessions in turn.
--
-- Arguments: `close` or `keep`; then nothing, or the name of a header and its values. With nothing
-- the requests are plain ones of 61 sessions, each with a body of 1 KiB; with values they are calls
-- of a tool, one request for each value. Sessions are more than the connections and prime in number,
-- so every connection carries requests of all of them. With `close` each request asks for the end of
-- its connection. The last line of the output is one JSON object for benchmarks/load.py.
local SESSIONS = 61
local requests, turn = {}, 0

function init(args)
  wrk.headers["Content-Type"] = "application/json"
  if args[1] == "close" then
    wrk.headers["Connection"] = "close"
  end
  if args[2] then
    for i = 3, #args do
      wrk.headers[args[2]] = args[i]
      requests[i - 2] = wrk.format("POST", "/tools/add", wrk.headers, '{"n": 1}')
    end
    return
  end
  local body = string.rep("x", 1024)
  for i = 1, SESSIONS do
    requests[i] = wrk.format("POST", "/sessions/bench-" .. i .. "/trivial", wrk.headers, body)
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    '{"requests": %d, "duration_us": %d, "bytes": %d, "errors": %d, "p50_us": %d, "p99_us": %d}\n',
    summary.requests, summary.duration, summary.bytes,
    e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
