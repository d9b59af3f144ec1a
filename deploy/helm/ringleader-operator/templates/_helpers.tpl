{{- define "ringleader-operator.name" -}}
ringleader-operator
{{- if and .Values.scope (ne .Values.scope .Release.Namespace) }}-{{ .Values.scope }}{{ end }}
{{- end -}}
