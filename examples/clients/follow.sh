#!/bin/sh
# Prints the pods of all clusters of a hub as CSV, then their changes, one CloudEvent per line.
#
#     HUB=https://hub.example.com:7080 TOKEN=… sh follow.sh
set -eu
hub=${HUB:-http://127.0.0.1:7080}

ask() {
    curl --silent --show-error --fail-with-body --no-buffer ${TOKEN:+--header "Authorization: Bearer $TOKEN"} "$@"
}

ask --get "$hub/v1/query" --header 'Accept: text/csv' \
    --data resource=pods --data-urlencode 'q=select cluster, namespace, name'
ask "$hub/v1/events?resource=pods" --header 'Accept: application/x-ndjson'
