{{- /* Resources that the hub lists and watches in its own cluster, as YAML: `everywhere`, and by namespace in
`namespaces`, each with plurals by group. Same result as `informer-hub rbac`. */ -}}
{{- define "informer-hub.rights" -}}
{{- $everywhere := dict -}}
{{- $namespaces := dict -}}
{{- if not (include "informer-hub.ownConfig" .) -}}
{{- $config := include "informer-hub.config" . | fromYaml -}}
{{- $known := .Files.Get "files/resources.yaml" | fromYaml -}}
{{- range $key, $entry := $config.resources -}}
{{- $entry = $entry | default dict -}}
{{- $watched := false -}}
{{- range $name, $cluster := $config.clusters -}}
{{- if and $cluster.in_cluster (include "informer-hub.selects" (dict "entry" $entry "name" $name "labels" ($cluster.labels | default dict))) -}}
{{- $watched = true -}}
{{- end -}}
{{- end -}}
{{- if $watched -}}
{{- $resource := include "informer-hub.resource" (dict "key" $key "entry" $entry "known" $known.resources) | fromYaml -}}
{{- /* To detect when custom resources are added or removed. */ -}}
{{- if $resource.custom -}}
{{- $_ := set $everywhere "apiextensions.k8s.io" (append (get $everywhere "apiextensions.k8s.io" | default list) "customresourcedefinitions" | uniq) -}}
{{- $_ := set $everywhere "apiregistration.k8s.io" (append (get $everywhere "apiregistration.k8s.io" | default list) "apiservices" | uniq) -}}
{{- end -}}
{{- $places := list -}}
{{- if $resource.namespaced }}{{ $places = $entry.namespaces | default list }}{{ end -}}
{{- if not $places -}}
{{- $_ := set $everywhere $resource.group (append (get $everywhere $resource.group | default list) $resource.plural | uniq) -}}
{{- end -}}
{{- range $place := $places -}}
{{- $there := get $namespaces $place | default dict -}}
{{- $_ := set $there $resource.group (append (get $there $resource.group | default list) $resource.plural | uniq) -}}
{{- $_ := set $namespaces $place $there -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Omits rights in a namespace that are granted everywhere. */ -}}
{{- $left := dict -}}
{{- range $place, $groups := $namespaces -}}
{{- $there := dict -}}
{{- range $group, $plurals := $groups -}}
{{- range $plural := $plurals -}}
{{- if not (has $plural (get $everywhere $group | default list)) -}}
{{- $_ := set $there $group (append (get $there $group | default list) $plural) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $there }}{{ $_ := set $left $place $there }}{{ end -}}
{{- end -}}
{{- dict "everywhere" $everywhere "namespaces" $left | toYaml -}}
{{- end -}}

{{- /* Non-empty if a resource entry selects a cluster. */ -}}
{{- define "informer-hub.selects" -}}
{{- $clusters := .entry.clusters -}}
{{- if not $clusters -}}true
{{- else if kindIs "slice" $clusters -}}
{{- if has .name $clusters -}}true{{- end -}}
{{- else -}}
{{- $labels := .labels -}}
{{- $all := true -}}
{{- range $key, $value := $clusters }}{{ if ne (get $labels $key | toString) ($value | toString) }}{{ $all = false }}{{ end }}{{ end -}}
{{- if $all -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Group, plural and scope of a resource written as plural[.version].group. */ -}}
{{- define "informer-hub.resource" -}}
{{- $written := .entry.resource | default .key -}}
{{- $parts := splitList "." $written -}}
{{- $word := first $parts -}}
{{- $rest := rest $parts -}}
{{- $hasGroup := not (empty $rest) -}}
{{- if and $rest (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" (first $rest)) }}{{ $rest = rest $rest }}{{ end -}}
{{- $group := join "." $rest -}}
{{- $plural := dict -}}
{{- $short := dict -}}
{{- range $one := .known -}}
{{- if or (not $hasGroup) (eq $one.group $group) -}}
{{- range $name, $others := $one.names -}}
{{- $found := dict "group" $one.group "plural" $name "namespaced" $one.namespaced -}}
{{- if and (eq $name $word) (not $plural) }}{{ $plural = $found }}{{ end -}}
{{- if and (has $word ($others | default list)) (not $short) }}{{ $short = $found }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found := $plural | default $short -}}
{{- if and (not $found) $hasGroup -}}
{{- if contains "*" $group -}}
{{- fail (printf "config.resources.%s: the pattern %s needs discovery; apply the output of informer-hub rbac --discover and give the configuration as a text" .key $written) -}}
{{- end -}}
{{- $found = dict "group" $group "plural" $word "namespaced" (not (empty .entry.namespaces)) "custom" true -}}
{{- end -}}
{{- if not $found -}}
{{- fail (printf "config.resources.%s: %s is not a built-in resource; write it with its group, as plural.group" .key $written) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{- define "informer-hub.rules" -}}
{{- range $group, $plurals := . }}
- apiGroups: [{{ quote $group }}]
  resources: {{ sortAlpha $plurals | toRawJson }}
  verbs: [list, watch]
{{- end -}}
{{- end -}}
