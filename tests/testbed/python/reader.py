"""Keeps the pods of API roots with Python's Kubernetes client: a list in pages, then watches.

Each argument is a reader: NAME=URL. The command `dump` on stdin prints all readers as one JSON line. The program exits at
the end of stdin.
"""

import collections
import json
import sys
import threading
import time

from kubernetes import client, watch

PAGE = 7


class Reader(threading.Thread):
    """One reader. It lists again when its version has expired."""

    def __init__(self, url):
        super().__init__(daemon=True)
        configuration = client.Configuration(host=url)
        self.pods = client.CoreV1Api(client.ApiClient(configuration))
        self.lock = threading.Lock()
        self.objects = {}
        self.counts = collections.Counter()
        self.errors = []
        self.synced = False

    def run(self):
        version = None
        while True:
            try:
                version = version or self.list()
                version = self.watch(version)
            except client.exceptions.ApiException as error:
                # 410: the version has expired. The client raises it for an event ERROR, too.
                self.failed(error)
                if error.status == 410:
                    version = None
            except Exception as error:  # pylint: disable=broad-except
                self.failed(error)

    def list(self):
        """Lists all pods in pages and returns the version of the list."""
        objects, token = {}, None
        while True:
            page = self.pods.list_pod_for_all_namespaces(limit=PAGE, _continue=token)
            self.counts["pages"] += 1
            objects.update({key(pod): identity(pod) for pod in page.items})
            token = page.metadata._continue
            if not token:
                break
        self.counts["lists"] += 1
        with self.lock:
            self.objects, self.synced = objects, True
        return page.metadata.resource_version

    def watch(self, version):
        """Applies events until the watch ends, and returns the version to go on from."""
        stream = watch.Watch()
        events = stream.stream(
            self.pods.list_pod_for_all_namespaces,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=20,
        )
        for event in events:
            self.counts[event["type"]] += 1
            pod = event["object"]
            with self.lock:
                if event["type"] in ("ADDED", "MODIFIED"):
                    self.objects[key(pod)] = identity(pod)
                elif event["type"] == "DELETED":
                    self.objects.pop(key(pod), None)
        return stream.resource_version or version

    def failed(self, error):
        """Keeps the error's text, and waits before the next attempt."""
        with self.lock:
            self.counts["errors"] += 1
            self.errors = self.errors[-9:] + [str(error)[:200]]
        time.sleep(0.2)

    def dump(self):
        """Returns the state as a value for JSON."""
        with self.lock:
            objects = [{"key": key, **value} for key, value in self.objects.items()]
            return {
                "synced": self.synced,
                "objects": objects,
                "counts": dict(self.counts),
                "errors": self.errors,
                "reverts": [],
            }


def key(pod):
    """Returns the key that client-go's stores use."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def identity(pod):
    """Returns what identifies a state of a pod."""
    return {"uid": pod.metadata.uid, "version": pod.metadata.resource_version, "hash": ""}


def main():
    """Starts the readers and answers commands."""
    readers = {}
    for argument in sys.argv[1:]:
        name, _, url = argument.partition("=")
        readers[name] = Reader(url)
        readers[name].start()
    for line in sys.stdin:
        if line.strip() != "dump":
            sys.exit(f"unknown command {line!r}; known: dump")
        print(json.dumps({name: reader.dump() for name, reader in readers.items()}), flush=True)


if __name__ == "__main__":
    main()
