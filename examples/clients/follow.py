"""Prints the pods of all clusters of a hub, and their changes. Needs only Python's standard library.

    HUB=https://hub.example.com:7080 TOKEN=… python3 follow.py
"""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request

HUB = os.environ.get("HUB", "http://127.0.0.1:7080")
STREAM = "io.informer-hub.stream."
MARKS = {"added": "+", "updated": "~", "deleted": "-"}


def ask(path, headers=None, **parameters):
    headers = {"Accept": "application/x-ndjson", **(headers or {})}
    if token := os.environ.get("TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    url = f"{HUB}{path}?{urllib.parse.urlencode(parameters)}"
    # The hub sends a heartbeat every 15 s, so a longer silence is a broken connection.
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60)


def query(resource, text):
    """Yields the rows of a query as dictionaries."""
    with ask("/v1/query", resource=resource, q=text) as answer:
        yield from map(json.loads, answer)


def follow(resource, **parameters):
    """Yields CloudEvents: the present objects, then changes without a gap, also over broken connections."""
    position = None
    while True:
        headers = {"Last-Event-ID": position} if position else {}
        try:
            with ask("/v1/events", headers, resource=resource, initial="replay", **parameters) as stream:
                for line in stream:
                    event = json.loads(line)
                    position = event.get("position", position)
                    yield event
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise SystemExit(json.load(error)["error"])
        except OSError:
            pass
        time.sleep(1)


def main():
    for row in query("pods", "count by cluster"):
        print("#", row["value"], row["count"], flush=True)
    for event in follow("pods"):
        kind, data = event["type"], event["data"]
        if kind == STREAM + "expired":
            # Changes are missing: the present objects follow.
            print("# starting anew:", data["message"], flush=True)
        elif not kind.startswith(STREAM):
            mark = "=" if data["initial"] else MARKS[kind.split(".")[-2]]
            print(mark, data["cluster"], f"{data['namespace']}/{data['name']}", flush=True)


if __name__ == "__main__":
    main()
