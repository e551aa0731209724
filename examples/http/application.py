"""The smallest WSGI application: its only command is `echo`. It runs under gunicorn; see gunicorn.conf.py."""


def app(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    found = environ["PATH_INFO"] == "/echo"
    start_response("200 OK" if found else "404 Not Found", [("content-type", "application/json")])
    return [body if found else b'{"detail": "Not Found"}']
