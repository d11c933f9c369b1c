{{/* Names. At most 63 characters in all, with the longest suffix, "-headless". */}}
{{- define "headgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 54 | trimAll "-." }}
{{- end }}

{{- define "headgate.fullname" -}}
{{- $name := printf "%s-%s" .Release.Name (include "headgate.name" .) }}
{{- if contains (include "headgate.name" .) .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- default $name .Values.fullnameOverride | trunc 54 | trimAll "-" }}
{{- end }}

{{- define "headgate.serviceAccountName" -}}
{{- default (ternary (include "headgate.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "headgate.callerSecret" -}}
{{- default (printf "%s-caller" (include "headgate.fullname" .)) .Values.callers.existingSecret }}
{{- end }}

{{- define "headgate.adminSecret" -}}
{{- default (printf "%s-admin" (include "headgate.fullname" .)) .Values.admin.existingSecret }}
{{- end }}

{{- define "headgate.rulesConfigMap" -}}
{{- default (printf "%s-rules" (include "headgate.fullname" .)) .Values.rules.existingConfigMap }}
{{- end }}

{{/* Labels that select the pods of a release. They must not change over its life. */}}
{{- define "headgate.selectorLabels" -}}
{{- dict "app.kubernetes.io/name" (include "headgate.name" .) "app.kubernetes.io/instance" .Release.Name | toYaml }}
{{- end }}

{{- define "headgate.testLabels" -}}
{{- dict "app.kubernetes.io/name" (printf "%s-test" (include "headgate.name" .)) "app.kubernetes.io/instance" .Release.Name | toYaml }}
{{- end }}

{{- define "headgate.labels" -}}
{{- include "headgate.labelsWith" (dict "root" . "own" (include "headgate.selectorLabels" . | fromYaml)) }}
{{- end }}

{{/* Labels of an object: its own, those of the chart, more that values add, and commonLabels. Of the same key, the first is used. */}}
{{- define "headgate.labelsWith" -}}
{{- $chart := .root.Chart }}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" $chart.Name $chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" $chart.AppVersion
  "app.kubernetes.io/part-of" "headgate"
  "app.kubernetes.io/managed-by" .root.Release.Service }}
{{- merge (dict) .own $labels (default dict .more) (default dict .root.Values.commonLabels) | toYaml }}
{{- end }}

{{- define "headgate.image" -}}
{{- $image := .Values.image }}
{{- $name := $image.repository }}
{{- if $image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" $image.registry) $name }}{{ end }}
{{- if $image.digest }}{{ printf "%s@%s" $name $image.digest }}{{ else }}{{ printf "%s:%s" $name (default .Chart.AppVersion $image.tag) }}{{ end }}
{{- end }}

{{/*
The data of a Secret with a generated token: the token for its owner, and the file with its hash for the server. The token has
the form of "headgate token create", and that of an earlier release is kept, as are the lines that operators added to the file.
*/}}
{{- define "headgate.generatedToken" -}}
{{- $token := randBytes 32 | replace "+" "-" | replace "/" "_" | trimSuffix "=" | printf "hgt_%s" }}
{{- $lines := list }}
{{- with (lookup "v1" "Secret" .namespace .name).data }}
{{- with .token }}{{ $token = b64dec . }}{{ end }}
{{- with .tokens }}
{{- $lines = regexReplaceAll "(?m)^[0-9a-f]{64}[ \\t]+generated([ \\t].*)?$\n?" (b64dec .) "" | trim | list | compact }}
{{- end }}
{{- end }}
{{- $hash := sha256sum $token }}
{{- if not (contains $hash (join "" $lines)) }}{{ $lines = prepend $lines (printf "%s %s" $hash .rights) }}{{ end -}}
token: {{ $token | b64enc }}
tokens: {{ join "\n" $lines | printf "%s\n" | b64enc }}
{{- end }}

{{- define "headgate.strategy" -}}
{{- default (ternary "Recreate" "RollingUpdate" (eq .Values.store "memory")) (.Values.updateStrategy).type }}
{{- end }}

{{/* What is wrong with the values in combination. The schema has checked each of them. */}}
{{- define "headgate.check" -}}
{{- $config := default dict .Values.config }}
{{- $name := include "headgate.fullname" . }}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) }}
{{- fail (printf "name of the Service: %q: must begin with a letter, and have only lower-case letters, digits and hyphens: set fullnameOverride to such a name" $name) }}
{{- end }}
{{- if eq .Values.store "memory" }}
{{- if or .Values.autoscaling.enabled (ne (int .Values.replicaCount) 1) }}
{{- fail "store: memory: every pod would have counters of its own: set replicaCount to 1, without autoscaling" }}
{{- end }}
{{- if ne (include "headgate.strategy" .) "Recreate" }}
{{- fail "store: memory: a rolling update has two pods, each with counters of its own: set updateStrategy.type to Recreate, or remove it" }}
{{- end }}
{{- $redis := .Values.redis }}
{{- $redisIsSet := or $redis.address $redis.username $redis.existingSecret $redis.tls.enabled $redis.tls.existingSecret }}
{{- range $key := list "redis" "nodes" "local_share" }}
{{- if or (hasKey $config $key) (and (eq $key "redis") $redisIsSet) }}
{{- fail (printf "store: memory: does not use %s: remove it" $key) }}
{{- end }}
{{- end }}
{{- else if hasKey $config "memory" }}
{{- fail "config.memory: the counters are in Redis: remove it, or set store to memory" }}
{{- else if not .Values.redis.address }}
{{- fail "redis.address: required: write redis://HOST:6379, rediss://…, sentinel://… or cluster://…; the chart brings no Redis" }}
{{- end }}
{{- $variable := "\\$\\{[^}]*\\}" }}
{{- if regexMatch "://.*:.+@" (regexReplaceAll $variable .Values.redis.address "") }}
{{- fail "redis.address: a password in it would be in a ConfigMap: set redis.existingSecret, or write ${NAME} and set NAME in extraEnv" }}
{{- end }}
{{- if regexMatch "://[^/?#]*:[^?#]+@|[?&](ssl)?password=[^&]" (regexReplaceAll $variable .Values.postgres.address "") }}
{{- fail "postgres.address: a password in it would be in a ConfigMap: set postgres.existingSecret, or write ${NAME} and set NAME in extraEnv" }}
{{- end }}
{{- if and .Values.redis.username (not .Values.redis.existingSecret) }}
{{- fail "redis.username: needs a password: set redis.existingSecret" }}
{{- end }}
{{- if ne (empty .Values.redis.tls.certKey) (empty .Values.redis.tls.keyKey) }}
{{- fail "redis.tls: a certificate and its key belong together: set both certKey and keyKey" }}
{{- end }}
{{- if and .Values.redis.tls.existingSecret (not (or .Values.redis.tls.caKey .Values.redis.tls.certKey)) }}
{{- fail "redis.tls.existingSecret: nothing of it is used: set redis.tls.caKey, or certKey and keyKey" }}
{{- end }}
{{- $sources := list }}
{{- if .Values.rules.files }}{{ $sources = append $sources "rules.files" }}{{ end }}
{{- if .Values.rules.existingConfigMap }}{{ $sources = append $sources "rules.existingConfigMap" }}{{ end }}
{{- if .Values.postgres.address }}{{ $sources = append $sources "postgres.address" }}{{ end }}
{{- if ne (len $sources) 1 }}
{{- fail (printf "rules: set one of rules.files, rules.existingConfigMap and postgres.address: %s" (ternary "none is set" (printf "%s are set" (join ", " $sources)) (empty $sources))) }}
{{- end }}
{{- if and .Values.postgres.existingSecret (not .Values.postgres.address) }}
{{- fail "postgres.existingSecret: needs postgres.address, too" }}
{{- end }}
{{- $certificate := contains "certificate" .Values.callers.auth }}
{{- if and $certificate (not .Values.tls.existingSecret) }}
{{- fail (printf "callers.auth: %s: needs TLS: set tls.existingSecret" .Values.callers.auth) }}
{{- end }}
{{- if ne $certificate (not (empty .Values.tls.clientCA.existingSecret)) }}
{{- fail (printf "callers.auth: %s: %s" .Values.callers.auth (ternary "set tls.clientCA.existingSecret" "remove tls.clientCA.existingSecret, or set callers.auth to certificate or token-and-certificate" $certificate)) }}
{{- end }}
{{- if and .Values.admin.expose (not .Values.admin.enabled) }}
{{- fail "admin.expose: the admin API is off: set admin.enabled, too" }}
{{- end }}
{{- if and .Values.admin.expose (not .Values.tls.existingSecret) }}
{{- fail "admin.expose: the admin API can lift any limit, and needs TLS on a network: set tls.existingSecret, or use kubectl port-forward" }}
{{- end }}
{{- $regions := .Values.regions }}
{{- if $regions.name }}
{{- if eq .Values.store "memory" }}
{{- fail "regions.name: store: memory: regions share counters in Redis: set store to redis, or remove regions" }}
{{- end }}
{{- if not (hasKey $regions.members $regions.name) }}
{{- fail (printf "regions.name: %s: is not one of regions.members: add it there, with the address by which other regions reach this one" $regions.name) }}
{{- end }}
{{- if not $regions.existingSecret }}
{{- fail "regions.existingSecret: required with regions.name: create a Secret with the certificate of the region and the authority of all" }}
{{- end }}
{{- else if or $regions.members $regions.existingSecret (hasKey $config "regions") }}
{{- fail "regions.name: required with regions.members, regions.existingSecret and config.regions: set the name of the region that this release is in" }}
{{- end }}
{{- $needed := add .Values.preStopSeconds 13 }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int $needed) }}
{{- fail (printf "terminationGracePeriodSeconds: %d: the server needs up to 12 seconds to drain after preStopSeconds: set %d or more" (int .Values.terminationGracePeriodSeconds) $needed) }}
{{- end }}
{{- $ports := list (int .Values.service.httpPort) (int .Values.service.grpcPort) }}
{{- if .Values.admin.expose }}{{ $ports = append $ports (int .Values.service.adminPort) }}{{ end }}
{{- if ne (len $ports) (len (uniq $ports)) }}
{{- fail "service: httpPort, grpcPort and, with admin.expose, adminPort: must differ" }}
{{- end }}
{{- $resources := default dict .Values.resources }}
{{- $cpu := or (dig "requests" "cpu" "" $resources) (dig "limits" "cpu" "" $resources) }}
{{- if and .Values.autoscaling.enabled .Values.autoscaling.targetCPUUtilizationPercentage (not $cpu) }}
{{- fail "autoscaling.targetCPUUtilizationPercentage: is in percent of the request, and there is none: set resources.requests.cpu" }}
{{- end }}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) }}
{{- fail "autoscaling: minReplicas is above maxReplicas" }}
{{- end }}
{{- end }}

