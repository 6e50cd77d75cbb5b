{{- /* What the chart itself decides of [hub], as YAML. */ -}}
{{- define "informer-hub.managed" -}}
listen: {{ printf "%s:%d" .Values.listenAddress (int .Values.port) | quote }}
state_dir: /var/lib/informer-hub/state
{{- with include "informer-hub.memoryLimit" . }}
memory_limit: {{ quote . }}
{{- end }}
{{- if .Values.tls.secretName }}
tls:
  cert_file: /etc/informer-hub/tls/tls.crt
  key_file: /etc/informer-hub/tls/tls.key
  {{- if .Values.tls.clientCa }}
  client_ca_file: /etc/informer-hub/tls/ca.crt
  {{- end }}
{{- end }}
auth:
  {{- if .Values.auth.allowUnauthenticated }}
  allow_unauthenticated: true
  {{- else }}
  token:
    file: {{ printf "/etc/informer-hub/auth/%s" .Values.auth.tokenKey | quote }}
  {{- with .Values.auth.readTokenKey }}
  read_token:
    file: {{ printf "/etc/informer-hub/auth/%s" . | quote }}
  {{- end }}
  {{- end }}
  {{- if .Values.auth.metricsOpen }}
  metrics_open: true
  {{- end }}
{{- end -}}

{{- /* The whole configuration, from inCluster, config and what the chart decides, as YAML. */ -}}
{{- define "informer-hub.config" -}}
{{- $managed := include "informer-hub.managed" . | fromYaml -}}
{{- if hasKey .Values.config.hub "memory_limit" }}{{ $managed = omit $managed "memory_limit" }}{{ end -}}
{{- $clusters := deepCopy .Values.config.clusters -}}
{{- with .Values.inCluster -}}
{{- if .enabled -}}
{{- if hasKey $clusters .name -}}
{{- fail (printf "config.clusters has a cluster %s, and inCluster is called so too: rename one, or set inCluster.enabled to false" .name) -}}
{{- end -}}
{{- $here := dict "in_cluster" true -}}
{{- if .labels }}{{ $_ := set $here "labels" .labels }}{{ end -}}
{{- $_ := set $clusters .name $here -}}
{{- end -}}
{{- end -}}
{{- if not $clusters -}}
{{- fail "there is no cluster to watch: add one to config.clusters, or set inCluster.enabled to true" -}}
{{- end -}}
{{- $config := dict "hub" (merge $managed (deepCopy .Values.config.hub)) "clusters" $clusters -}}
{{- $_ := set $config "resources" (.Values.config.resources | default (dict "pods" dict)) -}}
{{- $_ := set $config "sinks" .Values.config.sinks -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* Whether the hub is told of a cluster that it reaches by its service account, or may be. */ -}}
{{- define "informer-hub.usesAccount" -}}
{{- if include "informer-hub.ownConfig" . -}}true
{{- else -}}
{{- range (include "informer-hub.config" . | fromYaml).clusters }}{{ if .in_cluster }}true{{ end }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "informer-hub.toml" -}}
{{- $config := include "informer-hub.config" . | fromYaml -}}
# Written by the chart, from its values.

[hub]
{{ include "informer-hub.toml.table" $config.hub -}}
{{- range $kind := list "clusters" "resources" "sinks" -}}
{{- range $name, $table := get $config $kind }}
[{{ $kind }}.{{ include "informer-hub.toml.key" $name }}]
{{ include "informer-hub.toml.table" $table -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "informer-hub.toml.table" -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) }}{{ include "informer-hub.toml.key" $key }} = {{ include "informer-hub.toml.value" $value }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- define "informer-hub.toml.key" -}}
{{- regexMatch "^[A-Za-z0-9_-]+$" . | ternary . (toRawJson .) -}}
{{- end -}}

{{- /* JSON's texts, numbers and truth values are TOML's as well. */ -}}
{{- define "informer-hub.toml.value" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "informer-hub.toml.key" $key) (include "informer-hub.toml.value" $value)) -}}
{{- end -}}
{{- end -}}
{{- empty $pairs | ternary "{}" (printf "{ %s }" (join ", " $pairs)) -}}
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . }}{{ $items = append $items (include "informer-hub.toml.value" .) }}{{ end -}}
[{{ join ", " $items }}]
{{- else -}}
{{- toRawJson . -}}
{{- end -}}
{{- end -}}

{{- /* What the chart decides, as variables that win over a configuration of one's own. */ -}}
{{- define "informer-hub.environment" -}}
{{- include "informer-hub.variables" (dict "prefix" "INFORMER_HUB_HUB" "table" (include "informer-hub.managed" . | fromYaml)) -}}
{{- end -}}

{{- define "informer-hub.variables" -}}
{{- $prefix := .prefix -}}
{{- range $key, $value := .table -}}
{{- $name := printf "%s__%s" $prefix (upper $key) -}}
{{- if kindIs "map" $value }}
{{- include "informer-hub.variables" (dict "prefix" $name "table" $value) }}
{{- else }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}
{{- end -}}
