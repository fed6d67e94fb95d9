"""A proxy that adds TLS and a password to a plain HTTP server.

Arguments: the server's host and port, a file with a key and its certificate, USER:PASSWORD. Prints
its own port, and ends when its standard input does.
"""

import base64
import http.client
import http.server
import ssl
import sys
import threading

SECONDS = 60.0
WRONG = b'{"error_code": 401, "message": "who are you?"}'


class Front(http.server.BaseHTTPRequestHandler):
    """Forwards requests with the password; answers 401 to others."""

    protocol_version = "HTTP/1.1"
    server_address: tuple[str, int]
    authorization: str

    def do_any(self) -> None:
        """Handles a request of any method."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Authorization") != self.authorization:
            self.answer(401, "application/json", WRONG)
            return
        behind = http.client.HTTPConnection(*self.server_address, timeout=SECONDS)
        kept = {k: v for k, v in self.headers.items() if k.title() in ("Accept", "Content-Type")}
        behind.request(self.command, self.path, body, kept)
        answer = behind.getresponse()
        self.answer(answer.status, answer.headers["Content-Type"], answer.read())
        behind.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_any  # noqa: N815

    def answer(self, status: int, kind: str | None, body: bytes) -> None:
        """Sends an answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def main(host: str, port: str, certificate: str, user: str) -> None:
    """Serves until the standard input ends."""
    Front.server_address = (host, int(port))
    Front.authorization = "Basic " + base64.b64encode(user.encode()).decode()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
