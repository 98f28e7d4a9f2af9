"""ID tokens by Authlib, well made or forged: a JSON object a line in, a token a line out. Usage: authlib_tokens.py KEY"""

import json
import pathlib
import subprocess
import sys
import time
import warnings

warnings.simplefilter("ignore")

from authlib.jose import JsonWebSignature, OctKey  # noqa: E402

OctKey._check_key = lambda *_: None  # Authlib itself takes no public key for a secret

own = pathlib.Path(sys.argv[1]).read_bytes()
another = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True, timeout=60).stdout
public = subprocess.run(["openssl", "pkey", "-pubout"], input=own, check=True, capture_output=True, timeout=60).stdout

for line in sys.stdin:
    wanted = json.loads(line)
    now = int(time.time())
    claims = {"iss": wanted["iss"], "aud": "muster", "sub": wanted["sub"], "iat": now, "exp": now + 300}
    if wanted["nonce"]:
        claims["nonce"] = wanted["nonce"]
    claims.update(wanted.get("claims", {}))
    algorithm = wanted.get("alg", "RS256")
    key = {"none": None, "HS256": public}.get(algorithm, another if wanted.get("key") == "another" else own)
    jws = JsonWebSignature(algorithms=["none", "HS256", "RS256", "RS512"])
    header = {"alg": algorithm, "typ": "JWT", "kid": wanted["kid"]}
    print(jws.serialize_compact(header, json.dumps(claims).encode(), key).decode(), flush=True)