{{/* The config without "nodes", which follows the number of pods and must not restart them. */}}
{{- define "headgate.config" -}}
{{- $secrets := "/etc/headgate/secrets" }}
{{- $listen := dict "http" ":8080" "grpc" ":8081" "ops" ":8082" "admin" "off" }}
{{- if .Values.admin.enabled }}{{ $_ := set $listen "admin" (ternary ":8083" "127.0.0.1:8083" .Values.admin.expose) }}{{ end }}
{{- if eq .Values.callers.auth "open" }}{{ $_ := set $listen "open" true }}{{ end }}
{{- if contains "token" .Values.callers.auth }}{{ $_ := set $listen "tokens_file" (printf "%s/caller/tokens" $secrets) }}{{ end }}
{{- if .Values.tls.existingSecret }}
{{- $tls := dict "cert_file" (printf "%s/tls/tls.crt" $secrets) "key_file" (printf "%s/tls/tls.key" $secrets) }}
{{- if .Values.tls.clientCA.existingSecret }}{{ $_ := set $tls "client_ca_file" (printf "%s/client-ca/ca.crt" $secrets) }}{{ end }}
{{- $_ := set $listen "tls" $tls }}
{{- end }}
{{- $redis := dict "address" .Values.redis.address }}
{{- if .Values.redis.username }}{{ $_ := set $redis "username" .Values.redis.username }}{{ end }}
{{- if .Values.redis.existingSecret }}{{ $_ := set $redis "password_file" (printf "%s/redis/password" $secrets) }}{{ end }}
{{- $tls := dict }}
{{- if .Values.redis.tls.enabled }}{{ $_ := set $tls "enabled" true }}{{ end }}
{{- if .Values.redis.tls.existingSecret }}
{{- $_ := set $tls "enabled" true }}
{{- if .Values.redis.tls.caKey }}{{ $_ := set $tls "ca_file" (printf "%s/redis-tls/ca.crt" $secrets) }}{{ end }}
{{- if .Values.redis.tls.certKey }}
{{- $_ := set $tls "cert_file" (printf "%s/redis-tls/tls.crt" $secrets) }}
{{- $_ := set $tls "key_file" (printf "%s/redis-tls/tls.key" $secrets) }}
{{- end }}
{{- end }}
{{- if $tls }}{{ $_ := set $redis "tls" $tls }}{{ end }}
{{- $config := dict "listen" $listen "last_good_file" "/var/lib/headgate/last-good" }}
{{- if eq .Values.store "memory" }}{{ $_ := set $config "store" "memory" }}{{ else }}{{ $_ := set $config "redis" $redis }}{{ end }}
{{- if .Values.postgres.address }}
{{- $postgres := dict "address" .Values.postgres.address }}
{{- if .Values.postgres.existingSecret }}{{ $_ := set $postgres "password_file" (printf "%s/postgres/password" $secrets) }}{{ end }}
{{- $_ := set $config "postgres" $postgres }}
{{- else }}
{{- $_ := set $config "rules" (list "/etc/headgate/rules/") }}
{{- end }}
{{- if .Values.admin.enabled }}{{ $_ := set $config "admin" (dict "tokens_file" (printf "%s/admin/tokens" $secrets)) }}{{ end }}
{{- if .Values.secret.existingSecret }}{{ $_ := set $config "secret_file" (printf "%s/secret/secret" $secrets) }}{{ end }}
{{- if .Values.regions.name }}
{{- $_ := set $listen "regions" ":8084" }}
{{- $tls := dict "cert_file" (printf "%s/regions/tls.crt" $secrets) "key_file" (printf "%s/regions/tls.key" $secrets) "ca_file" (printf "%s/regions/ca.crt" $secrets) }}
{{- $_ := set $config "regions" (dict "name" .Values.regions.name "members" .Values.regions.members "tls" $tls) }}
{{- end }}
{{- mergeOverwrite (deepCopy (default dict .Values.config)) $config | toYaml }}
{{- end }}

