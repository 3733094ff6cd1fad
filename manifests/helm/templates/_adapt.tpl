{{- /* Changes an object in place as values say, and as the kustomizations do. Takes a dict of `root`, `object`, and
`original`, which it was made of; prints nothing. */ -}}
{{- define "storebench.adapt" -}}
{{- $values := .root.Values -}}
{{- $object := .object -}}
{{- $name := .original.metadata.name -}}
{{- $_ := set $object.metadata "labels" (merge (dict "app.kubernetes.io/part-of" "storebench") ($object.metadata.labels | default dict)) -}}
{{- if and (eq $object.kind "Namespace") (eq $name "benchmarks") -}}
  {{- $_ := set $object.metadata "name" $values.namespace -}}
{{- end -}}
{{- if eq (.original.metadata.namespace | default "") "benchmarks" -}}
  {{- $_ := set $object.metadata "namespace" $values.namespace -}}
{{- end -}}
{{- if and $values.clusterWide (eq $name "storebench-operator-stores") -}}
  {{- if eq $object.kind "Role" -}}
    {{- $_ := set $object "kind" "ClusterRole" -}}
    {{- $_ := unset $object.metadata "namespace" -}}
  {{- else -}}
    {{- $_ := set $object.roleRef "kind" "ClusterRole" -}}
  {{- end -}}
{{- end -}}
{{- if eq $object.kind "ServiceAccount" -}}
  {{- with $values.image.pullSecrets -}}
    {{- $secrets := list -}}
    {{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
    {{- $_ := set $object "imagePullSecrets" $secrets -}}
  {{- end -}}
{{- end -}}
{{- if eq $object.kind "Deployment" }}{{ include "storebench.adaptDeployment" . }}{{ end -}}
{{- if eq $object.kind "PodMonitor" -}}
  {{- $_ := set $object.metadata "labels" (merge (deepCopy $values.podMonitor.labels) $object.metadata.labels) -}}
  {{- if $values.clusterWide }}{{ $_ := set $object.spec "namespaceSelector" (dict "any" true) }}{{ end -}}
{{- end -}}
{{- if eq $object.kind "ValidatingAdmissionPolicy" -}}
  {{- /* The first variable of these is the list of what is allowed. */ -}}
  {{- $lists := dict "storebench-allowed-images" $values.policies.imagePrefixes "storebench-allowed-endpoints" $values.policies.endpointHosts -}}
  {{- with get $lists $name -}}
    {{- $allowed := list -}}
    {{- range . }}{{ $allowed = append $allowed (squote .) }}{{ end -}}
    {{- $_ := set (first $object.spec.variables) "expression" (printf "[%s]" (join ", " $allowed)) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- define "storebench.adaptDeployment" -}}
{{- $values := .root.Values -}}
{{- $pod := .object.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $container "image" (include "storebench.image" (dict "root" .root "name" "operator" "digest" $values.image.operatorDigest)) -}}
{{- with $values.resources }}{{ $_ := set $container "resources" . }}{{ end -}}
{{- with $values.nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end -}}
{{- with $values.tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end -}}
{{- $variables := dict "STOREBENCH_BENCH_JOB_IMAGE" (include "storebench.image" (dict "root" .root "name" "bench-job" "digest" $values.image.benchJobDigest)) -}}
{{- if $values.clusterWide -}}
  {{- $_ := set $variables "STOREBENCH_ALL_NAMESPACES" "true" -}}
{{- else -}}
  {{- $_ := set $variables "STOREBENCH_NAMESPACE" $values.namespace -}}
{{- end -}}
{{- with $values.engineRegistry }}{{ $_ := set $variables "STOREBENCH_ENGINE_REGISTRY" . }}{{ end -}}
{{- with $values.image.pullSecrets }}{{ $_ := set $variables "STOREBENCH_IMAGE_PULL_SECRETS" (join "," .) }}{{ end -}}
{{- $variables = mergeOverwrite $variables (deepCopy $values.settings) -}}
{{- $env := list -}}
{{- range $container.env -}}
  {{- /* What the values say comes below; of the namespace they always say something. */ -}}
  {{- if not (or (hasKey $variables .name) (eq .name "STOREBENCH_NAMESPACE")) }}{{ $env = append $env . }}{{ end -}}
{{- end -}}
{{- range $variable, $value := $variables }}{{ $env = append $env (dict "name" $variable "value" $value) }}{{ end -}}
{{- $_ := set $container "env" $env -}}
{{- end -}}

{{- /* The reference of one of the platform's own images. Takes a dict of `root`, `name` and `digest`. */ -}}
{{- define "storebench.image" -}}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
storebench/{{ .name }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end -}}
