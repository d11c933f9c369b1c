-- Sets budget:cost in the dynamic metadata after each token to the cost of the stream so far. A chunk of the body may end inside of
-- a line.
function envoy_on_response(response)
  local rest, tokens = "", 0
  for chunk in response:bodyChunks() do
    rest = rest .. chunk:getBytes(0, chunk:length())
    for line in rest:gmatch("([^\n]*)\n") do
      if line:find('"content":"', 1, true) then
        tokens = tokens + 1
      end
    end
    rest = rest:match("[^\n]*$")
    if tokens > 0 then
      response:streamInfo():dynamicMetadata():set("budget", "cost", tokens * PRICE)
    end
  end
end
