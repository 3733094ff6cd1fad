-- Health of a BenchmarkRun for Argo CD, decided in the order of kstatus, so that Argo CD and Flux agree.
local status = obj.status or {}
local health = { status = "Progressing", message = "waiting for the operator" }
-- What was said of an earlier spec says nothing of this one.
if status.observedGeneration ~= obj.metadata.generation then
  return health
end
local is = {}
local reason
for _, condition in ipairs(status.conditions or {}) do
  is[condition.type] = condition.status == "True"
  if condition.type == "Ready" then
    reason = condition.reason
    health.message = reason .. ": " .. condition.message
  end
end
if is.Reconciling then
  -- A trial that is under way is finished first.
  if obj.spec.suspend and reason ~= "Running" then
    health.status = "Suspended"
  end
elseif is.Stalled then
  health.status = "Degraded"
elseif is.Ready then
  health.status = "Healthy"
end
return health
