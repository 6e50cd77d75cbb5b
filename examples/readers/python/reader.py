"""Prints the pods of all clusters of a hub, and their changes, with the official Python client.

    informer-hub kubeconfig > fleet.kubeconfig
    KUBECONFIG=fleet.kubeconfig python3 reader.py
"""

from kubernetes import client, config, watch

CLUSTER = "informer-hub.io/cluster"
PAGE = 500


def show(change, pod):
    cluster = (pod.metadata.annotations or {}).get(CLUSTER, "")
    print(change, cluster, f"{pod.metadata.namespace}/{pod.metadata.name}", flush=True)


def list_all(pods):
    """Prints all pods page by page and returns the version of the list."""
    token = None
    while True:
        page = pods.list_pod_for_all_namespaces(limit=PAGE, _continue=token)
        for pod in page.items:
            show("=", pod)
        token = page.metadata._continue
        if not token:
            return page.metadata.resource_version


def main():
    config.load_kube_config(context="fleet")
    pods = client.CoreV1Api()
    version = list_all(pods)
    while True:
        try:
            stream = watch.Watch()
            for event in stream.stream(pods.list_pod_for_all_namespaces, resource_version=version):
                show("-" if event["type"] == "DELETED" else "~", event["object"])
            version = stream.resource_version or version
        except client.ApiException as error:
            if error.status != 410:
                raise
            # The version has left the hub's window of recent changes.
            version = list_all(pods)


if __name__ == "__main__":
    main()
