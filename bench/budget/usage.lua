-- Sets budget:cost in the dynamic metadata to the cost that the model reports at the end of a stream. A chunk of the body may end
-- inside of a line.
function envoy_on_response(response)
  local rest = ""
  for chunk in response:bodyChunks() do
    rest = rest .. chunk:getBytes(0, chunk:length())
    for line in rest:gmatch("([^\n]*)\n") do
      local tokens = line:match('"completion_tokens":(%d+)')
      if tokens then
        response:streamInfo():dynamicMetadata():set("budget", "cost", tokens * PRICE)
      end
    end
    rest = rest:match("[^\n]*$")
  end
end
