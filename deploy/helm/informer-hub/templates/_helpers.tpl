{{- define "informer-hub.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "informer-hub.fullname" -}}
{{- $name := include "informer-hub.name" . -}}
{{- $both := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- /* A StatefulSet's pods carry their controller's revision, its name and a hash, in a label. */ -}}
{{- .Values.fullnameOverride | default $both | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "informer-hub.selector" -}}
app.kubernetes.io/name: {{ include "informer-hub.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "informer-hub.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "informer-hub.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "informer-hub.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "informer-hub.fullname" .) "default") -}}
{{- end -}}

{{- define "informer-hub.image" -}}
{{- $name := empty .Values.image.registry | ternary .Values.image.repository (printf "%s/%s" .Values.image.registry .Values.image.repository) -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The secret with tokens; empty where there are none. */ -}}
{{- define "informer-hub.authSecret" -}}
{{- if not .Values.auth.allowUnauthenticated -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "informer-hub.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{- define "informer-hub.scheme" -}}
{{- empty .Values.tls.secretName | ternary "HTTP" "HTTPS" -}}
{{- end -}}

{{- /* hub.memory_limit; empty: none. */ -}}
{{- define "informer-hub.memoryLimit" -}}
{{- if eq .Values.memoryLimit "none" -}}
{{- else if ne .Values.memoryLimit "auto" -}}
{{- .Values.memoryLimit -}}
{{- else if dig "limits" "memory" "" .Values.resources -}}
{{- $quantity := toString .Values.resources.limits.memory -}}
{{- $unit := regexFind "[A-Za-z]*$" $quantity -}}
{{- $number := trimSuffix $unit $quantity -}}
{{- $kibs := dict "" 0.0009765625 "k" 0.9765625 "M" 976.5625 "G" 976562.5 "Ki" 1.0 "Mi" 1024.0 "Gi" 1048576.0 "Ti" 1073741824.0 -}}
{{- if not (hasKey $kibs $unit) -}}
{{- fail (printf "resources.limits.memory: %s has a unit that the chart does not know; write it with Mi or Gi, or set memoryLimit" $quantity) -}}
{{- end -}}
{{- $limit := mulf (float64 $number) (get $kibs $unit) 0.9 | floor | int64 -}}
{{- if lt $limit 65536 -}}
{{- fail (printf "resources.limits.memory: nine tenths of %s are less than the 64MiB that the hub needs; give it 128Mi, or set memoryLimit to none" $quantity) -}}
{{- end -}}
{{ $limit }}KiB
{{- end -}}
{{- end -}}

{{- /* Whether the configuration is a text of its own, which the chart does not look into. */ -}}
{{- define "informer-hub.ownConfig" -}}
{{- if or .Values.configToml .Values.existingConfig.configMap .Values.existingConfig.secret -}}true{{- end -}}
{{- end -}}

{{- /* The objects that the configuration comes from, one at most. */ -}}
{{- define "informer-hub.check" -}}
{{- $sources := list -}}
{{- if .Values.configToml }}{{ $sources = append $sources "configToml" }}{{ end -}}
{{- if .Values.existingConfig.configMap }}{{ $sources = append $sources "existingConfig.configMap" }}{{ end -}}
{{- if .Values.existingConfig.secret }}{{ $sources = append $sources "existingConfig.secret" }}{{ end -}}
{{- range $table, $keys := .Values.config -}}
{{- if $keys }}{{ $sources = append $sources (printf "config.%s" $table) }}{{ end -}}
{{- end -}}
{{- if and (include "informer-hub.ownConfig" .) (gt (len $sources) 1) -}}
{{- fail (printf "the configuration comes from one place, not from %s: leave all but one empty" (join " and " $sources)) -}}
{{- end -}}
{{- if and .Values.auth.allowUnauthenticated .Values.auth.existingSecret -}}
{{- fail "auth.existingSecret is of no use with auth.allowUnauthenticated: leave one of them out" -}}
{{- end -}}
{{- end -}}
