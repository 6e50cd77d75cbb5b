{{- define "informer-hub.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "informer-hub.fullname" -}}
{{- $name := include "informer-hub.name" . -}}
{{- $both := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- /* At most 52 characters, since pods have a label with this name and a revision hash. */ -}}
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

{{- /* Name of the secret with tokens; empty without authentication. */ -}}
{{- define "informer-hub.authSecret" -}}
{{- if not .Values.auth.allowUnauthenticated -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "informer-hub.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{- define "informer-hub.scheme" -}}
{{- empty .Values.tls.secretName | ternary "HTTP" "HTTPS" -}}
{{- end -}}

{{- /* Value of hub.memory_limit; empty if unlimited. */ -}}
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
{{- fail (printf "resources.limits.memory: %s has an unknown unit; use Mi or Gi, or set memoryLimit" $quantity) -}}
{{- end -}}
{{- $limit := mulf (float64 $number) (get $kibs $unit) 0.9 | floor | int64 -}}
{{- if lt $limit 65536 -}}
{{- fail (printf "resources.limits.memory: nine tenths of %s are less than the required 64MiB; set at least 128Mi, or set memoryLimit to none" $quantity) -}}
{{- end -}}
{{ $limit }}KiB
{{- end -}}
{{- end -}}

{{- /* Non-empty if the configuration is given as a text or an object, which the chart does not read. */ -}}
{{- define "informer-hub.ownConfig" -}}
{{- if or .Values.configToml .Values.existingConfig.configMap .Values.existingConfig.secret -}}true{{- end -}}
{{- end -}}

{{- define "informer-hub.replicas" -}}
{{- if .Values.ha.enabled }}{{ .Values.ha.replicas }}
{{- else if .Values.fleet.enabled }}{{ .Values.fleet.replicas }}
{{- else }}1
{{- end -}}
{{- end -}}

{{- /* Non-empty if there are several pods. */ -}}
{{- define "informer-hub.several" -}}
{{- if gt (include "informer-hub.replicas" . | int) 1 }}true{{ end -}}
{{- end -}}

{{- /* Non-empty if the pods have a volume for the state directory. */ -}}
{{- define "informer-hub.persistent" -}}
{{- if and .Values.persistence.enabled (not .Values.fleet.enabled) }}true{{ end -}}
{{- end -}}

{{- /* Refuses contradictory values. */ -}}
{{- define "informer-hub.check" -}}
{{- $sources := list -}}
{{- if .Values.configToml }}{{ $sources = append $sources "configToml" }}{{ end -}}
{{- if .Values.existingConfig.configMap }}{{ $sources = append $sources "existingConfig.configMap" }}{{ end -}}
{{- if .Values.existingConfig.secret }}{{ $sources = append $sources "existingConfig.secret" }}{{ end -}}
{{- range $table, $keys := .Values.config -}}
{{- if $keys }}{{ $sources = append $sources (printf "config.%s" $table) }}{{ end -}}
{{- end -}}
{{- if and (include "informer-hub.ownConfig" .) (gt (len $sources) 1) -}}
{{- fail (printf "the configuration must come from one source, not from %s: leave all but one empty" (join " and " $sources)) -}}
{{- end -}}
{{- $own := include "informer-hub.ownConfig" . -}}
{{- if and .Values.fleet.enabled (not $own) (not .Values.config.fleet) -}}
{{- fail "fleet.enabled needs config.fleet with nats, name and roles" -}}
{{- end -}}
{{- if and .Values.config.fleet (not .Values.fleet.enabled) -}}
{{- fail "config.fleet needs fleet.enabled, which leaves out the state directory" -}}
{{- end -}}
{{- if and .Values.fleet.enabled .Values.ha.enabled -}}
{{- fail "ha.enabled has no effect in a fleet: remove ha.enabled or fleet.enabled" -}}
{{- end -}}
{{- if and .Values.fleet.agent (not (and .Values.fleet.enabled .Values.inCluster.enabled)) -}}
{{- fail "fleet.agent needs fleet.enabled and inCluster.enabled: the agent watches the cluster inCluster.name" -}}
{{- end -}}
{{- if and .Values.auth.allowUnauthenticated .Values.auth.existingSecret -}}
{{- fail "auth.existingSecret has no effect with auth.allowUnauthenticated: remove one of them" -}}
{{- end -}}
{{- end -}}
