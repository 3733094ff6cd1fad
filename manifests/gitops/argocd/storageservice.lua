-- Health of a StorageService for Argo CD. It agrees with Flux, where that has our healthCheckExprs.
local status = obj.status or {}
local health = { status = "Progressing", message = "waiting for the operator" }
-- What was said of an earlier spec says nothing of this one.
if status.observedGeneration ~= obj.metadata.generation then
  return health
end
local is = {}
local lacksProtocol = false
for _, condition in ipairs(status.conditions or {}) do
  is[condition.type] = condition.status == "True"
  if condition.type == "Ready" then
    health.message = condition.reason .. ": " .. condition.message
  elseif condition.type == "ProtocolReady" then
    -- Unknown is not False: not every store was probed.
    lacksProtocol = condition.status == "False"
  end
end
if is.Stalled or lacksProtocol then
  health.status = "Degraded"
elseif is.Ready then
  health.status = "Healthy"
end
return health
