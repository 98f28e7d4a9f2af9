"""An authority that a site has, as those of cert-manager, step-ca and SPIRE: a root, and one below it that signs. By openssl."""

import pathlib
import secrets
import subprocess

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
RSA = ("-newkey", "rsa:2048")


def openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], text=True, capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f"openssl {words}:\n{done.stderr}")
    return done.stdout


class SitePki:
    def __init__(self, folder, name="Example Root CA"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.root = self.folder / "root.pem"
        openssl("req", "-x509", *CURVE, "-nodes", "-keyout", self.folder / "root.key", "-out", self.root, "-subj", f"/CN={name}", "-days", 2,
                "-addext", "keyUsage=critical,keyCertSign")
        self._sign("signer", "root", "basicConstraints=critical,CA:TRUE,pathlen:0", CURVE, 2)

    def _sign(self, name, by, extensions, key, days):
        file = self.folder / name
        openssl("req", "-new", *key, "-nodes", "-keyout", f"{file}.key", "-out", f"{file}.csr", "-subj", f"/CN={name}")
        pathlib.Path(f"{file}.ext").write_text(extensions + "\n", encoding="utf-8")
        openssl("x509", "-req", "-in", f"{file}.csr", "-CA", self.folder / f"{by}.pem", "-CAkey", self.folder / f"{by}.key", "-set_serial",
                f"0x{secrets.token_hex(15)}", "-days", days, "-extfile", f"{file}.ext", "-out", f"{file}.pem")

    def issue(self, name, names, usage="serverAuth,clientAuth", key=CURVE, days=1):
        """(chain, key): files. `names`: as openssl writes them, "DNS:muster.example.org,URI:spiffe://..."."""
        self._sign(name, "signer", f"subjectAltName={names}\nextendedKeyUsage={usage}", key, days)
        chain = self.folder / f"{name}.pem"
        chain.write_text(chain.read_text(encoding="utf-8") + (self.folder / "signer.pem").read_text(encoding="utf-8"), encoding="utf-8")
        key_file = self.folder / f"{name}.key"
        key_file.chmod(0o600)
        return chain, key_file

    def credentials(self, folder, names, **options):
        """A directory for --tls."""
        folder.mkdir(exist_ok=True, mode=0o700)
        chain, key = self.issue(folder.name, names, **options)
        for name, content in (("ca.pem", self.root), ("cert.pem", chain), ("key.pem", key)):
            (folder / name).write_bytes(content.read_bytes())
        (folder / "key.pem").chmod(0o600)
        return folder
