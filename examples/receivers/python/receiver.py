"""Receives the webhooks of informer-hub: verifies signatures, drops repeated events, prints the others.

WEBHOOK_SECRET=whsec_... python3 receiver.py 127.0.0.1:9000

It needs Python 3.9 and nothing else.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 300  # maximum difference between a timestamp and the clock, in seconds
LIMIT = 64 << 20  # maximum size of a body in bytes
REMEMBERED = 100_000  # number of event ids that are stored


class Refused(Exception):
    """Error that is answered instead of 204."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def keys_of(secret):
    """Parses secrets in the format of the hub: whsec_ and base64, or plain text; several are separated by white space."""
    prefix = "whsec_"
    keys = [
        base64.b64decode(one[len(prefix):], validate=True) if one.startswith(prefix) else one.encode()
        for one in secret.split()
    ]
    if not keys:
        raise ValueError("the secret is empty")
    return keys


def verify(keys, headers, body, now):
    """Checks that a request was signed recently with one of the keys."""
    signed = [headers.get(name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")]
    if not all(signed):
        raise Refused(401, "not signed")
    name, timestamp, signatures = signed
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(now - int(timestamp)) > TOLERANCE:
        raise Refused(401, "timestamp is too old or in the future")
    content = f"{name}.{timestamp}.".encode() + body
    for key in keys:
        right = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        # Compares bytes: compare_digest does not accept non-ASCII strings.
        if any(hmac.compare_digest(right.encode(), one.encode()) for one in signatures.split()):
            return
    raise Refused(401, "signature does not match")


class Inbox:
    """Handles each event once. To survive a restart, store the ids together with the effects of the events."""

    def __init__(self, handle):
        self.handle = handle
        self.seen = {}
        self.lock = threading.Lock()

    def take(self, body):
        try:
            content = json.loads(body)
            events = content if isinstance(content, list) else [content]
            events = [(event["id"], event) for event in events]
        except (ValueError, TypeError, KeyError):
            raise Refused(400, "body is not events") from None
        with self.lock:
            for id, event in events:
                if id in self.seen:
                    continue
                self.handle(event)
                # Stored after handling: if handling fails, the event is delivered again.
                self.seen[id] = None
                if len(self.seen) > REMEMBERED:
                    del self.seen[next(iter(self.seen))]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds after which an idle connection is closed

    def do_POST(self):
        try:
            body = self.body()
            verify(self.server.keys, self.headers, body, time.time())
            self.server.inbox.take(body)
        except Refused as refused:
            # The unread body would be taken for the next request.
            self.close_connection = self.close_connection or refused.status == 413
            return self.answer(refused.status, str(refused))
        except Exception as error:  # the hub retries
            print(error, file=sys.stderr, flush=True)
            return self.answer(500, "try again")
        self.answer(204, "")

    def body(self):
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > LIMIT:
            raise Refused(413, "content-length is missing or too large")
        return self.rfile.read(int(length))

    def answer(self, status, reason):
        body = reason.encode()
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


def show(event):
    print(event["type"], event["source"], event["subject"], flush=True)


def main():
    host, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9000").rsplit(":", 1)
    secret = os.environ.get("WEBHOOK_SECRET", "")
    if not secret.strip():
        print("set WEBHOOK_SECRET to the sink's signing_secret", file=sys.stderr)
        sys.exit(2)
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.daemon_threads = True
    server.keys = keys_of(secret)
    server.inbox = Inbox(show)
    print(f"listening on http://{host}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