{{/* Volumes: one directory each, never a subPath, which the kubelet does not update. */}}
{{- define "headgate.volumes" -}}
- name: config
  configMap:
    name: {{ include "headgate.fullname" . }}-config
- name: state
  emptyDir:
    sizeLimit: 64Mi
{{- if not .Values.postgres.address }}
- name: rules
  configMap:
    name: {{ include "headgate.rulesConfigMap" . | quote }}
{{- end }}
{{- if contains "token" .Values.callers.auth }}
{{ include "headgate.secretVolume" (dict "name" "caller" "secret" (include "headgate.callerSecret" .) "items" (dict "tokens" (ternary .Values.callers.tokensKey "tokens" (not (empty .Values.callers.existingSecret))))) }}
{{- end }}
{{- if .Values.admin.enabled }}
{{ include "headgate.secretVolume" (dict "name" "admin" "secret" (include "headgate.adminSecret" .) "items" (dict "tokens" (ternary .Values.admin.tokensKey "tokens" (not (empty .Values.admin.existingSecret))))) }}
{{- end }}
{{- if .Values.tls.existingSecret }}
{{ include "headgate.secretVolume" (dict "name" "tls" "secret" .Values.tls.existingSecret "items" (dict "tls.crt" .Values.tls.certKey "tls.key" .Values.tls.keyKey)) }}
{{- end }}
{{- if .Values.tls.clientCA.existingSecret }}
{{ include "headgate.secretVolume" (dict "name" "client-ca" "secret" .Values.tls.clientCA.existingSecret "items" (dict "ca.crt" .Values.tls.clientCA.key)) }}
{{- end }}
{{- if .Values.redis.existingSecret }}
{{ include "headgate.secretVolume" (dict "name" "redis" "secret" .Values.redis.existingSecret "items" (dict "password" .Values.redis.passwordKey)) }}
{{- end }}
{{- if .Values.redis.tls.existingSecret }}
{{ include "headgate.secretVolume" (dict "name" "redis-tls" "secret" .Values.redis.tls.existingSecret "items" (dict "ca.crt" .Values.redis.tls.caKey "tls.crt" .Values.redis.tls.certKey "tls.key" .Values.redis.tls.keyKey)) }}
{{- end }}
{{- if .Values.postgres.existingSecret }}
{{ include "headgate.secretVolume" (dict "name" "postgres" "secret" .Values.postgres.existingSecret "items" (dict "password" .Values.postgres.passwordKey)) }}
{{- end }}
{{- if .Values.secret.existingSecret }}
{{ include "headgate.secretVolume" (dict "name" "secret" "secret" .Values.secret.existingSecret "items" (dict "secret" .Values.secret.key)) }}
{{- end }}
{{- if .Values.regions.existingSecret }}
{{ include "headgate.secretVolume" (dict "name" "regions" "secret" .Values.regions.existingSecret "items" (dict "tls.crt" .Values.regions.certKey "tls.key" .Values.regions.keyKey "ca.crt" .Values.regions.caKey)) }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headgate.secretVolume" -}}
- name: {{ .name }}
  secret:
    secretName: {{ .secret | quote }}
    defaultMode: 0440
    items:
      {{- range $path, $key := .items }}
      {{- if $key }}
      - {key: {{ $key | quote }}, path: {{ $path | quote }}}
      {{- end }}
      {{- end }}
{{- end }}

{{- define "headgate.volumeMounts" -}}
- {name: config, mountPath: /etc/headgate/config, readOnly: true}
- {name: state, mountPath: /var/lib/headgate}
{{- if not .Values.postgres.address }}
- {name: rules, mountPath: /etc/headgate/rules, readOnly: true}
{{- end }}
{{- $secrets := dict
  "caller" (contains "token" .Values.callers.auth)
  "admin" .Values.admin.enabled
  "tls" .Values.tls.existingSecret
  "client-ca" .Values.tls.clientCA.existingSecret
  "redis" .Values.redis.existingSecret
  "redis-tls" .Values.redis.tls.existingSecret
  "postgres" .Values.postgres.existingSecret
  "secret" .Values.secret.existingSecret
  "regions" .Values.regions.existingSecret }}
{{- range $name, $used := $secrets }}
{{- if $used }}
- {name: {{ $name }}, mountPath: /etc/headgate/secrets/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
