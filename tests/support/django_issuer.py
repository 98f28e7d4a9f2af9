"""An issuer of django-oauth-toolkit on loopback, over HTTPS; the Python that deploy/install-deps --issuers installs runs it.

  python django_issuer.py FOLDER CERTIFICATE KEY      # prints its address once it listens

There is one user, whom a middleware signs in, and one public client, `muster`, that is trusted: no page is to be clicked. `GET /rotate` puts
another key in the place of the one that signs, which stays published.
"""

import os
import pathlib
import ssl
import subprocess
import sys
import wsgiref.simple_server

FOLDER, CERTIFICATE, KEY = map(pathlib.Path, sys.argv[1:])


class Server(wsgiref.simple_server.WSGIServer):
    def server_bind(self):
        super().server_bind()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE, KEY)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request, client_address):
        pass  # a client that does not believe the certificate


class Handler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


def new_key():
    return subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True, text=True, timeout=60).stdout


def configure(url):
    from django.conf import settings
    settings.configure(
        DEBUG=True, SECRET_KEY="of a test", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(FOLDER / "issuer.db")}},
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "oauth2_provider"],
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
                    f"{__name__}.signed_in"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        OAUTH2_PROVIDER={"OIDC_ENABLED": True, "OIDC_RSA_PRIVATE_KEY": new_key(), "OIDC_ISS_ENDPOINT": url, "SCOPES": {"openid": "who you are"},
                         "REFRESH_TOKEN_REUSE_PROTECTION": True, "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 0})
    import django
    django.setup()


def signed_in(get_response):
    from django.contrib.auth.models import User

    def middleware(request):
        request.user = User.objects.get(username="ada")
        return get_response(request)
    return middleware


def rotate(_request):
    from django.http import HttpResponse
    from oauth2_provider.settings import oauth2_settings
    oauth2_settings.OIDC_RSA_PRIVATE_KEYS_INACTIVE = [oauth2_settings.OIDC_RSA_PRIVATE_KEY]
    oauth2_settings.OIDC_RSA_PRIVATE_KEY = new_key()
    return HttpResponse("ok")


def main():
    sys.modules["django_issuer"] = sys.modules[__name__]
    server = Server(("127.0.0.1", 0), Handler)
    url = f"https://127.0.0.1:{server.server_address[1]}/o"
    configure(url)
    from django.contrib.auth.models import User
    from django.core.handlers.wsgi import WSGIHandler
    from django.core.management import call_command
    from django.urls import include, path
    global urlpatterns  # what Django looks for in ROOT_URLCONF
    urlpatterns = [path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")), path("rotate", rotate)]
    call_command("migrate", verbosity=0)
    from oauth2_provider.models import Application
    ada = User.objects.create_user("ada", "ada@example.org", "secret", pk=4711)
    Application.objects.create(client_id="muster", user=ada, client_type=Application.CLIENT_PUBLIC, skip_authorization=True,
                               authorization_grant_type=Application.GRANT_AUTHORIZATION_CODE, redirect_uris="http://127.0.0.1/callback",
                               algorithm=Application.RS256_ALGORITHM)
    server.set_app(WSGIHandler())
    print(url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    os.umask(0o077)
    main()
