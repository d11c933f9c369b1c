-- Asks Headgate about each request before it goes to the application.
--
--   http-request lua.headgate ADDRESS open|closed    asks at ADDRESS, and answers the client if the request is denied
--   http-response lua.headgate_headers               tells the client of its limits

-- What the client is told.
local told = {
  "ratelimit-policy", "ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after",
}

-- Headgate believes this proxy, so it gets no header that a client made up: only these, and what ask sets.
-- All lines of them count: a client must not choose which one.
local passed = { "authorization", "user-agent", "x-api-key" }

-- To some applications a POST with one of these is another method: rules for that one apply as well. All lines of them count.
local overrides = { "x-http-method-override", "x-http-method", "x-method-override" }

local problem = "application/problem+json"

-- What the client gets from a gateway that is closed while Headgate is away.
local unavailable = {
  status = 503,
  headers = { ["content-type"] = { problem } },
  body = '{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",'
    .. '"title":"Temporarily reduced capacity","status":503,"error":"rate_limit_unavailable"}\n',
}

-- The token of this proxy, if Headgate has listen.tokens_file.
local token = os.getenv("HEADGATE_TOKEN")

local function ask(txn, address)
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
  for _, name in ipairs(passed) do
    headers[name] = lines(name)
  end
  for _, name in ipairs(overrides) do
    headers[name] = { table.concat(lines(name), ", ") }
  end
  return core.httpclient():get({ url = "http://headgate/v1/authorize", dst = address, headers = headers })
end

-- tell calls add for each header that the client should get.
local function tell(headers, add)
  for _, name in ipairs(told) do
    for _, value in pairs(headers[name] or {}) do
      add(name, value)
    end
  end
end

local function deny(txn, answer)
  local reply = txn:reply({ status = answer.status, body = answer.body })
  reply:add_header("content-type", problem)
  tell(answer.headers, function(name, value) reply:add_header(name, value) end)
  txn:done(reply)
end

-- is_denial is false for the answers that HAProxy makes up if Headgate gives none, and if Headgate rejects this proxy.
local function is_denial(answer)
  if answer.status == 401 or answer.status == 403 then
    return false
  end
  for _, value in pairs(answer.headers and answer.headers["content-type"] or {}) do
    return value == problem
  end
end

core.register_action("headgate", { "http-req" }, function(txn, address, away)
  local answer = ask(txn, address)
  if answer.status == 200 then
    txn:set_priv(answer.headers)
  elseif is_denial(answer) then
    deny(txn, answer)
  elseif away ~= "open" then
    deny(txn, unavailable)
  end
end, 2)

core.register_action("headgate_headers", { "http-res" }, function(txn)
  tell(txn:get_priv() or {}, function(name, value) txn.http:res_set_header(name, value) end)
end)
