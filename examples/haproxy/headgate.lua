-- Checks each request with Headgate before it is forwarded to the application.
--
--   http-request lua.headgate ADDRESS open|closed    checks with Headgate at ADDRESS, and responds if the request is denied
--   http-response lua.headgate_headers               adds the rate limit headers to the response

-- Response headers of Headgate that the client gets.
local returned = {
  "ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after",
}

-- Request headers of the client that Headgate gets, in addition to those set by check. Headgate trusts this proxy, so it must not get
-- headers that a client can forge. All lines are sent: a client must not choose which one counts.
local forwarded = { "authorization", "user-agent", "x-api-key" }

-- Some applications treat a POST with one of these headers as another method, so rules for that method apply, too. All lines are sent.
local overrides = { "x-http-method-override", "x-http-method", "x-method-override" }

local problem = "application/problem+json"

-- The response if Headgate is unavailable and the gateway fails closed.
local unavailable = {
  status = 503,
  headers = { ["content-type"] = { problem } },
  body = '{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",'
    .. '"title":"Temporarily reduced capacity","status":503,"error":"rate_limit_unavailable"}\n',
}

-- The token of this proxy, if Headgate's config has listen.tokens_file.
local token = os.getenv("HEADGATE_TOKEN")

local function check(txn, address)
  local headers = {
    ["host"] = { "headgate" },
    ["x-headgate-token"] = { token },
    ["x-forwarded-for"] = { txn.f:src() },
    ["x-forwarded-method"] = { txn.f:method() },
    ["x-forwarded-uri"] = { txn.f:pathq() },
    ["x-forwarded-host"] = { txn.f:req_hdr("host") },
  }
  local sent = txn.http:req_get_headers()
  local function lines(name)
    local all = {}
    for _, line in pairs(sent[name] or {}) do
      table.insert(all, line)
    end
    return all
  end
  for _, name in ipairs(forwarded) do
    headers[name] = lines(name)
  end
  for _, name in ipairs(overrides) do
    headers[name] = { table.concat(lines(name), ", ") }
  end
  return core.httpclient():get({ url = "http://headgate/v1/authorize", dst = address, headers = headers })
end

-- add_headers calls add for each rate limit header.
local function add_headers(headers, add)
  for _, name in ipairs(returned) do
    for _, value in pairs(headers[name] or {}) do
      add(name, value)
    end
  end
end

local function deny(txn, response)
  local reply = txn:reply({ status = response.status, body = response.body })
  reply:add_header("content-type", problem)
  add_headers(response.headers, function(name, value) reply:add_header(name, value) end)
  txn:done(reply)
end

-- is_denial returns false if HAProxy generated the response because Headgate did not respond, or if Headgate rejects this proxy.
local function is_denial(response)
  if response.status == 401 or response.status == 403 then
    return false
  end
  for _, value in pairs(response.headers and response.headers["content-type"] or {}) do
    return value == problem
  end
end

core.register_action("headgate", { "http-req" }, function(txn, address, on_failure)
  local response = check(txn, address)
  if response.status == 200 then
    txn:set_priv(response.headers)
  elseif is_denial(response) then
    deny(txn, response)
  elseif on_failure ~= "open" then
    deny(txn, unavailable)
  end
end, 2)

core.register_action("headgate_headers", { "http-res" }, function(txn)
  add_headers(txn:get_priv() or {}, function(name, value) txn.http:res_set_header(name, value) end)
end)
